"""Provides the uncertainty of operators that were not measured in a shape. Relative errors.

Where one was measured, the hold-out error of its profile says so. These are for everything else.
"""

from __future__ import annotations

from sim.model import precision_bytes

ATTENTION_ERROR = 0.225
PROJECTION_ERROR = 0.125
"""Relative error of operators of a GPU known only from its data sheet: the middle of 15 to 30 % for
attention and of 10 to 15 % for 16-bit GEMMs, found by predicting one measured GPU from another."""

EIGHT_BIT_ERROR = 0.165
"""The same for a plain roofline of 8-bit GEMMs with dynamic quantisation: 15 to 18 %."""


def projection_error(arithmetic: str) -> float:
    """The error of a GEMM in that precision on a GPU known from its data sheet."""
    return EIGHT_BIT_ERROR if precision_bytes(arithmetic) < 2 else PROJECTION_ERROR
