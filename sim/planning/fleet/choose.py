"""Finds the cheapest fleets that hold a load: the composition of ``infersim plan``.

1. Every layout is screened without simulating: does it fit, can it be fast enough, and how many
   replicas does its fleet have at least.
2. Fleets are sized by simulation, those first that could be cheapest; a layout whose fleet cannot
   cost less than the ``top`` cheapest found is left out. Since nothing is left out but what the
   screening *proves* to be more expensive, the cheapest fleets are those of an exhaustive search.
3. The ``top`` cheapest are simulated at the wanted load, and up to the highest they hold; all
   fleets once more with iterations faster and slower by the error band.

The same question has the same answer whatever the number of processes.

``bands`` judges how far the ranking can be trusted. The error band of the cost model says how much
faster or slower iterations may really be. A fleet whose replicas are slower needs more of them: so
each has a range of costs, and a rank survives if no fleet behind it could be cheaper, even if one
errs in its favour and the other against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sim.errors import InfeasibleError, UsageError
from sim.metrics.objectives import Objective, slo_objectives
from sim.metrics.trust import trust
from sim.planning.fleet.constraints import Constraints
from sim.planning.fleet.layouts import Candidate, Rejected, Screened, screen
from sim.planning.fleet.sizing import Confirmed, FleetEnds, Sized, size
from sim.planning.fleet.trials import tried
from sim.planning.load.advance import PlanSteps, Progress
from sim.planning.load.loads import Scale, axis_of, check_whole_curve, traffic_of
from sim.planning.points.executors import calls
from sim.planning.points.simulated import Simulated
from sim.planning.points.wording import counted
from sim.scenario import Scenario
from sim.undisturbed import check_undisturbed
from sim.units import show_load

WAVE = 4
"""Layouts that are sized together before it is asked again which of the others could be cheaper; a
constant, so that the answer does not depend on the number of processes."""

TOLERANCE = 0.02

MOST_RATE = 1e9
"""The most requests per second that are accepted as a rate."""

EXPENSIVE = "more expensive"
"""The reason of layouts that hold the load, but cost more than those that are ranked."""

SHOWN_REASONS = 12
"""Layouts whose reasons an error lists."""


@dataclass(frozen=True)
class FleetQuestion:
    """``rate`` in requests per second, ``headroom`` the share by which fleets must hold more;
    ``scale`` says how a trace gets that load."""

    layouts: tuple[Candidate, ...]
    rate: float
    headroom: float
    top: int
    constraints: Constraints
    scale: Scale = "compress"

    @property
    def target(self) -> float:
        """Requests per second that a fleet must hold."""
        return self.rate * (1 + self.headroom)


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
R = TypeVar("R")


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
    InfeasibleError, with the reasons, if no fleet does, UsageError if the scenario has no rate.
    """
    say = tell or (lambda _: None)
    scenario = to_plan(scenario)
    traffic = traffic_of(scenario)
    axis = axis_of(scenario, "rate", traffic)
    objectives = (*slo_objectives(scenario), *question.constraints.objectives)
    screened, rejected = _screened(scenario, question, objectives, jobs)
    say(f"{len(screened)} of {len(question.layouts)} layouts are left after the screening")
    steps = steps or PlanSteps(progress)
    steps.expect(EACH * len(screened))
    sized, further = _sized(scenario, question, objectives, screened, jobs, say, steps)
    rejected += further
    if not sized:
        raise InfeasibleError(_nothing(question, rejected))
    say(
        "the fleets up to what they hold, and with iterations faster and slower by their error band"
    )
    best, ranked, ends = _ranked(scenario, question, objectives, sized, jobs, steps)
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
        ends=tuple(ends),
        rejected=tuple(sorted(rejected, key=lambda each: order[each.layout])),
        traffic_notes=traffic.notes,
    )


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
    """The same of fleets of which it is not known how much they hold."""
    ttft = sized.at_target.figures["p99_ttft_ms"] or 0.0
    return _money(sized.cost), ttft, sized.layout.text


def _money(cost: float) -> float:
    """USD per hour without the rounding errors of a product, so that equal costs are equal."""
    return round(cost, 6)


def as_cheap(plan: FleetPlan) -> list[str]:
    """The fleets that cost what the first one does: the rank of those that have one, else the
    layout."""
    numbered = enumerate(plan.sized[1:], 2)
    return [
        f"#{rank}" if rank <= len(plan.best) else other.layout.text
        for rank, other in numbered
        if _money(other.cost) == _money(plan.sized[0].cost)
    ]


def _ranked(
    scenario: Scenario,
    question: FleetQuestion,
    objectives: Sequence[Objective],
    sized: Sequence[Sized],
    jobs: int,
    steps: PlanSteps,
) -> tuple[list[Confirmed], list[Sized], list[FleetEnds]]:
    """The ``top`` best fleets, confirmed, all fleets in their order, and their ends. Whatever costs
    as much as the last of the best is confirmed too, since the load that it holds decides between
    them."""
    costs = sorted(_money(each.cost) for each in sized)
    most = costs[min(question.top, len(costs)) - 1]
    near = [_money(each.cost) <= most for each in sized]
    steps.did(len(sized) - sum(near))
    found = tried(scenario, question, objectives, sized, near, jobs, steps)
    ends = {each.layout: of for each, (_, of) in zip(sized, found, strict=True)}
    confirmed = sorted((each for each, _ in found if each is not None), key=rank)
    dearer = (each for each, with_rank in zip(sized, near, strict=True) if not with_rank)
    ranked = [*(each.sized for each in confirmed), *sorted(dearer, key=_unconfirmed)]
    return confirmed[: question.top], ranked, [ends[each.layout] for each in ranked]


def _screened(
    scenario: Scenario, question: FleetQuestion, objectives: Sequence[Objective], jobs: int
) -> tuple[list[Screened], list[Rejected]]:
    found = list(
        calls(
            screen,
            [
                (scenario, layout, question.target, objectives, question.constraints)
                for layout in question.layouts
            ],
            jobs,
        )
    )
    left = [each for each in found if isinstance(each, Screened)]
    left.sort(key=lambda each: (each.cost, each.layout.text))
    return left, [each for each in found if isinstance(each, Rejected)]


def _sized(
    scenario: Scenario,
    question: FleetQuestion,
    objectives: Sequence[Objective],
    screened: Sequence[Screened],
    jobs: int,
    say: Tell,
    steps: PlanSteps,
) -> tuple[list[Sized], list[Rejected]]:
    """Fleets of the layouts in the order of what they cost at least, in waves."""
    sized: list[Sized] = []
    rejected: list[Rejected] = []
    waiting = list(screened)
    while waiting:
        costs = sorted(each.cost for each in sized)
        most = costs[question.top - 1] if len(costs) >= question.top else None
        dearer = [each for each in waiting if most and _money(each.cost) > _money(most)]
        rejected += [_too_expensive(each, most) for each in dearer if most]
        steps.did(EACH * len(dearer))
        waiting = [each for each in waiting if each not in dearer]
        wave, waiting = waiting[:WAVE], waiting[WAVE:]
        arguments = [
            (
                scenario,
                each,
                question.target,
                objectives,
                question.constraints,
                question.scale,
                question.rate,
            )
            for each in wave
        ]
        sizing = partial(_counted, size, steps.simulated)
        for found in calls(sizing, arguments, jobs, steps.show):
            if isinstance(found, Sized):
                sized.append(found)
                steps.did()
                fleet = counted(found.replicas, "replica")
                say(f"{found.layout.text}: {fleet}, ${found.cost:,.2f}/h")
            else:
                note = next(each.note for each in wave if each.layout == found.layout)
                rejected.append(found.noted(note))
                steps.did(EACH)
                say(f"{found.layout.text}: {found.reason}")
    return sized, rejected


def _counted(sizing: Callable[..., R], simulated: Simulated | None, *arguments: Any) -> R:
    return sizing(*arguments, simulated)


def _too_expensive(screened: Screened, most: float) -> Rejected:
    text = (
        f"it takes {counted(screened.least, 'replica')} or more, at least "
        f"${screened.cost:,.2f}/h, even if each could serve {show_load(screened.rate, 3)} "
        f"requests/s, which is more than it can; fleets for ${most:,.2f}/h or less are found"
    )
    found = Rejected(screened.layout, EXPENSIVE, text, screened.cost, unsimulated=True)
    return found.noted(screened.note)


def _more_expensive(sized: Sized, ranked: Sequence[Sized], top: int) -> Rejected:
    text = (
        f"needs {counted(sized.replicas, 'replica')}, ${sized.cost:,.2f}/h, as much as the "
        f"{top} above or more (${ranked[0].cost:,.2f} to ${ranked[top - 1].cost:,.2f}/h)"
    )
    return Rejected(sized.layout, EXPENSIVE, text, sized.cost).noted(sized.note)


def _nothing(question: FleetQuestion, rejected: Sequence[Rejected]) -> str:
    listed = [f"  {each.layout.text}: {each.reason}: {each.text}" for each in rejected]
    left = len(listed) - SHOWN_REASONS
    more = [f"  and {left} more"] if left > 0 else []
    return "\n".join(
        [
            f"no fleet holds {show_load(question.target)} requests/s "
            f"({show_load(question.rate)} and {question.headroom:.0%} headroom):",
            *listed[:SHOWN_REASONS],
            *more,
        ]
    )


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


@dataclass(frozen=True)
class Band:
    """Replicas and USD per hour of a fleet if iterations are faster or slower by ``error``.

    The larger ones are None where no number that was tried holds. ``rivals`` are the fleets that
    could be cheaper, ``holds_if_slower`` says whether the fleet of the predicted size would still
    hold the wanted load, without headroom, ``decided`` whether chance leaves no doubt that it does
    at the predicted times.
    """

    error: float
    replicas: tuple[int, int | None]
    cost: tuple[float, float | None]
    holds_if_slower: bool
    rivals: tuple[str, ...]
    holds_at_half: bool = True
    decided: bool = True

    @property
    def trust(self) -> str:
        """How sure it is that the fleet holds the wanted load: whether it does at the slower ends
        of the 90 % and of the 50 % band."""
        return trust(decided=self.decided, at_band=self.holds_if_slower, at_half=self.holds_at_half)

    @property
    def survives(self) -> bool:
        """Whether the rank does not depend on the error."""
        return not self.rivals


def bands(plan: FleetPlan) -> list[Band]:
    """The band of each of the best fleets, in their order."""
    found = []
    for index, (each, ends) in enumerate(zip(plan.best, plan.ends, strict=False)):
        price = each.sized.price
        most = math.inf if ends.most is None else ends.most * price
        behind = zip(plan.sized[index + 1 :], plan.ends[index + 1 :], strict=True)
        rivals = tuple(
            f"#{number} {other.layout.text}"
            for number, (other, theirs) in enumerate(behind, start=index + 2)
            if theirs.fewest * other.price < most
        )
        found.append(
            Band(
                ends.error,
                (ends.fewest, ends.most),
                (ends.fewest * price, None if ends.most is None else most),
                ends.holds_if_slower,
                (*rivals, *_unsimulated(plan, most, ends.error)),
                ends.holds_at_half,
                each.at_rate.sure,
            )
        )
    return found


def _unsimulated(plan: FleetPlan, most: float, error: float) -> list[str]:
    """Layouts that were found too expensive without simulating, by a bound that is proportional to
    the time of an iteration, and that could cost less than ``most`` if theirs were shorter."""
    return [
        f"{each.layout.text} (not simulated)"
        for each in plan.rejected
        if each.unsimulated and each.cost is not None and each.cost / (1 + error) < most
    ]


def front(fleets: Sequence[Sized], figure: str) -> list[bool]:
    """Which fleets are on the Pareto front of cost and a latency (``p99_ttft_ms``, say): none is
    cheaper and faster, or one of both and equal in the other."""
    points = [(each.cost, each.at_target.figures[figure]) for each in fleets]
    known = [(cost, value if value is not None else math.inf) for cost, value in points]
    return [
        not any((other[0] <= mine[0] and other[1] <= mine[1] and other != mine) for other in known)
        for mine in known
    ]
