"""Results of studies to draw without one; plausible, not simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEYS = ("output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms", "capacity")


def ablation() -> Mapping[str, Any]:
    """A throughput that grows tenfold in four steps."""
    steps, value = [], 200.0
    for title, factor in (("batching", 5.0), ("batch", 1.8), ("paging", 1.1), ("chunks", 1.01)):
        steps.append({"title": title, "value": value * factor})
        value *= factor
    entry = {"key": "output_throughput", "title": "output tokens/s", "unit": "tokens/s"}
    whole = {"baseline": 200.0, "full": value, "more": True, "steps": steps}
    return {"kind": "ablation", "figures": [entry | whole]}


def diagnosis() -> Mapping[str, Any]:
    """A run that memory bandwidth binds."""
    effects = {"twice the bandwidth": -0.4, "twice the memory": -0.02, "half the seats": 0.3}
    trials = [
        {"title": title, "changes": dict.fromkeys(KEYS, effect)}
        for title, effect in effects.items()
    ]
    e2el = {
        "front_end": 12.0,
        "queue": 30.0,
        "prefill": 25.0,
        "decode": 900.0,
        "decode_delay": 80.0,
    }
    slowest = {name: 3 * value for name, value in e2el.items()}
    return {
        "kind": "diagnosis",
        "trials": trials,
        "latency": {"e2el": e2el, "slowest_e2el": slowest},
    }
