"""Names what prompts have in common, so that the simulated prefix cache finds it again.

A prompt is a sequence of blocks of 16 tokens, the last of which may be shorter. A block is known by
its tokens and all those before it. Blocks that came first in one prompt, one after the other, are
one text of ``Request.prefix``: a later prompt that begins with some of them shares that text up to
where they end. The numbers of the blocks are what a trace calls ``hash_ids``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from sim.request import Prefix

BLOCK_TOKENS = 16
"""Tokens of a block: vLLM's own default, and that of the traces which name blocks."""

MOST = 1 << 20
"""Blocks that are remembered (16 million tokens of prompts); later ones are never found again."""


class Names:
    """Numbers the blocks of prompts as they come.

    >>> names = Names()
    >>> names.of(range(40))
    ([0, 1, 2], ((0, 40),))
    >>> names.of([*range(32), 99])
    ([0, 1, 3], ((0, 32), (3, 33)))
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._next = 0
        self._known: dict[bytes, tuple[int, int]] = {}  # digest -> number, text

    def of(self, tokens: Sequence[int]) -> tuple[list[int], Prefix]:
        """The numbers of the blocks of a prompt, and the texts that it begins with."""
        numbers: list[int] = []
        prefix: list[tuple[int, int]] = []
        known, digest, text = self._known, b"", -1
        new = False
        for start in range(0, len(tokens), BLOCK_TOKENS):
            block = tokens[start : start + BLOCK_TOKENS]
            digest = blake2b(digest + array("Q", block).tobytes(), digest_size=16).digest()
            found = known.get(digest)
            if found is None:
                text = text if new else self._next
                new = True
                found = self._next, text
                self._next += 1
                if len(known) < self._most:
                    known[digest] = found
            number, of_text = found
            numbers.append(number)
            end = start + len(block)
            if prefix and prefix[-1][0] == of_text:
                prefix[-1] = of_text, end
            else:
                prefix.append((of_text, end))
        return numbers, tuple(prefix)
