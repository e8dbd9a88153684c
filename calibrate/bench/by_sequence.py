"""Computes attention over a paged cache on a CPU, one sequence at a time, without a paged kernel.

A sequence's blocks are copied side by side into a buffer that is used again and again, then
PyTorch's attention runs. Both the engine and the benchmarks call these functions, so that what is
measured is what runs. Keys and values of a layer lie as block x slot x KV head x size.

Through a window only the blocks that it shows are copied; a prompt longer than the window is
computed in ``pieces``, each over the keys that some token of it sees. Sinks, a number for each
query head that takes part in the softmax, multiply the result by the share that is left for keys.
"""

from __future__ import annotations

from typing import NamedTuple

from calibrate.lazy_torch import Tensor, torch
from sim.cost.kernels.serial_windows import PIECE
from sim.specs.window import Window

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


def decode(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One query token (1 x head x size); the query heads of a group are rows of one product.
    ``sinks`` has a number for each query head."""
    groups = query.view(1, keys.shape[1], -1, query.shape[-1])
    if sinks is not None:
        shaped = sinks.view(keys.shape[1], -1)
        return sinking(groups, keys, values, mask, shaped, causal=False).reshape(query.shape)
    seen = torch.nn.functional.scaled_dot_product_attention(groups, keys, values, attn_mask=mask)
    return seen.reshape(query.shape)


def prefill(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Several query tokens (token x head x size). Without a mask they are all there is, and the
    first sees itself alone, the second a key more, and so on."""
    queries = query.transpose(0, 1)[None]
    if sinks is not None:
        seen = sinking(queries, keys, values, mask, sinks[:, None], causal=mask is None)
        return seen[0].transpose(0, 1)
    seen = torch.nn.functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return seen[0].transpose(0, 1)


def sinking(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    sinks: Tensor,
    *,
    causal: bool,
) -> Tensor:
    """Attention (1 x head x token x size) in which ``sinks`` (head x token, or one for all tokens)
    take part in the softmax: without them it would be more by one over the share of the keys."""
    if query.device.type == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        seen, weight = flash(query, keys, values, 0.0, causal, attn_mask=mask)
    else:
        seen, weight = _written_out(query, keys, values, mask, causal)
    return seen * torch.sigmoid(weight - sinks).to(seen.dtype)[..., None]


def _written_out(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention, and the logarithm of the sum of exponentials of each query's scores."""
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = query @ keys.transpose(-1, -2) * query.shape[-1] ** -0.5
    if causal:
        mask = torch.full(scores.shape[-2:], float("-inf"), device=query.device).triu(1)
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


class Piece(NamedTuple):
    """Tokens at places ``start`` to ``stop`` of a sequence, which see none before place
    ``first``."""

    start: int
    stop: int
    first: int


def pieces(start: int, stop: int, window: Window) -> list[Piece]:
    """Tokens ``start`` to ``stop``, cut so that each piece sees little that most of it does not.

    >>> pieces(100, 250, Window(64))
    [Piece(start=100, stop=164, first=37), Piece(start=164, stop=228, first=101), \
Piece(start=228, stop=250, first=165)]
    >>> pieces(100, 250, Window(128, chunked=True))
    [Piece(start=100, stop=128, first=0), Piece(start=128, stop=250, first=128)]
    """
    found = []
    while start < stop:
        rows = PIECE
        if window.chunked:
            rows = window.size - start % window.size
        end = min(stop, start + rows)
        found.append(Piece(start, end, start - window.seen(start)))
        start = end
    return found


def additive_mask(
    start: int,
    stop: int,
    padding: int,
    like: Tensor,
    *,
    window: Window | None = None,
    first: int = 0,
) -> Tensor:
    """The mask to add to the scores of the tokens at places ``start`` to ``stop``, query x key, in
    the type of ``like``: nothing for what came before a token and for itself, minus infinity for
    the rest. The first ``padding`` places hold nothing and see themselves alone, so that what they
    leave in the cache is a number. Keys begin at place ``first``; a ``window`` hides more of them,
    counted without the padding.

    Added numbers rather than truth values, which PyTorch would turn into numbers at every call.
    """
    keys = torch.arange(first, stop, device=like.device)
    queries = torch.arange(start, stop, device=like.device)[:, None]
    seen = (keys <= queries) & ((keys >= padding) | (keys == queries))
    if window is not None and window.chunked:
        seen &= (keys - padding) // window.size == (queries - padding) // window.size
    elif window is not None:
        seen &= keys > queries - window.size
    mask = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(~seen, float("-inf"))
