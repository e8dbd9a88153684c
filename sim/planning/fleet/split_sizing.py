"""Screens and sizes fleets of a pair of layouts: how many replicas prefill and how many decode.

Pairs are screened by what full batches serve. Then each phase is simulated alone, with plenty of
the other: how many replicas it takes whatever else there is; and the numbers of both in the order
of their costs. A fleet that fails rules out all with no more replicas of either phase; one that is
too slow between tokens rules out all with no more that decode. Rates in requests per second, costs
in US dollars per hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.planning.fleet.fleet_ends import SlowerEnd, slower_end
from sim.planning.fleet.layouts import SLACK, Candidate
from sim.planning.fleet.sizing import FleetSearch
from sim.planning.load.loads import Traffic
from sim.planning.load.probe import Probe, missed
from sim.planning.load.saturation import acceptable, rates_by_role
from sim.planning.load.settled import lasting, quick
from sim.planning.points.wording import LoadOutcome, counted, limit_name
from sim.scenario import Scenario
from sim.scenario.pools import BOTH, DECODE, PREFILL
from sim.scenario.prices import price_of
from sim.setup import prepare
from sim.units import show_load

OF_THE_GPU = ("link", "node", "power_limit")
"""Keys of a pool that another GPU may not be able to have."""


@dataclass(frozen=True)
class LayoutPair:
    """The layout that prefills, and the one that decodes."""

    prefill: Candidate
    decode: Candidate

    @property
    def text(self) -> str:
        """The two layouts, as a table has them."""
        return f"{self.prefill.text} | {self.decode.text}"

    def settings(self, scenario: Scenario, prompts: int, answers: int) -> dict[str, object]:
        """Settings that give the fleet of ``scenario`` that many replicas for ``prompts``, and that
        many for ``answers``."""
        first, second = phases(scenario)
        asked = ((first, self.prefill, prompts), (second, self.decode, answers))
        return {"fleet": [_of_layout(*each) for each in asked]}


def phases(scenario: Scenario) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pool that prefills and the one that decodes, as they are written: those of ``scenario``,
    or its only pool twice. UsageError of any other fleet."""
    written = scenario.written()["fleet"]
    fleet = written if isinstance(written, list) else [written]
    if len(fleet) == 1:
        (pool,) = fleet
        return {**pool, "name": PREFILL, "role": PREFILL}, {**pool, "name": DECODE, "role": DECODE}
    roles = {pool.get("role", BOTH): pool for pool in fleet}
    if len(fleet) == len(roles) and set(roles) == {PREFILL, DECODE}:
        return roles[PREFILL], roles[DECODE]
    raise UsageError(
        "--disaggregate: expected a fleet of one pool, or of one that prefills and one that "
        f"decodes, got {len(fleet)} pools"
    )


def together(scenario: Scenario) -> Scenario:
    """``scenario`` on one pool whose replicas prefill and decode."""
    if len(scenario.fleet) == 1:
        return scenario
    pool = {**phases(scenario)[1], "name": "main", "role": BOTH}
    return scenario.override({"fleet": [pool], "transfer": None})


def _of_layout(pool: dict[str, Any], layout: Candidate, replicas: int) -> dict[str, Any]:
    """``pool`` with that many replicas of ``layout``."""
    found = {**pool, "gpu": layout.gpu, "tensor_parallel": layout.tensor_parallel}
    if layout.gpu != pool["gpu"]:  # what is said of another GPU, of its host and price
        found = {key: value for key, value in found.items() if key not in OF_THE_GPU}
        if not isinstance(pool.get("price_per_gpu_hour"), dict):
            found.pop("price_per_gpu_hour", None)
    return {**found, "replicas": replicas}


@dataclass(frozen=True)
class RejectedPair:
    """A pair that is no answer, and why; ``cost`` is what its fleet costs at least."""

    pair: LayoutPair
    reason: str
    text: str
    cost: float | None = None


@dataclass(frozen=True)
class ScreenedPair:
    """A pair that may hold the load, with the prices of its replicas and the fewest of each that
    there are."""

    pair: LayoutPair
    prices: tuple[float, float]
    least: tuple[int, int]

    def cost(self, prompts: int, answers: int) -> float:
        """USD per hour of that many replicas that prefill and that decode."""
        return prompts * self.prices[0] + answers * self.prices[1]

    @property
    def lowest(self) -> float:
        """USD per hour of its fleet, at least."""
        return self.cost(*self.least)


def screen_pair(
    scenario: Scenario, pair: LayoutPair, traffic: Traffic, target: float
) -> ScreenedPair | RejectedPair:
    """How many replicas of each phase ``target`` requests per second take at least."""
    try:
        pools = prepare(scenario.override(pair.settings(scenario, 1, 1))).pools
        for pool in pools:
            traffic = acceptable(pool, traffic)
        rates = rates_by_role(pools, traffic)
    except InfeasibleError as error:
        return RejectedPair(pair, "does not fit", str(error))
    except InfersimError as error:
        return RejectedPair(pair, "layout impossible", str(error))
    prices = []
    for pool in pools:
        price = price_of(pool.settings, pool.deployment.gpu)
        if price is None:
            return RejectedPair(pair, "no price", f"nothing says what {pool.settings.gpu} costs")
        prices.append(price.usd * pool.deployment.layout.gpus)
    least = [math.ceil(target / (SLACK * rates[role])) for role in (PREFILL, DECODE)]
    return ScreenedPair(pair, (prices[0], prices[1]), (least[0], least[1]))


FAR = (4, 16)
"""Times the least numbers of replicas up to which fleets are tried; the larger where the smaller
do not hold, since limits of latency and links may ask for far more than full batches do."""


@dataclass(frozen=True)
class Tried:
    """A fleet that was simulated under the target load."""

    prompts: int
    answers: int
    cost: float
    probe: Probe
    usual: int


@dataclass(frozen=True)
class SizedPair:
    """The cheapest fleet of a pair that holds the target load, and every one that was ``tried`` on
    the way; ``breaks`` is what breaks with one replica less of either phase, None where that was
    not simulated; ``usual`` the number of requests of a run that nothing made longer."""

    screened: ScreenedPair
    prompts: int
    answers: int
    at_target: Probe
    tried: tuple[Tried, ...]
    breaks: tuple[str | None, str | None]
    usual: int = 0

    @property
    def pair(self) -> LayoutPair:
        """The layouts of the fleet."""
        return self.screened.pair

    @property
    def cost(self) -> float:
        """USD per hour."""
        return round(self.screened.cost(self.prompts, self.answers), 6)

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        pair = self.pair
        return self.prompts * pair.prefill.gpus + self.answers * pair.decode.gpus


def size_pair(search: FleetSearch, screened: ScreenedPair) -> SizedPair | RejectedPair:
    """The cheapest numbers of replicas of a pair that hold the target load, or why there are
    none."""
    judge = _judge(search, screened)
    try:
        enough = _enough(screened, judge)
        if isinstance(enough, Tried):
            return _not_even(screened, enough)
        ruled = _bounds(screened, enough, judge)
        tried: list[Tried] = []
        for prompts, answers in _in_order(screened, enough):
            if _ruled_out(prompts, answers, [*ruled, *tried]):
                continue
            tried.append(judge(prompts, answers, False))
            if tried[-1].probe.holds:
                break
    except InfersimError as error:
        return RejectedPair(screened.pair, "cannot be simulated", str(error), screened.lowest)
    last = tried[-1] if tried else ruled[-1]
    if not last.probe.holds:
        return _not_even(screened, last)
    fewer = ((last.prompts - 1, last.answers), (last.prompts, last.answers - 1))
    first, second = (_breaks([*tried, *ruled], *each) for each in fewer)
    numbers = last.prompts, last.answers
    return SizedPair(screened, *numbers, last.probe, tuple(tried), (first, second), last.usual)


Judge = Callable[[int, int, bool], Tried]
"""Simulates that many replicas of each phase: once, or until it is decided what lasts."""


def _enough(screened: ScreenedPair, judge: Judge) -> tuple[int, int] | Tried:
    """Numbers of replicas that hold, far above the least; the largest fleet tried if none does."""
    for times in FAR:
        numbers = times * screened.least[0], times * screened.least[1]
        seen = judge(*numbers, True)
        if seen.probe.holds:
            return numbers
    return seen


def _bounds(screened: ScreenedPair, enough: tuple[int, int], judge: Judge) -> list[Tried]:
    """For each phase the most replicas that fail without doubt however many of the other phase
    there are: nothing with as few holds. By halving, since more replicas never hold less."""
    found = []
    for phase in (0, 1):
        low, high = screened.least[phase] - 1, enough[phase]
        worst = None
        while high - low > 1:
            middle = (low + high) // 2
            seen = judge(*((middle, enough[1]) if phase == 0 else (enough[0], middle)), True)
            if seen.probe.outcome == LoadOutcome.FAILS:
                low, worst = middle, seen
            else:
                high = middle
        found += [] if worst is None else [worst]
    return found


def _judge(search: FleetSearch, screened: ScreenedPair) -> Judge:
    """The judge of a pair under the target load."""

    def judge(prompts: int, answers: int, once: bool) -> Tried:
        finder = search.finder(screened.pair.settings(search.scenario, prompts, answers))
        asked = search.question.target, finder.axis.scenario.replicas
        probe, usual = (quick if once else lasting)(finder, *asked), quick(finder, *asked)
        cost = screened.cost(prompts, answers)
        return Tried(prompts, answers, cost, probe, usual.per_run)

    return judge


def _in_order(screened: ScreenedPair, enough: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Numbers of replicas, the cheapest first; of fleets as cheap those with fewer that prefill."""
    every = [
        (prompts, answers)
        for prompts in range(screened.least[0], enough[0] + 1)
        for answers in range(screened.least[1], enough[1] + 1)
    ]
    yield from sorted(every, key=lambda each: (round(screened.cost(*each), 6), each[0]))


def _ruled_out(prompts: int, answers: int, tried: Sequence[Tried]) -> bool:
    """Whether a fleet fails because another one did: one with as many of both phases or more, or
    one with as many that decode whose tokens came too slowly, which no prefill replica changes."""
    for other in tried:
        if answers <= other.answers and (prompts <= other.prompts or slow_tokens(other.probe)):
            return True
    return False


def slow_tokens(probe: Probe) -> bool:
    """Whether requests miss the limit of TPOT in too large a share, whatever their TTFT."""
    return any(
        limit.name.startswith("tpot") and limit.share < each.objective.share
        for each in probe.attained
        for limit in each.limits
    )


def _breaks(tried: Sequence[Tried], prompts: int, answers: int) -> str | None:
    """The limit that breaks with these numbers, where they were simulated; else the reason that
    ruled them out, None if there is none."""
    for each in tried:
        if (each.prompts, each.answers) == (prompts, answers):
            return each.probe.breaks
    for each in tried:
        if not each.probe.holds and _ruled_out(prompts, answers, [each]):
            return "tpot" if slow_tokens(each.probe) else each.probe.breaks
    return None


def split_end(search: FleetSearch, found: SizedPair) -> SlowerEnd:
    """Whether the fleet holds the rate, without headroom, with slower iterations."""
    settings = found.pair.settings(search.scenario, found.prompts, found.answers)
    replicas, band = found.prompts + found.answers, found.at_target.band
    return slower_end(partial(search.finder, settings), search.question.rate, replicas, band)


def _not_even(screened: ScreenedPair, last: Tried) -> RejectedPair:
    probe = last.probe
    text = (
        f"even {counted(last.prompts, 'replica')} that prefill and {last.answers} that decode do "
        f"not hold {show_load(probe.load, 3)} requests/s: {missed(probe)}"
    )
    return RejectedPair(screened.pair, f"{limit_name(probe.breaks)} missed", text, screened.lowest)
