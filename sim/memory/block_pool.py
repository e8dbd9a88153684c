"""Counts the blocks of a KV cache one by one, and keeps what is in them until they are needed.

As vLLM's pool (0.32, ``v1/core/block_pool.py``): a block whose content is known stays findable
after it is freed, until it is taken for something else. Blocks without known content are taken
first, then the others by time of release. Blocks without known content are alike, so only their
number is kept.
"""

from __future__ import annotations

from collections import OrderedDict

Key = tuple[int, int, int]
"""What a block contains: (group of layers, text, number of the block counted from the start of the
sequence)."""


class KnownBlock:
    """A block with known content, held by ``holders`` requests."""

    __slots__ = ("holders", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holders = 1


class BlockPool:
    """``blank`` free blocks without content, and those with content that nobody holds.

    ``shared`` counts how often blocks are held beyond the first time, ``several`` the blocks that
    more than one request holds.
    """

    __slots__ = ("_cached", "_idle", "blank", "several", "shared")

    def __init__(self, blocks: int) -> None:
        self.blank = blocks
        self.shared = self.several = 0
        self._cached: dict[Key, list[KnownBlock]] = {}  # the oldest copy first
        self._idle: OrderedDict[KnownBlock, None] = OrderedDict()  # by time of release

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return self.blank + len(self._idle)

    @property
    def idle(self) -> int:
        """Blocks with content that nobody holds."""
        return len(self._idle)

    def find(self, key: Key) -> KnownBlock | None:
        """The oldest block with that content."""
        copies = self._cached.get(key)
        return copies[0] if copies else None

    def take(self, blocks: int) -> None:
        """Take ``blocks`` that are free; what was in them is lost."""
        self.blank -= blocks
        while self.blank < 0:
            block, _ = self._idle.popitem(last=False)
            copies = self._cached[block.key]
            copies.remove(block)
            if not copies:
                del self._cached[block.key]
            self.blank += 1

    def name(self, key: Key) -> KnownBlock:
        """The content of a taken block is known from now on."""
        block = KnownBlock(key)
        self._cached.setdefault(key, []).append(block)
        return block

    def hold(self, block: KnownBlock) -> None:
        """One more request holds ``block``."""
        if not block.holders:
            del self._idle[block]
        else:
            self.shared += 1
            self.several += block.holders == 1
        block.holders += 1

    def release(self, block: KnownBlock | None) -> None:
        """One request less holds ``block``; None: a block without known content is free."""
        if block is None:
            self.blank += 1
            return
        block.holders -= 1
        if block.holders:
            self.shared -= 1
            self.several -= block.holders == 1
        else:
            self._idle[block] = None

    def check_integrity(self, held: dict[KnownBlock, int]) -> None:
        """Raise AssertionError unless blocks are ``held`` so many times, and all others idle."""
        cached = [block for copies in self._cached.values() for block in copies]
        assert {block: block.holders for block in cached if block.holders} == held
        assert {block for block in cached if not block.holders} == self._idle.keys()
        assert self.shared == sum(number - 1 for number in held.values())
        assert self.several == sum(number > 1 for number in held.values())
