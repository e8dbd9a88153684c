"""Predicts the time of one prefill attention over prompts of different lengths, in seconds.

The scalar twin of ``sim.cost.kernels.prefill_attention``, for the event loop: work, reads and
writes of the chunks add up, of the longest tiles the longest counts, and one call of ``seconds``
joins them. For equal prompts, and nothing found in a cache, the two agree to rounding.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from sim.cost.kernels.decode_attention import query_bytes
from sim.cost.kernels.form import Ceilings, Parameters, interpolate
from sim.cost.kernels.prefill_attention import BEFORE, BLOCK, WARM, WIDTH, form
from sim.specs.precision import precision_bytes
from sim.specs.profile import KernelFit

FIRST = 1024
"""Lengths of a lone prompt that are tabulated to begin with."""

Share = tuple[float, float, float, float]
"""Seconds of one chunk: of its tiles spread over all SMs, of its longest tile, of reading, of
writing the cache."""


class Prompts:
    """Times chunks of one model on one GPU (heads are those of the GPU).

    ``floor`` is what a call takes however little it computes (s).
    """

    __slots__ = (
        "_alone",
        "_apart_key",
        "_apart_tile",
        "_blend",
        "_ceilings",
        "_droop",
        "_fit",
        "_form",
        "_group",
        "_heads",
        "_packed_key",
        "_packed_tile",
        "_per_key",
        "_read_key",
        "_read_query",
        "_rows",
        "_split",
        "_step",
        "_table",
        "_tail",
        "_write",
        "floor",
    )

    def __init__(
        self,
        fit: KernelFit,
        ceilings: Ceilings,
        precision: str,
        q_heads: int,
        kv_heads: int,
        head_dim: float,
    ) -> None:
        self._fit, self._ceilings, self._form = fit, ceilings, form(precision)
        self._heads = {"q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim}
        self._alone: list[float] = []
        p: Parameters = {**BEFORE, **fit.parameters}
        self._rows = rows = int(p["rows"])
        group = q_heads / kv_heads
        rate = ceilings.bandwidth * p["share"]
        kept = precision_bytes(precision)
        alone = p["alone_unit"] if group == 1 else 1.0
        width = head_dim + p["softmax"]
        self._group = group
        self.floor = p["floor"]
        self._blend, self._droop = p["blend"], p["droop"]
        self._tail, self._split = p["tail"], p["split"]
        unit = p["unit"] * (head_dim / WIDTH) ** p["unit_width"] * alone
        self._per_key = 4 * rows * width * ceilings.sms / (ceilings.peak * p["compute"])
        self._step = rows / 2 / group  # half of the keys by which a packed tile sees more
        packed = p["packing"] * kv_heads / ceilings.sms
        apart = (1 - p["packing"]) * q_heads / ceilings.sms
        self._packed_tile, self._packed_key = packed * unit, packed * self._per_key
        self._apart_tile, self._apart_key = apart * unit, apart * self._per_key
        wide = query_bytes(kept)
        self._read_query = 2 * q_heads * head_dim * wide / rate
        self._read_key = 2 * kv_heads * head_dim * kept / rate
        self._write = p["write"] * 2 * kv_heads * head_dim * (wide + kept) / rate
        self._write += p["copy"] * min(kv_heads * head_dim / BLOCK, 1.0)
        self._table = _PromptTable(fit, q_heads, group, head_dim)

    def work(self, tokens: int, context: int, window: int = 0) -> Share:
        """Work that a chunk of ``tokens`` adds to ``context`` tokens that are cached; with a
        ``window``, shorter than both together, each query sees that many keys at most."""
        rows = self._rows
        apart = -(-tokens // rows)
        packed = -(-tokens * self._group // rows)
        whole = context + tokens
        if window:
            return self._windowed(tokens, context, window, apart, packed)
        return (
            packed * self._packed_tile
            + apart * self._apart_tile
            + ((packed - 1) * (context + self._step * packed) + whole) * self._packed_key
            + ((apart - 1) * (context + rows / 2 * apart) + whole) * self._apart_key,
            whole * self._per_key,
            tokens * self._read_query + whole * self._read_key,
            tokens * self._write,
        )

    def _windowed(
        self, tokens: int, context: int, window: int, apart: float, packed: float
    ) -> Share:
        """A tile sees the window of its first row up to its last row."""
        step = 2 * self._step
        keys_apart = _seen_by_tiles(tokens, context, window, apart, self._rows)
        keys_packed = _seen_by_tiles(tokens, context, window, packed, step)
        read = min(context, window - 1) + tokens
        return (
            packed * self._packed_tile
            + apart * self._apart_tile
            + keys_packed * self._packed_key
            + keys_apart * self._apart_key,
            min(context + tokens, window - 1 + self._rows) * self._per_key,
            tokens * self._read_query + read * self._read_key,
            tokens * self._write,
        )

    def seconds(self, work: float, longest: float, reading: float, writing: float) -> float:
        """One layer's call over chunks with these sums, ``longest`` the largest of them."""
        busy = work + self._tail * longest
        if longest > busy:
            busy = longest ** (1 - self._split) * busy**self._split
        busy *= 1 + self._droop * busy / (busy + WARM)
        both: float = (busy**self._blend + reading**self._blend) ** (1 / self._blend)
        return self.floor + both + writing

    def alone(self, tokens: int) -> float:
        """One layer's call over a single prompt of ``tokens`` with nothing cached before it."""
        if tokens >= len(self._alone):
            self._alone = self._alone_up_to(max(FIRST, 1 << tokens.bit_length()))
        return self._alone[tokens]

    def _alone_up_to(self, count: int) -> list[float]:
        """Seconds of lone prompts of 0 (of no use), 1, 2, ... tokens, as a list."""
        one, none = np.ones(()), np.zeros(())
        shape = {
            **{"batch": one, "tokens": np.maximum(np.arange(count), 1.0), "context": none},
            **{name: np.asarray(float(value)) for name, value in self._heads.items()},
        }
        found: list[float] = self._form.predict(self._fit, shape, self._ceilings).tolist()
        return found

    def correction(self, tokens: int, chunks: int) -> float:
        """Factor of the residual table for ``tokens`` in all over ``chunks`` prompts."""
        return self._table.factor(tokens, chunks)


def _seen_by_tiles(tokens: int, context: int, window: int, tiles: float, step: float) -> float:
    """Keys that ``tiles`` of ``step`` tokens each, the last of them of what is left, see in sum.

    >>> _seen_by_tiles(300, 100, 200, 3, 128)  # 228 keys, 327 of 356, 243 of 400
    798.0
    """
    most = window - 1 + step
    rising = min(max(math.ceil((most - context) / step) - 1, 0), tiles - 1)
    before = rising * context + step * rising * (rising + 1) / 2 + (tiles - 1 - rising) * most
    last = tokens - step * (tiles - 1)
    return before + min(context + tokens, window - 1 + last)


class _PromptTable:
    """The residual table at one model's heads: bilinear in the logarithms of rows and tokens."""

    __slots__ = ("_factors", "_grid", "_heads", "_rows", "_tokens")

    def __init__(self, fit: KernelFit, q_heads: int, group: float, head_dim: float) -> None:
        self._factors: dict[tuple[int, int], float] = {}  # by tokens and chunks, once asked for
        self._heads = math.log2(q_heads)
        self._rows: list[float] = [0.0]
        self._tokens: list[float] = [0.0]
        self._grid: list[list[float]] = [[0.0]]
        if fit.residual is None:
            return
        axes = fit.residual.axes
        self._rows, self._tokens = list(axes["rows"]), list(axes["tokens"])
        at = {
            "rows": np.array(self._rows)[:, None],
            "tokens": np.array(self._tokens)[None, :],
            "group": np.array(math.log2(group)),
            "head_dim": np.array(math.log2(head_dim)),
        }
        self._grid = interpolate(fit.residual, at).tolist()

    def factor(self, tokens: int, chunks: int) -> float:
        """Exponential of the table there; at the edge outside of it."""
        found = self._factors.get((tokens, chunks))
        if found is None:
            found = self._factors[tokens, chunks] = self._interpolated(tokens, chunks)
        return found

    def _interpolated(self, tokens: int, chunks: int) -> float:
        row, below, down = _place(self._rows, math.log2(tokens) + self._heads)
        column, left, right = _place(self._tokens, math.log2(tokens / chunks))
        here = self._grid[row]
        value = here[column] * left + (here[column + 1] * right if right else 0.0)
        if down:
            there = self._grid[row + 1]
            other = there[column] * left + (there[column + 1] * right if right else 0.0)
            value = value * below + other * down
        return math.exp(value)


def _place(knots: list[float], at: float) -> tuple[int, float, float]:
    """The knot at or before ``at``, its weight and the next one's; clamped to both ends."""
    if at <= knots[0]:
        return 0, 1.0, 0.0
    if at >= knots[-1]:
        return len(knots) - 1, 1.0, 0.0
    index = bisect_right(knots, at) - 1
    rest = (at - knots[index]) / (knots[index + 1] - knots[index])
    return index, 1 - rest, rest
