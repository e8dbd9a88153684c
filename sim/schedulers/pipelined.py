"""Batches continuously for a pipeline: as many batches are in flight as it has stages.

vLLM V1's rule, with a batch for each stage. A request that is in flight is not in another batch: it
is scheduled again when its token is back. So the requests of a batch stay together, and the running
ones split into batches by when they came, not by division. Parts of one prompt may follow each
other in flight. Slots, tokens waiting and memory are the same for all batches; the token budget is
that of each.

A batch that runs out of memory preempts the request admitted last, even one in flight in another
batch: its memory is free at once, the token that is on its way is still delivered, and the request
waits in the queue from then on (vLLM 0.32, ``num_stale_output_tokens``).
"""

from __future__ import annotations

from collections.abc import Callable

from sim.growth.steady import Steady
from sim.memory import Allocator
from sim.memory.caching import CachingAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.request_slots import Lanes
from sim.memory.windowed import WindowedAllocator
from sim.request import Request
from sim.schedulers.base import Limits
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.plan import Chunk, Plan


class Flight:
    """A batch in flight: its ``plan``; of each chunk how often its request had been preempted; and
    the decoding requests that were ``preempted`` on the way."""

    __slots__ = ("plan", "preempted", "times")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.times = [chunk.request.preemptions for chunk in plan.chunks]
        self.preempted: list[Request] = []


class PipelinedPrefill(ChunkedPrefill):
    """``ChunkedPrefill`` with ``batches`` in flight, each with its own decoding sequences.

    ``plan`` and ``complete_batch`` name the batch that they are about; ``decoding`` is that of the
    last one named.
    """

    def __init__(
        self,
        limits: Limits,
        kv: Allocator,
        batches: int,
        decoding: Callable[[], Steady] = Steady,
    ) -> None:
        super().__init__(limits, kv)
        self.batches = [decoding() for _ in range(batches)]
        self.decoding = self.batches[0]
        self.flights: list[Flight | None] = [None] * batches
        self._lanes = Lanes(kv, batches)
        self._admits = True
        self._place: dict[Request, int] = {}  # the batch in which a request decodes
        self._parts: dict[Request, int] = {}  # of its prompt that are in flight
        self._begun = 0  # tokens of memory that requests hold which do not decode
        if isinstance(kv, CachingAllocator):
            kv.grown_in = self._grown_by

    # -- planning ------------------------------------------------------------------------------

    def plan(self, number: int, now: float, *, admits: bool = True) -> Plan | None:
        """The next plan of batch ``number``, which is not in flight, with requests that wait if it
        ``admits`` any; None if there is nothing to run."""
        self._use(number)
        self._admits = admits
        plan = self.schedule(now)
        if plan is None:
            return None
        parts = self._parts
        for chunk in plan.chunks:
            request = chunk.request
            request.computed += chunk.tokens
            self._begun += chunk.tokens
            parts[request] = parts.get(request, 0) + 1
        plan.running = plan.sequences + len(plan.chunks)
        plan.stationary = False
        self.flights[number] = Flight(plan)
        plan.held = self.held()
        return plan

    def _admit(self, now: float, cached: int) -> Request:
        """Admits a request; what is cached of it is memory that it holds."""
        self._begun += cached
        return super()._admit(now, cached)

    def held(self) -> int:
        """KV tokens that are filled once the batches in flight are back."""
        kv, begun = self.kv, self._begun
        grown = 0
        for batch, flight in zip(self.batches, self.flights, strict=True):
            grown += batch.context
            if flight is not None and flight.plan.decode:
                grown += batch.size
        if not isinstance(kv, WindowedAllocator):
            return begun + grown + kv.state_tokens - kv.shared_tokens
        tokens, prompts = 0, [r.computed for r in self._parts if r in self._running]
        for group in kv.groups:
            window, seen = group.window, begun + grown
            if window is not None:
                seen = sum(window.seen(computed) for computed in prompts)
                for batch in self.batches:
                    place = batch.windows.index(window)
                    seen += batch.seen(batch.size, batch.context).tokens[place]
            tokens += group.number * seen
        return min(tokens, kv.reserved)

    def _grown_by(self, request: Request) -> int:
        """Tokens that a request has grown by, if it decodes, in the lane of its batch."""
        place = self._place.get(request)
        grown: int = 0 if place is None else self._lanes.value(place, "_grown")
        return grown

    def _use(self, number: int) -> None:
        self.decoding = self.batches[number]
        self._lanes.select(number)

    def _continue_prompts(self) -> tuple[list[Chunk], int]:
        """Continues prompts; another batch may have had a larger budget for them."""
        chunks, preempted = super()._continue_prompts()
        return [chunk for chunk in chunks if chunk.tokens > 0], preempted

    def _admit_waiting(self, chunks: list[Chunk], budget: int, now: float) -> int:
        return super()._admit_waiting(chunks, budget, now) if self._admits else 0

    def _preempt(self, request: Request) -> None:
        """Preempts a request; one in flight goes to the queue when it is back."""
        here, place = self._lanes.at, self._place.get(request)
        del self._running[request]
        if place is None:
            self._begun -= request.computed
        else:
            self._use(place)
            self.decoding.leave(request)
            self._stop_decoding(request)
        self.kv.free(request)
        self._use(here)
        request.computed = 0
        request.preemptions += 1
        flight = None if place is None else self.flights[place]
        if flight is not None:
            flight.preempted.append(request)
        elif request not in self._parts:
            self._requeue(request)

    def withdraw(self, request: Request) -> bool:
        """Batches in flight are not taken apart."""
        return False

    def _requeue(self, request: Request) -> None:
        self.preempted.append(request)
        self.waiting.appendleft(request)

    # -- batches that go round -------------------------------------------------------------------

    @property
    def goes_round(self) -> bool:
        """Whether a batch that only decodes can go round as it is: each of its sequences gets one
        token, and takes blocks as the ring of the allocator has it."""
        paged = type(self.kv) in (PagedAllocator, CachingAllocator)
        return paged and type(self.decoding) is Steady and not self.limits.keeps_interval

    def has_prompt(self) -> bool:
        """Whether the next plan could have prompts; requests that wait have none without a slot."""
        slots = self.limits.max_num_seqs
        return bool(self._partials or (self.waiting and len(self._running) < slots))

    def rounds(self, number: int) -> int:
        """How often batch ``number``, which decodes in flight, comes back before one of its
        requests leaves it."""
        batch, flight = self.batches[number], self.flights[number]
        assert flight is not None
        return 0 if flight.preempted else batch.next_finish - batch.iteration - 1

    def fed(self) -> int:
        """How many more passes of all batches the free memory feeds, at least: in any
        ``block_size`` of them each sequence takes a block."""
        kv, size = self.kv, sum([batch.size for batch in self.batches])
        block = kv.block_size
        return (kv.capacity - kv.reserved) // (size * block) * block if size else 0

    def opens(self, number: int) -> list[int]:
        """Blocks that batch ``number`` takes with each of its next passes; after the last of them
        it is the first again."""
        ring, grown = (self._lanes.value(number, name) for name in ("_ring", "_grown"))
        place = -grown % len(ring) + 1
        return [*ring[:place][::-1], *ring[place:][::-1]]

    def go_on(self, number: int, times: int, end: float) -> None:
        """Batch ``number``, which is in flight, came back ``times`` times until ``end``, and has
        begun anew as it was; its memory is reserved."""
        self._lanes.add(number, "_grown", times)
        self.batches[number].advance(times, end)

    # -- results -------------------------------------------------------------------------------

    def complete_batch(self, number: int, end: float) -> list[Request]:
        """Batch ``number`` is back at ``end``; returns the requests that are done."""
        flight = self.flights[number]
        assert flight is not None
        self._use(number)
        self.flights[number] = None
        finished = self._decoded(flight, end)
        for chunk, times in zip(flight.plan.chunks, flight.times, strict=True):
            self._prefilled(chunk, times, end, finished)
        for request in finished:
            request.last_token = end
            if request in self._running:
                self._retire(request)
        return finished

    def _decoded(self, flight: Flight, end: float) -> list[Request]:
        """Tokens for the decoding sequences; returns those that are done."""
        if not flight.plan.decode:
            return []
        batch, finished = self.decoding, list[Request]()
        batch.advance(1, end)
        if batch.iteration >= batch.next_finish:
            finished = batch.pop_finished()
            for request in finished:
                self._stop_decoding(request)
        for request in flight.preempted:
            self._deliver(request, end, finished)
        return finished

    def _prefilled(self, chunk: Chunk, times: int, end: float, finished: list[Request]) -> None:
        """A part of a prompt is computed; the last one brings a token."""
        request, parts = chunk.request, self._parts
        last = chunk.context + chunk.tokens >= request.tokens_to_prefill()
        parts[request] -= 1
        if not parts[request]:
            del parts[request]
        if times != request.preemptions:  # preempted on the way: what it computed is lost
            if last:
                self._deliver(request, end, finished)
            elif request not in parts:
                self._requeue(request)
        elif last:
            self._begun -= request.computed
            if request.generated == 0:
                request.first_token = end
            request.generated += 1
            if request.generated == request.output_tokens:
                finished.append(request)
            else:
                self.decoding.join(request, end)
                self._start_decoding(request)

    def _deliver(self, request: Request, end: float, finished: list[Request]) -> None:
        """A token for a request that was preempted while the token was on its way."""
        if request.generated == 0:
            request.first_token = end
        request.generated += 1
        request.last_token = end
        if request.generated == request.output_tokens:
            finished.append(request)
        else:
            self._requeue(request)

    def _start_decoding(self, request: Request) -> None:
        super()._start_decoding(request)
        self._place[request] = self._lanes.at

    def _stop_decoding(self, request: Request) -> None:
        super()._stop_decoding(request)
        del self._place[request]

    # -- accounts ------------------------------------------------------------------------------

    def members(self) -> list[Request]:
        """Unfinished requests in the batches, those that were preempted in flight included."""
        away = [r for flight in self.flights if flight is not None for r in flight.preempted]
        running = self._running
        return [*running, *away, *(r for r in self._parts if r not in running and r not in away)]

    def place(self, request: Request) -> int | None:
        """The number of the batch in which ``request`` decodes; None if it does not."""
        return self._place.get(request)

    def steps(self, request: Request) -> int:
        """Tokens that ``request`` got while decoding, not yet written into it."""
        place = self._place.get(request)
        return 0 if place is None else self.batches[place].gained(request)

    def check_integrity(self) -> None:
        """Raise AssertionError if batches and memory disagree with a count made from scratch, even
        while some are in flight."""
        here, owners = self._lanes.at, dict[Request, tuple[int, bool]]()
        for number, (batch, flight) in enumerate(zip(self.batches, self.flights, strict=True)):
            members = [r for r, place in self._place.items() if place == number]
            assert len(members) == batch.size, (number, members, batch.size)
            held = [r.computed + batch.gained(r) for r in members]
            assert sum(held) == batch.context, (number, held, batch.context)
            growing = flight is not None and flight.plan.decode > 0
            self._use(number)
            for request, tokens in zip(members, held, strict=True):
                self.kv.leave(request)
                owners[request] = tokens + growing, False
        begun = [r for r in self._running if r not in self._place]
        assert sum(r.computed for r in begun) == self._begun, (begun, self._begun)
        owners |= {r: (r.computed, False) for r in begun}
        self.kv.check_integrity(owners)
        for request, place in self._place.items():
            self._use(place)
            self.kv.join(request)
        self._use(here)
