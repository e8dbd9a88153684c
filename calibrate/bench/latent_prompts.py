"""Computes prompts of latent attention (MLA), projected up: every way measured, and its proof.

On CUDA the quickest way that is right is timed, of those in ``WAYS``; on a CPU sequence by
sequence. ``kernel`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from calibrate.bench import by_sequence, latent_by_sequence, paged_flash
from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchPoint, BenchWork, element
from calibrate.bench.elementwise import store_call
from calibrate.bench.heads import HeadsCandidate, close, dense_attention, each_way, quickest_right
from calibrate.bench.latent_by_sequence import TOLERANCE
from calibrate.lazy_torch import Tensor, torch


class LatentPrompt(NamedTuple):
    """Queries (token x head x size) of all prompts; what the projection up leaves of their tokens
    and contexts (token x head x (``nope`` numbers of a key, then value)); and the positions that
    all heads share (token x size)."""

    query: Tensor
    wide: Tensor
    position: Tensor
    nope: int
    batch: int


def make_prompts(arena: Arena, point: BenchPoint, copies: int | None = None) -> list[LatentPrompt]:
    """Operands as the projection up leaves them, in turn."""
    batch, tokens, context = (point.size(name) for name in ("batch", "tokens", "context"))
    heads, rope = point.size("q_heads"), point.size("rope")
    value = round(point.shape["head_dim"] - rope / 2)  # and as many numbers of a key
    kept = batch * (context + tokens)
    if copies is None:
        copies = arena.copies(kept * heads * 2 * value * element(point.precision))
    (query,) = arena.take((batch * tokens, heads, value + rope), point.precision)
    wide = arena.take((kept, heads, 2 * value), point.precision, copies, pool="kv")
    position = arena.take((kept, rope), point.precision)[0]
    return [LatentPrompt(query, each, position, value, batch) for each in wide]


def prepare(point: BenchPoint, arena: Arena) -> BenchWork:
    """Operands that take turns, and the quickest way that is right on this device."""
    prompts = make_prompts(arena, point)
    if arena.device.facts.kind == "cpu":
        before = store_call(arena, point.precision)
        return BenchWork(prompt_calls(prompts), PADDED, before=before)
    name, calls = quickest_right(_candidates(arena, point, prompts), arena.device)
    return BenchWork(calls, name)


PADDED = "SDPA by sequence, values padded"


def prompt_calls(prompts: Sequence[LatentPrompt]) -> list[Callable[[], Tensor]]:
    """Prompt by prompt, on any device; the mask is the pass's, not the layer's."""
    query, all_, _, nope, batch = prompts[0]
    tokens, whole = len(query) // batch, len(all_) // batch
    mask = None
    if whole > tokens:
        mask = by_sequence.additive_mask(whole - tokens, whole, 0, query)
    out = query.new_empty((*query.shape[:2], all_.shape[-1] - nope))

    def call(one: LatentPrompt) -> Callable[[], Tensor]:
        def run() -> Tensor:
            for i in range(batch):
                new, own = slice(i * tokens, (i + 1) * tokens), slice(i * whole, (i + 1) * whole)
                out[new] = latent_by_sequence.over_heads(
                    one.query[new], one.wide[own], one.position[own], nope, mask
                )
            return out

        return run

    return [call(one) for one in prompts]


def flash(prompts: Sequence[LatentPrompt]) -> list[Callable[[], Tensor]]:
    """PyTorch's variable-length flash attention over all prompts, values padded to the width of
    keys."""
    attend = paged_flash.prefill_function(prompts[0].query, prompts[0].wide, prompts[0].batch)
    width = prompts[0].wide.shape[-1] - prompts[0].nope

    def call(one: LatentPrompt) -> Callable[[], Tensor]:
        def run() -> Tensor:
            keys, values = latent_by_sequence.keys_and_values(one.wide, one.position, one.nope)
            return attend(one.query, keys, values)[..., :width]

        return run

    return [call(one) for one in prompts]


Way = Callable[[Sequence[LatentPrompt]], list[Callable[[], Tensor]]]

WAYS: tuple[tuple[str, Way], ...] = (
    (f"{paged_flash.NAME}, values padded", flash),
    (PADDED, prompt_calls),
)


def _candidates(
    arena: Arena, point: BenchPoint, prompts: Sequence[LatentPrompt]
) -> Iterator[HeadsCandidate]:
    def right(name: str) -> bool:
        question = (name, prompts[0].query.shape[1:], point.precision)
        return arena.once(question, lambda: agrees(dict(WAYS)[name], arena, point))

    return each_way(WAYS, prompts, right)


def agrees(way: Way, arena: Arena, point: BenchPoint) -> bool:
    """Whether a way gives the result of dense attention, for whole prompts and for chunks."""
    for tokens, context in ((37, 0), (21, 50)):
        shape = {**point.shape, "batch": 2, "tokens": tokens, "context": context}
        one, *_ = made = make_prompts(arena, BenchPoint("", point.precision, shape, 0.0), copies=1)
        result = way(made)[0]()
        position = one.position[:, None].expand(-1, one.wide.shape[1], -1)
        keys = torch.cat([one.wide[..., : one.nope], position], dim=-1)
        for i in range(2):
            new = slice(i * tokens, (i + 1) * tokens)
            own = slice(i * (tokens + context), (i + 1) * (tokens + context))
            right = dense_attention(one.query[new], keys[own], one.wide[own, :, one.nope :])
            if not close(result[new], right, TOLERANCE[point.precision]):
                return False
    return True
