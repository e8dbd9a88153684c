"""Defines what a KV-cache allocator can be asked, and its commands. Amounts are tokens.

Schedulers speak to memory in predicate and verb: ``fits`` / ``allocate`` for a sequence being
prefilled, ``horizon`` / ``grow`` for all decoding sequences at once. Sequences are distinguished
by how many tokens they hold, not by name: blocks are interchangeable, so counting them is enough. A
verb that finds no room says so and changes nothing, so that a caller need not ask first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Allocator(ABC):
    """Accounts for the KV cache of one replica."""

    capacity: int
    """Tokens that fit when nothing is wasted."""

    reserved: int
    """Tokens' worth of memory that no newcomer can have, filled or not."""

    @abstractmethod
    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""

    @abstractmethod
    def fits(self, tokens: int, *, sequences: int = 1, spare: float = 0.0) -> bool:
        """Whether ``sequences`` new ones of that length could be held now, and the share ``spare``
        of the whole memory stay free."""

    @abstractmethod
    def allocate(self, held: int, tokens: int) -> bool:
        """Let a sequence that holds ``held`` tokens hold ``tokens`` more; False if there is no room
        (and then nothing has changed)."""

    @abstractmethod
    def free(self, held: int) -> None:
        """Take back everything a sequence of ``held`` tokens has."""

    @abstractmethod
    def join(self, held: int) -> None:
        """A sequence of ``held`` tokens starts to grow by one token per decode iteration."""

    @abstractmethod
    def leave(self, held: int) -> None:
        """A decoding sequence, now of ``held`` tokens, stops growing (it still holds them)."""

    @abstractmethod
    def grow(self, iterations: int) -> bool:
        """Let every decoding sequence take ``iterations`` more tokens; False if there is no room
        for all (and then nothing has changed)."""

    @abstractmethod
    def growth(self, iterations: int) -> int:
        """Tokens' worth of memory that ``grow(iterations)`` would reserve."""

    @abstractmethod
    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free memory can feed."""

    @abstractmethod
    def check_integrity(self, sequences: list[tuple[int, bool]]) -> None:
        """Raise AssertionError unless the books match ``sequences``: (held, decoding) of each."""
