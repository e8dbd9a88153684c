"""Which figures are there? One file each, with a pure ``figure(...)`` and a runnable demo."""

from __future__ import annotations

NAMES = ("latency_cdf", "slots", "timeline")
"""The modules of this package that draw a figure."""
