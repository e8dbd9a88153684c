"""Measures copies within device memory, between host and device, and between devices.

``memory`` (copies) and ``memory_read`` give the bandwidth that everything else is compared to.
Copies between host and device are made from page-locked memory, as engines load weights and swap KV
blocks, and once from ordinary memory (``..._pageable``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calibrate.bench.arena import SMALLEST, Arena, dtype
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, UnsupportedError, element
from calibrate.lazy_torch import Tensor, torch

PAGEABLE = "_pageable"

SIZES = tuple(2**exponent for exponent in range(12, 31))
"""Bytes, 4 KiB to 1 GiB."""

PASSES = {"memory": 2, "memory_read": 1}

READ_AS = "fp32"
"""The type that reads are counted in: comparing 16-bit numbers takes a CPU longer than reading."""


def memory_point(operator: str, precision: str, size: int) -> BenchPoint:
    """``size`` bytes of one buffer; a copy (``memory``) moves them twice."""
    traffic = float(PASSES[operator] * size)
    shape = {"bytes": traffic}
    return BenchPoint(operator, precision, shape, traffic, 0.0, 2 * traffic + WORKSPACE)


class Copies:
    """Memory streams and transfers."""

    shares: Mapping[str, float] = {
        **{"memory": 0.4, "memory_read": 0.3, "device_to_device": 0.3},
        **{"host_to_device": 0.25, "device_to_host": 0.25},
        **{"host_to_device_pageable": 0.05, "device_to_host_pageable": 0.05},
    }

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Streams everywhere; transfers where there is a device to transfer to."""
        for size in SIZES:
            yield memory_point("memory", scope.activations(), size)
            yield memory_point("memory_read", READ_AS, size)
        if scope.kind != "cuda":
            return
        for size in SIZES:
            for operator in ("host_to_device", "device_to_host"):
                for kind in ("", PAGEABLE):
                    yield _transfer(operator + kind, size)
            if scope.devices > 1:
                yield _transfer("device_to_device", size)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Sources and targets in turn."""
        if point.operator in PASSES:
            return _stream(point, arena)
        if point.operator == "device_to_device":
            return _between(point, arena)
        return _host(point, arena)


def _transfer(operator: str, size: int) -> BenchPoint:
    memory = 2.0 * size + WORKSPACE
    return BenchPoint(operator, "bf16", {"bytes": float(size)}, float(size), 0.0, memory)


def _stream(point: BenchPoint, arena: Arena) -> BenchWork:
    size = point.size("bytes") // PASSES[point.operator]
    count = int(size / element(point.precision))
    if point.operator == "memory_read":
        sources = arena.take((count,), point.precision, arena.copies(size))
        top = torch.amax
        return BenchWork([_bound(top, x) for x in sources], "torch.amax")
    pairs = arena.take((count,), point.precision, 2 * arena.copies(2 * size))
    return BenchWork(
        [_copied(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)], "torch.copy_"
    )


def _bound(function: Tensor, x: Tensor) -> Tensor:
    return lambda: function(x)


def _copied(target: Tensor, source: Tensor) -> Tensor:
    return lambda: target.copy_(source, non_blocking=True)


def _host(point: BenchPoint, arena: Arena) -> BenchWork:
    count = point.size("bytes") // 2
    copies = max(1, min(4, SMALLEST // max(point.size("bytes"), 1)))
    device = arena.take((count,), "bf16", copies)
    locked = not point.operator.endswith(PAGEABLE)
    host = [torch.empty(count, dtype=dtype("bf16"), pin_memory=locked) for _ in device]
    for mine, theirs in zip(host, device, strict=True):
        mine.copy_(theirs)
    down = point.operator.startswith("host_to_device")
    pairs = zip(device, host, strict=True) if down else zip(host, device, strict=True)
    kernel = "cudaMemcpyAsync, page-locked" if locked else "cudaMemcpy, pageable"
    return BenchWork([_copied(a, b) for a, b in pairs], kernel, "eager" if locked else "host")


def _between(point: BenchPoint, arena: Arena) -> BenchWork:
    count, here = point.size("bytes") // 2, arena.device.index
    other = next(i for i in range(torch.cuda.device_count()) if i != here)
    if not torch.cuda.can_device_access_peer(here, other):
        raise UnsupportedError(f"cuda:{here} cannot reach cuda:{other} directly")
    (source,) = arena.take((count,), "bf16")
    target = torch.empty(count, dtype=dtype("bf16"), device=f"cuda:{other}")
    return BenchWork([_copied(target, source)], "peer copy", "eager")
