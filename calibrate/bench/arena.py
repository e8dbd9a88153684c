"""Provides operands as views into one pool of random numbers per type.

Filling fresh tensors for each point would take longer than timing them. A pool is larger than the
last-level cache, and views are cut from it one after another, so that calls made in turn on
different views find none of their operands in the cache, as weights and KV are not found there in a
serving engine. The numbers are random, never zeros, which draw less power and so run at higher
clocks than real data. Sizes are in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from calibrate.device import Device
from calibrate.lazy_torch import Tensor, torch

SMALLEST = 64 * 2**20
MOST_COPIES = 256
"""Copies of one operand at most: what is smaller than a 256th of the cache stays in it in part, and
there latency decides, not traffic."""

TILE = 2**22
"""Elements drawn at random; the pool repeats them."""

ALIGNMENT = 256

GOLDEN = 0.618034
"""Steps of this share of a pool never come near where one of the last few steps has been."""

DTYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
}


def dtype(precision: str) -> Tensor:
    """The torch type of a precision."""
    return getattr(torch, DTYPES[precision])


class Arena:
    """The pools of one device. Not thread-safe: a later ``take`` may hand out the same numbers
    again, and replaces a pool that has become too small.

    ``turnover`` is how many bytes of operands take turns: twice the last-level cache without it,
    the bytes of a model to find as much of them in the cache as an engine that runs it does.
    ``advance`` is the share of a pool by which each use of it starts farther on.
    """

    def __init__(
        self,
        device: Device,
        *,
        seed: int = 0,
        least: int = SMALLEST,
        turnover: float | None = None,
        advance: float = GOLDEN,
    ) -> None:
        self.device = device
        self._least = least
        self._facts: dict[Hashable, bool] = {}
        self.turnover = 2 * device.facts.cache if turnover is None else turnover
        self._first, self._advance = 0.0, advance
        self._pools: dict[tuple[str, str], Tensor] = {}
        self._generator = torch.Generator(device=device.torch_name)
        self._generator.manual_seed(seed)

    @property
    def held(self) -> int:
        """Bytes in all pools."""
        return sum(pool.numel() * pool.element_size() for pool in self._pools.values())

    def copies(self, size: float) -> int:
        """How many operands of ``size`` bytes must take turns for none to be found in the cache."""
        return max(1, min(MOST_COPIES, math.ceil(self.turnover / max(size, 1))))

    def take(
        self, shape: tuple[int, ...], precision: str, copies: int = 1, *, pool: str = "operands"
    ) -> list[Tensor]:
        """``copies`` contiguous tensors of random numbers that do not overlap.

        All calls cut from the same pool: only tensors of different pools, or of one call, are sure
        to be apart. The first one moves on from call to call, so that a few calls on each of
        many points do not always meet the same part of the pool, in the cache.
        """
        kind = dtype(precision)
        step = _aligned(math.prod(shape), kind.itemsize)
        whole = self._pool((precision, pool), step * copies)
        count = math.prod(shape)
        self._first = (self._first + self._advance) % 1.0
        first = int(self._first * copies)
        places = [*range(first, copies), *range(first)]
        return [whole[i * step : i * step + count].view(shape) for i in places]

    def empty(self, shape: tuple[int, ...], precision: str) -> Tensor:
        """A tensor to write results to."""
        return torch.empty(shape, dtype=dtype(precision), device=self.device.torch_name)

    def shuffled(self, count: int) -> Tensor:
        """The numbers below ``count`` in random order (block numbers as an allocator leaves
        them)."""
        return torch.randperm(
            count, generator=self._generator, device=self.device.torch_name, dtype=torch.int32
        )

    def once(self, question: Hashable, find_out: Callable[[], bool]) -> bool:
        """The answer to a question about this device; found out the first time it is asked."""
        if question not in self._facts:
            self._facts[question] = find_out()
        return self._facts[question]

    def release(self) -> None:
        """Give all memory back."""
        self._pools.clear()
        self.device.release()

    def _pool(self, key: tuple[str, str], elements: int) -> Tensor:
        """The pool of a type and purpose, with at least that many elements."""
        pool, precision = self._pools.get(key), key[0]
        if pool is not None and pool.numel() >= elements:
            return pool
        size = dtype(precision).itemsize
        wanted = max(elements, int(max(self.turnover, self._least) / size))
        del pool
        self._pools.pop(key, None)
        if wanted * size > 0.5 * self.device.free_memory():
            self.release()
        if wanted * size > 0.8 * self.device.free_memory():
            wanted = elements
        made = self._random(precision, wanted)
        self._pools[key] = made
        return made

    def _random(self, precision: str, elements: int) -> Tensor:
        where, kind = self.device.torch_name, dtype(precision)
        tile = min(TILE, elements)
        if precision in ("int8", "uint8", "int32"):
            low, high = {"int8": (-127, 128), "uint8": (0, 256), "int32": (0, 2**31 - 1)}[precision]
            numbers = torch.randint(
                low, high, (tile,), generator=self._generator, device=where, dtype=kind
            )
        else:
            drawn = torch.randn(tile, generator=self._generator, device=where)
            numbers = drawn.to(kind)
        pool = torch.empty(elements, dtype=kind, device=where)
        for start in range(0, elements, tile):
            stop = min(start + tile, elements)
            pool[start:stop].copy_(numbers[: stop - start])
        return pool


def _aligned(elements: int, itemsize: int) -> int:
    """``elements`` rounded up so that the next tensor starts on a boundary every kernel likes."""
    unit = max(1, ALIGNMENT // itemsize)
    return -(-elements // unit) * unit
