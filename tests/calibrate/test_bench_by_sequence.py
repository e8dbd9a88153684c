"""What runs sequence by sequence and expert by expert gives what is written out token by token."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="kernels are PyTorch's")

from calibrate.bench import by_expert, by_sequence, latent_by_sequence
from calibrate.lazy_torch import torch
from sim.specs.window import Window

HEADS, KV_HEADS, SIZE, STOP = 6, 2, 16, 150


def drawn(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def sees(window: Window | None, place: int, padding: int = 0) -> list[int]:
    """Places that the token at ``place`` sees, by the window's own count."""
    position = place - padding
    seen = position if window is None else window.seen(position)
    return list(range(place - seen, place + 1))


def written_out(
    query: Any, keys: Any, values: Any, start: int, window: Window | None, sinks: Any = None
) -> Any:
    """Attention of the tokens from ``start`` on, one softmax for each token and head."""
    out = torch.empty_like(query)
    for row in range(len(query)):
        places = sees(window, start + row)
        for head in range(HEADS):
            own = head // (HEADS // KV_HEADS)
            scores = keys[places, own] @ query[row, head] * SIZE**-0.5
            if sinks is not None:
                scores = torch.cat([scores, sinks[head : head + 1]])
            out[row, head] = scores.softmax(0)[: len(places)] @ values[places, own]
    return out


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("window", [None, Window(5), Window(70), Window(48, chunked=True)])
@pytest.mark.parametrize("start", [0, 37, STOP - 1])
def test_attention_through_a_window(window: Window | None, start: int, sunk: bool) -> None:
    query = drawn(STOP - start, HEADS, SIZE)
    keys, values = drawn(STOP, KV_HEADS, SIZE, seed=1), drawn(STOP, KV_HEADS, SIZE, seed=2)
    sinks = drawn(HEADS, seed=3) if sunk else None
    whole = [by_sequence.Piece(start, STOP, 0)]
    out = torch.empty_like(query)
    for begin, end, first in whole if window is None else by_sequence.pieces(start, STOP, window):
        own = [part[first:end].transpose(0, 1)[None] for part in (keys, values)]
        rows = slice(begin - start, end - start)
        if end - begin == 1:
            out[rows] = by_sequence.decode(query[rows], *own, None, sinks)
            continue
        mask = by_sequence.additive_mask(begin, end, 0, query, window=window, first=first)
        out[rows] = by_sequence.prefill(query[rows], *own, mask, sinks)
    expected = written_out(query, keys, values, start, window, sinks)
    assert float((out - expected).abs().max()) < 1e-12


def test_the_mask_of_a_padded_chunk_counts_from_the_first_token() -> None:
    window = Window(4, chunked=True)
    mask = by_sequence.additive_mask(0, 12, 3, drawn(1), window=window)
    for place in range(3, 12):
        assert (mask[place] == 0).nonzero().flatten().tolist() == sees(window, place, padding=3)


@pytest.mark.parametrize("causal", [False, True])
def test_sinks_are_the_same_without_the_cpu_kernel(
    monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    query, keys = drawn(1, HEADS, 7, SIZE), drawn(1, KV_HEADS, 7, SIZE, seed=1)
    found = by_sequence._written_out(query, keys, keys, None, causal)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    for ours, theirs in zip(found, flash(query, keys, keys, 0.0, causal), strict=True):
        assert float((ours - theirs).abs().max()) < 1e-12


def test_absorbed_latents_are_keys_and_values_projected_up() -> None:
    rank, nope, rope, wide, heads, stop = 12, 8, 4, 6, 3, 40
    up = latent_by_sequence.Up(drawn(heads, nope + wide, rank, seed=1), nope)
    cached = drawn(stop, rank + rope, seed=2)
    query = drawn(stop, heads, nope + rope, seed=3)
    whole = latent_by_sequence.prefill(query, cached, up)
    scale = (nope + rope) ** -0.5
    absorbed = up.absorb(query)
    for row in range(stop):
        mixed = latent_by_sequence.decode(absorbed[row], cached[: row + 1], rank, scale)
        assert float((up.values(mixed[None])[0] - whole[row]).abs().max()) < 1e-12
    expected = drawn(1)
    for head in range(heads):  # the last token, written out
        keys = torch.cat([cached[:, :rank] @ up.weight[head, :nope].T, cached[:, rank:]], dim=1)
        weights = (keys @ query[-1, head] * scale).softmax(0)
        expected = weights @ (cached[:, :rank] @ up.weight[head, nope:].T)
        assert float((whole[-1, head] - expected).abs().max()) < 1e-12


def test_latents_are_gathered_block_by_block() -> None:
    cached = torch.arange(5 * 4 * 3, dtype=torch.float64).view(5, 4, 1, 3)
    gather = latent_by_sequence.LatentGather()
    for blocks, stop in (([4, 1], 6), ([0, 2, 3], 12)):
        places = [block * 4 + slot for block in blocks for slot in range(4)][:stop]
        expected = cached.flatten(0, 2)[places]
        assert (gather(cached, torch.tensor(blocks), stop) == expected).all()


def test_tokens_go_through_their_experts_and_no_others() -> None:
    experts, choices, hidden, inner, rows = 5, 2, 8, 6, 9
    biases = drawn(experts, 2 * inner, seed=3), drawn(experts, hidden, seed=4)
    weights = by_expert.ExpertWeights(
        drawn(experts, 2 * inner, hidden, seed=1), drawn(experts, hidden, inner, seed=2), *biases
    )
    x, shares = drawn(rows, hidden, seed=5), drawn(rows, choices, seed=6)
    chosen = torch.tensor([[row % 3, 3 * (row % 2) + row % 3] for row in range(rows)]) % experts
    calls = []

    def activation(wide: Any) -> Any:
        calls.append(len(wide))
        return wide[:, :inner] * wide[:, inner:].tanh()

    found = by_expert.routed(x, chosen, shares, weights, activation)
    assert sum(calls) == rows * choices
    assert len(calls) == len(set(chosen.flatten().tolist()))
    for row in range(rows):
        expected = torch.zeros(hidden, dtype=torch.float64)
        for expert, share in zip(chosen[row].tolist(), shares[row], strict=True):
            wide = weights.gate_up[expert] @ x[row] + biases[0][expert]
            mixed = wide[:inner] * wide[inner:].tanh()
            expected += share * (weights.down[expert] @ mixed + biases[1][expert])
        assert float((found[row] - expected).abs().max()) < 1e-12
