"""Computes latent attention over a paged cache, one sequence at a time, without a paged kernel.

The cache of a layer lies as block x slot x 1 x size: a latent vector of ``rank`` numbers and the
turned position behind it, for all heads together. Decoding absorbs the projection up into the
query, and attends over latent vectors; prompts project the latent vectors of all tokens up to keys
and values. Both the engine and the benchmarks call these functions.
"""

from __future__ import annotations

from typing import NamedTuple

from calibrate.lazy_torch import Tensor, torch

NAME = "latent by sequence"

TOLERANCE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 3e-2}
"""How far a result may be from plain arithmetic in 32 bits, by its precision."""


class Up(NamedTuple):
    """The projection up of one layer, head x (part of a key, then value) x rank, and the width
    ``nope`` of that part of a key."""

    weight: Tensor
    nope: int

    @property
    def rank(self) -> int:
        """Numbers of a latent vector."""
        return int(self.weight.shape[-1])

    def absorb(self, query: Tensor) -> Tensor:
        """Queries over keys (token x head x key size) as queries over the cache (token x head x
        latent size)."""
        part, position = query[..., : self.nope], query[..., self.nope :]
        latent = torch.bmm(part.transpose(0, 1), self.weight[:, : self.nope]).transpose(0, 1)
        return torch.cat([latent, position], dim=-1)

    def values(self, mixed: Tensor) -> Tensor:
        """Mixed latent vectors (token x head x rank) as mixed values (token x head x size)."""
        up = self.weight[:, self.nope :].transpose(1, 2)
        return torch.bmm(mixed.transpose(0, 1), up).transpose(0, 1)


class LatentGather:
    """Copies the cache of one sequence side by side, into a buffer that the next call overwrites
    and that grows to the longest sequence."""

    def __init__(self) -> None:
        self._room: Tensor | None = None

    def __call__(self, cached: Tensor, blocks: Tensor, stop: int) -> Tensor:
        """The first ``stop`` places of ``blocks``: token x size."""
        room, count = self._room, len(blocks)
        if room is None or len(room) < count or room.shape[1:] != cached.shape[1:]:
            room = self._room = cached.new_empty((2 * count, *cached.shape[1:]))
        torch.index_select(cached, 0, blocks, out=room[:count])
        return room[:count].flatten(0, 2)[:stop]


def decode(
    query: Tensor, cached: Tensor, rank: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """One absorbed query (head x latent size) over ``cached`` (token x latent size): mixed latent
    vectors, head x ``rank``. ``mask`` is added to the scores, 1 x token."""
    scores = (query @ cached.T) * scale
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1, dtype=_wide(scores)).to(scores.dtype)
    return weights @ cached[:, :rank]


def prefill(query: Tensor, cached: Tensor, up: Up, mask: Tensor | None = None) -> Tensor:
    """Several queries (token x head x key size) over ``cached``, which includes their own tokens:
    mixed values, token x head x size. ``mask`` as in ``by_sequence.prefill``."""
    heads, width = up.weight.shape[:2]
    wide = torch.nn.functional.linear(cached[:, : up.rank], up.weight.flatten(0, 1))
    wide = wide.view(len(cached), heads, width)
    return over_heads(query, wide, cached[:, up.rank :], up.nope, mask)


def over_heads(
    query: Tensor, wide: Tensor, position: Tensor, nope: int, mask: Tensor | None = None
) -> Tensor:
    """Queries over keys and values that were projected up, ``wide`` (token x head x (``nope``
    numbers of a key, then value)), and the ``position`` (token x size) that all heads share."""
    keys, values = keys_and_values(wide, position, nope)
    seen = torch.nn.functional.scaled_dot_product_attention(
        *(part.transpose(0, 1)[None] for part in (query, keys, values)),
        attn_mask=mask,
        is_causal=mask is None,
    )
    return seen[0].transpose(0, 1)[..., : wide.shape[-1] - nope]


def keys_and_values(wide: Tensor, position: Tensor, nope: int) -> tuple[Tensor, Tensor]:
    """Keys with the position behind them, and values, which kernels want as wide as keys."""
    position = position[:, None].expand(-1, wide.shape[1], -1)
    keys, values = torch.cat([wide[..., :nope], position], dim=-1), wide[..., nope:]
    missing = keys.shape[-1] - values.shape[-1]
    if missing > 0:
        values = torch.nn.functional.pad(values, (0, missing))
    return keys, values


def _wide(scores: Tensor) -> object:
    """The type that a softmax is computed in: 32 bits at least."""
    return torch.promote_types(scores.dtype, torch.float32)
