"""Measures the cost of starting an operator that does next to nothing.

``launch`` is a constant for each variant: ``eager`` the host's time per operator started from
Python, ``graph`` the device's time per operator inside a replayed CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, UnsupportedError
from calibrate.lazy_torch import torch

QUEUE = 200
"""Operators started one behind the other; the wait for the last is shared by all of them."""


class Launch:
    """Tiny operators."""

    shares: Mapping[str, float] = {"launch": 0.1}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """One point for each way to start an operator."""
        for variant in ("eager", "graph") if scope.kind == "cuda" else ("eager",):
            shape = {"bytes": 2048.0}
            yield BenchPoint(
                "launch", scope.activations(), shape, 2048.0, 0.0, WORKSPACE, 1.0, variant
            )

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """In-place additions to 512 numbers."""
        add = torch.Tensor.add_
        (x,) = arena.take((512,), point.precision)
        x = x.clone()
        if point.variant == "graph":
            if arena.device.facts.kind != "cuda":
                raise UnsupportedError("graphs need CUDA")
            return BenchWork([lambda: add(x, 0.0)] * QUEUE, "torch.add_")

        if arena.device.facts.kind == "cpu":
            return BenchWork([lambda: add(x, 0.0)], "torch.add_", "host")
        return BenchWork([lambda: add(x, 0.0)] * QUEUE, "torch.add_", "eager")
