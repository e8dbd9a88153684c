"""Describes what a GPU draws: idle, while kernels wait, while they work, and for what they do.

Watts of one GPU, joules. Where nothing was measured of a GPU, it is taken to draw the same shares
of its power limit as an H100 at the same shares of its peaks (``SHARES``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """The power of one GPU, in watts: ``idle`` with a model loaded and nothing to do; ``waiting``
    while a kernel starts or waits for the links, ``working`` while one computes or reads.

    On top of that, in joules: ``byte`` for each byte read or written, ``kv_byte`` for each byte of
    KV cache that decode attention reads, ``flop`` for each FLOP in 16 bits; narrower formats take
    as much less as their peak is higher. ``error`` is the relative error of the power of a run that
    nine of ten do not exceed, ``source`` where all that comes from.
    """

    idle: float
    waiting: float
    working: float
    byte: float
    kv_byte: float
    flop: float
    error: float
    source: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "source" and not value >= 0:
                raise ValueError(f"draw.{field.name}: got {value!r}, expected 0 or more")


class Shares(NamedTuple):
    """A ``PowerDraw`` as shares of the power limit: ``byte`` and ``kv_byte`` while memory is read
    at its peak rate, ``flop`` at the peak of 16 bits."""

    idle: float
    waiting: float
    working: float
    byte: float
    kv_byte: float
    flop: float


SHARES = Shares(idle=0.17, waiting=0.17, working=0.59, byte=0.15, kv_byte=1.35, flop=0.82)
"""Shares of the H100 SXM, the only GPU whose power under vLLM the parameters were fitted to
(calibrate/KERNELS.md)."""

UNMEASURED_ERROR = 0.30
"""Relative error of a power by ``SHARES``: twice the 90th percentile of the GPU they come from
(calibrate/KERNELS.md). No other GPU was compared."""


def draw_by_shares(power: float, bandwidth: float, peak: float) -> PowerDraw:
    """The power of a GPU known only by its power limit (W), memory bandwidth (bytes/s) and 16-bit
    peak (FLOP/s).

    >>> a100 = draw_by_shares(400, 2e12, 312e12)
    >>> round(a100.working), round(a100.byte * 1e12)
    (236, 30)
    """
    return PowerDraw(
        idle=SHARES.idle * power,
        waiting=SHARES.waiting * power,
        working=SHARES.working * power,
        byte=SHARES.byte * power / bandwidth,
        kv_byte=SHARES.kv_byte * power / bandwidth,
        flop=SHARES.flop * power / peak,
        error=UNMEASURED_ERROR,
        source="not measured: as an H100 SXM draws at the same shares of its limit and its peaks",
    )
