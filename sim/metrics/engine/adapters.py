"""Sums up what LoRA adapters took in a run: their kernels, and the loads of adapters."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.cost.adapters import ADAPTERS as OPERATOR
from sim.growth.leaps import ADAPTERS, LOADS
from sim.metrics.record.run_record import RunRecord
from sim.pools import adapter_slots
from sim.units import show_bytes, show_share, show_time


def adapters(run: RunRecord) -> dict[str, Any]:
    """The entry ``lora`` of a summary; nothing where no adapters are served.

    ``slot_bytes`` are those of one adapter on one GPU, ``mean_adapters`` the different ones in an
    iteration; ``loads`` were copied from the host, ``load_seconds`` in sum, while their replica did
    nothing else. ``kernel_share`` is the share of the busy time that went to their products.
    """
    if run.scenario.lora is None or run.observed:
        return {}
    plans, loads, seconds = run.plans, 0, 0.0
    for part in run.parts:
        slots = adapter_slots(part.pool.deployment)
        assert slots is not None
        copied = int(part.plans[LOADS].sum())
        loads += copied
        seconds += copied * slots.seconds
    busy, times = run.attribution, plans["iterations"]
    taken = busy.by_operator.get(OPERATOR, 0.0)
    return {
        "lora": {
            "slot_bytes": max(pool.deployment.adapter_bytes for pool in run.pools),
            "mean_adapters": float(np.average(plans[ADAPTERS], weights=times)) if loads else 0.0,
            "loads": loads,
            "load_seconds": seconds,
            "kernel_share": taken / busy.seconds if busy.seconds else 0.0,
        }
    }


def adapters_note(run: RunRecord) -> str | None:
    """The note on what adapters took, and how well that is known; None where there are none."""
    found = adapters(run).get("lora")
    if found is None:
        return None
    return (
        f"Adapters: {found['mean_adapters']:.1f} different ones in an iteration on average, whose "
        f"kernels took {show_share(found['kernel_share'])} of the busy time; {found['loads']:,} "
        f"loads of {show_bytes(found['slot_bytes'])} from the host stopped replicas for "
        f"{show_time(found['load_seconds'])} in all. No profile has these kernels: their time is "
        "that of the data sheet, likely too short. The capacity leaves out that requests wait for "
        "slots of adapters."
    )
