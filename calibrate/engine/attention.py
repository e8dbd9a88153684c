"""Computes attention for each token over the keys and values of its own sequence only.

This is the one part of a pass that cannot treat the batch as one matrix: every sequence has a cache
of its own length in blocks of its own. ``EngineAttention.of`` prepares what all layers of an
iteration share; what it returns is called once for each layer.

On a CPU a sequence at a time: its blocks are copied side by side, then PyTorch's attention runs;
that is also what ``infersim calibrate`` measures there. On CUDA, see ``attention_cuda``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from calibrate.bench import by_sequence
from calibrate.engine.batch import EngineStep, Span
from calibrate.engine.model import Attend
from calibrate.lazy_torch import Tensor, torch


class EngineAttention(Protocol):
    """A way to compute attention; ``name`` is what records call it, ``replayable`` says whether
    one CUDA graph of a batch of decodes does for all their lengths."""

    name: str
    replayable: bool

    def of(self, step: EngineStep) -> Attend:
        """The function to call for each layer of ``step``."""


class _Share(NamedTuple):
    """One span's rows of the batch, its blocks, and whether all that is there may be seen."""

    rows: slice
    blocks: Tensor
    span: Span
    masked: bool


class BySequence:
    """Every span by itself, prompts and decodes alike; on any device, in any precision."""

    name = by_sequence.NAME
    replayable = False

    def __init__(self) -> None:
        self._gather = by_sequence.Gather()

    def of(self, step: EngineStep) -> Attend:
        """Attention of all spans, one after the other."""
        return _one_by_one(step, range(len(step.spans)), self._gather)


def prompts_one_by_one(step: EngineStep) -> Attend:
    """Attention of the prompts alone; other rows of the result hold nothing."""
    return _one_by_one(step, range(step.decodes, len(step.spans)), by_sequence.Gather())


def _one_by_one(step: EngineStep, chosen: Sequence[int], gather: by_sequence.Gather) -> Attend:
    shares = _shares(step, chosen)
    masks: list[Tensor | None] = []

    def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if not masks:  # the first layer: the others use the same
            masks.extend(_mask(share, query) for share in shares)
        out = torch.empty_like(query)
        for share, mask in zip(shares, masks, strict=True):
            own = gather(keys, values, share.blocks, share.span.stop)
            compute = by_sequence.decode if share.span.count == 1 else by_sequence.prefill
            out[share.rows] = compute(query[share.rows], *own, mask)
        return out

    return attend


def _shares(step: EngineStep, chosen: Sequence[int]) -> list[_Share]:
    made = []
    row = sum(span.count for span in step.spans[: chosen[0]])
    for index in chosen:
        span = step.spans[index]
        made.append(
            _Share(
                rows=slice(row, row + span.count),
                blocks=step.table[index, : -(-span.stop // step.block_size)],
                span=span,
                masked=bool(span.padding) or (span.count > 1 and span.start > 0),
            )
        )
        row += span.count
    return made


def _mask(share: _Share, query: Tensor) -> Tensor | None:
    """None where causality from the first place on does, or a single row sees all."""
    span = share.span
    if not share.masked:
        return None
    return by_sequence.additive_mask(span.start, span.stop, span.padding, query)


Decode = Callable[[Tensor, Tensor, Tensor, EngineStep], Tensor]
"""Attention of the first ``step.decodes`` rows: one query token per sequence."""


def gathered(query: Tensor, keys: Tensor, values: Tensor, step: EngineStep) -> Tensor:
    """All decodes at once, each cache gathered and padded to the longest, and masked: what engines
    without a paged kernel do, and what a padded batch is computed with."""
    table = step.table[: step.decodes]
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
