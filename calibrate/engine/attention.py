"""How does each token see the keys and values of its own sequence, and of no other?

This is the one part of a pass that cannot treat the batch as one matrix: every sequence has a cache
of its own length in blocks of its own. ``Attention.of`` prepares what all layers of an iteration
share; what it returns is called once for each layer.

On a CPU a sequence at a time: its blocks are copied side by side, then PyTorch's attention runs;
that is also what ``infersim calibrate`` measures there. On CUDA, see ``attention_cuda``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from calibrate.engine.batch import Span, Step
from calibrate.engine.model import Attend
from calibrate.lazy_torch import Tensor, torch


class Attention(Protocol):
    """A way to compute attention; ``name`` is what records call it, ``replayable`` says whether
    one CUDA graph of a batch of decodes does for all their lengths."""

    name: str
    replayable: bool

    def of(self, step: Step) -> Attend:
        """The function to call for each layer of ``step``."""


class _Share(NamedTuple):
    """One span's rows of the batch, its blocks, and who of them may see whom."""

    rows: slice
    blocks: Tensor
    stop: int
    single: bool
    mask: Tensor | None  # None: causal from the first place on, or a single row that sees all


class BySequence:
    """Every span by itself, prompts and decodes alike; on any device, in any precision."""

    name = "gather and SDPA by sequence"
    replayable = False

    def of(self, step: Step) -> Attend:
        """Attention of all spans, one after the other."""
        return _one_by_one(step, range(len(step.spans)))


def prompts_one_by_one(step: Step) -> Attend:
    """Attention of the prompts alone; other rows of the result hold nothing."""
    return _one_by_one(step, range(step.decodes, len(step.spans)))


def _one_by_one(step: Step, chosen: Sequence[int]) -> Attend:
    shares = _shares(step, chosen)

    def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(query)
        for share in shares:
            own = _gather(keys, share), _gather(values, share)
            compute = _decode if share.single else _prefill
            out[share.rows] = compute(query[share.rows], *own, share.mask)
        return out

    return attend


def _shares(step: Step, chosen: Sequence[int]) -> list[_Share]:
    made = []
    row = sum(span.count for span in step.spans[: chosen[0]])
    for index in chosen:
        span = step.spans[index]
        made.append(
            _Share(
                rows=slice(row, row + span.count),
                blocks=step.table[index, : -(-span.stop // step.block_size)],
                stop=span.stop,
                single=span.count == 1,
                mask=_mask(span, step.table.device),
            )
        )
        row += span.count
    return made


def _mask(span: Span, device: object) -> Tensor | None:
    """Query x key, True where it may be seen: what came before, itself, and no padding. A padded
    place sees itself, so that what it leaves in the cache is a number."""
    if not span.padding and (span.count == 1 or span.start == 0):
        return None
    keys = torch.arange(span.stop, device=device)
    queries = torch.arange(span.start, span.stop, device=device)[:, None]
    return (keys <= queries) & ((keys >= span.padding) | (keys == queries))


def _gather(part: Tensor, share: _Share) -> Tensor:
    """One sequence's keys or values side by side: 1 x KV head x token x size."""
    own = part.index_select(0, share.blocks).flatten(0, 1)[: share.stop]
    return own.transpose(0, 1)[None]


def _decode(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One query token; the query heads of a group are rows of one product."""
    groups = query.view(1, keys.shape[1], -1, query.shape[-1])
    seen = torch.nn.functional.scaled_dot_product_attention(groups, keys, values, attn_mask=mask)
    return seen.reshape(query.shape)


def _prefill(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """The last query token sees all keys, the one before it a key less, and so on."""
    seen = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return seen[0].transpose(0, 1)


Decode = Callable[[Tensor, Tensor, Tensor, Step], Tensor]
"""Attention of the first ``step.decodes`` rows: one query token per sequence."""


def gathered(query: Tensor, keys: Tensor, values: Tensor, step: Step) -> Tensor:
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
