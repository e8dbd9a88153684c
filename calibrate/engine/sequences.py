"""Maps a scheduler's plan to the tokens, blocks and padding of the requests in the batch.

A scheduler only counts; this module has the things that it counts. Everything is derived from what
the scheduler exposes (``Plan``, ``members``, ``owners``), so a user's own policy runs as well.
After every decision the blocks that requests really have are compared with those that the
scheduler's allocator has counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from calibrate.engine.batch import PAD, Span
from calibrate.engine.cache import BlockTables
from sim.errors import InfersimError
from sim.request import Request
from sim.schedulers import Chunk, Plan, Scheduler
from sim.schedulers.whole_batch import WholeBatch

Prompt = Callable[[Request], list[int]]
"""The tokens of a request's prompt."""


class Sequences(ABC):
    """The tokens of every request that has arrived and is not finished, and its blocks.

    After ``schedule`` comes ``follow``, which says what to compute; after the pass ``deliver``
    takes the tokens sampled; after ``complete`` comes ``settle``. ``answers`` has the tokens of
    finished requests, ``preempted`` the requests that lost their blocks in the last ``follow``.
    """

    def __init__(self, scheduler: Scheduler, tables: BlockTables, prompt: Prompt) -> None:
        self.tables = tables
        self.answers: dict[int, list[int]] = {}
        self.preempted: tuple[int, ...] = ()
        self._scheduler = scheduler
        self._prompt = prompt
        self._tokens: dict[int, list[int]] = {}  # prompts and what was sampled after them

    def follow(self, plan: Plan) -> list[Span]:
        """Give and take blocks as the scheduler just did, and return what the plan computes."""
        spans = self._follow(plan)
        decodes = sum(not span.prompt for span in spans)
        if decodes != plan.sequences:
            raise InfersimError(
                f"{type(self._scheduler).__name__} plans {plan.sequences} decodes, but of its "
                f"members {decodes} decode"
            )
        self._compare()
        return spans

    def deliver(self, spans: Iterable[Span], sampled: Iterable[int]) -> tuple[int, ...]:
        """One token for each of ``spans``, which all sample; returns which requests got one. Slots
        of finished requests discard theirs."""
        tokens = {span.request: token for span, token in zip(spans, sampled, strict=True)}
        served = tuple(request for request in tokens if request in self._tokens)
        for request in served:
            self._tokens[request].append(tokens[request])
        return served

    def settle(self, finished: Iterable[Request]) -> None:
        """The iteration is complete and ``finished`` have their last token."""
        for request in finished:
            self.answers[request.id] = self._tokens.pop(request.id)[request.prompt_tokens :]
        self._settle()
        self._compare()

    @abstractmethod
    def _follow(self, plan: Plan) -> list[Span]:
        """``follow`` without the comparison."""

    @abstractmethod
    def _settle(self) -> None:
        """Give back the blocks of requests that left."""

    def _all_tokens(self, request: Request) -> list[int]:
        if request.id not in self._tokens:
            self._tokens[request.id] = list(self._prompt(request))
        return self._tokens[request.id]

    def _chunk(self, chunk: Chunk, padding: int = 0) -> Span:
        """A part of a prompt, or of a prompt and what was delivered before a preemption."""
        request, start = chunk.request, chunk.context
        tokens = ([PAD] * padding + self._all_tokens(request))[start : start + chunk.tokens]
        ends = start + chunk.tokens >= request.tokens_to_prefill() + padding
        if len(tokens) < chunk.tokens:
            raise InfersimError(
                f"{type(self._scheduler).__name__} pads the prompt of {request}: only policies "
                "derived from WholeBatch may"
            )
        return Span(request.id, tokens, start, padding, samples=ends, prompt=True)

    def _compare(self) -> None:
        """Raise InfersimError unless the scheduler's allocator has counted the blocks that there
        are; one that says itself who owns how much may have set more aside."""
        size = self.tables.block_size
        counted, real = self._scheduler.kv.reserved, self.tables.used * size
        if real == counted or (self._ahead() and real < counted):
            return
        if not 0 <= counted - real <= self._spared() * size:
            raise InfersimError(
                f"{type(self._scheduler).__name__} has reserved memory for {counted:,} tokens, but "
                f"the blocks of its requests hold {real:,}"
            )

    def _ahead(self) -> bool:
        """Whether the policy may have set aside more than requests have."""
        return type(self._scheduler).owners is not Scheduler.owners

    def _spared(self) -> int:
        """Blocks that were given back before the allocator counted them free."""
        return 0


class OnDemand(Sequences):
    """Blocks as tokens come, taken back when a request is preempted or done, or behind windows:
    policies that decide at every iteration."""

    def __init__(self, scheduler: Scheduler, tables: BlockTables, prompt: Prompt) -> None:
        super().__init__(scheduler, tables, prompt)
        self._idle: dict[int, int] = {}  # prompts passed over, and the blocks that they gave back

    def _follow(self, plan: Plan) -> list[Span]:
        scheduler = self._scheduler
        held: dict[int, HeldPlaces] = {}
        spans = []
        idle = set()
        for request in scheduler.members():
            stored = request.computed + scheduler.steps(request)
            decodes = request.joined >= 0
            held[request.id] = HeldPlaces(stored, stored - decodes)
            if decodes and plan.decode:  # an iteration may be of prompts alone
                token = self._all_tokens(request)[stored]
                spans.append(Span(request.id, [token], stored, 0, samples=True, prompt=False))
            elif not decodes:
                idle.add(request.id)
        spans += [self._chunk(chunk) for chunk in plan.chunks]
        held.update((span.request, HeldPlaces(span.stop, span.start)) for span in spans)
        idle -= {span.request for span in spans}
        self._idle = {request: self._idle.get(request, 0) for request in idle}
        self._hold(held)
        return spans

    def _settle(self) -> None:
        """A request that has begun to decode needs no more than a decode does."""
        scheduler = self._scheduler
        members = {request.id: request for request in scheduler.members()}
        self._free_all_but(members)
        self._idle = {r: spared for r, spared in self._idle.items() if r in members}
        for request in members.values():
            if request.joined >= 0:
                stored = request.computed + scheduler.steps(request)
                self.tables.release(request.id, stored, stored - 1)

    def _spared(self) -> int:
        return sum(self._idle.values())

    def _hold(self, held: dict[int, HeldPlaces]) -> None:
        """Gives each request of ``held`` its blocks, and no other request any. Blocks are freed
        first."""
        self.preempted = self._free_all_but(held)
        for request, (tokens, computed) in held.items():
            freed = self.tables.release(request, tokens, computed)
            if request in self._idle:
                self._idle[request] += freed
        for request, (tokens, _) in held.items():
            self.tables.take(request, tokens)

    def _free_all_but(self, requests: Container[int]) -> tuple[int, ...]:
        """Take the blocks of all other requests; returns which those are."""
        others = tuple(owner for owner in self.tables.owners() if owner not in requests)
        for request in others:
            self.tables.free(request)
        return others


class HeldPlaces(NamedTuple):
    """Tokens that a request has blocks for, and from which place on their windows are seen."""

    tokens: int
    computed: int


class Slots(Sequences):
    """Slots that a batch takes at launch and keeps until its last request is done: the policies of
    ``sim.schedulers.whole_batch``. A slot is padded in front, so that all its prompts end at the
    same place; the slot of a finished request continues where the plan says that it is computed.
    Where layers have windows, a slot has the blocks that it sees, and counts as all that are set
    aside for it."""

    def __init__(self, scheduler: Scheduler, tables: BlockTables, prompt: Prompt) -> None:
        super().__init__(scheduler, tables, prompt)
        self._batch: list[Request] = []
        self._padding: dict[int, int] = {}
        self._filled: dict[int, int] = {}  # places of each slot's cache, padding included
        self._windowed = any(tables.windows)

    def _follow(self, plan: Plan) -> list[Span]:
        if plan.chunks:
            return self._launch(plan)
        padded = plan.sequences > plan.decode
        spans = []
        for request in self._batch:
            if request.joined < 0 and not padded:
                continue
            token = self._tokens[request.id][-1] if request.joined >= 0 else PAD
            start, padding = self._filled[request.id], self._padding[request.id]
            self._filled[request.id] += 1
            if self._windowed:
                self.tables.resize(request.id, start + 1, start, padding)
            spans.append(Span(request.id, [token], start, padding, samples=True, prompt=False))
        return spans

    def _launch(self, plan: Plan) -> list[Span]:
        self._batch = [chunk.request for chunk in plan.chunks]
        prompts = {chunk.request: chunk.tokens for chunk in plan.chunks}
        for request, (tokens, _) in self._scheduler.owners().items():
            self.tables.resize(request.id, prompts[request] if self._windowed else tokens)
        if self.tables.used * self.tables.block_size > self._scheduler.kv.reserved:
            raise InfersimError(
                f"{type(self._scheduler).__name__} computes prompts whole, which takes more blocks "
                "than are reserved for layers with windows; set kv_cache.allocator to contiguous, "
                "or raise scheduler.max_num_batched_tokens"
            )
        self._filled = {chunk.request.id: chunk.tokens for chunk in plan.chunks}
        self._padding = {
            chunk.request.id: chunk.tokens - chunk.request.prompt_tokens for chunk in plan.chunks
        }
        return [self._chunk(chunk, self._padding[chunk.request.id]) for chunk in plan.chunks]

    def _settle(self) -> None:
        if not self._scheduler.owners():
            for request in self._batch:
                self.tables.free(request.id)
            self._batch = []

    def _ahead(self) -> bool:
        return self._windowed


def follow(scheduler: Scheduler, tables: BlockTables, prompt: Prompt) -> Sequences:
    """The sequences of ``scheduler``, which drafts nothing, none so far."""
    kind = Slots if isinstance(scheduler, WholeBatch) else OnDemand
    return kind(scheduler, tables, prompt)
