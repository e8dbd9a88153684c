"""Batches continuously under an order that preempts by rank.

vLLM V1 deals out memory along the batch, in order of admission. Under first come, first served the
victim is always the last of the batch, so it does not matter where memory ran out, and
``ChunkedPrefill`` need not walk. By rank the victim can be any request:

- one that has had its share of this iteration gives it back, tokens and memory;
- if it is the very request that asked, vLLM until 0.32 stops dealing there. Those behind it are
  passed over: they keep their KV and get no token in this iteration. If no request was served
  before it, the engine plans again at once. Since 0.33 those behind it are served, too.

Only iterations that run out of memory are walked; all others are those of ``ChunkedPrefill``.
"""

from __future__ import annotations

from sim.memory import Allocator
from sim.request import Request
from sim.schedulers.base import Limits
from sim.schedulers.continuous import NOT_BY_RANK, ChunkedPrefill
from sim.schedulers.plan import Chunk, Plan


class RankedPrefill(ChunkedPrefill):
    """vLLM V1's scheduler with ``--scheduling-policy priority``, for any order that preempts by
    rank.

    A sequence that was passed over while it decoded catches up by a chunk of one token.
    """

    knobs = ChunkedPrefill.knobs - NOT_BY_RANK

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._passed_over: list[Request] = []  # by the plan in flight, in order of admission
        self._preempted = 0  # while the plan was made

    def schedule(self, now: float) -> Plan | None:
        """Plans chunked prefill; requests passed over hold slots and memory, but get no tokens."""
        self._preempted = 0
        self._passed_over = []
        plan = super().schedule(now)
        while plan is None and self._passed_over:
            self._passed_over = []
            plan = super().schedule(now)
        if plan is not None and self._preempted:
            plan.preempted = self._preempted
            plan.running = len(self._running)
            plan.held += sum([request.computed for request in self._passed_over])
        return plan

    def _after_all(self, now: float, preempted: int) -> Plan | None:
        """``schedule`` plans anew, without those who were passed over before."""
        return None

    def _grow_decodes(self) -> int:
        """Memory for the next token of each decoding sequence that is not passed over."""
        _, preempted = self._make_room([])
        self._partials = list(self._passed_over)
        return preempted

    def _continue_prompts(self) -> tuple[list[Chunk], int]:
        """Continues prompts; a request that is passed over goes on in a later iteration."""
        chunks, preempted = super()._continue_prompts()
        self._partials += self._passed_over  # they stand behind all that were served
        return chunks, preempted

    def _make_room(self, chunks: list[Chunk]) -> tuple[list[Chunk], int]:
        """Deal out tokens and memory along the batch, as vLLM does; what ``chunks`` says does not
        fit. Returns the chunks of those served and how many were preempted."""
        batch, dealt = list(self._running), dict[Request, int]()
        goes_on = self.limits.serves_behind_victim
        budget = self.limits.max_num_batched_tokens
        preempted = 0
        while len(dealt) < len(batch) and budget > 0:
            request = batch[len(dealt)]
            tokens = min(self._share(request), budget)
            while not self._take(request, tokens):
                victim = self.waiting.victim(batch)
                if victim in dealt:
                    budget += dealt[victim]
                    self._give_back(victim, dealt.pop(victim))
                batch.remove(victim)
                self._preempt(victim)
                preempted += 1
                if victim is request:
                    break
            else:
                dealt[request] = tokens
                budget -= tokens
                continue
            if not goes_on:
                break
        self._pass_over(batch[len(dealt) :])
        self._preempted += preempted
        prompts = [request for request in dealt if request.joined < 0]
        return [Chunk(r, dealt[r], r.computed) for r in prompts], preempted

    def _take(self, request: Request, tokens: int) -> bool:
        """Memory for ``tokens`` more of ``request``; False if there is none."""
        kv, decodes = self.kv, request.joined >= 0
        if decodes:
            kv.leave(request)
        taken = kv.allocate(request, tokens)
        if decodes:
            kv.join(request)
        return taken

    def _give_back(self, request: Request, tokens: int) -> None:
        """Undo ``_take``."""
        kv, decodes = self.kv, request.joined >= 0
        if decodes:
            kv.leave(request)
        kv.give_back(request, tokens)
        if decodes:
            kv.join(request)

    def _pass_over(self, requests: list[Request]) -> None:
        """No token for ``requests`` in this iteration; their memory stays unchanged."""
        for request in requests:
            if request.joined >= 0:
                self.decoding.leave(request)
                self._stop_decoding(request)
        self._passed_over = requests
