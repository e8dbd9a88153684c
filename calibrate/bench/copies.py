"""How fast do bytes move: within device memory, between host and device, between devices?

``memory`` (variants ``copy`` and ``read``) gives the bandwidth that everything else is
compared to. Copies between host and device are made from page-locked memory, as engines load
weights and swap KV blocks, and once from ordinary memory (variant ``pageable``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calibrate.bench.arena import SMALLEST, Arena, dtype
from calibrate.bench.base import WORKSPACE, Point, Scope, UnsupportedError, Work, element
from calibrate.lazy_torch import Tensor, torch

SIZES = tuple(2**exponent for exponent in range(12, 31))
"""Bytes, 4 KiB to 1 GiB."""

PASSES = {"copy": 2, "read": 1}


def memory_point(variant: str, precision: str, size: int) -> Point:
    """``size`` bytes of one buffer; a copy moves them twice."""
    traffic = float(PASSES[variant] * size)
    shape = {"bytes": traffic}
    return Point("memory", precision, shape, traffic, 0.0, 2 * traffic + WORKSPACE, 1.0, variant)


class Copies:
    """Memory streams and transfers."""

    shares: Mapping[str, float] = {
        "memory": 0.7,
        "host_to_device": 0.3,
        "device_to_host": 0.3,
        "device_to_device": 0.3,
    }

    def points(self, scope: Scope) -> Iterator[Point]:
        """Streams everywhere; transfers where there is a device to transfer to."""
        for variant in PASSES:
            for size in SIZES:
                yield memory_point(variant, scope.activations(), size)
        if scope.kind != "cuda":
            return
        for size in SIZES:
            for operator in ("host_to_device", "device_to_host"):
                for variant in ("", "pageable"):
                    yield _transfer(operator, size, variant)
            if scope.devices > 1:
                yield _transfer("device_to_device", size, "")

    def prepare(self, point: Point, arena: Arena) -> Work:
        """Sources and targets in turn."""
        if point.operator == "memory":
            return _stream(point, arena)
        if point.operator == "device_to_device":
            return _between(point, arena)
        return _host(point, arena)


def _transfer(operator: str, size: int, variant: str) -> Point:
    weight = 1.0 if not variant else 0.4
    memory = 2.0 * size + WORKSPACE
    shape = {"bytes": float(size)}
    return Point(operator, "bf16", shape, float(size), 0.0, memory, weight, variant)


def _stream(point: Point, arena: Arena) -> Work:
    size = point.size("bytes") // PASSES[point.variant]
    count = int(size / element(point.precision))
    if point.variant == "read":
        sources = arena.take((count,), point.precision, arena.copies(size))
        top = torch.amax
        return Work([_bound(top, x) for x in sources], "torch.amax")
    pairs = arena.take((count,), point.precision, 2 * arena.copies(2 * size))
    return Work(
        [_copied(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)], "torch.copy_"
    )


def _bound(function: Tensor, x: Tensor) -> Tensor:
    return lambda: function(x)


def _copied(target: Tensor, source: Tensor) -> Tensor:
    return lambda: target.copy_(source, non_blocking=True)


def _host(point: Point, arena: Arena) -> Work:
    count = point.size("bytes") // 2
    copies = max(1, min(4, SMALLEST // max(point.size("bytes"), 1)))
    device = arena.take((count,), "bf16", copies)
    locked = point.variant != "pageable"
    host = [torch.empty(count, dtype=dtype("bf16"), pin_memory=locked) for _ in device]
    for mine, theirs in zip(host, device, strict=True):
        mine.copy_(theirs)
    down = point.operator == "host_to_device"
    pairs = zip(device, host, strict=True) if down else zip(host, device, strict=True)
    kernel = "cudaMemcpyAsync, page-locked" if locked else "cudaMemcpy, pageable"
    return Work([_copied(a, b) for a, b in pairs], kernel, "eager" if locked else "host")


def _between(point: Point, arena: Arena) -> Work:
    count, here = point.size("bytes") // 2, arena.device.index
    other = next(i for i in range(torch.cuda.device_count()) if i != here)
    if not torch.cuda.can_device_access_peer(here, other):
        raise UnsupportedError(f"cuda:{here} cannot reach cuda:{other} directly")
    (source,) = arena.take((count,), "bf16")
    target = torch.empty(count, dtype=dtype("bf16"), device=f"cuda:{other}")
    return Work([_copied(target, source)], "peer copy", "eager")
