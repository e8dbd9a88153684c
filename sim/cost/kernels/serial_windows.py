"""Predicts attention through a window sequence by sequence, as on a CPU. Seconds.

Decoding copies the window out of its blocks and is ``serial.decode`` over it. A prompt that is
longer than the window is cut into pieces of ``PIECE`` queries, of which each copies out the keys
that any of them sees and is multiplied by them, under a mask; for one piece

    keys     = window - 1 + queries, or all there are in front if these are fewer
    seconds  = piece + head x query heads + keys and values / (bandwidth x share)
               + pack x query heads x width x keys
               + 4 x queries x keys x query heads x (width + softmax) / (peak x compute)

and a sequence adds ``sequence``, its queries and results. A prompt that no window cuts is like any
other: its time is that of ``serial.prefill``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.cost.kernels import prefill_attention, serial, window_attention
from sim.cost.kernels.decode_attention import query_bytes
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.specs.precision import precision_bytes
from sim.specs.profile import KernelFit

PIECE = 64
"""Queries of a piece: on one core the fastest of 32, 64, 128, 256 and 1,024, or within 10 % of it,
for windows of 128 and 1,024; pieces as long as a window of 1,024 take a third longer."""

PROMPT = (
    Parameter("floor", 1e-8, 2e-5, 1e-2, "s", "a pass, however little it reads"),
    Parameter("sequence", 1e-9, 2e-5, 1e-2, "s", "each sequence's own calls"),
    Parameter("piece", 1e-9, 1e-5, 1e-2, "s", "each piece's own calls"),
    Parameter("head", 1e-9, 1e-6, 1e-2, "s", "each query head of a piece"),
    Parameter("share", 1e-2, 0.4, 4.0, "1", "share of the bandwidth at which KV is copied out"),
    Parameter("compute", 1e-4, 0.3, 4.0, "1", "share of the peak FLOP/s"),
    Parameter("softmax", 0.1, 20.0, 1024.0, "elements", "exponentials, as a wider head"),
    Parameter("pack", 1e-14, 1e-10, 1e-7, "s", "each number of the keys, for each query head"),
)


def decode(precision: str) -> Form:
    """Decoding over a cache in ``precision``."""
    return window_attention.of_what_is_seen(serial.decode(precision))


def prefill(precision: str) -> Form:
    """Prompts and chunks that reach beyond the window, with a cache in ``precision``."""
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        new, past, heads = shape["tokens"], shape["context"], shape["q_heads"]
        window, width = shape["window"], shape["head_dim"]
        pieces = np.ceil(new / PIECE)
        keys = prefill_attention.seen_by_tiles(new, past, window, pieces, PIECE)
        rest = new - PIECE * (pieces - 1)
        last = np.minimum(past + new, window - 1 + rest)
        pairs = PIECE * (keys - last) + rest * last
        moved = new * heads * query_bytes(kept) + keys * shape["kv_heads"] * kept
        each = (
            p["sequence"]
            + pieces * (p["piece"] + p["head"] * heads)
            + 2 * moved * width / (ceilings.bandwidth * p["share"])
            + p["pack"] * heads * width * keys
            + 4 * pairs * heads * (width + p["softmax"]) / (ceilings.peak * p["compute"])
        )
        total: Floats = p["floor"] + shape["batch"] * each
        return total

    return replace(
        window_attention.prefill(precision),
        parameters=PROMPT,
        seconds=seconds,
        coordinates=_none,
    )


def _none(shape: Shape) -> dict[str, Floats]:
    """No residual table: the event loop times a prompt without one."""
    return {}


class SerialWindowPrompts:
    """Times chunks of one model on one device through a window, as ``SerialPrompts`` without.

    ``whole`` times those that the window does not cut.
    """

    __slots__ = ("_key", "_pair", "_per_query", "_piece", "_sequence", "_whole", "floor")

    def __init__(
        self,
        fit: KernelFit,
        ceilings: Ceilings,
        precision: str,
        heads: tuple[int, int, int],
        whole: SerialPrompts,
    ) -> None:
        p, (q_heads, kv_heads, head_dim) = fit.parameters, heads
        kept = precision_bytes(precision)
        rate = ceilings.bandwidth * p["share"]
        self._whole, self.floor, self._sequence = whole, p["floor"], p["sequence"]
        self._piece = p["piece"] + p["head"] * q_heads
        self._per_query = 2 * q_heads * head_dim * query_bytes(kept) / rate
        self._key = p["pack"] * q_heads * head_dim + 2 * kv_heads * head_dim * kept / rate
        self._pair = 4 * q_heads * (head_dim + p["softmax"]) / (ceilings.peak * p["compute"])

    def work(self, tokens: int, context: int, window: int = 0) -> tuple[float, float, float, float]:
        """Work that a chunk of ``tokens`` adds to ``context`` tokens that are cached, as
        ``SerialPrompts.work``."""
        if not window:
            return self._whole.work(tokens, context)
        pieces = -(-tokens // PIECE)
        rest = tokens - PIECE * (pieces - 1)
        rising = min(max(-(-(window - 1 + PIECE - context) // PIECE) - 1, 0), pieces - 1)
        keys = rising * context + PIECE * rising * (rising + 1) // 2
        keys += (pieces - 1 - rising) * (window - 1 + PIECE)
        last = min(context + tokens, window - 1 + rest)
        busy = self._sequence + pieces * self._piece + (keys + last) * self._key
        busy += (PIECE * keys + rest * last) * self._pair
        return busy, 0.0, tokens * self._per_query, 0.0

    def seconds(self, work: float, longest: float, reading: float, writing: float) -> float:
        """One layer's pass over chunks with these sums."""
        return self.floor + work + longest + reading + writing

    def correction(self, tokens: int, chunks: int) -> float:
        """There is no residual table to correct by."""
        return 1.0

    def alone(self, tokens: int) -> float:
        """One layer's pass over a single prompt that the window does not cut."""
        return self._whole.alone(tokens)
