"""Plays the runs of which probes are made: in their turn, or ahead of it in copies of this process.

What is played ahead changes no answer: a probe takes its runs in their order, and leaves those that
it does not need.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from sim.copies import Workers, result_of
from sim.loop.clock import Stop
from sim.metrics.bands.bands import LINKS
from sim.metrics.enough.doubts import missed_by_unfinished_alone
from sim.metrics.fleet.rejection import Rejection, rejection
from sim.metrics.record.run_record import RunRecord
from sim.metrics.slo.objectives import Judged, Objective, SeenShare, judged, shown_shares
from sim.metrics.summary import of_a_probe
from sim.planning.load.advance import Simulated
from sim.rng import repetition_seed
from sim.scenario import Scenario
from sim.scenario.sections.slo import METRICS
from sim.setup import Setup
from sim.simulation import play
from sim.workload import build

FIGURES = (
    "request_throughput", "output_throughput", "mean_ttft_ms", "p99_ttft_ms",
    "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms", "p99_e2el_ms",
)  # fmt: skip
COSTS = ("usd_per_million_output_tokens", "usd_per_million_tokens")
DRAWN = ("joules_per_output_token", "mean_watts_per_gpu")

SHOWN = tuple(f"slo_{name}_ms" for name in METRICS)
"""Keys of the latencies at the shares that the SLO asks for."""


class ProbeRun(NamedTuple):
    """One run as a probe sees it: figures by key, what of its summary decides, the requests that it
    rejects, what says how it met each objective, and whether it keeps them all, or misses them only
    since it ended too early."""

    figures: Mapping[str, float | None]
    verdict: Mapping[str, Any]
    submitted: int
    band: Mapping[str, Any]
    refused: Rejection | None
    judged: tuple[Judged, ...]
    only_cut: bool


class Player:
    """Plays runs of the replicas of ``setup``, judged by ``objectives``."""

    def __init__(
        self, setup: Setup, objectives: Sequence[Objective], simulated: Simulated | None = None
    ) -> None:
        """``simulated`` counts the requests of the runs, in copies of the player too."""
        self.setup = setup
        self.simulated = simulated
        self.objectives = tuple(objectives)
        self.copies: Workers | None = None
        self._shares = shown_shares(self.objectives)
        self._begun: dict[Hashable, Future[ProbeRun]] = {}
        self._played: dict[Hashable, ProbeRun] = {}

    @property
    def side_by_side(self) -> int:
        """How many runs are played at a time."""
        return 1 if self.copies is None else self.copies.jobs

    def take(self, key: Hashable, scenario: Scenario, number: int) -> ProbeRun:
        """The run of ``scenario`` under the seed of that ``number``; ``key`` tells it from all
        others. Taken twice, played once."""
        if key not in self._played:
            begun = self._begun.pop(key, None)
            if begun is not None and self.copies is None:
                begun = None  # of copies that have ended
            look = None if self.simulated is None else self.simulated.look
            run = self.run(scenario, number) if begun is None else result_of(begun, look)
            self._played[key] = run
        return self._played[key]

    def ahead(self, key: Hashable, scenario: Scenario, number: int) -> None:
        """Begin a run that will probably be taken, if there are copies for it."""
        if self.copies is not None and key not in self._begun and key not in self._played:
            self._begun[key] = self.copies.submit(run_of, scenario, number)

    def run(self, scenario: Scenario, number: int) -> ProbeRun:
        """Plays the run here and now."""
        seed = repetition_seed(scenario.seed, number)
        scenario = scenario.model_copy(update={"seed": seed})
        setup, traffic = self.setup.under(scenario), build(scenario, seed)
        told = None if self.simulated is None else self.simulated.run()
        record = play(setup, traffic, leap=scenario.run.leap, stop=Stop(), progress=told)
        if told is not None:
            told(len(record.requests), len(record.requests))
        summary = of_a_probe(record)
        own = summary["infersim"]
        paid, drawn = own["cost"] or {}, own["energy"] or {}
        found = tuple(judged(record, objective.limits) for objective in self.objectives)
        seen = [one.seen(part) for one, part in zip(found, self.objectives, strict=True)]
        return ProbeRun(
            figures={
                **{key: summary[key] for key in FIGURES},
                **self._shown(record),
                **{key: paid.get(key) for key in COSTS},
                **{key: drawn.get(key) for key in DRAWN},
            },
            verdict={key: own["verdict"].get(key) for key in VERDICT},
            submitted=len(record.requests),
            band=_band(own["error_band"]),
            refused=rejection(record),
            judged=found,
            only_cut=self._only_cut(record, seen),
        )

    def _only_cut(self, run: RunRecord, seen: Sequence[SeenShare]) -> bool:
        parts = zip(seen, self.objectives, strict=True)
        kept = all(not len(one.kept) or one.kept.mean() >= part.share for one, part in parts)
        return kept or missed_by_unfinished_alone(run)

    def _shown(self, run: RunRecord) -> dict[str, float | None]:
        """The latencies at the shares that the SLO asks for, of the requests that count."""
        counted = run.completed & ~run.warmup
        found: dict[str, float | None] = {}
        for (name, quantile), key in zip(self._shares.items(), SHOWN, strict=True):
            latency = run.latency(name)
            values = latency[counted & ~np.isnan(latency)]
            found[key] = 1e3 * float(np.percentile(values, 100 * quantile)) if len(values) else None
        return found


VERDICT = ("state", "utilisation", "utilisation_error", "headroom", "busiest_replica")
"""Keys of a verdict that a probe reads."""


def run_of(player: Player, scenario: Scenario, number: int) -> ProbeRun:
    """A run of a player that a copy of this process has too."""
    return player.run(scenario, number)


def _band(band: Mapping[str, Any]) -> dict[str, Any]:
    """The error of predicted times and its parts, with links as they are assumed: what the other
    case would do is in the notes of a fleet."""
    parts = {name: each for name, each in band["parts"].items() if name != LINKS}
    return {**{key: band[key] for key in ("throughput", "first_tokens", "basis")}, "parts": parts}
