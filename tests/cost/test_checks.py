"""Checks of drafts on a CPU take what chunks of prompts were timed at, sequence by sequence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.bench.base import Scope
from calibrate.bench.prefill_attention import CHECKS, PrefillAttention
from sim import catalog
from sim.cost import CostModel
from sim.cost.kernels import serial
from sim.cost.kernels.choice import Choice
from sim.cost.kernels.form import Ceilings
from sim.cost.passes import parts_of
from sim.iteration import Batch, Part, PassConditions
from sim.specs.deployment import Deployment, Drafter
from sim.specs.profile import KernelFit, Profile, Score
from sim.specs.speculation import Speculation

HELD_OUT = Score(0.05, 0.1, 0.0, 40)
CEILINGS = Ceilings(1e11, 1e10, 1)


def started(parameters, **changes):
    """Where a fit begins."""
    return {each.name: each.start for each in parameters} | changes


FITS = {
    "gemm": KernelFit(started(serial.PRODUCT), {"m": (1, 1e5)}, HELD_OUT, form="serial"),
    "decode_attention": KernelFit(started(serial.ATTENTION), {}, HELD_OUT, form="serial"),
    "prefill_attention": KernelFit(started(serial.CHUNK), {}, HELD_OUT, form="serial"),
}


def deployment(kernels=FITS, **changes):
    """Llama-3.1-8B on a device that computes sequences one by one."""
    profile = Profile("made up", "2026", {}, {name: {"bf16": fit} for name, fit in kernels.items()})
    gpu = replace(catalog.gpu("h100-sxm"), profile=profile)
    return Deployment(
        model=catalog.model("llama-3.1-8b"),
        gpu=gpu,
        engine=catalog.engine("ideal"),
        weights="bf16",
        activations="bf16",
        kv_cache="bf16",
        **changes,
    )


def at(lines, context):
    """The value at ``context`` of a function that is made of lines."""
    _, intercept, slope = next(line for line in lines if context < line[0])
    return intercept + slope * context


@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("context", [15, 1023])
def test_a_check_takes_as_long_as_a_chunk_of_each_sequence(sequences, context):
    attention = parts_of(deployment())[1]
    chunks, _ = attention.prefill_seconds([Part(4, context)] * sequences, 0)
    lines = attention.verify_lines(sequences, 3)
    assert at(lines, context * sequences) == pytest.approx(chunks)
    assert chunks > at(attention.decode_lines(sequences), context * sequences)


def test_the_operator_of_a_check_takes_what_its_lines_say():
    attention = parts_of(deployment())[1]
    sequences, context, drafts = (np.array(e) for e in ([1, 3, 0, 5], [700, 90, 0, 4000], 2.0))
    operator = attention.verify(sequences, context, drafts)
    expected = [
        at(attention.verify_lines(n, 2), held) if n else 0.0
        for n, held in zip(sequences.tolist(), context.tolist(), strict=True)
    ]
    assert np.asarray(operator.seconds).tolist() == pytest.approx(expected)
    mixed = attention.verify(np.array([2, 2]), np.array([700, 700]), np.array([0.0, 2.0]))
    alone = attention.decode(2, 700)
    assert mixed.seconds[0] == pytest.approx(float(alone.seconds))
    assert mixed.seconds[1] == pytest.approx(at(attention.verify_lines(2, 2), 700))


@pytest.mark.parametrize("drafts", [1, 3])
def test_a_drafting_iteration_is_one_price(drafts):
    plain = deployment()
    drafter = Drafter(replace(plain, model=catalog.model("llama-3.2-1b")))
    speculation = Speculation("draft_model", drafts, (0.5,) * drafts)
    cost = CostModel(replace(plain, speculation=speculation, drafter=drafter))
    batch = Batch(4, 2000)
    seconds = cost.seconds(batch)
    _, intercept, slope = cost.line(4, 2000)
    assert intercept + slope * 2000 == pytest.approx(seconds)
    assert cost.iteration(4, 2000, (), 0)[0] == pytest.approx(seconds)
    operators = cost.pass_operators(batch)
    assert sum(float(each.seconds) for each in operators) == pytest.approx(seconds)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_each_pass_of_a_drafter_waits_for_the_host(drafts, overlapped):
    """Also where the host prepares the next iteration meanwhile; without drafts there is one pass,
    for the drafter's own keys and values."""
    engine = replace(catalog.engine("vllm"), per_drafting_pass=2e-3, overlapped=overlapped)
    plain = deployment()
    drafter = replace(plain, model=catalog.model("llama-3.2-1b"))

    def seconds(engine, *batch):
        made = replace(plain, engine=engine)
        own = Drafter(replace(drafter, engine=engine))
        speculation = Speculation("draft_model", 3, (0.5,) * 3)
        cost = CostModel(replace(made, speculation=speculation, drafter=own))
        cost = cost.under(PassConditions(drafts=(drafts, drafts)))
        return cost.seconds(Batch(*batch))

    free = replace(engine, per_drafting_pass=0.0)
    for batch in ((4, 2000), (4, 2000, [Part(300, 0)], 1)):
        waits = seconds(engine, *batch) - seconds(free, *batch)
        assert waits == pytest.approx(max(1, drafts) * 2e-3)
    assert engine.without_host().per_drafting_pass == 2e-3
    assert engine.scaled(0.0).per_drafting_pass == 0.0


def test_a_paged_kernel_reads_a_cache_once_for_all_drafts():
    attention = parts_of(replace(deployment(), gpu=catalog.gpu("h100-sxm")))[1]
    assert at(attention.verify_lines(8, 2), 8000) == at(attention.decode_lines(8), 8000)


def test_a_row_walks_the_weights_and_more_rows_copy_them_first():
    """By hand: 10^11 FLOP/s, a tenth of it row by row; weights are copied in 40 rows' time."""
    form = serial.product("fp32")
    p = started(
        serial.PRODUCT, compute=1.0, direct=0.1, half=40.0, norm=1.0, latency=1e-8, column=1e-13
    )
    n = k = 1000.0
    read = 4 * n * k / (1e10 * p["bandwidth"])
    rows = np.array([1.0, 2.0, 8.0])
    shape = {"m": rows, "n": np.full(3, n), "k": np.full(3, k)}
    arithmetic = [2 * n * k / 1e10, 2 * 2 * n * k / 1e10, 2 * 48 * n * k / 1e11]
    expected = [
        read + a + 4 * m * (n + k) / (1e10 * p["bandwidth"])
        for a, m in zip(arithmetic, rows, strict=True)
    ]
    assert form.seconds(p, shape, CEILINGS).tolist() == pytest.approx(expected, rel=1e-3)


def test_a_profile_without_the_way_row_by_row_means_what_it_meant():
    old = started(serial.PRODUCT)
    del old["direct"]
    fit = KernelFit(old, {}, HELD_OUT, form="serial")
    form = serial.product("bf16")
    assert Choice(form, CEILINGS).suits(fit)
    assert not Choice(form, CEILINGS).suits(replace(fit, parameters={"compute": 1.0}))
    shape = {"m": np.array([1.0, 64.0]), "n": np.array(512.0), "k": np.array(512.0)}
    parts = serial.product_parts("bf16", old, shape, CEILINGS)
    panels = 2 * (shape["m"] + old["half"]) * 512 * 512 / (CEILINGS.peak * old["compute"])
    assert parts.compute.tolist() == panels.tolist()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_checks_are_measured_where_sequences_are_computed_one_by_one(kind):
    scope = Scope(kind, 1e12, 1, [catalog.model("llama-3.2-1b")], ["bf16"])
    chunks = {
        point.size("tokens") for point in PrefillAttention().points(scope) if point.size("context")
    }
    assert (set(CHECKS) <= chunks) == (kind == "cpu")


def test_sequences_without_a_match_decode_as_ever():
    """A quarter of them have two drafts to check: chunks of three tokens, the others of one."""
    attention = parts_of(deployment())[1]
    decoded, checked, some = (
        at(attention.verify_lines(4, 2, match), 4 * 500) for match in (0.0, 1.0, 0.25)
    )
    assert decoded == at(attention.decode_lines(4), 4 * 500)
    assert some == pytest.approx(0.75 * decoded + 0.25 * checked)
    operators = (attention.verify(4.0, 2000.0, np.array([2.0]), match) for match in (0.0, 1.0))
    alone, all_of_them = (float(np.sum(operator.seconds)) for operator in operators)
    operator = attention.verify(4.0, 2000.0, np.array([2.0]), 0.25)
    assert operator.seconds == pytest.approx(0.75 * alone + 0.25 * all_of_them)


def test_one_sequence_takes_the_mean_of_passes_with_drafts_and_without():
    """Rows of a product are whole ones: a pass has one of them, or all."""
    plain = deployment()

    def seconds(match, parts=()):
        given = Speculation("ngram", 4, (0.2,) * 4, match=match)
        cost = CostModel(replace(plain, speculation=given))
        batch = Batch(1, 500, parts, len(parts))
        operators = cost.pass_operators(batch)
        ran = cost.operators(cost.columns([batch]))
        searched = cost._drafting.host_line(1, 4)
        found = cost.seconds(batch) - searched[0] - searched[1] * 500
        assert sum(float(each.seconds) for each in operators) == pytest.approx(found)
        totals = (one.total(one.operator.seconds) for one in ran)
        assert sum(totals) == pytest.approx(found)
        return found

    always, often, half = (seconds(match) for match in (1.0, 0.6, 0.5))
    never = CostModel(plain).seconds(Batch(1, 500))
    assert half == pytest.approx((always + never) / 2)
    assert often == pytest.approx(0.6 * always + 0.4 * never)
    prompts = [Part(300, 0)]
    wide = CostModel(plain).seconds(Batch(1, 500, prompts, 1))
    assert wide < seconds(0.5, prompts) < seconds(1.0, prompts)
