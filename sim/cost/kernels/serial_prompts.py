"""Predicts the time of attention over prompts of different lengths, one by one, in seconds.

The scalar twin of ``serial.prefill``, for the event loop: what ``prompts.Prompts`` is to kernels
with tiles. Chunks add up; the two agree to rounding for equal ones.
"""

from __future__ import annotations

from sim.cost.kernels import decode_attention, serial
from sim.cost.kernels.form import Ceilings
from sim.specs.precision import precision_bytes
from sim.specs.profile import KernelFit


class SerialPrompts:
    """Times chunks of one model on one device (heads are those of the device).

    ``floor`` is what a pass takes however little it computes (s).
    """

    __slots__ = (
        "_each",
        "_held",
        "_least",
        "_mask",
        "_near",
        "_per_key",
        "_per_query",
        "_product",
        "_slow",
        "_whole",
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
        p = fit.parameters
        kept = precision_bytes(precision)
        rate = ceilings.bandwidth * p["share"]
        wide = decode_attention.query_bytes(kept)
        self.floor = p["floor"]
        self._each = p["sequence"] + p["head"] * q_heads
        self._held = 2 * kv_heads * head_dim * kept  # bytes of a token
        self._per_query = 2 * q_heads * head_dim * wide / rate
        self._per_key = self._held / rate + p["pack"] * q_heads * head_dim
        self._product = 4 * q_heads / (ceilings.peak * p["compute"])  # s per element of a pair
        self._whole = head_dim + p["softmax"]
        self._least = p["least"] * head_dim
        self._near, self._slow, self._mask = p["near"], p["slow"], p["mask"]

    def work(self, tokens: int, context: int, window: int = 0) -> tuple[float, float, float, float]:
        """Work that a chunk of ``tokens`` adds to ``context`` tokens that are cached: seconds of
        arithmetic and calls, none of a longest tile, of copying, none of writing. A ``window``,
        shorter than both together, is a mask too: keys that no query sees are left out."""
        masked = bool(context or window)
        keys = (min(context, window - 1) if window else context) + tokens
        if masked:
            pairs = float(tokens * keys)
        else:
            whole, rest = divmod(tokens, serial.KEYS)
            pairs = serial.KEYS * serial.KEYS * whole * (whole + 1) / 2 + rest * tokens
        block = next(size for start, size in reversed(serial.BLOCKS) if tokens >= start)
        slowed = 1 + self._slow / (1 + (self._near / (keys * self._held)) ** 2)
        again = self._least * -(-tokens // block) / tokens * slowed
        busy = self._each + pairs * self._product * (self._whole + again)
        if masked:
            busy += pairs * self._mask
        return busy, 0.0, tokens * self._per_query + keys * self._per_key, 0.0

    def seconds(self, work: float, longest: float, reading: float, writing: float) -> float:
        """One layer's pass over chunks with these sums."""
        return self.floor + work + longest + reading + writing

    def correction(self, tokens: int, chunks: int) -> float:
        """There is no residual table to correct by."""
        return 1.0

    def alone(self, tokens: int) -> float:
        """One layer's pass over a single prompt of ``tokens`` with nothing cached before it."""
        return self.seconds(*self.work(tokens, 0))
