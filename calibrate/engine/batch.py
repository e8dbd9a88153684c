"""Turns a scheduler's plan into the tensors of one iteration, token by token.

A ``Span`` is the share of one sequence: ``count`` tokens from place ``start`` of its cache on. All
spans lie side by side in one flat list of tokens, decodes first, without padding between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrate.engine.cache import BlockTables
from calibrate.lazy_torch import Tensor, torch

PAD = 0
"""The token that fills padded places. Any one does: nothing reads what comes of it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one request in one iteration.

    ``start`` and ``stop`` are places in the request's cache; the first ``padding`` places of that
    hold nothing and are masked, so that a token's position is its place less the padding.
    ``samples`` says whether logits are wanted: of the last token, or of those that ``wanted`` names
    by their places from the end; ``prompt`` whether the tokens are prefilled.
    """

    request: int
    tokens: Sequence[int]
    start: int
    padding: int
    samples: bool
    prompt: bool
    wanted: Sequence[int] = (-1,)

    @property
    def count(self) -> int:
        """Tokens computed."""
        return len(self.tokens)

    @property
    def stop(self) -> int:
        """Places of the cache that are filled once they are computed."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One iteration, ready for the model; the ``decodes``, spans of one token that are no prompts,
    go first.

    ``tokens``, ``positions`` and ``slots`` (where in the cache keys and values go) have one entry
    for each token, ``sampling`` the rows whose logits are wanted, in the order of their spans.
    A table has a row of blocks, of ``block_size`` tokens each, for each span in their order,
    filled up behind the last, and where blocks were given back, with ``nowhere``; ``lengths`` are
    the ``stop`` of each span, ``firsts`` the ``padding``. ``slots`` and ``tables`` are one for each
    group of layers (``places``).
    """

    spans: tuple[Span, ...]
    decodes: int
    block_size: int
    tokens: Tensor
    positions: Tensor
    sampling: Tensor
    lengths: Tensor
    firsts: Tensor
    slots: tuple[Tensor, ...]
    tables: tuple[Tensor, ...]

    @property
    def padded(self) -> bool:
        """Whether some place of some cache must be masked."""
        return any(span.padding for span in self.spans)


def make_step(
    spans: Sequence[Span], tables: BlockTables, *, nowhere: int, device: str
) -> EngineStep:
    """The tensors of one iteration, sent to the device in one piece."""
    ordered = tuple(sorted(spans, key=_together))
    groups = range(len(tables.windows))
    tokens: list[int] = []
    positions: list[int] = []
    sampling: list[int] = []
    slots: list[list[int]] = [[] for _ in groups]
    table: list[list[int]] = [[] for _ in groups]
    width = max(tables.needed(span.stop) for span in ordered)
    for span in ordered:
        tokens += span.tokens
        positions += [max(0, place - span.padding) for place in range(span.start, span.stop)]
        if span.samples:
            sampling += [len(tokens) + place for place in span.wanted]
        for group in groups:
            slots[group] += tables.slots(span.request, span.start, span.stop, group)
            own = tables.row(span.request, span.stop, nowhere, group)
            table[group] += own + [nowhere] * (width - len(own))
    lengths = [span.stop for span in ordered]
    firsts = [span.padding for span in ordered]
    sent = _send([tokens, positions, sampling, lengths, firsts, *slots, *table], device)
    kept = 5 + len(slots)
    return EngineStep(
        spans=ordered,
        decodes=sum(not _together(span) for span in ordered),
        block_size=tables.block_size,
        tokens=sent[0],
        positions=sent[1],
        sampling=sent[2],
        lengths=sent[3],
        firsts=sent[4],
        slots=sent[5:kept],
        tables=tuple(part.view(len(ordered), width) for part in sent[kept:]),
    )


def _together(span: Span) -> bool:
    """Whether attention sees several tokens of it at once: a prompt, or drafts to check."""
    return span.prompt or span.count > 1


def _send(columns: Sequence[list[int]], device: str) -> tuple[Tensor, ...]:
    """Lists of integers as tensors on the device; one transfer for all of them."""
    flat = [number for column in columns for number in column]
    packed = torch.tensor(flat, dtype=torch.int64, pin_memory=device != "cpu")
    sent: tuple[Tensor, ...] = packed.to(device, non_blocking=True).split(
        [len(column) for column in columns]
    )
    return sent
