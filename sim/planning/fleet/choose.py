"""Finds the cheapest fleets that hold a load: the composition of ``infersim plan``.

1. Every layout is screened without simulating: does it fit, can it be fast enough, and how many
   replicas does its fleet have at least.
2. Fleets are sized by simulation, those first that could be cheapest; a layout whose fleet cannot
   cost less than the ``top`` cheapest found is left out. Since nothing is left out but what the
   screening *proves* to be more expensive, the cheapest fleets are those of an exhaustive search.
3. The ``top`` cheapest are simulated at the wanted load, and up to the highest they hold; all
   fleets once more with iterations faster and slower by the error band.

The same question has the same answer whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sim.copies import cores
from sim.errors import InfeasibleError, UsageError
from sim.load_refusals import check_undisturbed
from sim.metrics.slo.objectives import Objective, slo_objectives
from sim.planning.fleet.fleet_ends import EndCalls, FleetEnds, begin_ends, counted_in, tried
from sim.planning.fleet.layouts import FleetQuestion, Rejected, Screened, screen
from sim.planning.fleet.sizing import Confirmed, FleetSearch, Sized, size
from sim.planning.fleet.so_far import PlanInterrupted, PlanSoFar
from sim.planning.load.advance import PlanSteps, Progress
from sim.planning.load.loads import axis_of, check_whole_curve, traffic_of
from sim.planning.points.executors import Crew, CrewCall, crew
from sim.planning.points.wording import counted, fleet_text
from sim.scenario import Scenario
from sim.units import show_load

WAVE = 4
"""Layouts that are sized together before it is asked again which of the others could be cheaper; a
constant, so that the answer does not depend on the number of processes."""

MOST_RATE = 1e9
"""The most requests per second that are accepted as a rate."""

EXPENSIVE = "more expensive"
"""The reason of layouts that hold the load, but cost more than those that are ranked."""

AS_CHEAP = "costs the same"
"""The reason of layouts that hold the load for what the last one costs that is ranked."""


@dataclass(frozen=True)
class FleetPlan:
    """The answer: ``best`` are the cheapest fleets in order, ``sized`` all fleets that hold,
    ``ends`` what the error of predicted times does to each of those, and ``rejected`` every other
    layout. ``traffic_notes`` is what a reader should know of the traffic."""

    scenario: Scenario
    question: FleetQuestion
    objectives: tuple[Objective, ...]
    own_rate: float
    best: tuple[Confirmed, ...]
    sized: tuple[Sized, ...]
    ends: tuple[FleetEnds, ...]
    rejected: tuple[Rejected, ...]
    traffic_notes: tuple[str, ...] = ()


Tell = Callable[[str], None]

EACH = 3
"""Steps of a layout: it is sized, confirmed and tried at both ends of its band."""


def choose(
    scenario: Scenario,
    question: FleetQuestion,
    *,
    jobs: int = 1,
    tell: Tell | None = None,
    progress: Progress | None = None,
    steps: PlanSteps | None = None,
) -> FleetPlan:
    """The cheapest fleets that hold the load, and why the others are not among them.

    ``tell`` is called with a sentence at each step, ``progress`` with the steps that are done and
    those there are: three for each layout, or with those of a larger question's ``steps``. Raises
    InfeasibleError, with the reasons, if no fleet does, UsageError if the scenario has no rate,
    PlanInterrupted, with the fleets that were sized, on a KeyboardInterrupt.
    """
    say = tell or (lambda _: None)
    scenario = to_plan(scenario)
    traffic = traffic_of(scenario)
    axis = axis_of(scenario, "rate", traffic)
    objectives = (*slo_objectives(scenario), *question.constraints.objectives)
    search, far = FleetSearch(scenario, question, objectives), PlanSoFar()
    steps = steps or PlanSteps(progress)
    # no more processes than there is to do at a time
    jobs = min(cores() if jobs == -1 else jobs, EACH * len(question.layouts))
    with (
        _keeping(search, far),
        crew(steps.simulated, jobs, steps.show) as them,
    ):
        screened, rejected = _screened(them, search)
        say(f"{len(screened)} of {len(question.layouts)} layouts are left after the screening")
        steps.expect(EACH * len(screened))
        far.screened, far.rejected = screened, list(rejected)
        sized, ends, further = _sized(them, search, far, say, steps)
        rejected += further
        if not sized:
            raise no_fleet(
                "no fleet holds",
                question,
                [(each.layout.text, f"{each.reason}: {each.text}") for each in rejected],
            )
        say(
            "the fleets up to what they hold, and with iterations faster and slower by their error "
            "band"
        )
        best, ranked, found_ends = _ranked(them, search, sized, ends, steps)
    rejected += [_more_expensive(each, ranked, question.top) for each in ranked[question.top :]]
    order = {layout: index for index, layout in enumerate(question.layouts)}
    assert axis.own is not None
    return FleetPlan(
        scenario=scenario,
        question=question,
        objectives=objectives,
        own_rate=axis.own,
        best=tuple(best),
        sized=tuple(ranked),
        ends=tuple(found_ends),
        rejected=tuple(sorted(rejected, key=lambda each: order[each.layout])),
        traffic_notes=traffic.notes,
    )


@contextmanager
def _keeping(search: FleetSearch, far: PlanSoFar) -> Iterator[None]:
    """Raise PlanInterrupted with what there is so ``far`` where the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise PlanInterrupted(search.scenario, search.question, search.objectives, far) from None


def to_plan(scenario: Scenario) -> Scenario:
    """``scenario`` as plans simulate it: once, wherever a process is; UsageError where fleets for
    it cannot be planned."""
    check_undisturbed(scenario)
    scenario = scenario.moved(scenario.base.absolute())
    if scenario.run.repetitions > 1:
        scenario = scenario.override({"run.repetitions": 1})
    check_whole_curve(scenario)
    return scenario


def rank(fleet: Confirmed) -> tuple[float, float, float, str]:
    """Cheapest first; of fleets as cheap the one that holds the higher load, then the one with the
    shorter TTFT p99."""
    cost, ttft, text = _unconfirmed(fleet.sized)
    return cost, -fleet.best.load, ttft, text


def _unconfirmed(sized: Sized) -> tuple[float, float, str]:
    """The rank of a fleet of which it is not known how much it holds."""
    ttft = sized.at_target.figures["p99_ttft_ms"] or 0.0
    return usd(sized.cost), ttft, sized.layout.text


def usd(cost: float) -> float:
    """USD per hour without the rounding errors of a product, so that equal costs are equal."""
    return round(cost, 6)


def as_cheap(plan: FleetPlan) -> list[str]:
    """The fleets that cost what the first one does: the rank of those that have one, else in
    full."""
    numbered = enumerate(plan.sized[1:], 2)
    return [
        f"#{rank}" if rank <= len(plan.best) else fleet_text(other.replicas, other.layout.text)
        for rank, other in numbered
        if usd(other.cost) == usd(plan.sized[0].cost)
    ]


def _ranked(
    them: Crew,
    search: FleetSearch,
    sized: Sequence[Sized],
    begun: Sequence[EndCalls],
    steps: PlanSteps,
) -> tuple[list[Confirmed], list[Sized], list[FleetEnds]]:
    """The ``top`` best fleets, confirmed, all fleets in their order, and their ends. Whatever costs
    as much as the last of the best is confirmed too, since the load that it holds decides between
    them."""
    costs, top = sorted(usd(each.cost) for each in sized), search.question.top
    most = costs[min(top, len(costs)) - 1]
    near = [usd(each.cost) <= most for each in sized]
    steps.drop(len(sized) - sum(near))
    found = tried(them, search, sized, near, begun, steps)
    ends = {each.layout: of for each, (_, of) in zip(sized, found, strict=True)}
    confirmed = sorted((each for each, _ in found if each is not None), key=rank)
    dearer = (each for each, with_rank in zip(sized, near, strict=True) if not with_rank)
    ranked = [*(each.sized for each in confirmed), *sorted(dearer, key=_unconfirmed)]
    return confirmed[:top], ranked, [ends[each.layout] for each in ranked]


def _screened(them: Crew, search: FleetSearch) -> tuple[list[Screened], list[Rejected]]:
    question = search.question
    limits = (question.target, search.objectives, question.constraints)
    asked = [them.begin(_screen, search.scenario, layout, *limits) for layout in question.layouts]
    them.finish(asked)
    found = [call.result for call in asked]
    left = [each for each in found if isinstance(each, Screened)]
    left.sort(key=lambda each: (each.cost, each.layout.text))
    return left, [each for each in found if isinstance(each, Rejected)]


def _screen(_: object, *asked: Any) -> Screened | Rejected:
    return screen(*asked)


def _sized(
    them: Crew, search: FleetSearch, far: PlanSoFar, say: Tell, steps: PlanSteps
) -> tuple[list[Sized], list[EndCalls], list[Rejected]]:
    """Fleets of the layouts in the order of what they cost at least, in waves, with the calls that
    say what they are at the ends of their bands."""
    sized: list[Sized] = []
    ends: list[EndCalls] = []
    rejected: list[Rejected] = []
    waiting, top = list(far.screened), search.question.top
    while waiting:
        costs = sorted(each.cost for each in sized)
        most = costs[top - 1] if len(costs) >= top else None
        dearer = [each for each in waiting if most and usd(each.cost) > usd(most)]
        further = [_too_expensive(each, most) for each in dearer if most]
        rejected += further
        far.rejected += further
        steps.drop(EACH * len(dearer))
        waiting = [each for each in waiting if each not in dearer]
        wave, waiting = waiting[:WAVE], waiting[WAVE:]
        begun = [them.begin(counted_in, size, search, each) for each in wave]
        at_ends: dict[CrewCall[Sized | Rejected], EndCalls] = {}
        for call in them.as_done(begun):
            found = call.result
            if isinstance(found, Sized):
                at_ends[call] = begin_ends(them, search, found)
            else:
                steps.drop(EACH - 1)
            steps.did()
            say(far.told(found))
        for call, each in zip(begun, wave, strict=True):
            found = call.result
            if isinstance(found, Sized):
                sized.append(found)
                ends.append(at_ends[call])
            else:
                rejected.append(found.noted(each.note))
    return sized, ends, rejected


def _too_expensive(screened: Screened, most: float) -> Rejected:
    text = (
        f"it takes {counted(screened.least, 'replica')} or more, at least "
        f"${screened.cost:,.2f}/h, even if each could serve {show_load(screened.rate, 3)} "
        f"requests/s, which is more than it can; fleets for ${most:,.2f}/h or less are found"
    )
    found = Rejected(screened.layout, EXPENSIVE, text, screened.cost, unsimulated=True)
    return found.noted(screened.note)


def _more_expensive(sized: Sized, ranked: Sequence[Sized], top: int) -> Rejected:
    first, last = usd(ranked[0].cost), usd(ranked[top - 1].cost)
    text = f"needs {counted(sized.replicas, 'replica')}, ${sized.cost:,.2f}/h"
    if usd(sized.cost) == last:
        text += f", as much as #{top}; of fleets as cheap those that hold more come first"
        return Rejected(sized.layout, AS_CHEAP, text, sized.cost).noted(sized.note)
    most = f" to ${last:,.2f}" if last != first else ""
    text += f"; those above cost ${first:,.2f}{most}/h"
    return Rejected(sized.layout, EXPENSIVE, text, sized.cost).noted(sized.note)


def no_fleet(
    nothing: str, question: FleetQuestion, rejected: Sequence[tuple[str, str]]
) -> InfeasibleError:
    """The error where ``nothing`` holds the load of ``question``, for what is said of each of the
    ``rejected`` layouts."""
    asked = (
        f"{show_load(question.target)} requests/s ({show_load(question.rate)} and "
        f"{question.headroom:.0%} headroom)"
    )
    return InfeasibleError(f"{nothing} {asked}", layouts=rejected)


def read_rate(text: str, own: float) -> float:
    """Requests per second: ``50``, ``90/min``, or ``10x`` the scenario's own; UsageError else.

    >>> read_rate("10x", 5.5), read_rate("90/min", 5.5)
    (55.0, 1.5)
    """
    from sim import units  # noqa: PLC0415 - shadows nothing here

    try:
        times = text.strip().endswith("x")
        rate = own * float(text.strip()[:-1]) if times else units.parse(text, "rate")
    except ValueError:
        raise UsageError(
            f"--rate {text!r}: expected requests per second, such as 50 or 90/min, or a multiple "
            "of the scenario's own, such as 10x"
        ) from None
    if not 0 < rate < MOST_RATE:
        raise UsageError(
            f"--rate {text!r}: expected more than 0 and less than {MOST_RATE:,.0f} requests per "
            "second"
        )
    return rate
