"""Decides which latency limit breaks first: one rule for every verdict and decision."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class KeptLimit(NamedTuple):
    """How one limit was kept: the ``share`` of requests within it, the ``target`` share, and the
    ``pressure``, the latency at the target share over the limit (above 1: broken)."""

    name: str
    share: float
    target: float
    pressure: float

    @property
    def used(self) -> float:
        """The requests beyond the limit, as a multiple of those that the target allows."""
        missed = 1 - self.share
        if missed <= 0:
            return 0.0
        return missed / (1 - self.target) if self.target < 1 else math.inf


def first_to_break(limits: Iterable[KeptLimit]) -> str | None:
    """The limit that the most requests exceed, measured by how many may; None without limits.

    Where none exceed any, the limit that latencies come closest to.

    >>> first_to_break([KeptLimit("ttft", 0.98, 0.99, 2.4), KeptLimit("tpot", 0.70, 0.99, 1.3)])
    'tpot'
    >>> first_to_break([KeptLimit("ttft", 1.0, 0.99, 0.4), KeptLimit("tpot", 1.0, 0.99, 0.7)])
    'tpot'
    """
    worst = max(limits, key=lambda each: (each.used, each.pressure), default=None)
    return None if worst is None else worst.name
