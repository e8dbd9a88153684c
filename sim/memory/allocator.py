"""Defines what a KV-cache allocator can be asked, and its commands. Amounts are tokens.

Schedulers speak to memory in predicate and verb: ``fits`` / ``allocate`` for a request being
prefilled, ``horizon`` / ``grow`` for all decoding sequences at once. Memory belongs to requests,
and the allocator counts what each has; a policy names the request and how many tokens more. A verb
that finds no room says so and changes nothing, so that a caller need not ask first.

An allocator that keeps what finished requests computed answers ``cached`` and counts what it could
give up as free: ``fits``, ``horizon`` and ``reserved`` then stay exact, and so do leaps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from sim.request import Request


class Allocator(ABC):
    """Accounts for the KV cache of one replica."""

    name: ClassVar[str] = ""
    """The value of ``kv_cache.allocator`` that selects it."""

    about: ClassVar[str] = ""
    """How it hands out memory, in a few words."""

    reserves_longest: ClassVar[bool] = False
    """Whether a request takes the room of the longest one there may be, whatever its length."""

    shrinks: bool = False
    """Whether decoding sequences may give back more than they take."""

    gives_back: bool = False
    """Whether decoding sequences also give memory back as they grow."""

    growing: ClassVar[tuple[str, ...]] = ()
    """The attributes that are about the sequences which grow together, not about what is held."""

    state_tokens: int = 0
    """Tokens' worth of memory that the states of requests take, which no token adds to."""

    shared_tokens: int = 0
    """Tokens that several requests hold, as often as they are held beyond the first time."""

    several_tokens: int = 0
    """Tokens of memory that more than one request holds."""

    @property
    def idle_tokens(self) -> int:
        """Tokens of memory that no request holds and that a prefix cache could still find."""
        return 0

    capacity: int
    """Tokens that fit when nothing is wasted."""

    reserved: int
    """Tokens' worth of memory that no newcomer can have, filled or not."""

    num_blocks: int
    """Pieces in which the memory is handed out."""

    block_size: int
    """Tokens of one piece."""

    @property
    def free_blocks(self) -> int:
        """Blocks that a newcomer can have."""
        return self.num_blocks - self.reserved // self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that a request has at most at once on its way to that many ``tokens``."""
        return -(-tokens // self.block_size)

    @classmethod
    @abstractmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """An empty cache of that many blocks, for sequences of up to ``longest`` tokens.

        Raises InfeasibleError if that allows no sequence at all.
        """

    @abstractmethod
    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""

    def cached(self, request: Request) -> int:
        """Tokens of ``request``, which holds nothing, that are in memory already: its first
        ``allocate`` takes them too, and they need not be computed."""
        return 0

    @abstractmethod
    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether ``request``, which holds nothing, could have ``tokens`` now, and the share
        ``spare`` of the whole memory stay free."""

    @abstractmethod
    def room(self, tokens: int) -> int:
        """How many sequences of that length could be held besides those that are."""

    @abstractmethod
    def allocate(self, request: Request, tokens: int) -> bool:
        """Let ``request``, which does not decode, hold ``tokens`` more; False if there is no room
        (and then nothing has changed)."""

    def allocate_for_load(self, request: Request, tokens: int) -> bool:
        """``allocate`` of ``tokens`` of ``request`` that are computed elsewhere and come over a
        link."""
        return self.allocate(request, tokens)

    def resume_from_host(self, request: Request) -> bool:
        """Open what ``request``, whose KV has come over a link, needs for its first iteration here;
        False if there is no room."""
        return True

    @abstractmethod
    def give_back(self, request: Request, tokens: int) -> None:
        """Undo ``allocate`` of the last ``tokens`` of ``request``."""

    @abstractmethod
    def free(self, request: Request) -> None:
        """Take back everything that ``request``, which does not decode, has."""

    @abstractmethod
    def join(self, request: Request) -> None:
        """``request`` starts to grow by one token per decode iteration."""

    @abstractmethod
    def leave(self, request: Request) -> None:
        """``request`` stops growing (it still holds all its tokens)."""

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

    def until_more(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations leave no more memory free than
        there is now: until then there is room for no request for which there is none now."""
        return iterations

    @abstractmethod
    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Raise AssertionError unless the books match ``owners``: (tokens held, decoding) of each
        request that has memory."""
