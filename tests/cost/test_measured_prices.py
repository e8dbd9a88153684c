"""A GPU with a profile is priced by it: the same figures as the fitted forms, where they are known
by hand; what it lacks comes from the data sheet; what lies outside of it is marked."""

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.decode_table import KNOTS
from sim.cost.kernels import decode_attention, gemm, prefill_attention, serial
from sim.cost.kernels.form import Ceilings
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.trust import ATTENTION_ERROR, PROJECTION_ERROR
from sim.errors import UsageError
from sim.iteration import Batch, Part
from sim.specs.profile import KernelFit, Profile, Score

HELD_OUT = Score(0.03, 0.1, 0.0, 100)
MODEL = catalog.model("llama-3.1-8b")
BARE = replace(catalog.gpu("h100-sxm"), profile=None)


def started(parameters, **changes):
    """Every parameter where its fit would start."""
    return {p.name: p.start for p in parameters} | changes


def gemm_fit(**changes):
    return KernelFit(
        started(gemm.PARAMETERS, **changes),
        {"m": (1.0, 4096.0), "n": (256.0, 65536.0), "k": (256.0, 65536.0)},
        HELD_OUT,
    )


def profile(**kernels):
    return Profile("Made up", "2026-11-21", {}, {name: {"bf16": f} for name, f in kernels.items()})


DECODE = KernelFit(
    started(decode_attention.PARAMETERS),
    {"batch": (1.0, 256.0), "context": (2.0, 32768.0)},
    HELD_OUT,
)
PREFILL = KernelFit(started(prefill_attention.PARAMETERS), {"tokens": (2.0, 16384.0)}, HELD_OUT)
FULL = replace(BARE, profile=profile(gemm=gemm_fit(), decode_attention=DECODE,
                                     prefill_attention=PREFILL))  # fmt: skip
CEILINGS = Ceilings(BARE.flops("bf16"), BARE.bandwidth, BARE.sms)


def cost_of(gpu, **changes):
    return CostModel(Deployment(MODEL, gpu, catalog.engine("ideal"), **changes))


def named(operators):
    return {o.name: o for o in operators}


@pytest.mark.parametrize("rows", [1, 7, 64, 511, 1024, 2048])
def test_a_projection_takes_what_its_form_says(rows):
    operators = named(cost_of(FULL).by_size.per_token(float(rows)))
    shape = {"m": np.array([float(rows)]), "n": np.array([4096.0]), "k": np.array([4096.0])}
    one = gemm.form("bf16").seconds(gemm_fit().parameters, shape, CEILINGS)
    found = operators["output projection"]
    assert float(found.seconds) == pytest.approx(32 * float(one[0]), rel=1e-12)
    assert max(found.compute, found.memory) + found.latency == pytest.approx(found.seconds)


def test_long_passes_are_priced_as_the_form_does():
    cost = cost_of(FULL)
    rows = np.arange(513.0, 8192.0, 37.0)
    found = named(cost.by_size.per_token(rows))["down projection"].seconds
    shape = {"m": rows, "n": np.array(4096.0), "k": np.array(14336.0)}
    exact = 32 * gemm.form("bf16").seconds(gemm_fit().parameters, shape, CEILINGS)
    error = np.abs(found / exact - 1)
    assert error.max() < 0.001


def test_few_rows_stream_the_weights_and_many_reach_the_peak():
    cost = cost_of(FULL)
    one, many = (named(cost.by_size.per_token(m))["down projection"] for m in (1.0, 8192.0))
    assert one.bound == "memory"
    assert many.bound == "compute"
    weights = 2 * 4096 * 14336 * 32
    assert weights / float(one.seconds) < BARE.bandwidth
    assert float(many.flops) / float(many.seconds) < BARE.flops("bf16")


def test_decode_lines_meet_the_form_at_their_knots_and_never_fall():
    attention = cost_of(FULL).attention
    for batch in (1, 5, 64, 200):
        lines = attention.decode_lines(batch)
        limits = [limit for limit, _, _ in lines]
        assert limits == sorted(limits)
        assert limits[-1] == np.inf
        assert all(slope >= 0 for _, _, slope in lines)
        for each in KNOTS[1:-1]:
            context = batch * (each - 1)
            _, intercept, slope = next(line for line in lines if context < line[0])
            shape = {
                "batch": np.array(float(batch)), "context": np.array(each), "skew": np.ones(()),
                "q_heads": np.array(32.0), "kv_heads": np.array(8.0), "head_dim": np.array(128.0),
            }  # fmt: skip
            form = decode_attention.form("bf16").seconds(DECODE.parameters, shape, CEILINGS)
            assert intercept + slope * context == pytest.approx(32 * float(form), rel=1e-9)


def test_decode_operator_and_decode_lines_are_one_price():
    attention = cost_of(FULL).attention
    batches = np.array([1, 3, 64, 130])
    contexts = np.array([17.0, 3000.0, 64.0 * 777, 130.0 * 5])
    seconds = attention.decode(batches, contexts).seconds
    for batch, context, found in zip(batches, contexts, seconds, strict=True):
        lines = attention.decode_lines(int(batch))
        _, intercept, slope = next(line for line in lines if context < line[0])
        assert found == pytest.approx(intercept + slope * context, rel=1e-12)


def test_a_lone_prompt_and_the_sum_over_prompts_agree():
    attention = cost_of(FULL).attention
    alone, pairs = attention.prefill_seconds([Part(700, 0)], 0)
    shape = {
        "batch": np.ones(()), "tokens": np.array(700.0), "context": np.zeros(()),
        "q_heads": np.array(32.0), "kv_heads": np.array(8.0), "head_dim": np.array(128.0),
    }  # fmt: skip
    form = prefill_attention.form("bf16").seconds(PREFILL.parameters, shape, CEILINGS)
    assert alone == pytest.approx(32 * float(form), rel=1e-9)
    assert pairs == 700 * 701 / 2
    chunked, _ = attention.prefill_seconds([Part(350, 350)], 0)
    assert 0 < chunked < alone


def test_beside_decodes_a_prompt_pays_no_floor_of_its_own():
    attention = cost_of(FULL).attention
    chunk = [Part(64, 0)]
    alone, _ = attention.prefill_seconds(chunk, 0)
    beside, _ = attention.prefill_seconds(chunk, 4)
    assert alone - beside == pytest.approx(32 * PREFILL.parameters["floor"])


def test_what_a_profile_lacks_comes_from_the_data_sheet():
    partial = replace(BARE, profile=profile(gemm=gemm_fit()))
    with_gemm, without = cost_of(partial), cost_of(BARE)
    assert with_gemm.attention.decode_lines(8) == without.attention.decode_lines(8)
    projection = named(with_gemm.by_size.per_token(64.0))["qkv projection"]
    assert projection.seconds != named(without.by_size.per_token(64.0))["qkv projection"].seconds


def test_what_was_measured_is_trusted_and_what_was_not_is_marked():
    operators = named(cost_of(FULL).by_size.per_token(np.array([64.0, 4096.0, 8000.0])))
    projection = operators["qkv projection"]
    assert projection.error.tolist() == [0.03, 0.03, PROJECTION_ERROR]
    assert projection.measured.tolist() == [1.0, 1.0, 0.0]
    assert operators["norms"].measured == 0.0
    long = cost_of(FULL).attention.decode(np.array([1]), np.array([100_000.0]))
    assert long.error.tolist() == [ATTENTION_ERROR]


def test_quantisation_is_not_paid_twice():
    eight = KernelFit(started((*gemm.PARAMETERS, *gemm.CONVERSION)), {"m": (1.0, 4096.0)}, HELD_OUT)
    bare = replace(eight, parameters={**eight.parameters, "convert": 0.0, "row": 0.0})
    for fit, expected in ((eight, False), (bare, True)):
        gpu = replace(BARE, profile=Profile("", "", {}, {"gemm": {"fp8": fit}}))
        cost = cost_of(gpu, weights="fp8", activations="fp8")
        assert ("quantise activations" in named(cost.by_size.per_token(64.0))) is expected


def test_serial_kernels_price_a_cpu():
    fits = {
        "gemm": KernelFit(started(serial.PRODUCT), {}, HELD_OUT, form="serial"),
        "decode_attention": KernelFit(started(serial.ATTENTION), {}, HELD_OUT, form="serial"),
        "prefill_attention": KernelFit(started(serial.CHUNK), {}, HELD_OUT, form="serial"),
    }  # fmt: skip
    cost = cost_of(replace(BARE, profile=profile(**fits)))
    p = fits["decode_attention"].parameters
    batch, each = 4, 1024
    read = 2 * each * 8 * 128 * 2 + 2 * 32 * 128 * 2  # of one sequence: some 4 MB, near is 1 MB
    copied = batch * read * (1 + p["slow"] / (1 + (p["near"] / read) ** 2))
    by_hand = 32 * (
        p["floor"] + batch * p["sequence"] + copied / (BARE.bandwidth * p["share"])
        + 4 * batch * each * 32 * 128 / (BARE.flops("bf16") * p["compute"])
    )  # fmt: skip
    found = cost.attention.decode(np.array([batch]), np.array([batch * (each - 1.0)])).seconds
    assert found[0] == pytest.approx(by_hand, rel=1e-9)
    one, _ = cost.attention.prefill_seconds([Part(256, 0)], 0)
    two, _ = cost.attention.prefill_seconds([Part(256, 0)] * 2, 0)
    floor = 32 * fits["prefill_attention"].parameters["floor"]
    assert two - floor == pytest.approx(2 * (one - floor))


def test_scalar_and_vector_serial_prefill_agree():
    fit = KernelFit(started(serial.CHUNK, mask=1e-9), {}, HELD_OUT, form="serial")
    prompts = SerialPrompts(fit, CEILINGS, "bf16", 32, 8, 128)
    for tokens, context in ((1, 0), (100, 0), (64, 512), (200, 7), (1100, 0), (2048, 4096)):
        shape = {
            "batch": np.ones(()), "tokens": np.array(float(tokens)),
            "context": np.array(float(context)), "q_heads": np.array(32.0),
            "kv_heads": np.array(8.0), "head_dim": np.array(128.0),
        }  # fmt: skip
        form = serial.prefill("bf16").seconds(fit.parameters, shape, CEILINGS)
        assert prompts.seconds(*prompts.work(tokens, context)) == pytest.approx(float(form))


def test_serial_prompts_by_hand():
    """A prompt of 1,100 tokens: 5 blocks of 256 queries; the 512 first ones are multiplied with 512
    keys, as many more with 1,024, the last 76 with all. On a context every pair is."""
    shape = {
        "batch": np.ones(()), "tokens": np.array(1100.0), "context": np.array(0.0),
        "q_heads": np.array(8.0), "kv_heads": np.array(2.0), "head_dim": np.array(64.0),
    }  # fmt: skip
    only = dict.fromkeys((p.name for p in serial.CHUNK), 0.0) | {"share": 1e30, "near": 1.0}
    form = serial.prefill("fp32")

    def work(**changes):
        return float(form.seconds(only | {"compute": 1.0} | changes, shape, CEILINGS))

    pairs = 512 * 512 + 512 * 1024 + 76 * 1100
    assert work() == pytest.approx(4 * pairs * 8 * 64 / CEILINGS.peak)
    assert work(softmax=16.0) == pytest.approx(4 * pairs * 8 * 80 / CEILINGS.peak)
    rows = 1 + 5 * 10 / 1100
    assert work(least=10.0) == pytest.approx(4 * pairs * 8 * 64 * rows / CEILINGS.peak)
    shape |= {"tokens": np.array(100.0), "context": np.array(400.0)}
    pairs = 100 * 500
    assert work() == pytest.approx(4 * pairs * 8 * 64 / CEILINGS.peak)
    assert work(mask=1e-9) - work() == pytest.approx(pairs * 1e-9)
    assert work(pack=1e-9) - work() == pytest.approx(500 * 8 * 64 * 1e-9)
    assert work(head=1e-3) - work() == pytest.approx(8e-3)


MOVER = KernelFit(started(serial.MOVER), {"bytes": (1e3, 1e9)}, HELD_OUT, form="serial")


def test_operators_that_move_data_are_priced_by_kernels_of_their_own():
    names = ("norm", "rotary", "kv_write", "activation", "embedding")
    own = {name: replace(MOVER, parameters=started(serial.MOVER, latency=1e-3)) for name in names}
    cost = cost_of(replace(BARE, profile=profile(**own)))
    found, sheet = named(cost.by_size.per_token(7.0)), named(cost_of(BARE).by_size.per_token(7))

    def one(size):
        return float(
            serial.mover("x").seconds(own["norm"].parameters, {"bytes": np.array(size)}, CEILINGS)
        )

    assert float(found["norms"].seconds) == pytest.approx(64 * one(4 * 7 * 4096 * 2.0))
    assert float(found["embedding"].seconds) == pytest.approx(one(2 * 7 * 4096 * 2.0))
    assert float(found["activation"].seconds) == pytest.approx(32 * one(3 * 7 * 14336 * 2.0))
    turned, written = one(2 * 7 * 5120 * 2.0), one(2 * 7 * 1024 * 4.0)
    assert float(found["rotary, KV write"].seconds) == pytest.approx(32 * (turned + written))
    assert found["norms"].measured == 1.0
    assert found["norms"].error == HELD_OUT.median
    assert found["norms"].bytes == sheet["norms"].bytes
    assert float(found["qkv projection"].seconds) == float(sheet["qkv projection"].seconds)
    del own["kv_write"]
    half = named(cost_of(replace(BARE, profile=profile(**own))).by_size.per_token(7.0))
    assert half["rotary, KV write"] == sheet["rotary, KV write"]
    sampled = profile(sampling=MOVER)
    sampled.kernels["sampling"]["fp32"] = sampled.kernels["sampling"].pop("bf16")
    drawn = named(cost_of(replace(BARE, profile=sampled)).by_size.per_output(3.0))["sampling"]
    assert float(drawn.seconds) == pytest.approx(
        float(serial.mover("x").predict(MOVER, {"bytes": np.array(3 * 128256 * 8.0)}, CEILINGS))
    )


def test_a_profile_that_lacks_a_parameter_is_refused():
    broken = KernelFit({"compute": 0.8}, {}, HELD_OUT)
    with pytest.raises(UsageError, match="gemm in bf16 does not have the parameters"):
        cost_of(replace(BARE, profile=profile(gemm=broken)))


def test_prompts_on_top_of_a_context_are_measured_only_where_the_profile_has_such():
    fresh, chunk = Part(700, 0), Part(350, 350)
    attention = cost_of(FULL).attention
    assert attention.prefill([fresh], 0).measured == 1.0
    assert attention.prefill([fresh], 0).error == pytest.approx(0.03)
    assert attention.prefill([chunk], 0).measured == 0.0
    assert attention.prefill([chunk], 0).error == ATTENTION_ERROR
    tried = replace(PREFILL, ranges={"tokens": (2.0, 16384.0), "context": (0.0, 8192.0)})
    own = replace(BARE, profile=profile(prefill_attention=tried))
    assert cost_of(own).attention.prefill([chunk], 0).measured == 1.0
    narrow = replace(PREFILL, ranges={"kv_heads": (1.0, 4.0)})
    other = replace(BARE, profile=profile(prefill_attention=narrow))
    assert cost_of(other).attention.prefill([fresh], 0).measured == 0.0


def test_a_profile_may_time_quantisation_apart_from_products():
    """Three bytes a number, a kernel for each width. TensorRT-LLM's table on H100 has 14.0 us for
    1,024 x 4,096; by the data sheet 12.6 MB take 15 us and a launch."""
    gpu = catalog.gpu("h100-sxm", kernels="trtllm")
    profile = gpu.profile
    products = {name: fit for name, fit in profile.kernels["gemm"].items() if name != "fp8"}
    apart = replace(gpu, profile=replace(profile, kernels={**profile.kernels, "gemm": products}))
    bare = replace(apart, profile=replace(apart.profile, kernels={"gemm": products}))
    model, engine = catalog.model("llama-3.1-8b"), catalog.engine("ideal")
    timed, computed = (
        named(CostModel(Deployment(model, each, engine, "fp8", "fp8")).by_size.per_token(1024.0))
        for each in (apart, bare)
    )
    own, other = timed["quantise activations"], computed["quantise activations"]
    assert own.bytes == other.bytes
    widths = (4096, 4096, 4096, 14336)  # into qkv, output, gate and up, down
    fit = profile.kernels["quantise"]["fp8"].parameters
    latency, share, blend = (fit[name] for name in ("latency", "share", "blend"))
    moving = [3 * 1024 * width / (gpu.bandwidth * share) for width in widths]
    expected = sum((latency**blend + each**blend) ** (1 / blend) for each in moving)
    assert float(own.seconds) == pytest.approx(32 * expected)
    assert float(own.measured) == 1
    assert float(other.measured) == 0


@pytest.mark.parametrize(
    ("name", "engine", "model", "precision", "sequences"),
    [
        ("h100-mig-1g", "sglang", "deepseek-r1", "fp8", 8),  # experts
        ("gb10", "vllm", "llama-3.1-8b", "fp8", 16),  # products
        ("gb10", "tensorrt-llm", "llama-2-7b", "bf16", 32),  # attention
    ],
)
def test_no_kernel_is_quicker_than_the_peaks_of_the_card(name, engine, model, precision, sequences):
    """On a card that takes the timings of another one: what a form leaves over on that one would
    take these passes above the card's bandwidth."""
    engine = catalog.engine(engine)
    card = catalog.gpu(name, kernels=engine.kernels)
    assert card.profile.relative

    def operators(gpu):
        of = Deployment(catalog.model(model), gpu, engine, *[precision] * 3)
        batch = Batch(sequences, 128 * sequences, ())
        return CostModel(of).pass_operators(batch)

    for o in operators(card):
        assert o.seconds >= o.bytes / card.bandwidth * (1 - 1e-9), o.name
        assert o.seconds >= o.flops / card.flops(precision) * (1 - 1e-9), o.name
    as_timed = replace(card, profile=replace(card.profile, relative=""))
    assert any(o.seconds < 0.99 * o.bytes / card.bandwidth for o in operators(as_timed))
