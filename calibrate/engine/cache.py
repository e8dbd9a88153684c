"""Stores which KV blocks each request has, and where its keys and values lie.

The scheduler's allocator (``sim.memory``) counts what each request has; here there are numbered
blocks with contents. Both must agree after every decision, which ``BlockTables.used`` makes
checkable. Amounts are tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from calibrate.dense import dense_layer
from calibrate.lazy_torch import Tensor, torch
from sim.specs.model import ModelSpec


class BlockTables:
    """The blocks of each request, by its id; a request's tokens fill its blocks in their order.

    ``order`` is the order in which free blocks are handed out at first, ascending without it;
    afterwards those freed longest ago go first.

    >>> tables = BlockTables(num_blocks=4, block_size=16, order=[3, 1, 0, 2])
    >>> tables.resize(request=7, tokens=17)
    >>> tables.blocks(7), tables.slots(7, 15, 18), tables.used
    ([3, 1], [63, 16, 17], 2)
    """

    def __init__(
        self, num_blocks: int, block_size: int, order: Sequence[int] | None = None
    ) -> None:
        numbers = range(num_blocks)
        if order is not None and sorted(order) != list(numbers):
            raise ValueError(f"order: expected each of the {num_blocks} blocks once")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = deque(numbers if order is None else order)
        self._blocks: dict[int, list[int]] = {}

    @property
    def used(self) -> int:
        """Blocks that requests have."""
        return self.num_blocks - len(self._free)

    def owners(self) -> list[int]:
        """Requests that have blocks, the first to get one first."""
        return list(self._blocks)

    def blocks(self, request: int) -> list[int]:
        """The numbers of a request's blocks, in the order of its tokens."""
        return self._blocks[request]

    def count(self, request: int) -> int:
        """How many blocks a request has; 0 for one that is not known."""
        return len(self._blocks[request]) if request in self._blocks else 0

    def needed(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` of one request."""
        return -(-tokens // self.block_size)

    def resize(self, request: int, tokens: int) -> None:
        """Let ``request`` have the blocks for ``tokens`` and no more; RuntimeError if too few are
        free, although the scheduler counted on them."""
        own = self._blocks.setdefault(request, [])
        wanted = self.needed(tokens)
        while len(own) > wanted:
            self._free.append(own.pop())
        if wanted - len(own) > len(self._free):
            raise RuntimeError(
                f"request {request} needs {wanted - len(own)} more blocks, {len(self._free)} are "
                "free: the scheduler's allocator and the block tables disagree"
            )
        while len(own) < wanted:
            own.append(self._free.popleft())
        if not own:
            del self._blocks[request]

    def free(self, request: int) -> None:
        """Take back all blocks of ``request``."""
        self.resize(request, 0)

    def slots(self, request: int, start: int, stop: int) -> list[int]:
        """Where tokens ``start`` to ``stop`` of a request lie, counted in tokens over all blocks
        of the cache."""
        own, size = self._blocks[request], self.block_size
        return [own[place // size] * size + place % size for place in range(start, stop)]


class Cache:
    """Keys and values of all layers: layer x block x slot x KV head x size.

    Behind the ``num_blocks`` there is one more block, ``nowhere``: tokens that must be written
    somewhere and are never read go there.
    """

    def __init__(
        self, model: ModelSpec, num_blocks: int, block_size: int, *, dtype: object, device: str
    ) -> None:
        heads = dense_layer(model).attention
        shape = (model.num_layers, num_blocks + 1, block_size, heads.num_kv_heads, heads.head_dim)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.nowhere = num_blocks
        # filled, not just asked for: the first touch of a page must not fall into the run
        self.keys = torch.empty(shape, dtype=dtype, device=device).zero_()
        self.values = torch.empty(shape, dtype=dtype, device=device).zero_()

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put one key and one value per KV head at each of ``slots``."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)


def cache_bytes(model: ModelSpec, num_blocks: int, block_size: int, element: int) -> int:
    """Bytes of a ``Cache`` whose numbers take ``element`` bytes each."""
    per_token = 2 * model.num_layers * dense_layer(model).attention.kv_size * element
    return (num_blocks + 1) * block_size * per_token
