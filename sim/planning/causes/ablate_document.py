"""Describes an ablation as one plain mapping, for JSON, the terminal and the page.

``difference`` is in the metric's unit, ``factor`` the ratio of after to before (a latency that
halves has 0.5). Over ``parts`` the differences add up to that of the whole, and the factors
multiply to its; over ``steps``, in the order asked for, likewise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sim.metrics.states import State
from sim.planning.causes.ablate import MOST_EXACT, SAMPLED_ORDERS, Ablation
from sim.planning.causes.shapley import Coalition, contributions
from sim.planning.causes.techniques import SMALL_BATCH
from sim.planning.contrast.gains import FIGURES, GainFigure
from sim.planning.points.study import head, notes_on, setup_text

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
    values = found.values(figure.key)
    whole = frozenset(technique.name for technique in found.added)
    before, after = _value(found, frozenset(), figure), _value(found, whole, figure)
    known: Values = {key: value for key, value in values.items() if value is not None}
    complete = len(known) == len(values)
    logs = {key: math.log(value) for key, value in known.items() if value > 0}
    differences = contributions(found.edges, known) if complete else {}
    growth = contributions(found.edges, logs) if len(logs) == len(values) else {}
    return {
        "key": figure.key,
        "title": figure.title,
        "unit": figure.unit,
        "more": figure.more,
        "baseline": before,
        "full": after,
        "difference": None if before is None or after is None else after - before,
        "factor": _ratio(before, after),
        "steps": _steps(found, figure, before),
        "parts": [
            {
                "technique": technique.name,
                "title": technique.title,
                "difference": _float(differences.get(technique.name)),
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
        reached = _value(found, present, figure)
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


def _value(found: Ablation, present: Coalition, figure: GainFigure) -> float | None:
    summary = found.outcome(present).summary
    return None if summary is None else found.value(figure, summary)


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


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
        "figures": {figure.key: found.value(figure, summary) for figure in FIGURES},
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
    if not all(_complete(found, figure) for figure in FIGURES):
        notes.append(
            "A figure that is 0 for some set has no factors: differences stand for them, which add "
            "up to the whole; one that is undefined for some set has neither."
        )
    return [*notes, *([] if full is None else notes_on([("", full)]))]


def _complete(found: Ablation, figure: GainFigure) -> bool:
    return all(value for value in found.values(figure.key).values())
