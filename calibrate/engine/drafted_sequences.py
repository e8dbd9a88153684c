"""Follows sequences whose tokens are drafted and then checked, several in one pass.

A decode computes its last token and the drafts after it. The drafts that the target would have
chosen itself are kept, and one token of its own after them; the keys and values of the others stay
where they are and are overwritten. So the tokens are those of the target alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from calibrate.engine.batch import Span
from calibrate.engine.cache import BlockTables
from calibrate.engine.drafters import Computed, TokenDrafter
from calibrate.engine.sequences import HeldPlaces, OnDemand, Prompt
from calibrate.engine.verified import VerifiedAllocator, VerifiedBatch
from sim.request import Request
from sim.schedulers import Plan, Scheduler


class DraftedSequences(OnDemand):
    """Requests whose decodes carry drafts of ``drafter``. ``accepted`` has the number of drafts of
    the last pass that were right, by request, and ``gained`` the tokens that it brought."""

    def __init__(
        self, scheduler: Scheduler, tables: BlockTables, prompt: Prompt, drafter: TokenDrafter
    ) -> None:
        super().__init__(scheduler, tables, prompt)
        assert isinstance(scheduler.kv, VerifiedAllocator)
        assert isinstance(scheduler.decoding, VerifiedBatch)
        self.accepted: dict[int, int] = {}
        self.gained: dict[int, int] = {}
        self._kv, self._batch = scheduler.kv, scheduler.decoding
        self._longest = scheduler.limits.max_model_len
        self._drafter = drafter
        self._drafts: dict[int, list[int]] = {}
        self._ends: dict[int, int] = {}  # tokens that a request will have in all

    def _follow(self, plan: Plan) -> list[Span]:
        spans, held, drafts = [], {}, self._drafts
        self._drafts = {}
        for request in self._scheduler.members():
            whole = self._kv.blocks_of(request) * self.tables.block_size
            held[request.id] = HeldPlaces(whole, 0)
            self._ends[request.id] = request.prompt_tokens + request.output_tokens
            if request.joined >= 0:
                spans.append(self._decode(request, drafts.get(request.id, [])))
        spans += [self._chunk(chunk) for chunk in plan.chunks]
        self._hold(held)
        return spans

    def _decode(self, request: Request, drafts: list[int]) -> Span:
        stored = request.computed + self._scheduler.steps(request)
        tokens = [self._all_tokens(request)[stored], *drafts][: self._longest - stored]
        wanted = range(-len(tokens), 0)
        return Span(request.id, tokens, stored, 0, True, False, wanted)

    def deliver(self, spans: Iterable[Span], sampled: Iterable[int]) -> tuple[int, ...]:
        """Delivers the right part of each of ``spans``, for each of whose wanted tokens one was
        sampled; returns the requests that got any."""
        choices = iter(sampled)
        self.accepted, self.gained = {}, {}
        served = []
        for span in spans:
            chosen = [next(choices) for _ in span.wanted]
            tokens = self._tokens[span.request]
            if not span.prompt:
                right = agreed(span.tokens[1:], chosen)
                chosen = chosen[: right + 1][: self._ends[span.request] - len(tokens)]
                self.accepted[span.request], self.gained[span.request] = right, len(chosen)
            tokens += chosen
            served.append(span.request)
        self._batch.told(self.gained)
        self._kv.told(self.gained)
        return tuple(served)

    def draft(self, spans: Iterable[Span]) -> None:
        """Have the next tokens of those that go on drafted, after a pass over ``spans``."""
        self._drafts = dict(self._drafter.draft(list(self._computed(spans))))

    def _computed(self, spans: Iterable[Span]) -> Iterator[Computed]:
        for span in spans:
            tokens = self._tokens[span.request]
            goes_on = span.samples and len(tokens) < self._ends[span.request]
            yield Computed(span.request, tokens, span.start, span.stop, span.prompt, goes_on)

    def _settle(self) -> None:
        """A request that has begun to decode keeps the slots for its drafts."""
        members = {request.id for request in self._scheduler.members()}
        self._free_all_but(members)
        self._ends = {request: end for request, end in self._ends.items() if request in members}
        self._drafts = {r: drafts for r, drafts in self._drafts.items() if r in members}


def agreed(drafts: Iterable[int], chosen: Iterable[int]) -> int:
    """How many drafts in a row are what was ``chosen`` at their places.

    >>> agreed([4, 7, 7], [4, 7, 1, 5])
    2
    """
    right = 0
    for draft, choice in zip(drafts, chosen, strict=False):
        if draft != choice:
            break
        right += 1
    return right
