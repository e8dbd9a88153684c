"""How sure are the figures, and where do the prices behind them come from?"""

from __future__ import annotations

from typing import Any

from sim.hardware import GpuSpec
from sim.metrics.attribution import HOST, Attribution
from sim.model import precision_bytes

ATTENTION_ERROR = 0.225
PROJECTION_ERROR = 0.125
"""Relative error of operators of a GPU known only from its data sheet: the middle of 15 to 30 % for
attention and of 10 to 15 % for 16-bit GEMMs, found by predicting one measured GPU from another."""

EIGHT_BIT_ERROR = 0.165
"""The same for a plain roofline of 8-bit GEMMs with dynamic quantisation: 15 to 18 %."""

HOST_ERROR = 0.15
"""About half the width of the range that fits of vLLM's host time an iteration gave, 1.0 to 1.3 ms.
For engines whose overheads are estimates it is too small; their catalogue entries say so."""


def error_band(attribution: Attribution, arithmetic: str) -> dict[str, Any]:
    """Relative half-widths for this mix of operators, and what they mean.

    ``arithmetic`` is the precision in which projections are multiplied.
    """
    total = attribution.seconds
    if not total:
        return {"throughput": None, "ttft": None, "tpot": None, "text": "Nothing was run."}
    projections = EIGHT_BIT_ERROR if precision_bytes(arithmetic) < 2 else PROJECTION_ERROR
    error = 0.0
    for name, seconds in attribution.by_operator.items():
        if name == HOST:
            own = HOST_ERROR
        else:
            own = ATTENTION_ERROR if "attention" in name else projections
        error += own * seconds / total
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
