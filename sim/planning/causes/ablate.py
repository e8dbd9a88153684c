"""Computes what each technique of a scenario adds to its speed-up over a naive baseline.

Every set of the techniques is simulated once, on the same traffic. What a technique brings depends
on which others are there already, so each counts with its mean over orders (``shapley``). Speed-ups
multiply, and so do the **factors** here: they are the exponentials of mean logarithms, and their
product is the whole. A metric that is 0 or undefined somewhere on the way has differences only.

In the ``document`` a ``difference`` is in the metric's unit, a ``factor`` the ratio of after to
before (a latency that halves has 0.5). Over ``parts`` the differences add up to that of the whole,
and the factors multiply to its; over ``steps``, in the order asked for, likewise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sim.errors import InfeasibleError, UsageError
from sim.metrics.states import State
from sim.planning.causes.shapley import (
    Coalition,
    Edge,
    all_orders,
    contributions,
    subsets,
    these_orders,
)
from sim.planning.causes.techniques import SMALL_BATCH, Technique, effective, ordered, techniques
from sim.planning.causes.techniques import settings as settings_of
from sim.planning.contrast.gains import CAPACITY, FIGURES, GainFigure
from sim.planning.points.executors import Executor
from sim.planning.points.points import Outcome, Settings
from sim.planning.points.study import Study, Tell, head, notes_on, running, setup_text
from sim.scenario import Scenario

MOST_EXACT = 6
"""Techniques of which all sets are simulated: 64 runs. Of more, a sample of orders."""
SAMPLED_ORDERS = 16


@dataclass(frozen=True)
class Ablation:
    """The result. ``known`` are the techniques in the order asked for, ``needed`` the names of
    those that are in the baseline because nothing runs without them; ``edges`` say how often each
    other one joins each set of others, ``outcomes`` the result of a set (without those needed)."""

    scenario: Scenario
    known: Sequence[Technique]
    needed: Coalition
    batch: int
    saturated: bool
    exact: bool
    edges: Mapping[Edge, int]
    outcomes: Mapping[Coalition, Outcome]

    @property
    def added(self) -> list[Technique]:
        """The techniques that are taken apart, in order."""
        return [t for t in self.known if t.name not in self.needed]

    def outcome(self, present: Coalition) -> Outcome:
        """The outcome of a set of the added techniques."""
        return self.outcomes[effective(present | self.needed, self.known)]

    def values(self, figure: GainFigure) -> dict[Coalition, float | None]:
        """A figure of every set on the way, None where it is undefined."""
        found: dict[Coalition, float | None] = {}
        for coalition, player in self.edges:
            for present in (coalition, coalition | {player}):
                found[present] = self.value(figure, self.outcome(present))
        return found

    def value(self, figure: GainFigure, outcome: Outcome) -> float | None:
        """A figure of a set; None if it does not run, and for what full batches serve in multiples
        of the traffic where all of that is there at once."""
        if outcome.summary is None or (self.saturated and figure is CAPACITY):
            return None
        return figure.of(outcome.summary)

    def settings(self, present: Coalition) -> Settings:
        """The overrides that make a set of the added techniques out of the scenario."""
        return settings_of(present | self.needed, self.known)


def ablate(
    scenario: Scenario,
    executor: Executor,
    *,
    order: Sequence[str] | None = None,
    batch: int = SMALL_BATCH,
    saturate: bool = False,
    tell: Tell | None = None,
) -> Ablation:
    """Take the scenario's speed-up over the naive baseline apart.

    ``saturate`` lets all requests arrive at once, so that throughputs are capacities. ``tell`` is
    called with (runs done, runs in all). UsageError if the scenario uses no technique, or for an
    ``order`` that does not list each of them; InfeasibleError if the scenario itself does not run.
    """
    known = ordered(techniques(scenario, batch), order)
    if not known:
        raise UsageError(
            "the scenario is the naive baseline already: static batches of "
            f"{scenario.scheduler.max_num_seqs}, contiguous KV cache, 16 bits"
        )
    if saturate:
        scenario = saturated(scenario)
    names = [technique.name for technique in known]
    runs = _Runs(Study(scenario, executor, tell), known)
    running(runs.of([frozenset(names)])[0])
    exact = len(names) <= MOST_EXACT
    if exact:
        runs.of(subsets(names))
    needed = _needed(names, runs)
    rest = [name for name in names if name not in needed]
    if exact:
        edges = all_orders(rest, lambda present: runs.feasible(present | needed))
    else:
        sample = list(_sample(rest, scenario.seed))
        runs.of([frozenset(o[:n]) | needed for o in sample for n in range(len(o) + 1)])
        sound = [o for o in sample if _passable(o, needed, runs)]
        edges = these_orders(sound)
    if rest and not edges:
        raise InfeasibleError("no order of the techniques leads from one run that fits to the next")
    return Ablation(scenario, known, needed, batch, saturate, exact, edges, runs.outcomes)


def saturated(scenario: Scenario) -> Scenario:
    """The scenario with all of its requests there from the start.

    UsageError for a closed loop, which has no requests to arrive.
    """
    arrivals = scenario.workload.arrivals
    if arrivals is None:
        return scenario.override({"workload.trace.rate": None, "workload.trace.time_scale": 1e-6})
    if arrivals.kind == "closed":
        raise UsageError("--saturate: clients of a closed loop wait for answers; raise concurrency")
    return scenario.override({"workload.arrivals": {"kind": "burst"}, "run.warmup": 0})


class _Runs:
    """Runs of sets of techniques, each made once."""

    def __init__(self, study: Study, known: Sequence[Technique]) -> None:
        self.outcomes: dict[Coalition, Outcome] = {}
        self._study, self._known = study, known

    def of(self, wanted: Sequence[Coalition]) -> list[Outcome]:
        """Outcomes of these sets; new ones are simulated."""
        keys = [effective(present, self._known) for present in wanted]
        new = [key for key in dict.fromkeys(keys) if key not in self.outcomes]
        labels = (
            ", ".join(t.title for t in self._known if t.name in key) or "baseline" for key in new
        )
        settings = (settings_of(key, self._known) for key in new)
        made = self._study.variants(zip(labels, settings, strict=True))
        self.outcomes |= zip(new, made, strict=True)
        return [self.outcomes[key] for key in keys]

    def feasible(self, present: Coalition) -> bool:
        """Whether a set runs."""
        return self.of([present])[0].error is None


def _needed(names: Sequence[str], runs: _Runs) -> Coalition:
    """The fewest techniques without which nothing runs, the first in order of equally few."""
    for size in range(len(names) + 1):
        for some in combinations(names, size):
            if runs.feasible(frozenset(some)):
                return frozenset(some)
    raise AssertionError("all of them run")


def _sample(names: Sequence[str], seed: int) -> Iterator[list[str]]:
    """The given order, and as many drawn at random as make up the sample; each with its reverse."""
    draw = random.Random(seed)
    for number in range(SAMPLED_ORDERS // 2):
        order = list(names)
        if number:
            draw.shuffle(order)
        yield order
        yield order[::-1]


def _passable(order: Sequence[str], needed: Coalition, runs: _Runs) -> bool:
    return all(runs.feasible(frozenset(order[:n]) | needed) for n in range(len(order) + 1))


Values = Mapping[Coalition, float]


def document(found: Ablation) -> dict[str, Any]:
    """The content of ``result.json``."""
    title = {t.name: t.title for t in found.known}
    return {
        **head("ablation", found.scenario),
        "setup": setup_text(next(each.summary for each in found.outcomes.values() if each.summary)),
        "saturated": found.saturated,
        "baseline": {"text": _baseline(found), "settings": dict(found.settings(frozenset()))},
        "techniques": [
            {
                "name": technique.name,
                "title": technique.title,
                "settings": dict(technique.on),
                "needed": technique.name in found.needed,
                "needs": [title.get(name, name) for name in technique.needs],
            }
            for technique in found.known
        ],
        "orders": {"exact": found.exact, "text": _orders(found)},
        "figures": [_figure(found, figure) for figure in FIGURES],
        "subsets": [_subset(found, present) for present in _in_order(found)],
        "infeasible": [
            {"with": _titles(found, present), "why": outcome.error}
            for present, outcome in found.outcomes.items()
            if outcome.error is not None
        ],
        "notes": _notes(found),
    }


def _figure(found: Ablation, figure: GainFigure) -> dict[str, Any]:
    values = found.values(figure)
    whole = frozenset(technique.name for technique in found.added)
    before, after = (found.value(figure, found.outcome(each)) for each in (frozenset(), whole))
    known: Values = {key: value for key, value in values.items() if value is not None}
    complete = len(known) == len(values)
    logs = {key: math.log(value) for key, value in known.items() if value > 0}
    differences = contributions(found.edges, known) if complete else {}
    growth = contributions(found.edges, logs) if len(logs) == len(values) else {}
    return {
        **figure._asdict(),
        "baseline": before,
        "full": after,
        "difference": None if before is None or after is None else after - before,
        "factor": _ratio(before, after),
        "steps": _steps(found, figure, before),
        "parts": [
            {
                "technique": technique.name,
                "title": technique.title,
                "difference": float(differences[technique.name]) if complete else None,
                "factor": math.exp(growth[technique.name]) if growth else None,
            }
            for technique in found.added
        ],
    }


def _steps(found: Ablation, figure: GainFigure, value: float | None) -> list[dict[str, Any]]:
    """The gain of each technique in the order asked for; a step that does not run has none, and the
    next one's gain is counted from before it."""
    present: Coalition = frozenset()
    steps = []
    for technique in found.added:
        present |= {technique.name}
        reached = found.value(figure, found.outcome(present))
        both = value is not None and reached is not None
        steps.append(
            {
                "technique": technique.name,
                "title": technique.title,
                "value": reached,
                "difference": reached - value if both else None,  # type: ignore[operator]
                "factor": _ratio(value, reached),
            }
        )
        value = value if reached is None else reached
    return steps


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _in_order(found: Ablation) -> list[Coalition]:
    """The sets that ran, smaller ones first, then as the techniques are ordered."""
    place = {technique.name: index for index, technique in enumerate(found.known)}
    ran = [present for present, outcome in found.outcomes.items() if outcome.error is None]
    return sorted(ran, key=lambda present: (len(present), sorted(map(place.__getitem__, present))))


def _subset(found: Ablation, present: Coalition) -> dict[str, Any]:
    summary = found.outcomes[present].summary
    assert summary is not None
    return {
        "with": _titles(found, present),
        "techniques": [t.name for t in found.known if t.name in present],
        "figures": {figure.key: found.value(figure, found.outcomes[present]) for figure in FIGURES},
        "completed": summary["completed"],
        "failed": summary["failed"],
        "state": summary["infersim"]["verdict"]["state"],
    }


def _titles(found: Ablation, present: Coalition) -> list[str]:
    return [technique.title for technique in found.known if technique.name in present]


def _baseline(found: Ablation) -> str:
    batch = min(found.batch, found.scenario.scheduler.max_num_seqs)
    chosen = "chosen" if found.batch != SMALL_BATCH else "as servers without a scheduler have them"
    text = (
        f"static batches of {batch} ({chosen}), contiguous KV cache, 16 bits, whole prompts, first "
        "come first served, no caching, no speculation; same model, GPUs, engine and traffic"
    )
    with_them = _titles(found, found.needed)
    return f"{text}; with {', '.join(with_them)}, since nothing runs without" if with_them else text


def _orders(found: Ablation) -> str:
    if found.exact:
        ran = len(found.outcomes)
        return f"Averaged over all orders in which every step is valid ({ran} runs)."
    return (
        f"More than {MOST_EXACT} techniques: means over a sample of {SAMPLED_ORDERS} orders, each "
        f"with its reverse ({len(found.outcomes)} runs); the parts add up all the same."
    )


def _notes(found: Ablation) -> list[str]:
    notes = []
    title = {technique.name: technique.title for technique in found.known}
    for technique in found.known:
        missing = [title.get(name, name) for name in technique.needs]
        if missing:
            notes.append(f"{technique.title} changes nothing without {' and '.join(missing)}.")
    full = found.outcome(frozenset(t.name for t in found.added)).summary
    state = None if full is None else full["infersim"]["verdict"]["state"]
    if state in (State.STABLE, State.NEAR_SATURATION) and not found.saturated:
        notes.append(
            "With all techniques the traffic is held, so its rate sets the throughput, not the "
            "techniques: see the capacity, or let all requests arrive at once (--saturate)."
        )
    summaries = [o.summary for o in found.outcomes.values() if o.summary is not None]
    refused = (summary["infersim"]["requests"]["rejected"] for summary in summaries)
    most = max(refused, default=0)
    if most:
        notes.append(
            f"Some sets refuse up to {most:,} requests (prompts that are not cut must fit one "
            "iteration); their throughput counts what they served."
        )
    if not all(all(found.values(figure).values()) for figure in FIGURES):
        notes.append(
            "A figure that is 0 for some set has no factors: differences stand for them, which add "
            "up to the whole; one that is undefined for some set has neither."
        )
    return [*notes, *([] if full is None else notes_on([("", full)]))]
