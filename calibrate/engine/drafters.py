"""Drafts tokens for sequences that decode: by searching their text, or by a smaller model.

A drafter learns after each pass what the target computed, and answers with the next few tokens of
each sequence that goes on. What it says is checked by the target's next pass, so that a bad drafter
costs time and never changes a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from calibrate.engine.attention import EngineAttention
from calibrate.engine.batch import PAD, Span, make_step
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.model import Transformer
from calibrate.lazy_torch import torch

SHORTEST, LONGEST = 2, 5
"""Tokens that have to match where the text is searched, the most that do first."""


class Computed(NamedTuple):
    """The target's computed part of a request: places ``start`` to ``stop`` of its cache.
    ``tokens`` are all that are known now; ``goes_on`` says whether it decodes next."""

    request: int
    tokens: Sequence[int]
    start: int
    stop: int
    prompt: bool
    goes_on: bool


class TokenDrafter(Protocol):
    """Drafts up to K tokens for each sequence that goes on."""

    def draft(self, computed: Sequence[Computed]) -> Mapping[int, list[int]]:
        """The drafts by request; what the target has computed is seen on the way."""


class SearchedText:
    """Continues a text as it went on where its last few tokens stood first.

    >>> SearchedText(3).find([1, 2, 3, 4, 5, 1, 2])
    [3, 4, 5]
    >>> SearchedText(3).find([1, 2, 3])
    []
    """

    def __init__(self, drafts: int, shortest: int = SHORTEST, longest: int = LONGEST) -> None:
        self._drafts, self._shortest, self._longest = drafts, shortest, longest

    def draft(self, computed: Sequence[Computed]) -> Mapping[int, list[int]]:
        """The drafts found; none for a text that does not repeat."""
        return {each.request: self.find(each.tokens) for each in computed if each.goes_on}

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The drafts after ``tokens``, of the longest match and the earliest of equal ones."""
        text = np.asarray(tokens)
        for size in range(min(self._longest, len(text) - 1), self._shortest - 1, -1):
            same = np.ones(len(text) - size, dtype=bool)
            for place in range(size):
                same &= text[place : place + len(same)] == text[len(text) - size + place]
            if same.any():
                begin = int(same.argmax()) + size
                found: list[int] = text[begin : begin + self._drafts].tolist()
                return found
        return []


class DraftModel:
    """A smaller model with keys and values of its own, in the blocks of the target's sequences.

    Its first pass goes over the tokens that the target has just computed, filled up to as many as
    could have been right, so that it takes the same time whatever was; each further pass goes over
    one draft of each sequence.
    """

    def __init__(
        self,
        model: Transformer,
        cache: Cache,
        attention: EngineAttention,
        tables: BlockTables,
        drafts: int,
    ) -> None:
        self._model, self._cache, self._attention = model, cache, attention
        self._tables, self._drafts = tables, drafts

    def draft(self, computed: Sequence[Computed]) -> Mapping[int, list[int]]:
        """The drafts of all sequences, side by side."""
        spans = [self._first(each) for each in computed if each.prompt or each.goes_on]
        found = {request: [token] for request, token in self._pass(spans)}
        ends = {each.request: len(each.tokens) for each in computed}
        for _ in range(self._drafts - 1):
            later = [
                self._one(request, drafts[-1], ends[request] + len(drafts) - 1)
                for request, drafts in found.items()
                if ends[request] + len(drafts) <= self._model.max_positions
            ]
            for request, token in self._pass(later):
                found[request].append(token)
        return found

    def _first(self, each: Computed) -> Span:
        """The tokens of a prompt that were computed, and the first one after its end; of a decode
        those that are new, and places for those that could have been."""
        last = len(each.tokens)
        if each.prompt:
            start, stop = each.start, max(each.stop, last if each.goes_on else 0)
        else:
            start = each.start + 1
            stop = min(start + 1 + self._drafts, self._model.max_positions)
        tokens = [*each.tokens[start:stop], *[PAD] * (stop - last)]
        wanted = (last - 1 - stop,)
        return Span(each.request, tokens, start, 0, each.goes_on, each.prompt, wanted)

    def _one(self, request: int, token: int, place: int) -> Span:
        return Span(request, [token], place, 0, samples=True, prompt=False)

    def _pass(self, spans: Sequence[Span]) -> Iterable[tuple[int, int]]:
        """Each request that samples, and its most likely next token."""
        if not spans:
            return []
        model, cache = self._model, self._cache
        with torch.inference_mode():
            step = make_step(spans, self._tables, nowhere=cache.nowhere, device=model.device)
            logits = model.forward(step, cache, self._attention.of(step))
            sampled: list[int] = logits.argmax(-1).tolist() if len(logits) else []
        asked = [span.request for span in step.spans if span.samples]
        return zip(asked, sampled, strict=True)
