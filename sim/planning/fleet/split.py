"""Finds how many replicas should prefill and how many decode: ``infersim plan --disaggregate``.

1. Every pair of layouts, one that prefills and one that decodes, is screened by what full batches
   of both serve: how many replicas of each there are at least.
2. Pairs are sized by simulation, those first that could be cheapest. First each phase alone, with
   plenty of the other: how many it takes whatever else there is. Then the numbers of both in the
   order of their costs. A fleet that fails rules out all with no more replicas of either phase;
   one that is too slow between tokens rules out all with no more that decode.
3. The ``top`` cheapest are simulated at the wanted rate with iterations slower by the error band.

For comparison, the cheapest fleet of the same layouts whose replicas prefill and decode. Rates in
requests per second, costs in US dollars per hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sim.ends import at_factor, end_factors
from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.metrics.bands import half_of
from sim.metrics.objectives import Objective, slo_objectives
from sim.planning.fleet.choose import FleetPlan, FleetQuestion, Tell, choose
from sim.planning.fleet.constraints import Constraints
from sim.planning.fleet.layouts import SLACK, Candidate
from sim.planning.load.find import Finder
from sim.planning.load.lasting import lasting, quick
from sim.planning.load.loads import Scale, Traffic, axis_of, check_whole_curve, traffic_of
from sim.planning.load.probe import Probe, missed
from sim.planning.load.saturation import acceptable, rates_by_role
from sim.planning.points.executors import calls
from sim.planning.points.trust import trust
from sim.planning.points.wording import FAILS, counted, limit_name
from sim.scenario import Scenario
from sim.scenario.prices import price_of
from sim.scenario.roles import BOTH, DECODE, PREFILL
from sim.simulation import check_undisturbed, prepare

FAR = (4, 16)
"""Times the least numbers of replicas up to which fleets are tried; the larger where the smaller
do not hold, since limits of latency and links may ask for far more than full batches do."""

WAVE = 4
"""Pairs that are sized together before it is asked again which others could be cheaper; a
constant, so that the answer does not depend on the number of processes."""

OF_THE_GPU = ("link", "node", "power_limit")
"""Keys of a pool that another GPU may not be able to have."""


@dataclass(frozen=True)
class SplitQuestion:
    """Which ``layouts`` may prefill and decode, and the load; ``headroom`` is the share by which
    fleets must hold more than the ``rate``."""

    layouts: tuple[Candidate, ...]
    rate: float
    headroom: float
    top: int
    scale: Scale = "compress"

    @property
    def target(self) -> float:
        """Requests per second that a fleet must hold."""
        return self.rate * (1 + self.headroom)


@dataclass(frozen=True)
class LayoutPair:
    """The layout that prefills, and the one that decodes."""

    prefill: Candidate
    decode: Candidate

    @property
    def text(self) -> str:
        """Both, as a table has them."""
        return f"{self.prefill.text} | {self.decode.text}"

    def settings(self, scenario: Scenario, prompts: int, answers: int) -> dict[str, object]:
        """What makes the fleet of ``scenario`` so many replicas that take ``prompts``, and so many
        that give ``answers``."""
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
    """``pool`` with so many replicas of ``layout``."""
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
        """USD per hour of so many replicas that prefill and that decode."""
        return prompts * self.prices[0] + answers * self.prices[1]

    @property
    def lowest(self) -> float:
        """USD per hour of its fleet, at least."""
        return self.cost(*self.least)


@dataclass(frozen=True)
class Tried:
    """A fleet that was simulated under the target load."""

    prompts: int
    answers: int
    cost: float
    probe: Probe


@dataclass(frozen=True)
class SizedPair:
    """The cheapest fleet of a pair that holds the target load, and every one that was ``tried`` on
    the way; ``breaks`` is what breaks with one replica less of either phase, None where that was
    not simulated."""

    screened: ScreenedPair
    prompts: int
    answers: int
    at_target: Probe
    tried: tuple[Tried, ...]
    breaks: tuple[str | None, str | None]

    @property
    def pair(self) -> LayoutPair:
        """Its layouts."""
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


@dataclass(frozen=True)
class SplitEnds:
    """Whether a fleet holds the wanted rate, without headroom, if iterations are slower by the
    share ``error``, and by that of the 50 % band."""

    error: float
    holds_if_slower: bool
    holds_at_half: bool

    def trust(self, probe: Probe) -> str:
        """How sure it is that the fleet of ``probe`` holds."""
        return trust(decided=probe.sure, at_band=self.holds_if_slower, at_half=self.holds_at_half)


@dataclass(frozen=True)
class SplitPlan:
    """The answer: the ``best`` fleets apart with their ``ends``, every pair that is ``rejected``,
    and the cheapest fleet whose replicas do both (``unified``), or why there is none."""

    scenario: Scenario
    question: SplitQuestion
    objectives: tuple[Objective, ...]
    own_rate: float
    best: tuple[SizedPair, ...]
    ends: tuple[SplitEnds, ...]
    rejected: tuple[RejectedPair, ...]
    unified: FleetPlan | str
    traffic_notes: tuple[str, ...] = ()


Count = Callable[[int, int], None]


def choose_split(
    scenario: Scenario,
    question: SplitQuestion,
    *,
    jobs: int = 1,
    tell: Tell | None = None,
    progress: Count | None = None,
) -> SplitPlan:
    """The cheapest fleets that prefill and decode apart, and the cheapest that does both in one.

    ``tell`` is called with a sentence at each step, ``progress`` with the pairs that are done and
    all there are. Raises InfeasibleError, with the reasons, if no fleet apart holds the load.
    """
    say, count = tell or (lambda _: None), progress or (lambda done, total: None)
    check_undisturbed(scenario)
    scenario = scenario.moved(scenario.base.absolute())
    if scenario.run.repetitions > 1:
        scenario = scenario.override({"run.repetitions": 1})
    check_whole_curve(scenario)
    traffic = traffic_of(scenario)
    objectives = tuple(slo_objectives(scenario))
    screened, rejected = _screened(scenario, question, traffic)
    total = len(screened) + 1
    say(f"{len(screened)} of {len(question.layouts) ** 2} pairs are left after the screening")
    sized: list[SizedPair] = []
    waiting = list(screened)
    while waiting:
        costs = sorted(each.cost for each in sized)
        most = costs[question.top - 1] if len(costs) >= question.top else math.inf
        dear = [each for each in waiting if each.lowest > most]
        rejected += [_too_expensive(each, most) for each in dear]
        waiting = [each for each in waiting if each not in dear]
        wave, waiting = waiting[:WAVE], waiting[WAVE:]
        asked = [(scenario, each, question, objectives) for each in wave]
        for found in calls(size_pair, asked, jobs):
            if isinstance(found, RejectedPair):
                rejected.append(found)
                say(f"{found.pair.text}: {found.reason}")
            else:
                sized.append(found)
                say(f"{found.pair.text}: {found.prompts} and {found.answers}, ${found.cost:,.2f}/h")
        count(total - len(waiting) - 1, total)
    if not sized:
        raise InfeasibleError(_nothing(question, rejected))
    sized.sort(key=_rank)
    best, others = sized[: question.top], sized[question.top :]
    rejected += [_dearer(each) for each in others]
    say("the cheapest with slower iterations, and fleets whose replicas do both")
    ends = calls(split_ends, [(scenario, each, question, objectives) for each in best], jobs)
    axis = axis_of(scenario, "rate", traffic, question.scale)
    assert axis.own is not None
    found_ends, unified = tuple(ends), _unified(scenario, question, jobs)
    count(total, total)
    return SplitPlan(
        scenario=scenario,
        question=question,
        objectives=objectives,
        own_rate=axis.own,
        best=tuple(best),
        ends=found_ends,
        rejected=tuple(rejected),
        unified=unified,
        traffic_notes=traffic.notes,
    )


def _rank(found: SizedPair) -> tuple[float, float, str]:
    """Cheapest first, then the shortest TTFT."""
    ttft = found.at_target.figures["p99_ttft_ms"] or 0.0
    return found.cost, ttft, found.pair.text


def _screened(
    scenario: Scenario, question: SplitQuestion, traffic: Traffic
) -> tuple[list[ScreenedPair], list[RejectedPair]]:
    """The pairs that may hold the load, the cheapest first, and why the others do not."""
    found: list[ScreenedPair] = []
    rejected: list[RejectedPair] = []
    for prefill in question.layouts:
        for decode in question.layouts:
            each = screen_pair(scenario, LayoutPair(prefill, decode), traffic, question.target)
            (found if isinstance(each, ScreenedPair) else rejected).append(each)  # type: ignore[arg-type]
    return sorted(found, key=lambda each: (each.lowest, each.pair.text)), rejected


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


def size_pair(
    scenario: Scenario,
    screened: ScreenedPair,
    question: SplitQuestion,
    objectives: Sequence[Objective],
) -> SizedPair | RejectedPair:
    """The cheapest numbers of replicas of a pair that hold the target load, or why there are
    none."""
    judge = _judge(scenario, screened, question, objectives)
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
    return SizedPair(
        screened, last.prompts, last.answers, last.probe, tuple(tried), (first, second)
    )


Judge = Callable[[int, int, bool], Tried]
"""Simulates so many replicas of each phase: once, or until it is decided what lasts."""


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
            if seen.probe.outcome == FAILS:
                low, worst = middle, seen
            else:
                high = middle
        found += [] if worst is None else [worst]
    return found


def _judge(
    scenario: Scenario,
    screened: ScreenedPair,
    question: SplitQuestion,
    objectives: Sequence[Objective],
) -> Judge:
    """The judge of a pair under the target load."""

    def judge(prompts: int, answers: int, once: bool) -> Tried:
        asked = scenario.override(screened.pair.settings(scenario, prompts, answers))
        finder = Finder(asked, "rate", objectives, question.scale)
        decide = quick if once else lasting
        probe = decide(finder, question.target, asked.replicas)
        return Tried(prompts, answers, screened.cost(prompts, answers), probe)

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
    """What breaks with these numbers, where they were simulated; else what ruled them out, None
    where nothing did."""
    for each in tried:
        if (each.prompts, each.answers) == (prompts, answers):
            return each.probe.breaks
    for each in tried:
        if not each.probe.holds and _ruled_out(prompts, answers, [each]):
            return "tpot" if slow_tokens(each.probe) else each.probe.breaks
    return None


def split_ends(
    scenario: Scenario,
    found: SizedPair,
    question: SplitQuestion,
    objectives: Sequence[Objective],
) -> SplitEnds:
    """Whether the fleet holds the rate, without headroom, with slower iterations."""
    error = found.at_target.error
    if not error:
        return SplitEnds(0.0, True, True)
    asked = scenario.override(found.pair.settings(scenario, found.prompts, found.answers))

    def holds(factor: float) -> bool:
        slower = at_factor(asked, factor)
        finder = Finder(slower, "rate", objectives, question.scale)
        return lasting(finder, question.rate, asked.replicas).holds

    whole = holds(end_factors(error)[1])
    return SplitEnds(error, whole, whole or holds(1 + half_of(error)))


def _unified(scenario: Scenario, question: SplitQuestion, jobs: int) -> FleetPlan | str:
    """The cheapest fleet of replicas that prefill and decode, or why there is none."""
    asked = FleetQuestion(
        question.layouts, question.rate, question.headroom, 1, Constraints(), question.scale
    )
    try:
        return choose(together(scenario), asked, jobs=jobs)
    except InfersimError as error:
        return str(error)


def _not_even(screened: ScreenedPair, last: Tried) -> RejectedPair:
    probe = last.probe
    text = (
        f"even {counted(last.prompts, 'replica')} that prefill and {last.answers} that decode do "
        f"not hold {probe.load:.3g} requests/s: {missed(probe)}"
    )
    return RejectedPair(screened.pair, f"{limit_name(probe.breaks)} missed", text, screened.lowest)


def _too_expensive(screened: ScreenedPair, most: float) -> RejectedPair:
    text = (
        f"it takes {screened.least[0]} and {screened.least[1]} replicas or more, at least "
        f"${screened.lowest:,.2f}/h; fleets for ${most:,.2f}/h or less are found"
    )
    return RejectedPair(screened.pair, "more expensive", text, screened.lowest)


def _dearer(found: SizedPair) -> RejectedPair:
    text = f"holds with {found.prompts} and {found.answers} replicas, ${found.cost:,.2f}/h"
    return RejectedPair(found.pair, "more expensive", text, found.cost)


def _nothing(question: SplitQuestion, rejected: Sequence[RejectedPair]) -> str:
    listed = [f"  {each.pair.text}: {each.reason}: {each.text}" for each in rejected[:12]]
    more = [f"  and {len(rejected) - 12} more"] if len(rejected) > 12 else []
    first = (
        f"no fleet that prefills and decodes apart holds {question.target:.4g} requests/s "
        f"({question.rate:.4g} and {question.headroom:.0%} headroom):"
    )
    return "\n".join([first, *listed, *more])
