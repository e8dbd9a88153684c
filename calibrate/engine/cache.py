"""Stores which KV blocks each request has, and where its keys and values lie.

The scheduler's allocator (``sim.memory``) counts what each request has; here there are numbered
blocks with contents. Both must agree after every decision, which ``BlockTables.used`` makes
checkable. Amounts are tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from calibrate.engine.places import KvPlaces
from calibrate.lazy_torch import Tensor, torch
from sim.specs.window import Window


@dataclass(slots=True)
class _Own:
    """A request's blocks in one group: how many are ``gone`` behind the window, and the numbers of
    those after them."""

    gone: int = 0
    numbers: list[int] = field(default_factory=list)


class BlockTables:
    """The blocks of each request, by its id; a request's tokens fill its blocks in their order.

    ``order`` is the order in which free blocks are handed out at first, ascending without it;
    afterwards those freed longest ago go first. ``windows`` has an entry for each group of layers
    (``places``): every request has blocks in each, and gives back those that lie behind a window.

    >>> tables = BlockTables(num_blocks=4, block_size=16, order=[3, 1, 0, 2])
    >>> tables.resize(request=7, tokens=17)
    >>> tables.blocks(7), tables.slots(7, 15, 18), tables.used
    ([3, 1], [63, 16, 17], 2)
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        order: Sequence[int] | None = None,
        *,
        windows: Sequence[Window | None] = (None,),
    ) -> None:
        numbers = range(num_blocks)
        if order is not None and sorted(order) != list(numbers):
            raise ValueError(f"order: expected each of the {num_blocks} blocks once")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.windows = tuple(windows)
        self._free = deque(numbers if order is None else order)
        self._own: dict[int, tuple[_Own, ...]] = {}

    @property
    def used(self) -> int:
        """Blocks that requests have."""
        return self.num_blocks - len(self._free)

    def owners(self) -> list[int]:
        """Requests that have blocks, the first to get one first."""
        return list(self._own)

    def blocks(self, request: int, group: int = 0) -> list[int]:
        """The numbers of a request's blocks, in the order of its tokens, without those behind a
        window."""
        return self._own[request][group].numbers

    def row(self, request: int, tokens: int, nowhere: int, group: int) -> list[int]:
        """The blocks that hold the first ``tokens``; ``nowhere`` for each behind the window."""
        own = self._own[request][group]
        return [nowhere] * own.gone + own.numbers[: self.needed(tokens) - own.gone]

    def needed(self, tokens: int) -> int:
        """Blocks of one group that hold ``tokens`` of one request."""
        return -(-tokens // self.block_size)

    def resize(self, request: int, tokens: int, computed: int = 0, padding: int = 0) -> None:
        """Let ``request`` have the blocks for ``tokens`` and no more, less those that no token
        from place ``computed`` on sees; RuntimeError if too few are free, although the scheduler
        counted on them."""
        self.release(request, tokens, computed, padding)
        self.take(request, tokens)

    def release(self, request: int, tokens: int, computed: int = 0, padding: int = 0) -> int:
        """Take back what ``request`` has beyond ``resize``; returns how many blocks. Windows are
        counted without the first ``padding`` places."""
        before = self.used
        if not tokens:
            for own in self._own.pop(request, ()):
                self._free.extend(reversed(own.numbers))
            return before - self.used
        for own, window in zip(self._own.get(request, ()), self.windows, strict=False):
            while own.gone + len(own.numbers) > self.needed(tokens):
                self._free.append(own.numbers.pop())
            if window is None:
                continue
            behind = computed - window.seen(max(0, computed - padding))
            while own.numbers and own.gone < behind // self.block_size:
                self._free.append(own.numbers.pop(0))
                own.gone += 1
        return before - self.used

    def take(self, request: int, tokens: int) -> None:
        """Give ``request`` what it lacks of the blocks for ``tokens``."""
        if not tokens:
            return
        if request not in self._own:
            self._own[request] = tuple(_Own() for _ in self.windows)
        owned = self._own[request]
        lacking = [self.needed(tokens) - own.gone - len(own.numbers) for own in owned]
        if sum(lacking) > len(self._free):
            raise RuntimeError(
                f"request {request} needs {sum(lacking)} more blocks, {len(self._free)} are "
                "free: the scheduler's allocator and the block tables disagree"
            )
        for own, count in zip(owned, lacking, strict=True):
            own.numbers += [self._free.popleft() for _ in range(count)]

    def free(self, request: int) -> None:
        """Take back all blocks of ``request``."""
        self.release(request, 0)

    def slots(self, request: int, start: int, stop: int, group: int = 0) -> list[int]:
        """Where tokens ``start`` to ``stop`` of a request lie, counted in tokens over all blocks
        of the cache."""
        own, size = self._own[request][group], self.block_size
        numbers, gone = own.numbers, own.gone
        return [numbers[place // size - gone] * size + place % size for place in range(start, stop)]


class Cache:
    """The memory of the layers: for each layer of a group, block x slot x head x size of keys and
    of values, or of latent vectors alone.

    Behind the ``num_blocks`` there is one more block, ``nowhere``: tokens that must be written
    somewhere and are never read go there.
    """

    def __init__(
        self, places: KvPlaces, num_blocks: int, block_size: int, *, dtype: object, device: str
    ) -> None:
        self.places = places
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.nowhere = num_blocks
        rows = (places.size, num_blocks + 1, block_size)
        # filled, not just asked for: the first touch of a page must not fall into the run
        self._parts = tuple(
            torch.empty((*rows, *part), dtype=dtype, device=device).zero_() for part in places.parts
        )

    def layer(self, number: int) -> tuple[Tensor, ...]:
        """The cache of layer ``number``: block x slot x head x size of each part."""
        at = self.places.layers[number].at
        return tuple(part[at] for part in self._parts)

    def write(self, layer: int, slots: Sequence[Tensor], *new: Tensor) -> None:
        """Put one row of each part at each of the slots of the layer's group."""
        group, at = self.places.layers[layer]
        for part, rows in zip(self._parts, new, strict=True):
            part[at].flatten(0, 1).index_copy_(0, slots[group], rows)


def cache_bytes(places: KvPlaces, num_blocks: int, block_size: int, element: int) -> int:
    """Bytes of a ``Cache`` whose numbers take ``element`` bytes each."""
    return (num_blocks + 1) * block_size * places.token * element
