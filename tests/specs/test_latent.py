"""Latent and sparse attention against values worked out by hand.

DeepSeek-V3: 61 layers, hidden size 7,168, 128 heads with keys of 128 + 64 and values of 128, latent
vectors of 512, of queries 1,536.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.memory.capacity import activation_bytes
from sim.specs.deployment import Deployment
from sim.specs.latent import Latent
from sim.specs.layers import Read, counted
from sim.specs.layout import Layout
from sim.specs.sparse import SparseLatent

V3 = Latent(128, 512, 128, 64, 128, q_lora_rank=1536)
LITE = Latent(16, 512, 128, 64, 128)
V32 = SparseLatent(128, 512, 128, 64, 128, q_lora_rank=1536)
EIGHT = Layout(tensor=8)
ROLES = ("projections", "kept")


def test_parameters_of_a_layer() -> None:
    """Down 7,168 x (1,536 + 512 + 64); up to queries 1,536 x 128 x 192, to keys and values 512 x
    128 x 256; output 128 x 128 x 7,168; norms 1,536 + 512: 187.107 million."""
    assert counted(V3.weights(7168), "projections") == 187_105_280
    assert counted(V3.weights(7168), *ROLES) == 187_107_328


def test_queries_without_a_latent_vector() -> None:
    """DeepSeek-V2-Lite: 2,048 x (16 x 192 + 576) + 512 x 16 x 256 + 16 x 128 x 2,048, norm 512."""
    assert counted(LITE.weights(2048), "projections") == 13_762_560
    assert counted(LITE.weights(2048), "kept") == 512


def test_every_gpu_projects_down_and_has_a_share_of_the_heads() -> None:
    """15,138,816 of the projections down and 2,048 of the norms on each of 8."""
    one = sum(each.parameters for each in V3.weights(7168, EIGHT))
    assert one == 15_138_816 + 2048 + (187_105_280 - 15_138_816) / 8
    assert V3.not_shared(EIGHT) is None
    assert V3.not_shared(Layout(tensor=3)) == (
        "tensor_parallel: 3 GPUs cannot share the 128 attention heads"
    )


@pytest.mark.parametrize(("precision", "size"), [("bf16", 70_272), ("fp8", 35_136)])
def test_kv_of_a_token_is_on_every_gpu(precision: str, size: int) -> None:
    """61 layers x (512 + 64) numbers, however many GPUs share the heads."""
    model = catalog.model("deepseek-v3")
    assert model.kv_bytes_per_token(precision) == size
    assert model.kv_bytes_per_token(precision, EIGHT) == size
    assert V3.reads(precision, EIGHT) == (Read(size / 61),)


def test_flops_of_a_pair() -> None:
    """Projected up, 2 x 128 x (192 + 128); absorbed, 2 x 128 x (576 + 512)."""
    assert V3.flops_per_pair() == 81_920
    assert V3.absorbed_flops_per_pair() == 278_528
    assert V32.flops_per_pair() == 278_528
    assert V3.flops_per_token(7168) == 2 * 187_105_280


def test_an_indexer_adds_weights_that_every_gpu_has() -> None:
    """Queries 1,536 x 64 x 128; a key 7,168 x 128, the weights of the heads 7,168 x 64 and the
    key's norm 2 x 128 stay at 16 bits."""
    projections, kept = 12_582_912, 917_504 + 458_752 + 256
    assert counted(V32.weights(7168), "projections") == 187_105_280 + projections
    assert counted(V32.weights(7168), "kept") == 2048 + kept
    alone = sum(each.parameters for each in V3.weights(7168, EIGHT))
    assert sum(each.parameters for each in V32.weights(7168, EIGHT)) == alone + projections + kept
    assert V32.flops_per_token(7168) == V3.flops_per_token(7168) + 2 * (projections + kept - 256)
    shared = replace(V32, index_shared=True)
    assert shared.weights(7168) == V3.weights(7168)
    assert shared.flops_per_token(7168) == V3.flops_per_token(7168)


def test_kv_of_a_token_with_an_indexer() -> None:
    """In 8 bits 512 B, four scales of 4 B and positions of 64 x 2 B: 656 B; the indexer's key of
    128 B and a scale: 132 B. Times 61: 48,068 B, in bf16 (1,152 + 132) x 61 = 78,324 B."""
    model = catalog.model("deepseek-v3.2")
    assert model.kv_bytes_per_token("fp8") == 48_068
    assert model.kv_bytes_per_token("bf16", EIGHT) == 78_324
    assert V32.latent_bytes("fp8") * 61 == 40_016
    assert V32.reads("bf16") == (Read(1152.0, 2048), Read(132.0))
    shared = replace(V32, index_shared=True)
    assert shared.kv_bytes_per_token("fp8") == 656
    assert shared.reads("fp8") == (Read(656.0, 2048),)


def test_what_engines_keep_twice_and_project_up() -> None:
    """16 heads x 512 x 256 in each layer of one GPU of eight; 65,536 tokens of 576 numbers, and of
    16 x 256 that are projected up. The memory of one of eight H200: 61 layers x 2 B each of the
    first are in the weights, one layer's of the second in the largest pass."""
    assert V3.copies(EIGHT) == V32.copies(EIGHT) == 16 * 512 * 256
    assert V3.workspace(EIGHT) == 65536 * (576 + 16 * 256)
    assert V32.workspace(EIGHT) == 0
    model, gpu = catalog.model("deepseek-v3"), catalog.gpu("h200-sxm")
    d = Deployment(model, gpu, catalog.engine("ideal"), "fp8", "fp8", layout=EIGHT)
    stored = model.stored_bytes(d.formats, EIGHT)
    assert d.weight_bytes() - stored == 61 * 16 * 512 * 256 * 2
    one, two = (activation_bytes(d, tokens, 0) for tokens in (1, 2))
    per_token = two - one
    assert one - per_token == 65536 * (576 + 16 * 256) * 2


def test_arithmetic_in_words() -> None:
    assert V3.kv_arithmetic(61, "bf16", Layout()) == "61 layers x (512 latent + 64 rotary) x 2 B"
    assert V32.kv_arithmetic(61, "fp8", EIGHT) == (
        "61 layers x (656 B latent + 132 B indexer), copied on every GPU"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lora_rank": 0}, "kv_lora_rank: got 0, expected at least 1"),
        ({"q_lora_rank": 0}, "q_lora_rank: got 0, expected at least 1 or null"),
        ({"num_heads": -1}, "num_heads: got -1"),
    ],
)
def test_impossible_shapes(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(V3, **changes)


def test_impossible_indexers() -> None:
    with pytest.raises(ValueError, match="q_lora_rank: is needed by the indexer"):
        replace(V32, q_lora_rank=None)
    with pytest.raises(ValueError, match="index_topk: got 0"):
        replace(V32, index_topk=0)
