"""Defines what a scheduler decides, and the bookkeeping that all of them share.

One engine step reads ``schedule -> run -> complete``. ``schedule`` looks at the waiting requests,
the running ones and the free memory, commits one iteration and says what is in it; the replica (or
a real engine) runs it, and ``complete`` writes down what it brought. A scheduler never sees a clock
advance by itself and knows nothing of iteration times, so its tests need neither.

Leaps are not the scheduler's business. It only says whether its plan is ``stationary``: would be
the same again as long as no request finishes, no arrival matters (``submit`` says so) and memory
lasts. The replica then repeats the plan as often as ``repeats`` allows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from sim.growth.steady import Steady
from sim.memory import Allocator
from sim.request import Refusal, Request
from sim.schedulers.plan import Chunk, Plan
from sim.schedulers.queues import Fifo, Queue
from sim.specs.window import NEVER

__all__ = ["ASSUMED", "BatchShape", "Chunk", "Limits", "Plan", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The knobs of a scheduler, under vLLM's names, and under those of the other engines what vLLM
    does not have."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0  # share of the blocks that an admission leaves free while others run
    batch_timeout: float = 0.05  # s, request-level batching only
    long_prefill_token_threshold: int = 0  # most of one prompt in one iteration; 0: no such cap
    prefill_schedule_interval: int = 1  # iterations from one with prompts on
    keeps_interval: bool = False  # by itself; else data ranks keep it together
    serves_behind_victim: bool = False  # by rank: those behind one that preempts itself
    lifts_cap_alone: bool = True  # no such cap on a request that is alone
    lone_rows: int = 1  # of who enters an iteration of decodes and lacks a single token
    chunked_prefill: bool = True
    enable_mixed_chunk: bool = False  # SGLang: decodes run along with prompts
    max_prefill_tokens: int = 16384  # SGLang: of an iteration of prompts that are not cut
    limits_chunks: bool = False  # SGLang: and of one of prompts that may be
    scheduler_recv_interval: int = 1  # SGLang: iterations of decodes between looks for new requests
    schedule_conservativeness: float = 1.0  # SGLang: multiplies what answers are expected to be
    batch_wait_timeout_iters: int = 0  # TensorRT-LLM: most iterations that prompts wait for company
    batch_wait_max_tokens_ratio: float = 0.0  # share of an iteration's tokens that ends that wait
    attention_dp_timeout_iters: int = 0  # its data ranks: iterations that prompts wait for others'
    attention_dp_batching_wait_iters: int = 0  # and more, once every rank has one
    max_tokens: int = 0  # most output tokens that clients allow; 0: exactly those they get
    enable_prefix_caching: bool = False

    @classmethod
    def of(cls, settings: object, **others: Any) -> Self:
        """The limits that ``settings`` (a scenario's ``scheduler``) have by the same names, with
        the ``others``; null stands for the default here."""
        named = {each.name: getattr(settings, each.name, None) for each in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value is not None} | others)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """How the full batches of a policy look, to those who time them without simulating.

    ``whole``      members start and end together; else a member that finishes is replaced at once
    ``padded``     of whole batches: each slot is as long as the longest prompt and output in it
    ``mixed``      of the others: prompts share iterations with decodes
    ``estimated``  nothing is known of the policy, and this is an assumption
    """

    whole: bool = False
    padded: bool = False
    mixed: bool = True
    estimated: bool = False


ASSUMED = BatchShape(estimated=True)
"""The shape of a policy that does not state its own; the verdict calls its capacity an estimate."""


class Scheduler(ABC):
    """Base of all policies: the queue, the decoding batch, the memory, and progress.

    A policy implements ``schedule``, ``members`` and ``_retire``, and where
    it needs to ``wakeup``, ``_start_decoding`` and ``_stop_decoding``. What others must know of it
    stands in its class attributes.
    """

    name: ClassVar[str] = ""
    """The value of ``scheduler.batching`` that selects it."""

    about: ClassVar[str] = ""
    """Its behaviour in a few words."""

    knobs: ClassVar[frozenset[str]] = frozenset()
    """The keys of ``scheduler`` that it reads, in addition to ``max_num_seqs``."""

    shape: ClassVar[BatchShape] = ASSUMED
    """How its full batches look. A policy of the user's own states it anew: what it changes is not
    known."""

    abilities: ClassVar[frozenset[str]] = frozenset()
    """Abilities beyond serving requests to their end, by the names of ``abilities``."""

    def __init_subclass__(cls, **given: Any) -> None:
        """A policy of the user's own does not inherit its shape."""
        super().__init_subclass__(**given)
        own = not cls.__module__.startswith(f"{__package__}.")
        if own and "shape" not in vars(cls):
            cls.shape = ASSUMED

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        self.limits = limits
        self.kv = kv
        self.waiting: Queue = Fifo()
        # that came too late for a plan made ahead (``ahead``), or wait for blocks (``offloading``)
        self.coming: list[Request] = []
        self.decoding = Steady()
        self.last_call = False
        self.preempted: list[Request] = []  # since a replica last emptied it
        self.throttled = False  # prompts may be kept for a later iteration than the next one
        self.deferred = False  # and the plan just made has left some out
        self.due = math.inf  # when the next plan may differ though nothing else happens (s)
        self.starts = 0.0  # before which the plan just made cannot run: what it needs is moved (s)
        self.reserved_end = 0  # tokens' worth of memory taken in the last iteration of a leap

    # -- what a policy decides ---------------------------------------------------------------

    @abstractmethod
    def schedule(self, now: float) -> Plan | None:
        """Commit the next iteration and return it, or None when there is nothing to run at
        ``now``."""

    def has_prompt(self) -> bool:
        """Whether the next plan could have prompts, if nothing makes them wait."""
        return bool(self.waiting)

    @abstractmethod
    def members(self) -> list[Request]:
        """Unfinished requests in the batch, those in prefill included."""

    def wakeup(self, now: float) -> float:
        """When ``schedule`` should be asked again although nothing happened (s; inf: never)."""
        return math.inf

    def refusal(self, request: Request) -> str | None:
        """Why this replica could never serve ``request``, or None."""
        limits = self.limits
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > limits.max_model_len:
            return Refusal.TOO_LONG
        if not self.kv.can_ever_fit(tokens - 1):  # the last token is sampled and never computed
            return Refusal.TOO_LARGE
        return None

    # -- what the replica calls --------------------------------------------------------------

    def flush(self) -> None:
        """Stop waiting for a fuller batch: no request arrives before something finishes."""
        self.last_call = True

    def submit(self, request: Request) -> bool:
        """A request has arrived; it waits until ``schedule`` takes it.

        Returns whether the next plan may differ because of it. It cannot if another request is
        still at the head of the queue: a plan that repeats has found no room for that one, and
        those behind it are not considered. A policy that looks past the head must say when the plan
        can differ.
        """
        waiting = self.waiting
        waiting.append(request)
        self.last_call = False
        return waiting[0] is request

    def submit_early(self, request: Request) -> bool:
        """Queues a request that comes before the next iteration is planned, though one runs; for
        schedulers that plan ahead."""
        return self.submit(request)

    def withdraw(self, request: Request) -> bool:
        """Take out ``request``, whose client has gone, and free its memory; only between
        iterations. False where it is not here, or the policy serves it to its end all the same."""
        return False

    def repeats(self, limit: int) -> int:
        """How many times in a row the stationary plan just returned can run (1 to ``limit``)."""
        batch = self.decoding
        runs = batch.next_finish - batch.iteration
        if runs > limit:
            runs = limit
        if runs == 1:
            return 1
        kv = self.kv
        more = kv.horizon(runs - 1)
        if kv.gives_back and self.waiting:
            more = kv.until_more(more)
        return 1 + more

    def complete(self, plan: Plan, iterations: int, end: float) -> list[Request]:
        """The plan ran ``iterations`` times until ``end``; returns the requests that are done.

        Decoding sequences have grown; finished requests leave, complete prefills start to decode.
        """
        batch = self.decoding
        finished: list[Request] = []
        if plan.sequences:
            if iterations > 1:
                self.kv.grow(iterations - 1)
                self.reserved_end = self.kv.reserved
            batch.advance(iterations, end)
            if batch.iteration >= batch.next_finish:
                finished = batch.pop_finished()
                for request in finished:
                    self._stop_decoding(request)
        for chunk in plan.chunks:
            request = chunk.request
            target = request.prompt_tokens + request.generated
            request.computed += chunk.tokens
            if request.computed >= target:
                request.computed = target  # a padded prompt is longer than that
                if request.generated == 0:
                    request.first_token = end
                request.generated += 1  # a complete prefill samples one token
                if request.generated == request.output_tokens:
                    finished.append(request)
                else:
                    batch.join(request, end)
                    self._start_decoding(request)
        if finished:
            for request in finished:
                request.last_token = end
            for request in self._leaving_order(finished):
                self._retire(request)
        return finished

    def steps(self, request: Request) -> int:
        """Tokens that ``request`` got while decoding, not yet written into it."""
        return self.decoding.gained(request) if request.joined >= 0 else 0

    def check_integrity(self) -> None:
        """Raise AssertionError if batch and memory disagree with a count made from scratch."""
        decoding = [r for r in self.members() if r.joined >= 0]
        batch = self.decoding
        assert len(decoding) == batch.size, (len(decoding), batch.size)
        held = [r.computed + self.steps(r) for r in decoding]
        assert sum(held) == batch.context
        seen = batch.seen(batch.size, batch.context)
        for window, tokens, growing in zip(batch.windows, *seen[:2], strict=True):
            assert tokens == sum(map(window.seen, held)), (window, tokens, held)
            assert growing == sum(window.turns(each) < NEVER for each in held), (window, held)
        self.kv.check_integrity(self.owners())

    def owners(self) -> dict[Request, tuple[int, bool]]:
        """(tokens of memory held, growing) of each request that has memory, counted from the
        batch."""
        return {r: (r.computed + self.steps(r), r.joined >= 0) for r in self.members()}

    # -- hooks and helpers for policies ------------------------------------------------------

    def _start_decoding(self, request: Request) -> None:
        """``request`` joined the decoding batch; its memory now grows with every iteration."""
        self.kv.join(request)

    def _stop_decoding(self, request: Request) -> None:
        """``request`` left the decoding batch; its memory stops growing."""
        self.kv.leave(request)

    def _leaving_order(self, finished: list[Request]) -> list[Request]:
        """In which order requests that end in one iteration give their memory back."""
        return finished

    @abstractmethod
    def _retire(self, request: Request) -> None:
        """``request`` has its last token; give back what the policy gives back at that point."""
