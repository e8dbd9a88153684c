"""Provides the formats of numbers by name, and the bytes that one number takes in each."""

from __future__ import annotations

from collections.abc import Mapping

PRECISION_BYTES: Mapping[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
}
"""Bytes of one number stored in each precision, without the scales that quantisation adds."""


def precision_bytes(precision: str) -> float:
    """Bytes of one number in ``precision``; ValueError, naming the known ones, if it is not known.

    >>> precision_bytes("int4")
    0.5
    """
    if precision not in PRECISION_BYTES:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(PRECISION_BYTES)}")
    return PRECISION_BYTES[precision]
