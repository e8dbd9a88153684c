"""Computes attention over a paged cache on a CPU, one sequence at a time, without a paged kernel.

A sequence's blocks are copied side by side into a buffer that is used again and again, then
PyTorch's attention runs. Both the engine and the benchmarks call these functions, so that what is
measured is what runs. Keys and values of a layer lie as block x slot x KV head x size.
"""

from __future__ import annotations

from calibrate.lazy_torch import Tensor, torch

NAME = "gather and SDPA by sequence"


class Gather:
    """Copies the keys and values of one sequence side by side.

    What it returns is overwritten by the next call. The buffer grows to the longest sequence.
    """

    def __init__(self) -> None:
        self._room: Tensor | None = None

    def __call__(
        self, keys: Tensor, values: Tensor, blocks: Tensor, stop: int
    ) -> tuple[Tensor, Tensor]:
        """The first ``stop`` places of ``blocks``: 1 x KV head x token x size of both."""
        count = len(blocks)
        room = self._buffer(keys, count)
        own = []
        for source, target in ((keys, room[0, :count]), (values, room[1, :count])):
            torch.index_select(source, 0, blocks, out=target)
            own.append(target.flatten(0, 1)[:stop].transpose(0, 1)[None])
        return own[0], own[1]

    def _buffer(self, keys: Tensor, count: int) -> Tensor:
        """Room for as many blocks, twice; more than asked for, so that it seldom has to grow."""
        room = self._room
        fits = room is not None and room.shape[2:] == keys.shape[1:] and room.dtype == keys.dtype
        if room is None or not fits or room.shape[1] < count:
            shape = (2, 2 * count, *keys.shape[1:])
            room = self._room = torch.empty(shape, dtype=keys.dtype, device=keys.device)
        return room


def decode(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """One query token (1 x head x size); the query heads of a group are rows of one product."""
    groups = query.view(1, keys.shape[1], -1, query.shape[-1])
    seen = torch.nn.functional.scaled_dot_product_attention(groups, keys, values, attn_mask=mask)
    return seen.reshape(query.shape)


def prefill(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Several query tokens (token x head x size). Without a mask they are all there is, and the
    first sees itself alone, the second a key more, and so on."""
    seen = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return seen[0].transpose(0, 1)


def additive_mask(start: int, stop: int, padding: int, like: Tensor) -> Tensor:
    """What to add to the scores of the tokens at places ``start`` to ``stop``, query x key, in the
    type of ``like``: nothing for what came before a token and for itself, minus infinity for the
    rest. The first ``padding`` places hold nothing and see themselves alone, so that what they
    leave in the cache is a number.

    Added numbers rather than truth values, which PyTorch would turn into numbers at every call.
    """
    keys = torch.arange(stop, device=like.device)
    queries = torch.arange(start, stop, device=like.device)[:, None]
    seen = (keys <= queries) & ((keys >= padding) | (keys == queries))
    mask = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(~seen, float("-inf"))
