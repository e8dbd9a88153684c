"""SGLang's attention by Triton: how it grows, and which engines have it."""

from __future__ import annotations

import numpy as np
import pytest

from sim import catalog
from sim.cost.kernels import triton_attention
from sim.cost.kernels.form import Ceilings
from sim.cost.measured import shaped
from sim.cost.model import CostModel
from sim.errors import ScenarioError, UsageError
from sim.iteration import Batch, Part
from sim.metrics.bands.confidence import provenance
from sim.scenario import load_scenario
from sim.setup import prepare
from sim.specs.deployment import Deployment
from sim.specs.engine import EngineSpec, EngineWish
from sim.specs.layout import Layout

HEADS = {"q_heads": 16.0, "kv_heads": 1.0, "head_dim": 128.0}
PARAMETERS = {
    **{"floor": 8e-6, "step": 1e-6, "step_width": 1e-6, "far": 2e-6, "busy": 1e-6},
    **{"power": 1.0, "share": 1.0, "blend": 8.0, "cache_share": 0.8, "cache_speed": 1.0},
}
GPU = Ceilings(1e15, 4.8e12, 132)


def seconds(
    batch: float | np.ndarray, context: float | np.ndarray, at: Ceilings = GPU
) -> np.ndarray:
    shape = shaped(batch=batch, context=context, skew=1.0, **HEADS)
    return triton_attention.form("fp8").seconds(PARAMETERS, shape, at)


def test_a_context_is_split_into_eight_however_few_sequences_there_are() -> None:
    """16 steps of 32 keys in each eighth of 4,096 tokens, 4 us each: 64 us besides the floor, for
    one sequence as for nine."""
    assert seconds(np.array([1.0, 9.0]), 4096) == pytest.approx(72e-6, rel=0.02)


def test_steps_that_find_their_keys_in_the_cache_do_not_wait_for_memory() -> None:
    warm = seconds(1, 4096, Ceilings(GPU.peak, GPU.bandwidth, GPU.sms, cache=50e6))
    assert warm == pytest.approx(40e-6, rel=0.02)


def test_it_never_shrinks_with_a_longer_context_or_a_larger_batch() -> None:
    contexts = np.geomspace(1, 2**17, 400)
    times = seconds(np.array([[1.0], [7.0], [64.0], [512.0]]), contexts)
    assert (np.diff(times, axis=0) >= 0).all()
    assert (np.diff(times, axis=1) >= 0).all()


SGLANG = catalog.engine("sglang")
TRITON = SGLANG.asked(EngineWish(triton=True), special=False)


def model(engine: EngineSpec, gpu: str = "h200-sxm", name: str = "qwen3-235b-a22b") -> CostModel:
    return CostModel(
        Deployment(
            catalog.model(name),
            catalog.gpu(gpu, kernels="sglang"),
            engine,
            *("fp8-block", "fp8", "fp8", Layout(4)),
        )
    )


def test_single_contexts_take_longer_than_with_flash_attention() -> None:
    """Published token times of Qwen3-235B on four H200 grow by 1.15 us for each token of a
    sequence's context under SGLang 0.5.6 with a cache in e5m2."""
    found = []
    for engine in (SGLANG, TRITON):
        attention = model(engine).attention
        near, far = (attention.decode(2.0, 2.0 * each).seconds for each in (2000, 4000))
        found.append((far - near) / 2000)
    assert found[0] < 0.2e-6
    assert found[1] == pytest.approx(1.1e-6, rel=0.1)


def test_prompts_take_as_many_flop_a_second_as_wider_heads() -> None:
    """73 TFLOP/s were timed with heads of 256, an fp8 cache and prompts of 1,024, where tiles are
    short; FlashAttention 3 reaches 700 with 8,192."""
    found = model(TRITON).attention.prefill((Part(8192, 0),), 0)
    assert 73e12 < found.flops / found.seconds < 100e12
    assert found.measured == 0


@pytest.mark.parametrize(
    ("gpu", "name", "kv_cache"),
    [
        ("b200-sxm", "qwen3-235b-a22b", "fp8"),  # where it was not timed
        ("h200-sxm", "qwen3-235b-a22b", "int8"),
        ("h200-sxm", "llama-2-7b", "fp8"),  # one query head to each KV head has another kernel
        ("h200-sxm", "deepseek-v3", "fp8"),
        ("h200-sxm", "qwen3-next-80b-a3b", "fp8"),
    ],
)
def test_what_was_not_timed_is_refused(gpu: str, name: str, kv_cache: str) -> None:
    parts = catalog.model(name), catalog.gpu(gpu, kernels="sglang")
    assert Deployment(*parts, SGLANG, kv_cache=kv_cache).kv_cache == kv_cache
    with pytest.raises(ValueError, match="attention_backend: attention by Triton was timed"):
        Deployment(*parts, TRITON, kv_cache=kv_cache)


def test_windows_cost_what_a_sequence_sees_and_count_as_not_measured() -> None:
    """Behind the windows of Gemma 3 only its ten global layers grow, by 32 steps of 2.8 us each."""
    gemma = CostModel(
        Deployment(
            catalog.model("gemma-3-27b"),
            catalog.gpu("h200-sxm", kernels="sglang"),
            TRITON,
        )
    )
    near, far = (gemma.attention.decode(1.0, each) for each in (8192.0, 16384.0))
    assert near.measured == far.measured == 0
    assert (far.seconds - near.seconds) / 10 == pytest.approx(32 * 2.8e-6, rel=0.1)


def test_its_prompts_are_part_of_an_iteration() -> None:
    batch = Batch(1, 4096, (Part(4096, 0),))
    usual, other = (model(engine) for engine in (SGLANG, TRITON))
    names = {each.name for each in other.pass_operators(batch)}
    assert {"decode attention", "prefill attention"} <= names
    assert other.iteration(*batch)[0] > usual.iteration(*batch)[0]


def old(**wish: bool) -> EngineSpec:
    """SGLang 0.5.6, as it starts with such a wish."""
    return catalog.engine("sglang@0.5.6").asked(EngineWish(**wish), special=False)


def test_decodes_next_to_a_prompt_took_as_many_tiles_as_it() -> None:
    """Up to 0.5.16 each of 8 decodes over 4,000 tokens costs what a second chunk of 4,000 does, all
    of whose queries see 4,000 keys: nearly twice what a whole prompt of 4,000 costs, whose queries
    see half of them."""
    prompt = (Part(4000, 0),)
    newer, older = (model(engine).attention for engine in (TRITON, old(triton=True)))
    alone, pairs = older.prefill_seconds(prompt, 0)
    assert newer.prefill_seconds(prompt, 8, 32_000) == newer.prefill_seconds(prompt, 8)
    along, same = older.prefill_seconds(prompt, 8, 32_000)
    assert (along - alone) / alone == pytest.approx(8 * 2, rel=0.15)
    assert same == pairs
    flash = model(old()).attention
    assert flash.prefill_seconds(prompt, 8, 32_000) == flash.prefill_seconds(prompt, 8)


def test_a_short_prompt_takes_as_many_tiles_as_the_longest_next_to_it() -> None:
    older = model(old(triton=True)).attention
    unequal, longer = (
        older.prefill_seconds((Part(4096, 0), Part(tokens, 0)), 0)[0] for tokens in (128, 4096)
    )
    assert 0.5 * longer < unequal < 0.6 * longer
    cached, whole = (Part(128, 4096), Part(4096, 4096))
    padded, full = (older.prefill_seconds((Part(4096, 0), each), 0)[0] for each in (cached, whole))
    assert 0.7 * full < padded < full


def test_the_operators_of_such_an_iteration_are_all_of_it() -> None:
    cost, batch = model(old(triton=True)), Batch(4, 16_000, (Part(4096, 0),))
    took = sum(float(each.seconds) for each in cost.pass_operators(batch))
    alone = sum(float(each.seconds) for each in cost.pass_operators(Batch(0, 0, batch.parts)))
    assert took > 1.5 * alone
    host = catalog.engine("sglang@0.5.6").host_time(5, 0)
    assert cost.iteration(*batch)[0] == pytest.approx(took + host)


def test_a_run_states_the_error_of_the_kernels_it_used() -> None:
    fits = catalog.shipped_profile("h200-sxm", "sglang").kernels
    error = fits["decode_attention_triton"]["fp8"].holdout.median
    text = provenance(model(TRITON).deployment)
    assert f"decode attention by Triton (timed with heads of 256 to 512) {error:.1%}" in text
    assert "prefill attention by Triton (timed with heads of 256)" in text
    assert "Triton" not in provenance(model(SGLANG).deployment)


def test_a_scenario_asks_for_it() -> None:
    scenario = {
        "model": "qwen3-235b-a22b",
        "fleet": {"gpu": "h200-sxm", "tensor_parallel": 4},
        "precision": {"weights": "fp8-block", "activations": "fp8", "kv_cache": "fp8"},
        "engine": "sglang",
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 10},
        },
    }
    usual, other = (
        prepare(load_scenario({**scenario, **more})).only.cost.attention.decode(2.0, 8000.0).seconds
        for more in ({}, {"attention_backend": "triton"})
    )
    assert usual < other == model(TRITON).attention.decode(2.0, 8000.0).seconds
    with pytest.raises(ScenarioError, match="attention_backend"):
        prepare(load_scenario({**scenario, "attention_backend": "flash"}))
    llama = {**scenario, "attention_backend": "triton", "model": "llama-2-7b", "precision": {}}
    with pytest.raises(UsageError, match=r"was timed where several .* unlike in llama-2-7b"):
        prepare(load_scenario(llama))


@pytest.mark.parametrize(
    ("model_name", "refused"), [("gpt-oss-120b", False), ("qwen3-30b-a3b", True)]
)
def test_marlin_multiplies_experts_in_four_bits(model_name: str, refused: bool) -> None:
    scenario = {
        "model": model_name,
        "fleet": {"gpu": "h100-sxm", "tensor_parallel": 2},
        "moe_backend": "marlin",
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 10},
        },
    }
    if refused:
        with pytest.raises(UsageError, match="moe_backend: marlin multiplies experts stored in"):
            prepare(load_scenario(scenario))
        return
    usual, other = (
        prepare(load_scenario({**scenario, "moe_backend": backend})).only
        for backend in (None, "marlin")
    )
    assert other.deployment.engine.marlin
    assert other.deployment.weight_bytes() > usual.deployment.weight_bytes()  # padded more widely
