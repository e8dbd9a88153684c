"""Finds the knee: the load above which latency grows more than throughput.

The knee is the load with the most *power*, throughput over mean end-to-end latency (Kleinrock,
1979): below it the fleet is idle too much, above it requests wait for each other too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.planning.probe import Probe


@dataclass(frozen=True)
class Knee:
    """``load`` has the most power of the loads tried; ``between`` are its neighbours among them.

    ``throughput`` in requests per second, ``latency`` is the mean end-to-end latency in seconds.
    ``at_end``: power still grows at the highest load that holds, so that the knee lies beyond it.
    """

    load: float
    throughput: float
    latency: float
    between: tuple[float, float]
    at_end: bool

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "load": self.load,
            "throughput": self.throughput,
            "mean_e2el_ms": self.latency * 1e3,
            "between": list(self.between),
            "at_end": self.at_end,
        }


def knee(probes: Sequence[Probe]) -> Knee | None:
    """The knee of a curve of loads in ascending order; None without three of them."""
    points = [
        (probe.load, throughput, latency / 1e3)
        for probe in probes
        if (throughput := probe.figures["request_throughput"]) is not None
        and (latency := probe.figures["mean_e2el_ms"])
    ]
    if len(points) < 3:
        return None
    best = max(range(len(points)), key=lambda index: points[index][1] / points[index][2])
    last = len(points) - 1
    load, throughput, latency = points[best]
    around = (points[max(0, best - 1)][0], points[min(last, best + 1)][0])
    return Knee(load, throughput, latency, around, best == last)
