"""Simulates a scenario at one load until it is decided whether the load holds.

A load holds if every limit of the SLO is met and no more arrives than full batches serve. A run of
the scenario's own length is repeated under other seeds, and the requests of all are judged
together, until the 95 % interval of each share leaves no doubt, or ``MOST`` runs were made; then
the share itself decides. Where nothing is random, as with a trace, one run is all there is.

The cost model and the catalogue are read once for all loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sim.copies import Workers, can_copy
from sim.metrics.bands.end_times import PREDICTED, EndTimes, TimeBand
from sim.metrics.fleet.rejection import Rejection, over_runs
from sim.metrics.load.busiest import busiest_of
from sim.metrics.load.long_enough import DOUBT, FULL, SURE
from sim.metrics.record.cut_short import requests_of_curve
from sim.metrics.slo.objectives import Attained, Objective, breaks_first, pooled, slo_objectives
from sim.metrics.states import State
from sim.metrics.words.verdict_words import OPENING
from sim.planning.load.advance import Simulated
from sim.planning.load.loads import LoadAxis, Traffic
from sim.planning.load.played import Player, ProbeRun
from sim.planning.points.wording import LoadOutcome, share
from sim.scenario import Scenario
from sim.scenario.sections.arrivals import DiurnalArrivals, RampArrivals
from sim.scenario.sections.run import Warmup
from sim.setup import Setup, is_random
from sim.units import show_time

MOST = 8
"""Runs after which a load is decided by the share alone: eight times 5,000 requests distinguish
0.99 from 0.988. Closer than that hardly moves the load that is found."""

SEVERAL = 3
"""Runs that a load close to saturation gets at least."""

LONG_ENOUGH = 50_000
"""Requests that all runs at one load have together, at most, if they are stretched: as many as
``MOST`` runs of some thousand."""

FEWEST = 2
"""Stretched runs that a load gets if the first leaves doubt."""

BEYOND = 1.2
"""The utilisation from which on one run is enough again: it is too much beyond doubt."""

STABILITY = "capacity"
"""The limit that breaks when more arrives than can be served, whatever the SLO."""

FAR_BEYOND = 3.0
"""Times a limit from which on a latency says only that the load is too high: beyond the capacity it
grows with the length of the run."""

BARELY = 1e-3
"""The strain of a load that fails by the share of all runs, although not by the mean of each."""

TURNOVERS = 8
"""How often the batches of a fleet are exchanged in a run, at least; less says little of them."""

CROWDED = 3.0
"""How much longer a request stays in a busy replica than alone, to count those that are there."""

SESSIONS = 5
"""Mean durations of a session that a run lasts at least: its start lacks later turns for as long as
one of them."""


@dataclass(frozen=True)
class Probe:
    """The outcome of one load: whether it ``holds``, ``sure`` if the intervals leave no doubt.

    ``breaks`` is what breaks first, or comes closest to breaking: a limit, ``STABILITY``, or
    ``objectives.REJECTED``. ``figures`` are means over the runs, keys as in ``summary.json``, and
    ``SHOWN``. ``rejection`` has the requests that no replica accepts, None without any. ``cut``:
    the SLO is missed, and by requests alone that ``run.horizon`` cut off, or kept from coming.
    ``band`` is that of predicted times, ``basis`` says which runs it rests on. ``headroom`` is the
    growth in load up to the capacity as the runs have it, ``busiest`` the replica that reaches it
    first where the router deals unevenly.
    """

    load: float
    holds: bool
    sure: bool
    breaks: str
    runs: int
    requests: int
    attained: tuple[Attained, ...]
    state: State
    utilisation: float | None
    figures: dict[str, float | None]
    band: TimeBand | None
    parts: Mapping[str, float] = field(default_factory=dict)
    basis: str = ""
    rejection: Rejection | None = None
    cut: bool = False
    headroom: float | None = None
    busiest: Mapping[str, Any] | None = None

    @property
    def error(self) -> float | None:
        """How far iterations may be off."""
        return None if self.band is None else self.band.error

    @property
    def outcome(self) -> LoadOutcome:
        """Whether the load holds."""
        if not self.sure:
            return LoadOutcome.OPEN
        return LoadOutcome.HOLDS if self.holds else LoadOutcome.FAILS

    @property
    def per_run(self) -> int:
        """Requests of each run."""
        return self.requests // self.runs

    @property
    def to_decide(self) -> int | None:
        """Requests with which an open load would be decided; None where that is no number."""
        found = [each.to_decide for each in self.attained if not each.sure]
        if self.sure or None in found:
            return None
        return max((count for count in found if count is not None), default=None)

    @property
    def strain(self) -> float:
        """How far the load is from the limits of the SLO: the logarithm of what they had to be
        multiplied by for it to be just met; at most 0 where the load holds, above where it does
        not, infinite where it says nothing of how far."""
        pressure = max((each.strain for each in self.attained), default=0.0)
        far = not 0 < pressure < FAR_BEYOND
        if self.holds:
            return -math.inf if far else min(0.0, math.log(pressure))
        return math.inf if far else max(BARELY, math.log(pressure))

    def document(self) -> dict[str, Any]:
        """The probe as plain data; infinite pressures are None."""
        return {
            "load": self.load,
            "holds": self.holds,
            "sure": self.sure,
            "outcome": self.outcome,
            "requests_to_decide": self.to_decide,
            "breaks": self.breaks,
            "runs": self.runs,
            "requests": self.requests,
            "requests_per_run": self.per_run,
            "state": self.state,
            "utilisation": self.utilisation,
            "rejected": 0.0 if self.rejection is None else self.rejection.share,
            "promises": [
                {
                    "text": each.objective.text,
                    "target": each.objective.share,
                    "attainment": each.share,
                    "low": each.low,
                    "high": each.high,
                    "within": {limit.name: limit.share for limit in each.limits},
                    "pressure": {
                        name: value if value < float("inf") else None
                        for name, value in each.pressure.items()
                    },
                }
                for each in self.attained
            ],
            **self.figures,
        }


class Prober:
    """Simulates one scenario at any load, with any changes that leave a replica unchanged."""

    def __init__(
        self,
        setup: Setup,
        objectives: Sequence[Objective],
        residence: float,
        traffic: Traffic,
        simulated: Simulated | None = None,
    ) -> None:
        """``setup`` is that of the scenario, ``residence`` the seconds that a request of its
        ``traffic`` stays if it is alone, ``simulated`` counts the requests of its runs."""
        self.scenario = setup.scenario.override({"run.repetitions": 1})
        self.setup = setup
        self.objectives = tuple(objectives)
        self._player = Player(setup, objectives, simulated)
        self._residence = residence
        self._traffic = traffic
        self._least = setup.scenario.run.repetitions

    def probe(
        self,
        axis: LoadAxis,
        load: float,
        *,
        replicas: int = 1,
        most: int = MOST,
        stretch: int = 1,
        length: int | None = None,
        whole: bool = False,
        end: EndTimes = PREDICTED,
    ) -> Probe:
        """Whether ``load`` holds, decided by at most ``most`` runs, each ``stretch`` times as long
        as it has to be, or of ``length`` requests. Of a ``whole`` probe all of them are made: to
        stop at the first interval without doubt is to be wrong more often than it says. Latencies
        count as they would be at an ``end`` of the band.

        Without an SLO, whether the verdict calls it stable.
        """
        scenario, most = self._asked(axis, load, replicas, most, stretch, length)
        key = (load, replicas, scenario.run.requests)
        of_the_slo = bool(self.objectives) and self.objectives == tuple(slo_objectives(scenario))
        cut = scenario.run.horizon is not None and of_the_slo
        objectives = [end.known(objective) for objective in self.objectives]
        played: list[ProbeRun] = []
        decided = False
        while True:
            done = len(played)
            enough = most if whole else self._enough(played[0]) if played else self._least
            likely = enough if decided else max(enough, done + self._player.side_by_side)
            for number in range(done, min(most, likely)):
                self._player.ahead((*key, number), scenario, number)
            played.append(self._player.take((*key, done), scenario, done))
            cut = cut and played[-1].only_cut
            attained = tuple(
                pooled(objective, [one.judged[index].seen(objective) for one in played])
                for index, objective in enumerate(objectives)
            )
            decided = not whole and all(each.sure for each in attained)
            if len(played) >= most or (decided and len(played) >= self._enough(played[0])):
                found = _concluded(load, attained, played)
                return replace(found, cut=cut and not all(each.kept for each in attained))

    def ahead(
        self,
        axis: LoadAxis,
        load: float,
        *,
        replicas: int,
        most: int = MOST,
        stretch: int = 1,
        length: int | None = None,
        whole: bool = False,
    ) -> None:
        """Begin the runs that ``probe`` will take of the same arguments, as far as there are other
        processes: all of a whole one, else as many as it takes at least."""
        scenario, most = self._asked(axis, load, replicas, most, stretch, length)
        for number in range(most if whole else min(most, max(self._least, FEWEST))):
            key = (load, replicas, scenario.run.requests, number)
            self._player.ahead(key, scenario, number)

    @contextmanager
    def side_by_side(self, jobs: int) -> Iterator[Workers | None]:
        """Play up to ``jobs`` runs at a time, in copies of this process; None where it cannot be
        copied, or where one is enough."""
        if jobs < FEWEST or not can_copy():
            yield None
            return
        with Workers(self._player, jobs) as copies:
            self._player.copies = copies
            try:
                yield copies
            finally:
                self._player.copies = None

    def _asked(
        self,
        axis: LoadAxis,
        load: float,
        replicas: int,
        most: int,
        stretch: int,
        length: int | None,
    ) -> tuple[Scenario, int]:
        """The scenario that is played, and how often at most."""
        settings = dict(axis.settings(load))
        if replicas != self.scenario.replicas:
            settings[self.scenario.only_pool.key("replicas")] = replicas
        scenario = self._long_enough(self.scenario.override(settings), axis, load, replicas)
        if stretch > 1:
            requests = stretch * (scenario.run.requests or 0)
            scenario = scenario.override({"run.requests": requests})
            most = min(most, max(FEWEST, LONG_ENOUGH // requests))
        # runs that sample a copy anew share all other copies: they are not independent
        most = most if is_random(self.scenario if axis.overlays else scenario) else 1
        if length is not None:
            scenario = scenario.override({"run.requests": length})
        return scenario, most

    def usual_length(self, axis: LoadAxis, load: float, replicas: int) -> int:
        """Requests of a run of that load that is as long as it has to be; 0 where its traffic has
        an end of its own."""
        scenario, _ = self._asked(axis, load, replicas, MOST, 1, None)
        return scenario.run.requests or 0

    def _enough(self, first: ProbeRun) -> int:
        """Runs that are needed at least. Close to saturation a run is one long busy period, whose
        luck its own requests do not show."""
        share = first.verdict["utilisation"]
        busy = share is None or FULL <= share <= BEYOND
        return max(self._least, SEVERAL if busy else 1)

    def _long_enough(
        self, scenario: Scenario, axis: LoadAxis, load: float, replicas: int
    ) -> Scenario:
        """``scenario`` with as many requests as its batches need to be exchanged several times,
        and as a rate that changes needs to follow its whole curve.

        All users of a closed loop send their first request at one instant, which never comes again:
        those do not count, nor the next ones, some of which wait behind them; unless the scenario
        itself says what does not count.
        """
        own = scenario.run.requests
        if own is None or scenario.workload.trace is not None:
            return scenario
        needed = int(TURNOVERS * self.members(axis, load, replicas))
        needed = max(needed, math.ceil(SESSIONS * self._in_a_session(axis, load)))
        law = scenario.workload.arrivals
        if isinstance(law, DiurnalArrivals | RampArrivals):
            needed = max(needed, requests_of_curve(law))
        changes = {} if needed <= own else {"run.requests": needed}
        if opens_at_once(scenario, axis):
            changes["run.warmup"] = OPENING * round(load)
        return scenario.override(changes) if changes else scenario

    def members(self, axis: LoadAxis, load: float, replicas: int) -> float:
        """Requests that are in that many replicas at a time, as they are if each stays ``CROWDED``
        times as long as it would alone."""
        pools = self.setup.pools
        alone = len(pools) == 1
        full = float(
            sum(p.limits.max_num_seqs * (replicas if alone else p.replicas) for p in pools)
        )
        return load if axis.whole else min(full, CROWDED * self._residence * load)

    def _in_a_session(self, axis: LoadAxis, load: float) -> float:
        """Requests that come while a session lasts; 0 where there are none."""
        requests = self._traffic.per_session
        if requests is None:
            return 0.0
        if axis.whole:
            return load * requests
        return load * (self._traffic.pauses + CROWDED * self._residence * requests)


def opens_at_once(scenario: Scenario, axis: LoadAxis) -> bool:
    """Whether the first requests of each user are left out of what is judged."""
    return axis.whole and scenario.run.warmup == Warmup()


def _concluded(load: float, attained: tuple[Attained, ...], played: Sequence[ProbeRun]) -> Probe:
    verdicts = [each.verdict for each in played]
    loads = [(v["utilisation"], v["utilisation_error"]) for v in verdicts]
    known = [(share, error) for share, error in loads if share is not None]
    state = min((State(v["state"]) for v in verdicts), key=lambda each: each.severity)
    utilisation = sum(share for share, _ in known) / len(known) if known else None
    if attained:
        beyond = all(share - SURE * error > 1 + DOUBT for share, error in known)
        too_much = bool(known) and beyond
        kept = all(each.kept for each in attained)
        missed = any(each.sure and not each.kept for each in attained)  # whatever others do
        sure = missed or all(each.sure for each in attained)
    else:
        too_much, kept, sure = state != State.STABLE, True, True
    requests = sum(each.submitted for each in played)
    return Probe(
        load=load,
        holds=kept and not too_much,
        sure=sure or too_much,
        breaks=STABILITY
        if (too_much and kept) or not attained
        else breaks_first(attained).tightest,
        runs=len(played),
        requests=requests,
        attained=attained,
        state=state,
        utilisation=utilisation,
        figures={key: _mean([each.figures[key] for each in played]) for key in played[0].figures},
        band=TimeBand.of(played[0].band) if played[0].band["throughput"] else None,
        parts=played[0].band["parts"],
        basis=played[0].band["basis"],
        rejection=over_runs([each.refused for each in played], requests),
        headroom=_mean([each["headroom"] for each in verdicts]),
        busiest=busiest_of(verdicts),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def missed(probe: Probe) -> str:
    """The wanted and the reached share, of each part of the SLO that a load misses; and the
    requests that are rejected, if any.
    """
    told = [
        f"{share(each.share)} of requests are within the SLO, and the SLO asks for "
        f"{each.objective.text}"
        for each in probe.attained
        if not each.kept
    ]
    if probe.rejection is not None:
        cure = f" ({probe.rejection.remedy})" if probe.rejection.remedy else ""
        told.append(f"{probe.rejection.text}, and are rejected{cure}")
    return "; ".join(told) or probe.state


def cut_off(scenario: Scenario) -> str:
    """The obstacle to an answer where the probe of a search's lowest load is ``cut``."""
    horizon, requests = scenario.run.horizon, scenario.run.requests
    assert horizon is not None
    further = " and give run.requests" if requests is None else ""
    return (
        f"run.horizon={show_time(horizon)} cuts off too many requests: what is not finished by "
        "then counts as beyond the limits at any load, and without those the SLO may be met; set "
        f"run.horizon=null{further}"
    )


def refused(probe: Probe) -> str:
    """The requests that are rejected whatever the load, the setting that admits them, and how the
    other requests fare.
    """
    found = probe.rejection
    assert found is not None
    worst = min(probe.attained, key=lambda each: each.share - each.objective.share)
    served = worst.share / (1 - worst.rejected) if worst.rejected < 1 else 0.0
    cure = f"; {found.remedy}" if found.remedy else ""
    return (
        f"{found.text}, and are rejected whatever the load{cure}. Of the requests that are "
        f"accepted, {share(served)} are within the SLO ({worst.objective.text} are asked for)"
    )
