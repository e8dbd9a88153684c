"""Compares variants of a scenario on the same traffic: repetitions, paired by their seeds.

Every variant is simulated under the same seeds, so it meets the same traffic as the others unless
the workload itself is varied. The first variant is the base to which the others are compared. The
first run of each is repeated at both ends of the error band of its times where they matter.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sim.errors import InfersimError, UsageError
from sim.metrics.own import failures
from sim.metrics.question.question_text import asked, changed, hardware
from sim.metrics.repetitions import CONFIDENCE, headlines
from sim.metrics.words.format_words import formats
from sim.planning.contrast.contrast import ContrastColumn, contrasts
from sim.planning.contrast.facts import facts_of
from sim.planning.contrast.pace_words import PacedRun, longer_tpot
from sim.planning.contrast.variant_words import short_values
from sim.planning.points.executors import Executor
from sim.planning.points.figures import held, while_coming
from sim.planning.points.grid import Axis, check_values, points
from sim.planning.points.padding_words import paddings
from sim.planning.points.points import Keeper, Outcome, Point, show
from sim.planning.points.study import Study, Tell, notes_on, told_of
from sim.planning.points.wording import at_slo, short_keys, slo_keys
from sim.rng import repetition_seed
from sim.scenario import Scenario
from sim.setup import is_random
from sim.version import version
from sim.workload import ClosedTraffic, SessionTraffic, build

REPETITIONS = 5
"""Runs of each variant by default: the t of four degrees of freedom is 2.8."""

OURS = ("seed", "run.repetitions")
"""Keys that a comparison sets itself."""


@dataclass(frozen=True)
class Comparison:
    """A scenario, the values to compare, and how often each variant is simulated."""

    scenario: Scenario
    axes: tuple[Axis, ...]
    wanted: int = REPETITIONS

    def __post_init__(self) -> None:
        if not self.axes:
            raise UsageError("nothing is varied: give --vary KEY=a,b")
        for axis in self.axes:
            if axis.key in OURS:
                raise UsageError(
                    f"--vary {axis.key}: a comparison sets it itself, the same for all variants; "
                    "see --repetitions"
                )
        if self.wanted < 1:
            raise UsageError(f"--repetitions {self.wanted}: at least 1")
        if len(self.variants) < 2:
            raise UsageError("there is one variant only; give a key at least two values")
        check_values(self.scenario.override({"run.repetitions": 1}), self.axes)

    @property
    def variants(self) -> list[Point]:
        """Every combination of the values."""
        return points(self.axes)

    def repetitions(self) -> int:
        """How often each variant is simulated: once if nothing in any of them is random."""
        return self.wanted if any(map(is_random, self._possible().values())) else 1

    def run(
        self,
        executor: Executor,
        progress: Tell | None = None,
        keep: Callable[[int], Keeper] | None = None,
    ) -> dict[str, Any]:
        """Simulate every variant under every seed; the comparison as plain data. The first run of
        each is handed to what ``keep`` has for its number, from 1 on."""
        count = self.repetitions()
        seeds = [repetition_seed(self.scenario.seed, number) for number in range(count)]
        runs = [
            Point(
                variant.index * count + number,
                {**variant.settings, "seed": seed, "run.repetitions": 1},
                variant.label,
                at_ends=number == 0,
                banded=number == 0,
                keep=keep(variant.index + 1) if keep and number == 0 else None,
            )
            for variant in self.variants
            for number, seed in enumerate(seeds)
        ]
        found = Study(self.scenario, executor, progress).run(runs)
        labels = self._labels()
        slo = slo_keys([each.summary for each in found if each.summary is not None])
        columns = [
            _column(label, variant.settings, found[at * count : (at + 1) * count], slo)
            for at, (label, variant) in enumerate(zip(labels, self.variants, strict=True))
        ]
        document = self._document(columns, seeds, slo)
        if self.wanted != count:
            document["notes"].insert(0, self._fixed(found))
        told = told_of((labels[each.point.index // count], each) for each in found)
        document["padding"] = paddings(told)
        document["tpot"] = [
            reason._asdict() for reason in longer_tpot(_paced(labels, found[::count]))
        ]
        document["notes"] += [*failures([summary for _, summary in told]), *notes_on(told)]
        return document

    def _labels(self) -> list[str]:
        """The values of each variant, with their keys if several are varied."""
        several = [axis for axis in self.axes if len(axis.values) > 1]
        keys = short_keys([axis.key for axis in several])
        columns = [
            {show(value): text for value, text in zip(axis.values, short, strict=True)}
            for axis in several
            for short in [short_values(axis.values)]
        ]
        found = []
        for variant in self.variants:
            values = [
                texts[show(variant.settings[axis.key])]
                for axis, texts in zip(several, columns, strict=True)
            ]
            named = zip(several, values, strict=True)
            found.append(
                values[0]
                if len(several) == 1
                else ", ".join(f"{keys[axis.key]}={value}" for axis, value in named)
            )
        return found

    def _possible(self) -> dict[int, Scenario]:
        """The variants that are valid scenarios."""
        found = {}
        for variant in self.variants:
            try:
                found[variant.index] = self.scenario.override(variant.settings)
            except InfersimError:
                continue
        return found

    def _document(
        self, columns: Sequence[ContrastColumn], seeds: Sequence[int], slo: Mapping[str, str]
    ) -> dict[str, Any]:
        keys = [axis.key for axis in self.axes]
        same, every = self._same_traffic(), short_keys(keys)
        repeated = (
            f"{len(seeds)} runs of each variant under the same seeds; ± is the "
            f"{CONFIDENCE:.0%} interval of the paired differences by Student's t"
            if len(seeds) > 1
            else "1 run of each variant: without repetitions there are no intervals"
        )
        notes = (
            []
            if same
            else ["The traffic differs: what is varied changes it. Only the seeds are equal."]
        )
        notes += self._aims(keys)
        return {
            "command": "compare",
            "infersim": version(),
            "name": self.scenario.name,
            "model": str(self.scenario.model),
            "formats": formats(self.scenario, keys),
            "hardware": hardware(self.scenario, keys),
            "asked": asked(self.scenario, keys) | changed(self.scenario, keys),
            "axes": [
                {"key": axis.key, "name": every[axis.key], "values": list(axis.values)}
                for axis in self.axes
            ],
            "paired_by": "repetition" if len(seeds) > 1 else None,
            "pairing": repeated,
            "same_traffic": same,
            "seeds": list(seeds),
            **contrasts(columns, slo=slo),
            "notes": notes,
        }

    def _aims(self, keys: Sequence[str]) -> list[str]:
        """The meaning of one target under each policy, where several are compared with it, and the
        keys that a policy ignores."""
        if "autoscaling.policy" not in keys:
            return []
        asked = [each.autoscaling for each in self._possible().values() if each.autoscaling]
        found = {each.policy: each.aim for each in asked if each.aim}
        told = "; ".join(f"{policy}: {aim}" for policy, aim in found.items())
        several = len(set(found.values())) > 1 and "autoscaling.target" not in keys
        notes = [f"The same autoscaling.target means different things ({told})."] if several else []
        unheeded = {each.policy: " and ".join(each.unheeded) for each in asked if each.unheeded}
        return notes + [
            f"autoscaling.policy {policy} does not heed {keys}."
            for policy, keys in unheeded.items()
        ]

    def _fixed(self, outcomes: Iterable[Outcome]) -> str:
        """The meaning of the differences where nothing is drawn at random."""
        bands = [
            outcome.summary["infersim"]["error_band"]["throughput"]
            for outcome in outcomes
            if outcome.summary is not None
        ]
        error = max((float(band) for band in bands if band), default=None)
        text = "Nothing is drawn at random, so each variant ran once and there are no intervals."
        if self.scenario.workload.trace is not None:
            text += (
                " The differences are those on these requests: a trace is itself one sample of the "
                "traffic, and at another hour they would differ."
            )
        if error is None:
            return text
        return f"{text} Predicted iteration times are good to about {error:.0%}."

    def _same_traffic(self) -> bool:
        """Whether all variants that can be read meet the same requests."""
        found = set()
        for scenario in self._possible().values():
            try:
                found.add(traffic_digest(scenario))
            except InfersimError:
                continue
        return len(found) <= 1


def traffic_digest(scenario: Scenario) -> str:
    """A hash of the requests that ``scenario`` meets: when they come, and how long they are."""
    traffic, digest = build(scenario, scenario.seed), sha256()
    if isinstance(traffic, SessionTraffic):
        digest.update(f"{traffic.clients} clients, {traffic.pause} s".encode())
        digest.update(f"answers kept: {traffic.law.keep_answer}".encode())
        for session in traffic.first():
            times = [session.start, *(turn.delay for turn in session.turns)]
            digest.update(_packed("d", times))
            digest.update(_packed("q", *(pair for turn in session.turns for pair in turn.requests)))
    elif isinstance(traffic, ClosedTraffic):
        digest.update(f"{traffic.concurrency} users, {traffic.think_time} s".encode())
        for lengths in traffic.lengths():
            digest.update(_packed("q", lengths.prompt_tokens, lengths.output_tokens))
    else:
        for chunk in traffic.chunks():
            digest.update(_packed("d", chunk.arrivals))
            digest.update(_packed("q", chunk.prompt_tokens, chunk.output_tokens))
    return digest.hexdigest()


def _packed(code: str, *columns: Sequence[float]) -> bytes:
    return b"".join(array.array(code, column).tobytes() for column in columns)


def _paced(labels: Sequence[str], outcomes: Sequence[Outcome]) -> list[PacedRun]:
    """How the first run of each variant decodes, of those that ran."""
    return [
        PacedRun(
            label,
            each.summary["infersim"]["batching"],
            (each.summary["mean_tpot_ms"] or 0.0) / 1e3,
            each.pace,
        )
        for label, each in zip(labels, outcomes, strict=True)
        if each.summary is not None
    ]


def _column(
    label: str,
    settings: Mapping[str, object],
    runs: Sequence[Outcome],
    latencies: Mapping[str, str],
) -> ContrastColumn:
    """A variant's figures, one for each repetition; those of none if one of them failed."""
    failed = next((run for run in runs if run.error is not None), None)
    if failed is not None:
        return ContrastColumn(label, dict(settings), {}, failed.error, failed.exit_code, ())
    summaries = [run.summary for run in runs if run.summary is not None]
    states = tuple(summary["infersim"]["verdict"]["state"] for summary in summaries)
    rows = [
        headlines(summary) | at_slo(summary, latencies) | held(summary) | while_coming(summary)
        for summary in summaries
    ]
    values = {
        key: [row.get(key) for row in rows] for key in dict.fromkeys(k for r in rows for k in r)
    }
    bands = summaries[0]["infersim"]["bands"]
    slo = tuple(summary["infersim"]["verdict"]["slo_state"] for summary in summaries)
    facts = facts_of(summaries)
    return ContrastColumn(label, dict(settings), values, None, 0, states, bands, slo, facts)
