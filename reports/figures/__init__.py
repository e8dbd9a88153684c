"""The figures of a run's report: one file each, with a pure ``figure(...)`` and a runnable demo."""

from __future__ import annotations

NAMES = (
    *("attainment", "gpu_memory", "histogram", "itl_cdf", "kv_map", "latency_cdf"),
    *("latency_parts", "operator_time", "roofline", "slots", "timeline"),
)
"""The modules of this package that draw a figure."""
