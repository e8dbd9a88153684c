"""Forms of windows, latent vectors and experts on a CPU: by hand, and as the event loop has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost.kernels import (
    decode_attention,
    latent_attention,
    prefill_attention,
    serial,
    serial_experts,
    serial_latent,
    serial_windows,
    window_attention,
)
from sim.cost.kernels.form import Ceilings, Form
from sim.cost.kernels.lookup import WINDOW
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.measured import decode_of
from sim.cost.measured_experts import ExpertsFit, MeasuredExperts
from sim.cost.measured_windows import window_prompts_of
from sim.specs.experts import MixtureOfExperts
from sim.specs.gpu import GpuSpec
from sim.specs.profile import KernelFit, Profile, Score

ONE = Ceilings(1e12, 1e10, 1)
H200 = Ceilings(989.4e12, 4.8e12, 132)
SCORE = Score(0.05, 0.1, 0.0, 40)
HEADS = (8, 2, 64)


def start(form: Form, **changes: float) -> dict[str, float]:
    return {p.name: p.start for p in form.parameters} | changes


def shape(**values: float) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, dtype=float) for name, value in values.items()}


def attention(**values: float) -> dict[str, np.ndarray]:
    return shape(**dict(zip(("q_heads", "kv_heads", "head_dim"), HEADS, strict=True)), **values)


def fitted(form: Form, name: str = "", **ranges: tuple[float, float]) -> KernelFit:
    return KernelFit(start(form), ranges, SCORE, form=name)


@pytest.mark.parametrize("context", [0, 50, 900])
@pytest.mark.parametrize("tokens", [1, 130, 700])
def test_a_window_that_shows_everything_changes_nothing(tokens: int, context: int) -> None:
    plain, through = prefill_attention.form("bf16"), window_attention.prefill("bf16")
    one = attention(batch=2, tokens=tokens, context=context)
    wide = one | shape(window=tokens + context)
    p = start(plain)
    assert through.seconds(p, wide, H200) == plain.seconds(p, one, H200)
    assert prefill_attention.pairs(wide) == prefill_attention.pairs(one)


def test_decoding_through_a_window_is_decoding_over_it() -> None:
    for plain, through in (
        (decode_attention.form("bf16"), window_attention.decode("bf16")),
        (serial.decode("bf16"), serial_windows.decode("bf16")),
    ):
        p = start(plain)
        seen = plain.seconds(p, attention(batch=4, context=128, skew=1), H200)
        long = attention(batch=4, context=5000, window=128)
        assert through.seconds(p, long, H200) == seen
        assert window_attention.decode_flops(long) == 4 * 4 * 128 * 8 * 64
        short = attention(batch=4, context=30, window=128)
        assert through.seconds(p, short, H200) < seen


@pytest.mark.parametrize(("tokens", "context"), [(900, 0), (300, 100), (40, 4000), (64, 64)])
def test_the_event_loop_times_a_prompt_through_a_window_as_the_form_does(
    tokens: int, context: int
) -> None:
    form, window = window_attention.prefill("bf16"), 100
    prompts = Prompts(fitted(form), H200, "bf16", *HEADS)
    one = attention(batch=1, tokens=tokens, context=context, window=window)
    found = prompts.seconds(*prompts.work(tokens, context, window))
    assert found == pytest.approx(float(form.seconds(start(form), one, H200)))


@pytest.mark.parametrize(("tokens", "context"), [(900, 0), (300, 100), (40, 4000), (64, 64)])
def test_pieces_of_a_prompt_on_a_cpu(tokens: int, context: int) -> None:
    """Keys and pairs piece by piece, and the scalar twin."""
    form, window = serial_windows.prefill("fp32"), 100
    p = start(form)
    pieces = [
        (min(64, tokens - at), min(context + at, 99) + min(64, tokens - at))
        for at in range(0, tokens, 64)
    ]
    seen = sum(keys for _, keys in pieces)
    moved = 2 * tokens * 8 * 64 * 4 + 2 * seen * 2 * 64 * 4
    right = p["floor"] + p["sequence"] + moved / (1e10 * p["share"])
    right += len(pieces) * (p["piece"] + 8 * p["head"]) + p["pack"] * 8 * 64 * seen
    pairs = sum(queries * keys for queries, keys in pieces)
    right += 4 * pairs * 8 * (64 + p["softmax"]) / (1e12 * p["compute"])
    one = attention(batch=1, tokens=tokens, context=context, window=window)
    assert form.seconds(p, one, ONE) == pytest.approx(right)
    whole = SerialPrompts(fitted(serial.prefill("fp32")), ONE, "fp32", *HEADS)
    through = serial_windows.SerialWindowPrompts(fitted(form), ONE, "fp32", HEADS, whole)
    assert through.seconds(*through.work(tokens, context, window)) == pytest.approx(right)
    assert through.work(30, 20) == whole.work(30, 20)
    assert through.alone(30) == whole.alone(30)


def profiled(gpu: GpuSpec, **kernels: KernelFit) -> GpuSpec:
    fits = {name: {"bf16": fit} for name, fit in kernels.items()}
    return replace(gpu, profile=Profile("made up", "2026-01-01", {}, fits))


def test_kernels_through_windows_are_taken_from_a_profile_that_has_them() -> None:
    gpu = catalog.gpu("h100-sxm")
    assert decode_of(gpu, "bf16", HEADS, variant=WINDOW, window=128) is None
    assert window_prompts_of(gpu, "bf16", HEADS, 128) is None
    spans = {"window": (128.0, 1024.0), "q_heads": (4.0, 64.0)}
    form = window_attention.decode("bf16")
    own = profiled(gpu, window_decode=fitted(form, **spans, context=(16.0, 8192.0)))
    found = decode_of(own, "bf16", HEADS, variant=WINDOW, window=128)
    assert found is not None
    assert found.timing(4.0, 100.0).measured == 1.0
    assert found.timing(4.0, 100.0).error == 0.05
    other = decode_of(own, "bf16", HEADS, variant=WINDOW, window=4096)
    assert other is not None
    assert other.timing(4.0, 100.0).measured == 0.0
    one = found.timing(4.0, 128.0).seconds
    assert found.timing(4.0, 9000.0).seconds == one


def test_on_a_cpu_prompts_through_windows_need_plain_prompts_too() -> None:
    gpu = catalog.gpu("h100-sxm")
    through = fitted(serial_windows.prefill("bf16"), serial.NAME)
    assert window_prompts_of(profiled(gpu, window_prefill=through), "bf16", HEADS, 128) is None
    plain = fitted(serial.prefill("bf16"), serial.NAME)
    both = profiled(gpu, window_prefill=through, prefill_attention=plain)
    found = window_prompts_of(both, "bf16", HEADS, 128)
    assert found is not None
    assert isinstance(found[0], serial_windows.SerialWindowPrompts)


def test_latent_decoding_on_a_cpu_by_hand() -> None:
    """Three sequences of 100 tokens: 576 numbers of 4 B each copied, 16 heads' products."""
    form = serial_latent.decode("fp32")
    p = start(form, slow=0.0, softmax=10.0, half=2.0)
    one = shape(batch=3, context=100, q_heads=16, latent=512, rope=64)
    copied = 100 * 576 * 4 / (1e10 * p["share"])
    multiplied = 2 * 100 * 18 * (1088 + 10) / (1e12 * p["compute"])
    right = p["floor"] + 3 * (p["sequence"] + copied + multiplied)
    assert form.seconds(p, one, ONE) == pytest.approx(right)
    assert form.variables == latent_attention.decode("fp32").variables


def test_experts_on_a_cpu_by_hand() -> None:
    """Ten rows fall to four experts of 32 columns over 64, one of them alone."""
    form = serial_experts.form("fp32")
    p = start(form, norm=1.0, half=3.0, alone=2.0)
    layer = shape(hidden=64, width=32, chosen=2, experts=8, gpus=1, ranks=1, matrices=3)
    one = layer | shape(tokens=5, rows=10, touched=4, single=1)
    busy = 2 * (9 + 3 * 3 + 2) * 64 * 96 / (1e12 * p["compute"])
    memory = 4 * 64 * 96 * 4 / (1e10 * p["bandwidth"])
    moved = p["moved"] * 10 * (128 + 96) * 4 / 1e10
    calls = p["latency"] + 4 * p["expert"] + 5 * p["token"]
    assert form.seconds(p, one, ONE) == pytest.approx(busy + memory + moved + calls)


def test_experts_one_by_one_are_timed_at_what_tokens_touch_on_average() -> None:
    """Four tokens take two of four experts each: eight rows, 3.75 experts with some, of which one
    has a single row (4 experts x 4 tokens x 1/2 x 1/8)."""
    gpu, mlp = catalog.gpu("h100-sxm"), MixtureOfExperts(4, 2, 32)
    form = serial_experts.form("fp32")
    fit = fitted(form, serial.NAME, tokens=(1.0, 512.0))
    found = MeasuredExperts(ExpertsFit("moe", "fp32", fit), gpu, 64, mlp).timing(4.0)
    layer = shape(hidden=64, width=32, chosen=2, experts=4, gpus=1, ranks=1, matrices=3)
    one = layer | shape(tokens=4, rows=8, touched=3.75, single=1.0)
    ceilings = Ceilings(gpu.flops("fp32"), gpu.bandwidth, gpu.sms)
    assert found.seconds == pytest.approx(float(form.seconds(start(form), one, ceilings)))
    assert (found.measured, found.error) == (1.0, 0.05)
