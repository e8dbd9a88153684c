"""Executes one plan: blocks, tensors, the forward pass, the next tokens.

Times in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from calibrate.bench.elementwise import draw
from calibrate.engine.attention import EngineAttention
from calibrate.engine.batch import Span, make_step
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.drafted_sequences import DraftedSequences
from calibrate.engine.drafters import TokenDrafter
from calibrate.engine.graphs import Capture, DecodeGraphs
from calibrate.engine.model import Transformer
from calibrate.engine.places import groups_of, kv_places
from calibrate.engine.sequences import Prompt, Sequences, follow
from calibrate.lazy_torch import Tensor, torch
from sim.schedulers import Plan, Scheduler

Sampler = Callable[[Tensor], Tensor]
"""Logits (row x vocabulary) to the next token of each row."""

Drafting = Callable[[BlockTables], TokenDrafter]
"""Makes what drafts for sequences with those blocks."""


class Pass(NamedTuple):
    """The computation of one iteration, the requests that got a token, and its times: ``prepare``
    until its tensors were on their way, ``forward`` from there to the tokens in the host's memory,
    and to the drafts of the next iteration. ``accepted`` and ``gained`` are the drafts found right
    and the tokens that they brought, by request; None where nothing is drafted."""

    spans: tuple[Span, ...]
    served: tuple[int, ...]
    prepare: float
    forward: float
    accepted: Mapping[int, int] | None = None
    gained: Mapping[int, int] | None = None


class EngineExecutor:
    """Model, cache and block tables of one scheduler. ``order`` is that of the free blocks; with
    ``drafting`` the scheduler is one of ``verified``."""

    def __init__(
        self,
        scheduler: Scheduler,
        model: Transformer,
        attention: EngineAttention,
        prompt: Prompt,
        *,
        sampler: Sampler | None = None,
        order: Sequence[int] | None = None,
        capture: Capture | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        num_blocks, block_size = scheduler.kv.num_blocks, scheduler.kv.block_size
        self.model = model
        places = kv_places(model.spec, groups_of(scheduler.kv))
        self.tables = BlockTables(num_blocks, block_size, order, windows=places.windows)
        self.cache = Cache(places, num_blocks, block_size, dtype=model.dtype, device=model.device)
        self._drafted: DraftedSequences | None = None
        if drafting is not None:
            self._drafted = DraftedSequences(scheduler, self.tables, prompt, drafting(self.tables))
        self.sequences: Sequences = self._drafted or follow(scheduler, self.tables, prompt)
        self.attention = attention
        self._sampler = sampler or greedy
        self._graphs: DecodeGraphs | None = None
        if capture is not None:
            limits = scheduler.limits
            self._graphs = DecodeGraphs(
                model,
                self.cache,
                attention,
                most=limits.max_num_seqs,
                longest=limits.max_model_len,
                capture=capture,
            )

    def run(self, plan: Plan) -> Pass:
        """Compute ``plan``, which the scheduler has just made; its tokens are known afterwards."""
        started = time.perf_counter()
        spans = self.sequences.follow(plan)
        ordered, sampled, prepared = self._compute(spans, self.tables)
        chosen = [span for span in ordered if span.samples]
        served = self.sequences.deliver(chosen, sampled)
        accepted, gained = None, None
        if self._drafted is not None:
            self._drafted.draft(ordered)
            accepted, gained = self._drafted.accepted, self._drafted.gained
        spent = time.perf_counter() - prepared
        return Pass(ordered, served, prepared - started, spent, accepted, gained)

    def warm_up(self) -> None:
        """Passes of a few sizes over an empty cache, so that the first real one does not pay for
        the one-time work of libraries."""
        own = self.tables
        tables = BlockTables(own.num_blocks, own.block_size, windows=own.windows)
        room = own.num_blocks // len(own.windows) * own.block_size
        longest = min(room, self.model.max_positions)
        for tokens in (1, 8, 64):
            if tokens < longest:
                tables.resize(0, tokens + 1)
                self._compute([Span(0, [0] * tokens, 0, 0, samples=True, prompt=True)], tables)
                self._compute([Span(0, [0], tokens, 0, samples=True, prompt=False)], tables)

    def _compute(
        self, spans: Sequence[Span], tables: BlockTables
    ) -> tuple[tuple[Span, ...], list[int], float]:
        """The spans in the order of their rows, the tokens sampled, and when all was prepared."""
        with torch.inference_mode():
            step = make_step(spans, tables, nowhere=self.cache.nowhere, device=self.model.device)
            prepared = time.perf_counter()
            if self._graphs is not None and self._graphs.covers(step):
                logits = self._graphs.run(step)
            else:
                logits = self.model.forward(step, self.cache, self.attention.of(step))
            sampled: list[int] = self._sampler(logits).tolist() if len(logits) else []
        return step.spans, sampled, prepared


def greedy(logits: Tensor) -> Tensor:
    """The most likely token."""
    return logits.argmax(-1)


class Draw:
    """A token by its probability, under a seed; the draw depends on the requests in the batch."""

    def __init__(self, device: str, seed: int) -> None:
        self._generator: Any = torch.Generator(device).manual_seed(seed)

    def __call__(self, logits: Tensor) -> Tensor:
        """One draw for each row."""
        return draw(logits.float(), self._generator)
