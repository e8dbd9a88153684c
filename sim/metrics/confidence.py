"""How sure are the figures, and where do the prices behind them come from?"""

from __future__ import annotations

from typing import Any

from sim.hardware import GpuSpec
from sim.metrics.attribution import HOST, Attribution

DATA_SHEET_ERRORS = {"attention": 0.225, "other": 0.125}
"""Relative error of operators of a GPU known only from its data sheet: the middle of 15 to 30 % for
attention and of 10 to 15 % for GEMMs, found by predicting one measured GPU from another."""

HOST_ERROR = 0.15
"""Half the width of the range that fits of vLLM's host time per iteration gave, 1.0 to 1.3 ms."""


def error_band(attribution: Attribution) -> dict[str, Any]:
    """Relative half-widths for this mix of operators, and what they mean."""
    total = attribution.seconds
    if not total:
        return {"throughput": None, "ttft": None, "tpot": None, "text": "Nothing was run."}
    error = 0.0
    for name, seconds in attribution.by_operator.items():
        kind = "attention" if "attention" in name else "other"
        error += (HOST_ERROR if name == HOST else DATA_SHEET_ERRORS[kind]) * seconds / total
    return {
        "throughput": error,
        "ttft": error,
        "tpot": error,
        "text": (
            f"Times of iterations are within about {error:.0%}. Below saturation throughput is set "
            "by the arrivals; near it, waiting times can be off by far more than that."
        ),
    }


def provenance(gpu: GpuSpec) -> str:
    """Where the speed of the GPU comes from."""
    e = gpu.efficiency
    return (
        f"{gpu.title}: data sheet with default efficiencies, not calibrated "
        f"(GEMM {e.compute:.0%} of peak compute, {e.bandwidth:.0%} of peak bandwidth)"
    )
