"""Continues the prefix cache of a GPU in the memory of its host, as vLLM's native offloading does.

The rules are those of ``OffloadingConnector`` in vLLM 0.32, which ``--kv-offloading-size`` turns on
(``distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py``, ``v1/kv_offload/cpu``), with
its defaults:

- Blocks are *stored as soon as they are full*, not when the GPU evicts them: each iteration is
  followed by a store of the blocks of prompts that it completed and the host lacks. Those that
  answers fill are not stored (``offload_prompt_only``).
- A look-up goes on in the host where the blocks of the GPU end.
- The host evicts by least recent use. A use is a store, or the end of a request that found, loaded
  or stored the block; of one request the first blocks are the most recent.

vLLM makes a chunk the unit of the host, which by default is a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.memory.caching import CachingAllocator, FoundRuns
from sim.memory.host import HostLink, HostMemory
from sim.request import Request


class TieredAllocator(CachingAllocator):
    """``CachingAllocator`` whose blocks are stored in ``host`` too, over ``link``."""

    __slots__ = ("_arriving", "_loses", "_stored", "host", "link")

    def __init__(self, num_blocks: int, block_size: int, host: HostMemory, link: HostLink) -> None:
        super().__init__(num_blocks, block_size)
        self.host = host
        self.link = link
        self._arriving: set[Request] = set()  # whose memory is there, and the content on its way
        self._stored: dict[Request, int] = {}  # first blocks of each request that were offered
        self._loses = False  # the GPU may lose blocks that the request asked of last finds

    def in_host(self, request: Request) -> tuple[int, float]:
        """How many blocks the host has from where those end that ``request``, which holds nothing,
        finds on the GPU; and when they are written, and read by others."""
        return self._in_host(request, self._find(request).blocks, request.tokens_to_prefill())

    def in_host_from_start(self, request: Request, tokens: int) -> int:
        """How many blocks the host has of the first ``tokens`` of ``request``."""
        return self._in_host(request, 0, tokens)[0]

    def _in_host(self, request: Request, first: int, tokens: int) -> tuple[int, float]:
        size, at, ready = self.block_size, first, 0.0
        for text, end in _texts(request, request.longest_sequence()):
            stop = min(end, tokens) // size
            if stop > at:
                at, until = self.host.find(text, at, stop)
                ready = max(ready, until)
                if at < stop:
                    break
        return at - first, ready

    def _find(self, request: Request) -> FoundRuns:
        """Finds what is cached. A request that finds fewer blocks later may go on in the host, and
        then no longer stands in the way of others."""
        if self._loses:
            self._loses = self.gives_back = False
        found = super()._find(request)
        if found.idle and not self.gives_back:
            self._loses = self.gives_back = True
        return found

    def until_more(self, iterations: int) -> int:
        """Iterations until an eviction could remove a block that a waiting request would reuse."""
        if not self._loses:
            return super().until_more(iterations)
        return self._fed(iterations, max(0, self.free_blocks - self._runs.idle))

    def await_load(self, request: Request) -> None:
        """Makes the next blocks of ``request`` arrive later; no request finds them until then."""
        self._arriving.add(request)

    def loaded(self, request: Request) -> None:
        """Marks the blocks that ``request`` waited for as arrived."""
        self._arriving.discard(request)
        self._found = None
        self._register(request, self._held[request] // self.block_size)

    def _register(self, request: Request, full: int, *, own: bool = False) -> None:
        if request not in self._arriving:
            super()._register(request, full, own=own)

    def reads(self, request: Request, first: int, blocks: int, until: float) -> None:
        """``request`` reads that many of its blocks from the host, from the one numbered ``first``
        on; they need not be offered again."""
        self._use(request, first, first + blocks, until)
        self._stored[request] = max(first + blocks, self._stored.get(request, 0))

    def store(self, request: Request, computed: int, now: float) -> None:
        """Store the blocks that are full now that this many tokens of ``request`` are ``computed``,
        of its prompt, and not in the host."""
        size = self.block_size
        full = min(computed, request.prompt_tokens) // size
        at = self._stored.get(request, 0)
        if full <= at:
            return
        self._stored[request] = full
        gaps: list[tuple[int, int, int]] = []
        for text, end in _texts(request, request.prompt_tokens):
            stop = min(end // size, full)
            if stop > at:
                gaps += self.host.missing(text, at, stop)
                at = stop
        blocks = self.host.make_room(sum(high - low for _, low, high in gaps), now)
        if blocks:
            self.host.keep(gaps, now, self.link.move("store", request.id, now, blocks))

    def ended(self, request: Request) -> None:
        """``request`` has its last token: its prompt is the most recent."""
        self._use(request, 0, self._stored.pop(request, 0), 0.0)

    def _use(self, request: Request, low: int, high: int, until: float) -> None:
        """The host's blocks ``low`` to ``high`` of ``request`` are used, the first of them last."""
        size, parts, at = self.block_size, [], low
        for text, end in _texts(request, request.longest_sequence()):
            stop = min(end // size, high)
            if stop > at:
                parts.append((text, at, stop))
                at = stop
        for text, first, stop in reversed(parts):
            self.host.use(text, first, stop, until)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Checks the GPU's blocks, and that what arrives has an owner."""
        super().check_integrity(owners)
        assert self._arriving <= owners.keys(), (self._arriving, owners)


def _texts(request: Request, end: int) -> Iterator[tuple[int, int]]:
    """The texts of which a prompt consists and where each ends, its own the last, up to ``end``."""
    yield from request.prefix
    yield ~request.id, end
