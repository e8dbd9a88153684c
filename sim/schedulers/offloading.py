"""Schedules vLLM V1's way where KV blocks may also be in the memory of the host.

A request some of whose blocks are in the host and not on the GPU gets memory for them and waits for
them outside the batch while others run (vLLM: ``WAITING_FOR_REMOTE_KVS``), then goes before all
that wait. It holds its memory meanwhile and cannot be preempted, so it is let in only if the rest
of its prompt fits on top of what other prompts under way still need. Blocks that are being written,
or read for another request, are waited for first. Where loads do not overlap with compute, the
whole batch waits instead.

A preempted request may be *swapped*: its blocks go to the host, which the iteration that needs
their memory waits for, and come back as loads do. It then goes on where it was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Reversible
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Literal, NamedTuple

from sim.memory.host import HostLink, HostMemory
from sim.memory.paged import PagedAllocator
from sim.memory.tiered import TieredAllocator
from sim.request import Request
from sim.schedulers.base import Limits, Plan
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.queues import Fifo, Queue

Recompute = Callable[[int, int], float]
"""Seconds that this many tokens of a prompt take to compute after that many others."""


@dataclass(frozen=True, slots=True)
class Offloading:
    """A replica's means in its host: the ``memory``, the ``link``, whether loads ``overlap`` with
    iterations, and whether a preempted request is swapped: always, never, or (``None``) if that is
    faster than to ``recompute`` it."""

    memory: HostMemory
    link: HostLink
    overlap: bool
    swap: bool | None
    recompute: Recompute


class AfterLoads:
    """A queue before which those go whose blocks were loaded, in the order in which they were."""

    __slots__ = ("_queue", "loaded")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.loaded: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self.loaded) + len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        yield from self.loaded
        yield from self._queue

    def __getitem__(self, index: int, /) -> Request:
        return self.loaded[0] if self.loaded and index == 0 else self._queue[index]

    def append(self, request: Request, /) -> None:
        """``request`` arrives."""
        self._queue.append(request)

    def appendleft(self, request: Request, /) -> None:
        """``request`` goes before all that hold no memory."""
        self._queue.appendleft(request)

    def popleft(self) -> Request:
        """Take who leaves next."""
        return self.loaded.popleft() if self.loaded else self._queue.popleft()

    def remove(self, request: Request, /) -> None:
        """``request``, which holds no memory, waits no longer."""
        self._queue.remove(request)

    def oldest(self) -> Request:
        """The request that arrived first of those that hold no memory."""
        return self._queue.oldest()

    def victim(self, running: Reversible[Request], /) -> Request:
        """Whom to preempt, as the queue within says."""
        return self._queue.victim(running)


class ParkedRequest(NamedTuple):
    """The host's part of a request beyond the GPU's: that many ``tokens`` in ``blocks``, which can
    be read from ``ready`` on (s)."""

    tokens: int
    blocks: int
    ready: float


class Swapped(NamedTuple):
    """A preempted request in the host: its ``tokens`` in ``blocks``, there at ``ready`` (s)."""

    tokens: int
    blocks: int
    ready: float


class OffloadedPrefill(ChunkedPrefill):
    """``ChunkedPrefill`` with blocks in the host: a prefix cache, preempted requests, or both."""

    kv: PagedAllocator
    waiting: AfterLoads

    def __init__(
        self, limits: Limits, kv: PagedAllocator, host: Offloading, queue: Queue | None = None
    ) -> None:
        super().__init__(limits, kv)
        self.waiting = AfterLoads(Fifo() if queue is None else queue)
        self.host = host
        self._tier = kv if isinstance(kv, TieredAllocator) else None
        self._now = 0.0
        self._number = count()
        # requests whose blocks arrive, and those that look for blocks that are in use, by time
        self._loading: list[tuple[float, int, Request]] = []
        self._asleep: list[tuple[float, int, Request]] = []
        self._swapped: dict[Request, Swapped] = {}

    def schedule(self, now: float) -> Plan | None:
        """The plan of vLLM, with those back in the queue whose time has come."""
        self._now = now
        self._wake(now)
        plan = super().schedule(now)
        if plan is None and self.preempted and self.waiting:
            # all of the batch gave way to requests that hold memory and wait
            plan = super().schedule(now)
        times = [times[0][0] for times in (self._loading, self._asleep) if times]
        self.due = min(times, default=math.inf)
        return plan

    def wakeup(self, now: float) -> float:
        """When blocks arrive or can be read."""
        return self.due

    def _wake(self, now: float) -> None:
        while self._loading and self._loading[0][0] <= now:
            _, _, request = heappop(self._loading)
            self._arrive(request)
            self.coming.remove(request)
            self.waiting.loaded.append(request)
        awake = []
        while self._asleep and self._asleep[0][0] <= now:
            awake.append(heappop(self._asleep)[2])
        for request in reversed(awake):
            self.coming.remove(request)
            self.waiting.appendleft(request)

    # -- admission ---------------------------------------------------------------------------

    def _found(self, request: Request, now: float) -> int | None:
        """The tokens loaded, or those cached; None where it waits for blocks in the host, or those
        do not fit."""
        if request.computed:
            return request.computed
        cached = self.kv.cached(request)
        found = self._elsewhere(request, cached)
        if found is None:
            return cached
        if found.ready > now:
            self._put_aside(self._asleep, found.ready)
            return None
        if not self._load(request, cached, found, now) or self.host.overlap:
            return None
        return request.computed

    def _room(self, request: Request, need: int, tokens: int) -> bool:
        reserves = tokens < need and self.limits.scheduler_reserve_full_isl
        if not (reserves and request.computed):
            return super()._room(request, need, tokens)
        return self._more_blocks(request, need) <= self.kv.free_blocks

    def _put_aside(self, where: list[tuple[float, int, Request]], until: float) -> None:
        """The head of the queue waits until then for something else than memory."""
        request = self.waiting.popleft()
        heappush(where, (until, next(self._number), request))
        self.coming.append(request)

    def _elsewhere(self, request: Request, cached: int) -> ParkedRequest | None:
        """The host's part of ``request`` beyond the ``cached`` tokens; None if there is none."""
        size = self.kv.block_size
        if (swapped := self._swapped.get(request)) is not None:
            if swapped.tokens > cached:
                blocks = swapped.blocks - cached // size
                return ParkedRequest(swapped.tokens - cached, blocks, swapped.ready)
            self._drop_copy(request)
        if self._tier is None:
            return None
        blocks, ready = self._tier.in_host(request)
        # a token is left to compute
        tokens = min(cached + blocks * size, request.tokens_to_prefill() - 1) - cached
        return ParkedRequest(tokens, blocks, ready) if tokens > 0 else None

    def _load(self, request: Request, cached: int, found: ParkedRequest, now: float) -> bool:
        """Give ``request`` memory for what was ``found``, and load that; False if there is no room
        for its whole prompt besides what others that are under way still need."""
        kv, tier, link = self.kv, self._tier, self.host.link
        need = request.tokens_to_prefill() - cached
        if not kv.fits(request, need + self._promised() * kv.block_size):
            return False
        if tier is not None:
            tier.await_load(request)
        allocated = kv.allocate(request, found.tokens)
        assert allocated, (request, found)
        request.computed = cached + found.tokens
        kind: Literal["swap_in", "load"] = "swap_in" if request in self._swapped else "load"
        end = link.move(kind, request.id, now, found.blocks)
        if tier is not None and kind == "load":
            tier.reads(request, cached // kv.block_size, found.blocks, end)
        if self.host.overlap:
            self._put_aside(self._loading, end)
        else:
            self.starts = max(self.starts, end)
            self._arrive(request)
        return True

    def _promised(self) -> int:
        """Blocks that the prompts under way still need."""
        under_way = [*self._partials, *self.waiting.loaded, *(r for _, _, r in self._loading)]
        held = self.kv.held
        return sum(self._more_blocks(r, r.tokens_to_prefill() - held(r)) for r in under_way)

    def _more_blocks(self, request: Request, tokens: int) -> int:
        """Blocks that ``tokens`` more of ``request`` need."""
        size, held = self.kv.block_size, self.kv.held(request)
        return -(-(held + tokens) // size) - -(-held // size)

    def _arrive(self, request: Request) -> None:
        """The blocks of ``request`` are on the GPU."""
        if self._tier is not None:
            self._tier.loaded(request)
        self._drop_copy(request)

    def _drop_copy(self, request: Request) -> None:
        """The host need not hold ``request`` any longer, if it does."""
        if (swapped := self._swapped.pop(request, None)) is not None:
            self.host.memory.release(swapped.blocks)

    # -- what goes to the host ---------------------------------------------------------------

    def withdraw(self, request: Request) -> bool:
        """Withdraws a request; transfers to the host and back are not called off."""
        return False

    def _preempt(self, request: Request) -> None:
        tokens = request.computed + self.steps(request)
        super()._preempt(request)
        blocks = -(-tokens // self.kv.block_size)
        if blocks and self._swaps(request, tokens, blocks):
            end = self.host.link.move("swap_out", request.id, self._now, blocks)
            self._swapped[request] = Swapped(tokens, blocks, end)
            self.starts = max(self.starts, end)

    def _swaps(self, request: Request, tokens: int, blocks: int) -> bool:
        """Whether ``request`` goes to the host, and there is room."""
        host = self.host
        if host.swap is None:
            link, found = host.link, 0
            if self._tier is not None:
                found = self._tier.in_host_from_start(request, tokens)
            again = host.recompute(tokens - found * self.kv.block_size, found * self.kv.block_size)
            again += link.seconds(found) if found else 0.0
            if again <= 2 * link.seconds(blocks):
                return False
        return host.swap is not False and host.memory.reserve(blocks, self._now)

    def complete(self, plan: Plan, iterations: int, end: float) -> list[Request]:
        """Ends a plan; the blocks of prompts that are full now are stored."""
        if self._tier is not None:
            for chunk in plan.chunks:
                self._tier.store(chunk.request, chunk.context + chunk.tokens, end)
        return super().complete(plan, iterations, end)

    def _retire(self, request: Request) -> None:
        super()._retire(request)
        if self._tier is not None:
            self._tier.ended(request)

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """The requests of the batch, and those that hold memory outside it."""
        outside = [*self.waiting.loaded, *(request for _, _, request in self._loading)]
        return super().owners() | {request: (request.computed, False) for request in outside}

    def check_integrity(self) -> None:
        """The host's books too."""
        super().check_integrity()
        self.host.memory.check_integrity(sum(each.blocks for each in self._swapped.values()))
