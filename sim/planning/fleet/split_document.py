"""Describes a plan of pools that prefill and decode apart as plain data.

Rates in requests per second, costs in US dollars per hour, latencies in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.slo.objectives import judged_by
from sim.planning.fleet.choose import FleetPlan
from sim.planning.fleet.fleet_ends import SlowerEnd
from sim.planning.fleet.layouts import Candidate
from sim.planning.fleet.plan_bands import bands
from sim.planning.fleet.plan_document import head, lengths_of, run_command
from sim.planning.fleet.split import SplitPlan
from sim.planning.fleet.split_sizing import SizedPair, Tried
from sim.planning.load.loads import LoadAxis, as_played, further_notes
from sim.planning.points.wording import fleet_text, nearest_promise, promise_name
from sim.units import HOURS_OF


def document(
    plan: SplitPlan, *, file: str = "SCENARIO", given: Sequence[str] = ()
) -> dict[str, Any]:
    """The answer, whole. ``file`` is what commands in it name, ``given`` the overrides with which
    it was read."""
    question = plan.question
    varied = ["fleet", *(["workload.arrivals"] if question.rate != plan.own_rate else [])]
    ranked = enumerate(zip(plan.best, plan.ends, strict=True), 1)
    fleets = [_fleet(plan, rank, each, end, given) for rank, (each, end) in ranked]
    unified = _unified(plan.unified)
    return {
        "command": "plan",
        "kind": "apart",
        **head(plan.scenario, plan.scenario.engine, question.rate, varied, file),
        "headroom": question.headroom,
        "target": question.target,
        **judged_by(plan.objectives),
        "scaling": LoadAxis(plan.scenario, "rate", plan.own_rate, question.scale).scaling,
        "traffic_notes": list(plan.traffic_notes),
        "notes": further_notes(plan.scenario, _least(plan)),
        "layout_pairs": len(question.layouts) ** 2,
        "run_lengths": lengths_of(plan, [(each.usual, each.at_target) for each in plan.best]),
        "fleets": fleets,
        "unified": unified,
        "text": _against(fleets[0], unified),
        "rejected": [
            {
                "layout": each.pair.text,
                "reason": each.reason,
                "text": each.text,
                "usd_per_hour": each.cost,
            }
            for each in plan.rejected
        ],
    }


def _least(plan: SplitPlan) -> int:
    """Requests of the shortest run that decided, as ``plan`` of one pool has them."""
    probes = [tried.probe for each in plan.best for tried in each.tried]
    return min(probe.per_run for probe in probes)


def _fleet(
    plan: SplitPlan, rank: int, each: SizedPair, end: SlowerEnd, given: Sequence[str]
) -> dict[str, Any]:
    settings = each.pair.settings(plan.scenario, each.prompts, each.answers)
    axis = LoadAxis(plan.scenario, "rate", plan.own_rate, plan.question.scale)
    settings |= dict(axis.settings(plan.question.rate))
    prefill, decode = (
        _phase(layout, replicas, breaks)
        for layout, replicas, breaks in zip(
            (each.pair.prefill, each.pair.decode),
            (each.prompts, each.answers),
            each.breaks,
            strict=True,
        )
    )
    return {
        "rank": rank,
        "prefill": prefill,
        "decode": decode,
        "gpus": each.gpus,
        "usd_per_hour": each.cost,
        **{f"usd_per_{name}": each.cost * hours for name, hours in HOURS_OF.items()},
        "error": end.error,
        "holds_if_slower": end.holds,
        "trust": end.trust(decided=each.at_target.sure),
        "at_target": each.at_target.document(),
        "tried": [_tried(one) for one in each.tried],
        "settings": settings,
        "run": run_command(as_played(given, plan.scenario, _least(plan)), settings),
    }


def _phase(layout: Candidate, replicas: int, breaks: str | None) -> dict[str, Any]:
    return {
        "layout": layout.text,
        "gpu": layout.gpu,
        "tensor_parallel": layout.tensor_parallel,
        "replicas": replicas,
        "text": fleet_text(replicas, layout.text),
        "one_less_breaks": breaks,
    }


def _tried(one: Tried) -> dict[str, Any]:
    kept = nearest_promise(one.probe.document())
    return {
        "prefill": one.prompts,
        "decode": one.answers,
        "usd_per_hour": one.cost,
        "outcome": one.probe.outcome,
        "holds": one.probe.holds,
        "breaks": one.probe.breaks,
        "attainment": None if kept is None else kept["attainment"],
        "part": None if kept is None else promise_name(kept),
    }


def _unified(found: FleetPlan | str) -> dict[str, Any]:
    """The cheapest fleet whose replicas do both, or the ``reason`` why there is none."""
    if isinstance(found, str):
        return {"reason": found}
    (best, *_), (band, *_) = found.best, bands(found)
    sized = best.sized
    return {
        "reason": None,
        "layout": sized.layout.text,
        "replicas": sized.replicas,
        "text": fleet_text(sized.replicas, sized.layout.text),
        "gpus": sized.gpus,
        "usd_per_hour": sized.cost,
        "trust": band.trust,
        "at_target": sized.at_target.document(),
    }


def _against(best: Mapping[str, Any], unified: Mapping[str, Any]) -> str:
    """Whether it pays to prefill and decode apart, in a sentence."""
    if unified["reason"] is not None:
        return "No fleet whose replicas prefill and decode holds this load within the SLO."
    apart, both = best["usd_per_hour"], unified["usd_per_hour"]
    than = f"{unified['text']}, whose replicas do both (${both:,.2f}/h)"
    if abs(apart - both) < 0.005:
        return f"To prefill and decode apart costs as much as {than}."
    share = abs(apart / both - 1)
    if apart < both:
        return f"To prefill and decode apart saves {share:.0%} against {than}."
    return f"To prefill and decode apart costs {share:.0%} more than {than}."
