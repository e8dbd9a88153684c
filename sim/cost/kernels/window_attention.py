"""Predicts attention that looks back a ``window`` of tokens, a query's own included. Seconds.

Kernels that take a window skip the tiles of keys in front of it: decoding costs what it costs over
as many tokens as a sequence sees, and prompts have tiles that see a window each. So the forms are
those of attention to the whole context at these numbers, with parameters of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import decode_attention, prefill_attention
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameters, Shape

HEADS = ("q_heads", "kv_heads", "head_dim")
DECODE = ("batch", "context", "window", *HEADS)
PREFILL = ("batch", "tokens", "context", "window", *HEADS)
GROUP = (*HEADS, "window")


def capped(shape: Shape) -> dict[str, Floats]:
    """The shape of decoding over what a sequence sees; ``context`` counts its new token."""
    seen = np.minimum(shape["context"], shape["window"])
    return {**shape, "context": seen, "skew": np.ones(())}


def decode(precision: str) -> Form:
    """Decoding over a cache in ``precision``."""
    return of_what_is_seen(decode_attention.form(precision))


def of_what_is_seen(usual: Form) -> Form:
    """A form of decoding over what sequences see of their contexts."""

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        return usual.seconds(p, capped(shape), ceilings)

    def coordinates(shape: Shape) -> dict[str, Floats]:
        return usual.coordinates(capped(shape))

    def regime(shape: Shape) -> NDArray[np.str_]:
        return usual.regime(capped(shape))

    return replace(
        usual,
        operator="window_decode",
        variables=DECODE,
        group=GROUP,
        seconds=seconds,
        coordinates=coordinates,
        regime=regime,
    )


def prefill(precision: str) -> Form:
    """Prompts with a cache in ``precision``."""
    usual = prefill_attention.form(precision)
    return replace(usual, operator="window_prefill", variables=PREFILL, group=GROUP)


def decode_flops(shape: Shape) -> Floats:
    """FLOP that have to be done in decoding."""
    return decode_attention.flops(capped(shape))


def decode_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes that have to move in decoding: the cache of the window once, queries and results."""
    return decode_attention.read_bytes(capped(shape), kv_bytes)
