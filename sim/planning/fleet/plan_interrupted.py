"""Writes what a plan had found when it was interrupted as plain data.

The fleets that were sized by then are not the answer: which is the cheapest takes the layouts that
were left, and how sure each is takes the runs at both ends of its error band.
"""

from __future__ import annotations

from typing import Any

from sim.metrics.slo.objectives import judged_by
from sim.planning.fleet.plan_document import LATENCIES, head
from sim.planning.fleet.so_far import PlanInterrupted
from sim.units import HOURS_OF


def document(stop: PlanInterrupted, *, file: str) -> dict[str, Any]:
    """The fleets that were sized by ``stop``, the cheapest first, and the layouts
    that are ``missing``."""
    found, question = stop.found, stop.question
    known = {*(each.layout for each in found.sized), *(each.layout for each in found.rejected)}
    engine = stop.scenario.only_pool.engine
    return {
        "command": "plan",
        "kind": "interrupted",
        **head(stop.scenario, engine, question.rate, ["workload.arrivals"], file),
        "scaling": None,
        "headroom": question.headroom,
        "target": question.target,
        **judged_by(stop.objectives),
        "layouts": len(question.layouts),
        "sized": [
            {
                "layout": each.layout.text,
                "gpu": each.layout.gpu,
                "precision": each.layout.precision,
                "replicas": each.replicas,
                "gpus": each.gpus,
                "usd_per_hour": each.cost,
                "usd_per_month": each.cost * HOURS_OF["month"],
                **{figure: each.at_target.figures[figure] for figure in LATENCIES},
            }
            for each in sorted(found.sized, key=lambda each: (each.cost, each.layout.text))
        ],
        "rejected": [each.document() for each in found.rejected],
        "missing": [each.text for each in question.layouts if each not in known],
    }
