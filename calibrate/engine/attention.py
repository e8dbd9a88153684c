"""Computes attention for each token over the keys and values of its own sequence only.

This is the one part of a pass that cannot treat the batch as one matrix: every sequence has a cache
of its own length in blocks of its own. ``EngineAttention.of`` prepares what all layers of an
iteration share; what it returns is called once for each layer.

On a CPU a sequence at a time: its blocks are copied side by side, then PyTorch's attention runs;
that is also what ``infersim calibrate`` measures there. Through a window only the blocks that it
shows are copied. Latent attention absorbs the projection up where tokens are decoded, and projects
the whole sequence up where a prompt is. On CUDA, see ``attention_cuda``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from calibrate.bench import by_sequence, latent_by_sequence
from calibrate.bench.by_sequence import Piece
from calibrate.bench.latent_by_sequence import Up
from calibrate.engine.attend import WHOLE, Attend, View
from calibrate.engine.batch import EngineStep, Span
from calibrate.lazy_torch import Tensor, torch
from sim.specs.window import Window


class EngineAttention(Protocol):
    """A way to compute attention; ``name`` is what records call it, ``replayable`` says whether
    one CUDA graph of a batch of decodes does for all their lengths."""

    name: str
    replayable: bool

    def of(self, step: EngineStep) -> Attend:
        """The call for each layer of ``step``."""


class BySequence:
    """Every span by itself, prompts and decodes alike; on any device, in any precision, any kind
    of attention."""

    replayable = False

    def __init__(self, name: str = by_sequence.NAME) -> None:
        self.name = name
        self._gather = by_sequence.Gather()
        self._latents = latent_by_sequence.LatentGather()

    def of(self, step: EngineStep) -> Attend:
        """Attention of all spans, one after the other."""
        return _OneByOne(step, range(len(step.spans)), self._gather, self._latents)


def prompts_one_by_one(step: EngineStep) -> Attend:
    """Attention of the prompts alone; other rows of the result hold nothing."""
    gathers = by_sequence.Gather(), latent_by_sequence.LatentGather()
    return _OneByOne(step, range(step.decodes, len(step.spans)), *gathers)


class _Share(NamedTuple):
    """Some of one span's rows of the batch, the blocks with the keys that they see, of which the
    first ``skip`` places are not for them, where these end, and the mask (None where causality from
    the first key on does, or a single row sees all)."""

    rows: slice
    blocks: Tensor
    skip: int
    stop: int
    mask: Tensor | None

    @property
    def single(self) -> bool:
        """Whether it is one row."""
        return bool(self.rows.stop - self.rows.start == 1)


class _OneByOne:
    """Attention of the ``chosen`` spans; what layers with the same view share is made once."""

    def __init__(
        self,
        step: EngineStep,
        chosen: Sequence[int],
        gather: by_sequence.Gather,
        latents: latent_by_sequence.LatentGather,
    ) -> None:
        self._step = step
        self._chosen = chosen
        self._gather = gather
        self._latents = latents
        self._shares: dict[tuple[int, Window | None], list[_Share]] = {}

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, view: View = WHOLE) -> Tensor:
        out = torch.empty_like(query)
        for share in self._shares_of(view, query):
            key, value = self._gather(keys, values, share.blocks, share.stop)
            own = key[:, :, share.skip :], value[:, :, share.skip :]
            compute = by_sequence.decode if share.single else by_sequence.prefill
            out[share.rows] = compute(query[share.rows], *own, share.mask, view.sinks)
        return out

    def latent(self, query: Tensor, cached: Tensor, up: Up) -> Tensor:
        """The projection up is absorbed where spans have one row, for all of them at once."""
        scale = query.shape[-1] ** -0.5
        out = query.new_empty((*query.shape[:2], up.weight.shape[1] - up.nope))
        shares = self._shares_of(WHOLE, query)
        single = [share for share in shares if share.single]
        rows = [share.rows.start for share in single]
        if rows:
            absorbed = up.absorb(query[rows])
            mixed = query.new_empty((*absorbed.shape[:2], up.rank))
            for row, share in enumerate(single):
                own = self._latents(cached, share.blocks, share.stop)[share.skip :]
                mixed[row] = latent_by_sequence.decode(
                    absorbed[row], own, up.rank, scale, share.mask
                )
            out[rows] = up.values(mixed)
        for share in shares:
            if not share.single:
                own = self._latents(cached, share.blocks, share.stop)
                out[share.rows] = latent_by_sequence.prefill(query[share.rows], own, up, share.mask)
        return out

    def _shares_of(self, view: View, query: Tensor) -> list[_Share]:
        key = view.group, view.window
        if key not in self._shares:
            self._shares[key] = self._share_out(view, query)
        return self._shares[key]

    def _share_out(self, view: View, query: Tensor) -> list[_Share]:
        step, size = self._step, self._step.block_size
        table = step.tables[view.group]
        made = []
        row = sum(span.count for span in step.spans[: self._chosen[0]])
        for index in self._chosen:
            span = step.spans[index]
            for start, stop, first in _pieces(span, view.window):
                block = first // size
                keys = first - block * size
                made.append(
                    _Share(
                        rows=slice(row, row + stop - start),
                        blocks=table[index, block : -(-stop // size)],
                        skip=keys,
                        stop=stop - block * size,
                        mask=_mask(span, Piece(start, stop, first), view.window, query),
                    )
                )
                row += stop - start
        return made


def _pieces(span: Span, window: Window | None) -> list[Piece]:
    """The rows of a span that are computed together; padded ones see from the first place on."""
    if window is None or (span.padding and span.count > 1):
        return [Piece(span.start, span.stop, 0)]
    if span.padding:
        return [Piece(span.start, span.stop, span.start - window.seen(span.start - span.padding))]
    return by_sequence.pieces(span.start, span.stop, window)


def _mask(span: Span, piece: Piece, window: Window | None, query: Tensor) -> Tensor | None:
    start, stop, first = piece
    hidden = window is not None and not window.chunked and stop - first > window.size
    if stop - start == 1:
        needed = first < span.padding
    else:
        needed = bool(span.padding) or start > first or hidden
    if not needed:
        return None
    return by_sequence.additive_mask(start, stop, span.padding, query, window=window, first=first)


Decode = Callable[[Tensor, Tensor, Tensor, EngineStep], Tensor]
"""Attention of the first ``step.decodes`` rows: one query token per sequence."""


def gathered(query: Tensor, keys: Tensor, values: Tensor, step: EngineStep) -> Tensor:
    """All decodes at once, each cache gathered and padded to the longest, and masked: what engines
    without a paged kernel do, and what a padded batch is computed with."""
    table = step.tables[0][: step.decodes]
    places = torch.arange(table.shape[1] * keys.shape[1], device=table.device)
    lengths, firsts = step.lengths[: step.decodes, None], step.firsts[: step.decodes, None]
    seen = (places < lengths) & (places >= firsts)
    own = [
        part.index_select(0, table.flatten()).view(len(table), -1, *part.shape[2:]).transpose(1, 2)
        for part in (keys, values)
    ]
    groups = query.view(len(table), keys.shape[2], -1, query.shape[-1])
    result = torch.nn.functional.scaled_dot_product_attention(
        groups, *own, attn_mask=seen[:, None, None, :]
    )
    return result.reshape(query.shape)
