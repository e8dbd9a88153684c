"""Finds how many replicas should prefill and how many decode: ``infersim plan --disaggregate``.

1. Every pair of layouts, one that prefills and one that decodes, is screened by what full batches
   of both serve: how many replicas of each there are at least (``split_sizing``).
2. Pairs are sized by simulation, those first that could be cheapest (``split_sizing``).
3. The ``top`` cheapest are simulated at the wanted rate with iterations slower by the error band.

For comparison, the cheapest fleet of the same layouts whose replicas prefill and decode. Rates in
requests per second, costs in US dollars per hour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.copies import cores
from sim.errors import InfersimError
from sim.metrics.slo.objectives import Objective, slo_objectives
from sim.planning.fleet.choose import FleetPlan, Tell, choose, no_fleet, to_plan
from sim.planning.fleet.fleet_ends import SlowerEnd, counted_in
from sim.planning.fleet.layouts import FleetQuestion
from sim.planning.fleet.sizing import FleetSearch
from sim.planning.fleet.split_sizing import (
    LayoutPair,
    RejectedPair,
    ScreenedPair,
    SizedPair,
    screen_pair,
    size_pair,
    split_end,
    together,
)
from sim.planning.load.advance import PlanSteps, Progress
from sim.planning.load.loads import Traffic, axis_of, traffic_of
from sim.planning.points.executors import Crew, crew
from sim.scenario import Scenario

WAVE = 4
"""Pairs that are sized together before it is asked again which others could be cheaper; a
constant, so that the answer does not depend on the number of processes."""


@dataclass(frozen=True)
class SplitPlan:
    """The answer: the ``best`` fleets apart with their ``ends``, every pair that is ``rejected``,
    and the cheapest fleet whose replicas do both (``unified``), or why there is none."""

    scenario: Scenario
    question: FleetQuestion
    objectives: tuple[Objective, ...]
    own_rate: float
    best: tuple[SizedPair, ...]
    ends: tuple[SlowerEnd, ...]
    rejected: tuple[RejectedPair, ...]
    unified: FleetPlan | str
    traffic_notes: tuple[str, ...] = ()


LAST = 1
"""Steps after all pairs are sized: the cheapest at the ends of their bands. Those of fleets that do
both are known when these have been screened."""


def choose_split(
    scenario: Scenario,
    question: FleetQuestion,
    *,
    jobs: int = 1,
    tell: Tell | None = None,
    progress: Progress | None = None,
) -> SplitPlan:
    """The cheapest fleets that prefill and decode apart, and the cheapest that does both in one.

    ``tell`` is called with a sentence at each step, ``progress`` with the pairs that are done and
    all there are. Raises InfeasibleError, with the reasons, if no fleet apart holds the load.
    """
    say, steps = tell or (lambda _: None), PlanSteps(progress)
    scenario = to_plan(scenario)
    traffic = traffic_of(scenario)
    objectives = tuple(slo_objectives(scenario))
    search = FleetSearch(scenario, question, objectives)
    screened, rejected = _screened(scenario, question, traffic)
    steps.expect(len(screened) + LAST)
    say(f"{len(screened)} of {len(question.layouts) ** 2} pairs are left after the screening")
    processes = min(cores() if jobs == -1 else jobs, max(WAVE, question.top))
    with crew(steps.simulated, processes, steps.show) as them:
        sized, further = _sized(them, search, screened, say, steps)
        rejected += further
        if not sized:
            raise no_fleet(
                "no fleet that prefills and decodes apart holds",
                question,
                [(each.pair.text, f"{each.reason}: {each.text}") for each in rejected],
            )
        sized.sort(key=_rank)
        best, others = sized[: question.top], sized[question.top :]
        rejected += [_dearer(each) for each in others]
        say("the cheapest with slower iterations, and fleets whose replicas do both")
        ends = [them.begin(counted_in, split_end, search, each) for each in best]
        them.finish(ends)
    axis = axis_of(scenario, "rate", traffic, question.scale)
    assert axis.own is not None
    steps.did()
    unified = _unified(scenario, question, jobs, steps)
    return SplitPlan(
        scenario=scenario,
        question=question,
        objectives=objectives,
        own_rate=axis.own,
        best=tuple(best),
        ends=tuple(call.result for call in ends),
        rejected=tuple(rejected),
        unified=unified,
        traffic_notes=traffic.notes,
    )


def _sized(
    them: Crew, search: FleetSearch, screened: Sequence[ScreenedPair], say: Tell, steps: PlanSteps
) -> tuple[list[SizedPair], list[RejectedPair]]:
    """The smallest fleets of all pairs that could be among the cheapest, and the other pairs."""
    top = search.question.top
    sized: list[SizedPair] = []
    rejected: list[RejectedPair] = []
    waiting = list(screened)
    while waiting:
        costs = sorted(each.cost for each in sized)
        most = costs[top - 1] if len(costs) >= top else math.inf
        dear = [each for each in waiting if each.lowest > most]
        rejected += [_too_expensive(each, most) for each in dear]
        steps.drop(len(dear))
        waiting = [each for each in waiting if each not in dear]
        wave, waiting = waiting[:WAVE], waiting[WAVE:]
        begun = [them.begin(counted_in, size_pair, search, each) for each in wave]
        for _ in them.as_done(begun):
            steps.did()
        for found in (call.result for call in begun):
            if isinstance(found, RejectedPair):
                rejected.append(found)
                say(f"{found.pair.text}: {found.reason}")
            else:
                sized.append(found)
                say(f"{found.pair.text}: {found.prompts} and {found.answers}, ${found.cost:,.2f}/h")
    return sized, rejected


def _rank(found: SizedPair) -> tuple[float, float, str]:
    """Cheapest first, then the shortest TTFT."""
    ttft = found.at_target.figures["p99_ttft_ms"] or 0.0
    return found.cost, ttft, found.pair.text


def _screened(
    scenario: Scenario, question: FleetQuestion, traffic: Traffic
) -> tuple[list[ScreenedPair], list[RejectedPair]]:
    """The pairs that may hold the load, the cheapest first, and why the others do not."""
    found: list[ScreenedPair] = []
    rejected: list[RejectedPair] = []
    for prefill in question.layouts:
        for decode in question.layouts:
            each = screen_pair(scenario, LayoutPair(prefill, decode), traffic, question.target)
            (found if isinstance(each, ScreenedPair) else rejected).append(each)  # type: ignore[arg-type]
    return sorted(found, key=lambda each: (each.lowest, each.pair.text)), rejected


def _unified(
    scenario: Scenario, question: FleetQuestion, jobs: int, steps: PlanSteps
) -> FleetPlan | str:
    """The cheapest fleet of replicas that prefill and decode, or why there is none."""
    try:
        return choose(together(scenario), replace(question, top=1), jobs=jobs, steps=steps)
    except InfersimError as error:
        return str(error)


def _too_expensive(screened: ScreenedPair, most: float) -> RejectedPair:
    text = (
        f"it takes {screened.least[0]} and {screened.least[1]} replicas or more, at least "
        f"${screened.lowest:,.2f}/h; fleets for ${most:,.2f}/h or less are found"
    )
    return RejectedPair(screened.pair, "more expensive", text, screened.lowest)


def _dearer(found: SizedPair) -> RejectedPair:
    text = f"holds with {found.prompts} and {found.answers} replicas, ${found.cost:,.2f}/h"
    return RejectedPair(found.pair, "more expensive", text, found.cost)
