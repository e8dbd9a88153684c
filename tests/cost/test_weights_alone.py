"""Weights alone in few bits: Marlin reads them nearly as fast as full ones, gpt-fast does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.scoring.presets import engine_file
from sim import catalog
from sim.cost import Deployment
from sim.cost.kernels import moe
from sim.cost.measured import gemm_of
from sim.cost.measured_experts import MeasuredExperts, fit_of
from sim.cost.rooflines import MARLIN_BANDWIDTH
from sim.errors import UsageError
from sim.result import simulate
from sim.scenario import load_scenario
from sim.specs.experts import MixtureOfExperts
from sim.specs.precision import precision_bytes

ASKED = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "l4"},
    "engine": "ideal",
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "fixed", "value": 8},
    },
    "run": {"requests": 1},
}


def first_token(gpu: str, **precision: str) -> float:
    """Seconds to the first token of a long prompt, one request alone."""
    asked = load_scenario(ASKED).override({"fleet.0.gpu": gpu, "engine": "vllm"})
    asked = asked.override({"workload.prompt_tokens.value": 4096})
    asked = asked.override({f"precision.{key}": name for key, name in precision.items()})
    found: float = simulate(asked).summary["mean_ttft_ms"] / 1e3
    return found


def token(engine: str, weights: str) -> float:
    """Time of a token on a card without kernel timings, one request alone."""
    asked = load_scenario(ASKED).override({"engine": engine, "precision.weights": weights})
    found: float = simulate(asked).summary["mean_tpot_ms"]
    return found


def test_marlin_reads_int4_nearly_as_fast_as_gemms_read_16_bits() -> None:
    """A little over a quarter of the time, for its scales and what is not quantised."""
    assert 0.26 < token("vllm", "int4-group") / token("vllm", "bf16") < 0.42
    assert pytest.approx(3.87 / 4, abs=0.005) == MARLIN_BANDWIDTH


@pytest.mark.parametrize("gpu", ["rtx-3090", "a10g", "t4", "rtx-4090"])
def test_int4_may_be_widened_to_int8(gpu: str) -> None:
    """Marlin's kernel for inputs in int8 multiplies as fast as the int8 units do, which on these
    cards is two to four times the rate of 16 bits; weights keep their bytes."""
    wide, narrow = (
        first_token(gpu, weights="int4-group", activations=inputs) for inputs in ("bf16", "int8")
    )
    assert 1.5 < wide / narrow < 4
    card, model = catalog.gpu(gpu), catalog.model("llama-3.1-8b")
    of = Deployment(model, card, catalog.engine("vllm"), "int4-group", "int8")
    assert of.arithmetic == "int8"
    assert of.weight_bytes() == replace(of, activations="bf16").weight_bytes()


def test_timings_of_int4_by_16_bits_are_not_those_by_int8() -> None:
    card = catalog.gpu("a100-sxm-80gb", kernels="trtllm")
    assert gemm_of(card, "int4", "bf16") is not None
    assert gemm_of(card, "int4", "int8") is None


def test_experts_that_marlin_multiplies_but_no_table_has_are_not_measured() -> None:
    """nvfp4 by 16-bit inputs: the kernel for int4 and mxfp4, with 0.5625 bytes of a weight."""
    card = catalog.gpu("rtx-pro-6000")
    mxfp4, nvfp4 = (fit_of(card, name, "bf16", 1, marlin=True) for name in ("mxfp4", "nvfp4"))
    assert mxfp4 is not None
    assert nvfp4 is not None
    assert nvfp4.fit is mxfp4.fit
    assert moe.FORMATS[nvfp4.stored].weight == precision_bytes("nvfp4")
    int4 = fit_of(card, "int4-group", "int8", 1)
    assert int4 is not None
    assert (mxfp4.timed, nvfp4.timed, int4.timed) == (True, False, False)
    timed = replace(card, profile=replace(card.profile, relative=""))
    kernels = [
        MeasuredExperts(each, timed, 2880, MixtureOfExperts(128, 4, 2880))
        for each in (mxfp4, nvfp4)
    ]
    first, second = (kernel.timing(8.0) for kernel in kernels)
    assert (float(first.measured), float(second.measured)) == (1.0, 0.0)
    assert second.memory / first.memory == pytest.approx(18 / 17, rel=0.1)


def test_an_engine_may_state_its_own() -> None:
    own = engine_file("gpt-fast")
    assert catalog.engine(own).weight_only["int4"] == 0.5
    assert token(own, "int4-group") > 1.3 * token("ideal", "int4-group")


def test_states_have_the_format_that_is_asked_for() -> None:
    asked = load_scenario(ASKED).override({"model": "qwen3.5-27b", "fleet.0.gpu": "h100-sxm"})
    half, full = (simulate(asked.override({"precision.state": name})) for name in ("fp16", "fp32"))
    assert half.summary["mean_tpot_ms"] < full.summary["mean_tpot_ms"]
    model = half.record.pools[0].deployment.model
    states = {getattr(group.attention, "state_precision", None) for group in model.layers}
    assert states == {"fp16", None}
    with pytest.raises(UsageError, match=r"llama-3\.1-8b has no layers with states"):
        simulate(load_scenario(ASKED).override({"precision.state": "fp16"}))
