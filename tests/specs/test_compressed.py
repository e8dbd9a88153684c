"""Attention to compressed rows (DeepSeek V4), by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.specs.compressed import CompressedLatent
from sim.specs.layers import CachePage
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.window import Window

WINDOW = CompressedLatent(128, 512, 64, 1536, 16, 1024)
ALL = replace(WINDOW, compress_ratio=128)
CHOSEN = replace(WINDOW, compress_ratio=4, index_topk=1024)
PRO = catalog.model("deepseek-v4-pro")
MILLION = 1 << 20


def test_bytes_of_a_row() -> None:
    """448 numbers in 8 bits, 7 scales and a byte of padding, 64 of the position in 16 bits; in 16
    bits 512 numbers. A key of the indexer has 128 in 8 bits and a scale of 32."""
    assert WINDOW.row_bytes("fp8") == 448 + 8 + 128 == 584
    assert WINDOW.row_bytes("bf16") == 1024
    assert (CHOSEN.index_bytes, ALL.index_bytes) == (132, 0)


def test_bytes_of_a_token() -> None:
    """A fourth of a row and a key, a 128th of a row, or a vector of its own; on every GPU."""
    assert CHOSEN.kv_bytes_per_token("fp8") == (584 + 132) / 4 == 179
    assert ALL.kv_bytes_per_token("fp8", Layout(8)) == 584 / 128
    assert WINDOW.kv_bytes_per_token("fp8") == 584
    assert PRO.kv_bytes_per_token("fp8") == 30 * 179 + 31 * 584 / 128


def test_a_million_tokens_take_a_ninth_of_those_of_v3_2() -> None:
    """vLLM's blog on DeepSeek V4 has 9.62 GiB of rows and keys in 16 bits, and 8.7 times as much
    for V3.2 in the same format: here keys are in 8 bits."""
    wider = 30 * (256 - 132) / 4  # keys of the indexer in 16 bits
    assert (PRO.kv_bytes_per_token("bf16") + wider) * MILLION / 2**30 == pytest.approx(
        9.62, abs=0.01
    )
    older = catalog.model("deepseek-v3.2").kv_bytes_per_token("fp8")
    assert older / PRO.kv_bytes_per_token("fp8") == pytest.approx(8.7, abs=0.1)


def test_pages() -> None:
    """Pages of 8 bits are multiples of 576 B: 64 vectors of 584, 64 rows of 4 tokens and their
    keys, two rows of 128 tokens. What waits to be compressed is a vector and its weights in 32
    bits for each row in which a token takes part: two rows of 4 tokens, one of 128."""
    vectors = CachePage(65 * 576, 64, Window(128))
    assert WINDOW.kept("fp8").pages == (vectors,)
    assert ALL.kept("fp8").pages == (
        vectors,
        CachePage(3 * 576, 256, None),
        CachePage(57 * 576, 8, Window(128)),  # 8 x 2 x 512 x 4 B
    )
    assert CHOSEN.kept("fp8").pages == (
        vectors,
        CachePage(65 * 576, 256, None),
        CachePage(57 * 576, 4, Window(8)),  # 4 x 4 x 512 x 4 B
        CachePage(15 * 576, 256, None),  # 64 x 132
        CachePage(15 * 576, 4, Window(8)),  # 4 x 4 x 128 x 4 B
    )
    wide = CHOSEN.kept("bf16").pages
    assert wide[0] == CachePage(64 * 1024, 64, Window(128))
    assert wide[3] == CachePage(17 * 512, 256, None)


def test_a_sequence_keeps_no_more_in_windows_the_longer_it_is() -> None:
    """Per token, in bytes of padded pages: rows 37,440 / 256 in 30 layers, keys 8,640 / 256, rows
    of 128 tokens 1,728 / 256 in 31 layers."""
    rows = (30 * (37_440 + 8_640) + 31 * 1_728) / 256
    grown = PRO.kv_bytes_of(20_000, "fp8") - PRO.kv_bytes_of(10_000, "fp8")
    assert grown == pytest.approx(10_000 * rows)
    bounded = 61 * 128 * 37_440 / 64 + 31 * 128 * 32_832 / 8 + 30 * 8 * (32_832 + 8_640) / 4
    assert PRO.kv_bytes_of(10_000, "fp8") == pytest.approx(10_000 * rows + bounded)


def test_weights() -> None:
    """Of 7,168 numbers down to 1,536 and 512; queries of 128 x 512 from 1,536; 16 groups of 8 heads
    to 1,024 each, and these back. A compressor makes a vector and weights of a token for each row,
    twice as many where rows overlap, and of keys, too."""
    h = 7168
    assert sizes(WINDOW, h) == {
        "attention: down": h * 2048,
        "attention": 1536 * 65_536 + 65_536 * 1024 + 16_384 * h,
        "attention's norms and sinks": 2048 + 128,
    }
    assert sizes(ALL, h)["compressors"] == h * 2 * 512 + 128 * 512 + 512
    chosen = sizes(CHOSEN, h)
    assert chosen["compressors"] == h * 4 * (512 + 128) + 4 * 2 * (512 + 128) + 512 + 128
    assert chosen["indexer's queries"] == 1536 * 8192
    assert chosen["indexer's heads"] == h * 64
    shared = sizes(WINDOW, h, Layout(8))
    assert shared["attention"] * 8 == sizes(WINDOW, h)["attention"]
    assert shared["attention: down"] == h * 2048


def sizes(kind: CompressedLatent, hidden: int, layout: Layout = ONE_GPU) -> dict[str, float]:
    return {each.name: each.parameters for each in kind.weights(hidden, layout)}


def test_hyper_connections_weigh() -> None:
    """Four states: 4 weights in, 4 out and 16 past, of 4 x 7,168 numbers, with biases and three
    scales, before and behind attention and MLP; four weights before the LM head."""
    (found,) = (each for each in PRO.weights() if each.name == "hyper-connections")
    assert PRO.mixes == 24
    assert found.parameters == 122 * (24 * 28_672 + 24 + 3) + 4 * 28_672 + 4 + 1
    assert replace(PRO, hyper_connections=1).mixes == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"o_groups": 3}, "o_groups: 3 do not divide 128 heads"),
        ({"compress_ratio": 1}, "compress_ratio: got 1"),
        ({"index_topk": 8}, "index_topk: there are no rows"),
        ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim: got 1024 of 512"),
        ({"sliding_window": 0}, "sliding_window: got 0"),
    ],
)
def test_impossible_shapes(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WINDOW, **changes)


def test_groups_of_heads_are_shared_whole() -> None:
    assert WINDOW.not_shared(Layout(16)) is None
    assert WINDOW.not_shared(Layout(32)) == (
        "tensor_parallel: 32 GPUs cannot share the 16 groups of attention heads"
    )
    assert WINDOW.not_shared(Layout(3)) == (
        "tensor_parallel: 3 GPUs cannot share the 128 attention heads"
    )
    assert WINDOW.share(8).o_groups == 2
