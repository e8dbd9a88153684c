"""Builds a paged KV cache in the state in which a running engine leaves it.

Keys and values of one layer lie in blocks of ``BLOCK`` tokens (block x slot x KV head x size); a
block table gives each sequence its blocks, in no order. Several tables over disjoint blocks take
turns, so that a call finds none of its keys in the last-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrate.bench.arena import Arena
from calibrate.bench.base import element
from calibrate.bench.heads import Heads
from calibrate.lazy_torch import Tensor, torch

BLOCK = 16
"""Tokens per block, as engines have it by default."""


@dataclass(frozen=True, slots=True)
class PagedCache:
    """Keys and values, block tables that take turns, and the tokens of each sequence."""

    keys: Tensor
    values: Tensor
    tables: Sequence[Tensor]
    lengths: tuple[int, ...]
    heads: Heads

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.lengths)


def spread_lengths(batch: int, context: int, skew: float) -> tuple[int, ...]:
    """Lengths with mean ``context`` of which the longest is ``skew`` times that.

    One sequence in ``4 * skew`` (at least one) is long, the others share the rest alike.

    >>> spread_lengths(8, 1000, 4.0), spread_lengths(2, 7, 1.0)
    ((4000, 572, 572, 572, 571, 571, 571, 571), (7, 7))
    """
    if skew <= 1:
        return (context,) * batch
    many = max(1, int(batch / (4 * skew)))
    longest = int(skew * context)
    rest, others = batch * context - many * longest, batch - many
    low, more = divmod(rest, others)
    if low < 1:
        raise ValueError(f"{batch} sequences of mean {context} cannot have a skew of {skew}")
    return (longest,) * many + (low + 1,) * more + (low,) * (others - more)


def blocks_for(lengths: Sequence[int]) -> int:
    """Blocks that the sequences hold together."""
    return sum(-(-length // BLOCK) for length in lengths)


def cache_bytes(lengths: Sequence[int], heads: Heads, precision: str) -> float:
    """Bytes of the keys and values of one layer, unfilled slots included."""
    return 2.0 * blocks_for(lengths) * BLOCK * heads.kv * heads.size * element(precision)


def make_cache(
    arena: Arena, lengths: tuple[int, ...], heads: Heads, precision: str, copies: int | None = None
) -> PagedCache:
    """A cache of random contents, with as many tables as it takes to outgrow the device's cache."""
    each = blocks_for(lengths)
    if copies is None:
        copies = arena.copies(cache_bytes(lengths, heads, precision))
    shape = (each * copies, BLOCK, heads.kv, heads.size)
    keys, values = arena.take(shape, precision, 2, pool="kv")
    counts = [blocks_for([length]) for length in lengths]
    pad = torch.nn.utils.rnn.pad_sequence
    tables = [
        pad(own.split(counts), batch_first=True)
        for own in arena.shuffled(each * copies).split(each)
    ]
    return PagedCache(keys, values, tables, lengths, heads)


def bits(part: Tensor) -> Tensor:
    """The type to index through: 8-bit floats have no gather of their own."""
    return torch.uint8 if part.element_size() == 1 else part.dtype


def gather_all(cache: PagedCache, blocks: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (sequence x KV head x token x size) of the ``blocks`` of all sequences, as
    many of each, in the number format of ``like``."""
    heads, batch = cache.heads, len(cache.lengths)
    keys, values = (
        part.view(bits(part))
        .index_select(0, blocks)
        .view(part.dtype)
        .to(like.dtype)
        .view(batch, -1, heads.kv, heads.size)
        .transpose(1, 2)
        for part in (cache.keys, cache.values)
    )
    return keys, values
