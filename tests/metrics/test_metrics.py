"""Every figure of a summary, made again from the tables of the run by other means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim.iteration import Batch, Part
from sim.loop.recorder import GAP, PLAN
from sim.metrics.fleet.drain import arriving_share
from sim.metrics.latency.gaps import Gaps
from sim.metrics.latency.percentiles import describe, describe_gaps
from sim.metrics.record.attribution import attribute
from sim.result import Result
from sim.scenario import load_scenario
from sim.scenario.pools import only
from tests.places import VLLM

RANKS = (50, 90, 95, 99)


def figures(values: list[float], name: str) -> dict[str, float]:
    """What numpy says of ``values`` (s), under the keys of a summary (ms)."""
    array = np.array(values) * 1e3
    found = {f"mean_{name}_ms": np.mean(array), f"std_{name}_ms": np.std(array)}
    found[f"median_{name}_ms"] = np.median(array)
    found |= {f"p{rank}_{name}_ms": np.percentile(array, rank) for rank in RANKS}
    return {key: float(value) for key, value in found.items()}


# -- percentiles ---------------------------------------------------------------------------------

seconds = st.floats(0, 1e4, allow_subnormal=False)


@settings(deadline=None)
@given(st.lists(seconds, min_size=1, max_size=60))
def test_describe_agrees_with_numpy(values: list[float]) -> None:
    rounding = 1e-12 * max(values) * 1e3  # of the spread of equal values
    expected = pytest.approx(figures(values, "x"), rel=1e-9, abs=rounding)
    assert describe(np.array(values), "x") == expected


def test_nothing_is_described_as_nothing() -> None:
    empty = np.array([])
    assert describe(empty, "x") == describe_gaps(Gaps(empty, empty, empty, empty), "x")
    assert set(describe(empty, "x").values()) == {None}
    assert set(describe(empty, "x")) == set(figures([1.0], "x"))


def test_four_values_by_hand() -> None:
    """10, 20, 30 and 40 ms: mean 25, median 25, p90 at place 2.7 is 37, spread sqrt(125)."""
    found = describe(np.array([0.04, 0.01, 0.03, 0.02]), "x")
    assert found["mean_x_ms"] == found["median_x_ms"] == found["p50_x_ms"] == pytest.approx(25)
    assert found["p90_x_ms"] == pytest.approx(37)
    assert found["std_x_ms"] == pytest.approx(math.sqrt(125))


plan_rows = st.tuples(
    st.floats(1e-3, 1.0),  # first gap
    st.floats(0, 1e-3),  # slope
    st.integers(1, 6),  # iterations
    st.integers(0, 5),  # decode
    st.integers(0, 5),  # stalled, at most decode
)


@settings(deadline=None)
@given(
    st.lists(plan_rows, max_size=8),
    st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(1, 4)), max_size=4),
)
def test_gaps_are_expanded_as_by_hand(
    rows: list[tuple[float, float, int, int, int]], long: list[tuple[float, int]]
) -> None:
    plans, gaps = np.zeros(len(rows), PLAN), np.array(long, GAP)
    expected: list[float] = []
    for plan, (gap, slope, iterations, decode, late) in zip(plans, rows, strict=True):
        stalled = min(late, decode)
        for key, value in (("gap", gap), ("slope", slope), ("iterations", iterations),
                           ("decode", decode), ("stalled", stalled)):  # fmt: skip
            plan[key] = value
        for i in range(iterations):
            seen_by = decode - stalled if i == 0 else decode
            expected += [gap + slope * i] * seen_by
    for gap, count in long:
        expected += [gap] * count
    values, weights = Gaps.recorded(plans, gaps).written_out()
    found = [v for v, w in zip(values, weights, strict=True) for _ in range(round(w))]
    assert sorted(found) == pytest.approx(sorted(expected))


# -- whole runs ----------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 12.0},
        "prompt_tokens": {"kind": "uniform", "low": 16, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 40},
    },
    "slo": {"ttft": "40ms", "tpot": "9ms", "attainment": 0.5},
    "run": {"requests": 250, "warmup": 0},
}
FAST = {"workload.arrivals.rate": 150.0}
RUNS: dict[str, dict[str, Any]] = {
    "continuous": {},
    "auto warm-up": {"run.warmup": "auto"},
    "warm-up": {"run.warmup": 40},
    "prefill first": {"scheduler.policy": "vllm-v0"} | FAST,
    "small chunks": {"scheduler.max_num_batched_tokens": 128, "scheduler.max_num_seqs": 64} | FAST,
    "preempting": {"kv_cache.num_gpu_blocks": 120} | FAST,
    "two replicas": {"fleet.0.replicas": 2} | FAST,
    "two GPUs": {"fleet.0.tensor_parallel": 2, "precision.kv_cache": "fp8"} | FAST,
    "fp8": {"precision.weights": "fp8", "precision.activations": "fp8"},
    "static": {"scheduler.batching": "static", "scheduler.max_num_seqs": 8} | FAST,
    "request": {"scheduler.batching": "request", "scheduler.max_num_seqs": 8} | FAST,
    "eager": {"engine": "transformers", "workload.arrivals.rate": 6.0},
    "burst": {"workload.arrivals": {"kind": "burst"}},
    "closed": {"workload.arrivals": {"kind": "closed", "concurrency": 9, "think_time": "20ms"}},
    "cut short": {"run.horizon": "1500ms"} | FAST,
}
COMPLETE = [name for name in RUNS if name != "cut short"]


@cache
def played(name: str, leap: bool = False) -> Result:
    return sim.simulate(sim.load_scenario(BASE).override(RUNS[name]), leap=leap)


def counted(result: Result) -> Any:
    """The completed requests after the warm-up."""
    table = result.requests
    return table[(table["status"] == "completed") & ~table["warmup"]]


@pytest.mark.parametrize("name", RUNS)
def test_latencies_from_the_table_of_requests(name: str) -> None:
    """TTFT and E2EL from the arrival on; TPOT over the tokens after the first, without requests
    that have only one."""
    result = played(name)
    table = counted(result)
    assert len(table) > 0
    longer = table[table["output_tokens"] > 1]
    assert len(longer) < len(table)
    for key, values in (
        ("ttft", table["first_token_s"] - table["arrival_s"]),
        ("e2el", table["finish_s"] - table["arrival_s"]),
        ("tpot", (longer["finish_s"] - longer["first_token_s"]) / (longer["output_tokens"] - 1)),
    ):
        expected = figures(list(values), key)
        assert {k: result.summary[k] for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name in COMPLETE if name != "preempting"])
def test_gaps_between_tokens_from_the_time_series(name: str) -> None:
    """A request gets its first token with its prefill, and one more from each later iteration of
    its replica that decodes, until it is finished."""
    result = played(name)
    gaps: list[float] = []
    for replica, plans in result.timeseries.groupby("replica"):
        ends = plans["end_s"][plans["decode_seqs"] > 0].to_numpy()
        mine = result.requests[result.requests["replica"] == replica]
        for first, last, count in mine[["first_token_s", "finish_s", "output_tokens"]].to_numpy():
            times = [first, *ends[(ends > first) & (ends <= last)]]
            assert len(times) == count
            gaps += list(np.diff(times))
    expected = figures(gaps, "itl")
    assert {k: result.summary[k] for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", COMPLETE)
def test_gaps_add_up_to_the_time_after_the_first_token(name: str) -> None:
    """One gap for each token after the first, preempted requests included."""
    result = played(name)
    values, weights = Gaps.recorded(result.record.plans, result.record.gaps).written_out()
    table = result.requests
    assert (table["status"] == "completed").all()
    assert weights.sum() == (table["output_tokens"] - 1).sum()
    total = (table["finish_s"] - table["first_token_s"]).sum()
    assert np.dot(values, weights) == pytest.approx(total)
    assert weights.min() >= 0


def test_a_horizon_leaves_requests_unfinished() -> None:
    result = played("cut short")
    table, counts = result.requests, result.summary["infersim"]["requests"]
    assert set(table["status"]) == {"completed", "unfinished"}
    assert counts["unfinished"] == (table["status"] == "unfinished").sum()
    assert counts["submitted"] + counts["not_arrived"] == 250
    assert table["finish_s"].max() <= 1.5
    unfinished = table[table["status"] == "unfinished"]
    assert (unfinished["generated_tokens"] < unfinished["output_tokens"]).all()


def test_preemptions_are_counted_where_they_happen() -> None:
    result = played("preempting")
    counts = {
        result.summary["infersim"]["preemptions"],
        int(result.requests["preemptions"].sum()),
        int(result.timeseries["preemptions"].sum()),
    }
    assert len(counts) == 1
    assert counts.pop() > 10


@pytest.mark.parametrize("name", RUNS)
def test_counts_and_throughput(name: str) -> None:
    """All of the run counts, warm-up included: from the first arrival to the last token, or to the
    horizon where something was left."""
    result = played(name)
    summary, table = result.summary, result.requests
    done = table[table["status"] == "completed"]
    end = table["finish_s"].max() if len(done) == len(table) else 1.5
    duration = end - table["arrival_s"].min()
    assert summary["duration"] == pytest.approx(duration)
    assert summary["completed"] == len(done)
    assert summary["failed"] == len(table) - len(done)
    assert summary["total_input_tokens"] == done["prompt_tokens"].sum()
    assert summary["total_output_tokens"] == done["output_tokens"].sum()
    assert summary["request_throughput"] == pytest.approx(len(done) / duration)
    assert summary["output_throughput"] == pytest.approx(done["output_tokens"].sum() / duration)
    tokens = done["output_tokens"].sum() + done["prompt_tokens"].sum()
    assert summary["total_token_throughput"] == pytest.approx(tokens / duration)
    assert (done["generated_tokens"] == done["output_tokens"]).all()
    one = summary["infersim"]["requests"]["one_token"]
    assert one == (done["output_tokens"] == 1).sum() > 0


@pytest.mark.parametrize("name", RUNS)
def test_goodput_and_attainment(name: str) -> None:
    """A request is good if it was completed and every limit held; a one-token output has no TPOT
    to break."""
    result = played(name)
    summary, table = result.summary, result.requests
    done = (table["status"] == "completed").to_numpy()
    ttft = (table["first_token_s"] - table["arrival_s"] <= 0.040).to_numpy()
    tpot = ~(table["tpot_s"] > 0.009).to_numpy()
    good = done & ttft & tpot
    assert (table["slo_met"] == good).all()
    assert summary["request_goodput"] == pytest.approx(good.sum() / summary["duration"])
    verdict, after = summary["infersim"]["verdict"], ~table["warmup"].to_numpy()
    assert verdict["attainment"] == pytest.approx(good[after].mean())
    assert verdict["slo_met"] == (good[after].mean() >= 0.5)
    assert verdict["limits"]["ttft"]["attainment"] == pytest.approx((done & ttft)[after].mean())
    assert verdict["limits"]["tpot"]["attainment"] == pytest.approx((done & tpot)[after].mean())


def test_a_limit_that_is_just_met_is_met() -> None:
    """Equal requests that never meet: every TTFT is the limit itself, or its next smaller float."""
    lonely = sim.load_scenario(BASE).override(
        {
            "workload.arrivals": {"kind": "constant", "rate": 1.0},
            "workload.prompt_tokens": {"kind": "fixed", "value": 256},
            "workload.output_tokens": {"kind": "fixed", "value": 1},
            "run.requests": 1,
            "slo": {"ttft": 10.0, "attainment": 1.0},
        }
    )
    ttft = float(sim.simulate(lonely).record.ttft[0])
    at = sim.simulate(lonely.override({"slo.ttft": ttft})).summary["infersim"]["verdict"]
    assert at["slo_met"]
    assert at["first_limit"] == "ttft"  # the only one there is, and no room left
    below = float(np.nextafter(ttft, 0))
    under = sim.simulate(lonely.override({"slo.ttft": below})).summary["infersim"]["verdict"]
    assert not under["slo_met"]
    assert under["first_limit"] == "ttft"


def test_figures_that_do_not_exist_are_null() -> None:
    """Only one-token outputs: no TPOT, no ITL."""
    scenario = sim.load_scenario(BASE).override(
        {"workload.output_tokens": {"kind": "fixed", "value": 1}, "run.requests": 20}
    )
    summary = sim.simulate(scenario).summary
    for key in ("mean", "median", "std", "p50", "p99"):
        assert summary[f"{key}_tpot_ms"] is None
        assert summary[f"{key}_itl_ms"] is None
        assert summary[f"{key}_ttft_ms"] == pytest.approx(summary[f"{key}_e2el_ms"])


# -- where the time went -------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_shares_of_busy_time_add_up(name: str) -> None:
    result = played(name)
    details, plans = result.summary["infersim"], result.timeseries
    assert sum(details["bound_by"].values()) == pytest.approx(1)
    assert sum(details["time_by_operator"].values()) == pytest.approx(1)
    assert min(details["bound_by"].values()) >= 0
    busy = (plans["end_s"] - plans["start_s"]).sum()
    assert result.record.attribution.seconds == pytest.approx(busy)
    replicas = result.scenario.replicas
    share = busy / result.summary["duration"] / replicas
    assert details["utilisation"]["busy"] == pytest.approx(share)
    assert details["utilisation"]["busy"] <= 1
    assert 0 < details["utilisation"]["mfu"] < 0.8
    assert 0 < details["utilisation"]["mbu"] < 1


def test_a_pass_that_outlasts_a_request_that_was_given_up_is_no_more_than_the_gpu_can_do(
    tmp_path: Path,
) -> None:
    """One token of a prompt takes some 7 ms on H100, and its client leaves after one."""
    trace = tmp_path / "given-up.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens,cancelled_after_s\n0,95,20,0.001\n")
    own = sim.simulate(
        load_scenario(
            {
                "model": "llama-3.1-8b",
                "fleet": {"gpu": "h100-sxm"},
                "engine": "ideal",
                "scheduler": {"max_num_seqs": 1, "max_num_batched_tokens": 1},
                "workload": {"trace": {"path": str(trace)}},
            }
        )
    ).summary["infersim"]
    assert own["utilisation"]["busy"] == 1
    assert 0.5 < own["utilisation"]["mbu"] < 1
    assert 0 < own["kv_cache"]["mean_used"] <= own["kv_cache"]["peak_used"]


@pytest.mark.parametrize("name", ["continuous", "two replicas", "request"])
def test_host_share_is_what_the_engine_adds(name: str) -> None:
    """vLLM: 0.3 ms an iteration, 20 us a sequence in it, 0.7 ms a request that enters."""
    result = played(name)
    plans = result.timeseries
    host = 0.3e-3 * plans["iterations"].sum()
    host += 20e-6 * (plans["iterations"] * (plans["decode_seqs"] + plans["prefill_seqs"])).sum()
    host += 0.7e-3 * len(result.requests)
    found = result.record.attribution.by_operator["host"]
    assert found == pytest.approx(host)


@pytest.mark.parametrize("name", ["continuous", "two replicas", "fp8", "prefill first", "request"])
def test_mfu_from_the_requests(name: str) -> None:
    """FLOP of a request of p prompt and o output tokens through Llama-3.1-8B.

    Projections: 2 x 6,979,321,856 for each of p + o - 1 tokens (the last one is never computed).
    LM head: 2 x 525,336,576 for each of o tokens. Attention: 4 x 4,096 x 32 layers for each pair,
    p (p + 1) / 2 in the prompt and p + j for output token j. One H100: 989.4 TFLOP/s, fp8 twice.
    """
    result = played(name)
    table = result.requests
    p, o = (table[key].to_numpy(dtype=float) for key in ("prompt_tokens", "output_tokens"))
    pairs = p * (p + 1) / 2 + (o - 1) * p + (o - 1) * o / 2
    flops = 2 * 6_979_321_856 * (p + o - 1) + 2 * 525_336_576 * o + 4 * 4096 * 32 * pairs
    replicas = result.scenario.replicas
    peak = (1978.9e12 if name == "fp8" else 989.4e12) * replicas
    assert result.timeseries["prefill_seqs"].sum() == len(table)  # no prompt was cut
    mfu = result.summary["infersim"]["utilisation"]["mfu"]
    assert mfu == pytest.approx(flops.sum() / result.summary["duration"] / peak)


def test_two_gpus_do_half_of_the_work_each() -> None:
    """The same traffic on one GPU and on two: shares of the FLOP, and of the GPUs' peak."""
    one = sim.simulate(sim.load_scenario(BASE).override({"run.requests": 30}))
    two = sim.simulate(one.scenario.override({"fleet.0.tensor_parallel": 2}))
    assert two.record.attribution.flops == pytest.approx(one.record.attribution.flops / 2)
    assert two.summary["infersim"]["gpus"] == 2


def test_bytes_of_a_single_pass() -> None:
    """A lone request of 100 prompt and 2 output tokens: its prefill and one decode."""
    scenario = sim.load_scenario(BASE).override(
        {
            "workload.prompt_tokens": {"kind": "fixed", "value": 100},
            "workload.output_tokens": {"kind": "fixed", "value": 2},
            "run.requests": 1,
        }
    )
    result = sim.simulate(scenario)
    record = result.record
    passes = [
        only(record.pools).cost.pass_operators(Batch(0, 0, [Part(100, 0)])),
        only(record.pools).cost.pass_operators(Batch(1, 100)),
    ]
    operators = [o for one in passes for o in one]
    assert record.attribution.bytes == pytest.approx(sum(float(o.bytes) for o in operators))
    assert record.attribution.flops == pytest.approx(sum(float(o.flops) for o in operators))
    by_name = {o.name for o in operators} | {"host"}
    assert set(record.attribution.by_operator) == by_name


@pytest.mark.parametrize("name", ["continuous", "prefill first", "static", "small chunks"])
def test_fixed_costs_of_every_pass(name: str) -> None:
    """Latencies of the operators of each pass, from a data sheet; attention's floor once, 17 us x
    32 layers, whether decodes are in it, prompts, or both."""
    scenario = sim.load_scenario(BASE).override(RUNS[name]).override({"fleet.0.gpu": "mi300x"})
    record = sim.simulate(scenario, leap=False).record
    expected, floors = 0.0, 0
    for plan in record.plans:
        sequences, context = int(plan["computed"]), int(plan["context"])
        prompts, tokens = int(plan["prefill_seqs"]), int(plan["prefill_tokens"])
        passed = only(record.pools).cost.by_size.per_token(sequences + tokens)
        passed += only(record.pools).cost.by_size.per_output(sequences + prompts)
        if sequences:
            passed.append(only(record.pools).cost.attention.decode(sequences, context))
        else:
            floors += 1
        expected += sum(float(o.latency) for o in passed)
    assert floors > 0
    latency = record.attribution.by_bound["latency"]
    assert latency == pytest.approx(expected + floors * 32 * 17e-6, rel=1e-9)


def test_no_plans_attribute_nothing() -> None:
    cost = only(played("continuous").record.pools).cost
    empty = attribute(cost, np.zeros(0, PLAN))
    assert empty.seconds == empty.flops == empty.bytes == 0


# -- the whole summary ---------------------------------------------------------------------------


BOTH = (False, True)
MIDDLES = {"mean_reserved", "fragmentation"}


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{path}/{key}")
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{path}/{index}")
    else:
        yield path, tree


@pytest.mark.parametrize("name", RUNS)
def test_leaps_change_no_figure(name: str) -> None:
    """But for the mean of the memory reserved, which takes the middle of a leap for all of it."""
    stepped, leapt = (dict(leaves(played(name, leap).summary)) for leap in (False, True))
    assert stepped.keys() == leapt.keys()
    for path, value in stepped.items():
        if path.removeprefix("/infersim/kv_cache/") in MIDDLES:
            assert leapt[path] == pytest.approx(value, rel=2e-3, abs=1e-3), path
        elif isinstance(value, float):
            assert leapt[path] == pytest.approx(value, rel=1e-9, abs=1e-12), path
        elif path != "/infersim/verdict/text":
            assert leapt[path] == value, path
    assert len(played(name, True).record.plans) <= len(played(name).record.plans)


@pytest.mark.parametrize("name", RUNS)
def test_leaps_do_not_change_the_mean_use_of_kv(name: str) -> None:
    means = [played(name, leap).summary["infersim"]["kv_cache"]["mean_used"] for leap in BOTH]
    assert means[1] == pytest.approx(means[0], rel=1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_leaps_do_not_change_the_verdict(name: str) -> None:
    stepped, leapt = (played(name, leap).summary["infersim"]["verdict"] for leap in BOTH)
    assert stepped == leapt


@pytest.mark.parametrize("name", RUNS)
def test_no_figure_is_infinite_or_undefined(name: str) -> None:
    for path, value in leaves(played(name).summary):
        assert value is None or isinstance(value, str | bool | int) or math.isfinite(value), path  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ("static", "request")])
def test_littles_law(name: str) -> None:
    """Mean number of requests in the engine = sum of the times they spend there / duration.

    Running and waiting are counted from the recorded plans and queue; the times are those of the
    requests. Preempted requests wait a second time, which is neither running nor queue time, so
    that run may only show less.
    """
    result = played(name)
    table, summary = result.requests, result.summary
    batch = summary["infersim"]["batch"]
    reached = result.record.reached(result.record.requests)
    left = table["finish_s"].fillna(1.5)
    inside = np.maximum(left - reached, 0).sum() / summary["duration"]
    counted = (batch["mean_running"] + batch["mean_waiting"]) * result.scenario.replicas
    if name == "preempting":
        assert 0.5 * inside < counted < inside
    elif name == "cut short":  # the iteration in flight at the horizon is in no plan
        assert 0.9 * inside < counted < inside
    else:
        assert counted == pytest.approx(inside)


@pytest.mark.parametrize("name", RUNS)
def test_kv_use_stays_within_the_memory(name: str) -> None:
    kv = played(name).summary["infersim"]["kv_cache"]
    assert 0 < kv["mean_used"] <= kv["peak_used"] <= 1
    assert kv["mean_used"] <= kv["mean_reserved"] <= kv["peak_reserved"] <= 1
    assert 0 <= kv["fragmentation"] < 1
    assert kv["fragmentation"] == pytest.approx(1 - kv["mean_used"] / kv["mean_reserved"])


def test_mean_kv_use_from_the_time_series() -> None:
    """Without leaps: tokens held after each iteration, weighted by its time, over the capacity."""
    result = played("continuous")
    plans, kv = result.timeseries, result.summary["infersim"]["kv_cache"]
    held = (plans["kv_used_tokens"] * (plans["end_s"] - plans["start_s"])).sum()
    capacity = (kv["num_gpu_blocks"] - 1) * kv["block_size"]
    assert kv["mean_used"] == pytest.approx(held / result.summary["duration"] / capacity)
    assert kv["peak_used"] == pytest.approx(plans["kv_used_tokens"].max() / capacity)


@pytest.mark.parametrize("name", RUNS)
def test_cost(name: str) -> None:
    """Dollars for every GPU from the first arrival to the end; of a token, while requests come."""
    result = played(name)
    summary, details = result.summary, result.summary["infersim"]
    share = arriving_share(result.record, details["verdict"])
    gpu, cost = only(result.record.pools).deployment.gpu, details["cost"]
    usd = gpu.price_per_hour * details["gpus"] * summary["duration"] / 3600
    assert cost["usd"] == pytest.approx(usd)
    per_million = usd * share / summary["total_output_tokens"] * 1e6
    assert cost["usd_per_million_output_tokens"] == pytest.approx(per_million)


def test_price_may_be_given_or_hidden() -> None:
    base = sim.load_scenario(BASE).override({"run.requests": 5})
    given = sim.simulate(base.override({"fleet.0.price_per_gpu_hour": 7.2})).summary
    assert given["infersim"]["cost"]["usd"] == pytest.approx(7.2 * given["duration"] / 3600)
    hidden = sim.simulate(base.override({"fleet.0.price_per_gpu_hour": None})).summary
    assert hidden["infersim"]["cost"] is None


def test_warm_up_leaves_out_the_first_requests() -> None:
    table = played("warm-up").requests
    assert list(table["warmup"]) == [True] * 40 + [False] * 210
    assert played("warm-up").summary["duration"] == played("continuous").summary["duration"]


def test_automatic_warm_up_counts_completed_requests() -> None:
    """Rejected requests at the start must not use up the cut that was found for served ones."""
    record = played("continuous").record
    steady = np.random.default_rng(1).normal(1.0, 0.05, 150)
    latency = np.concatenate([np.full(50, 9.0), steady])
    requests = np.zeros(400, record.requests.dtype)
    requests["id"] = requests["arrival"] = np.arange(400)
    requests["status"][:200] = 1
    requests["finish"] = requests["arrival"] + np.concatenate([np.full(200, np.nan), latency])
    scenario = record.scenario.override({"run.warmup": "auto"})
    warm = dataclasses.replace(record, requests=requests, scenario=scenario)
    assert 250 <= warm.warmup.sum() <= 265
    assert not warm.warmup[-135:].any()


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_token_counts_hold_for_any_seed(seed: int) -> None:
    """Tokens in the plans are tokens of the requests: nothing is lost or computed twice."""
    result = sim.simulate(sim.load_scenario(BASE).override({"seed": seed, "run.requests": 60}))
    plans, table = result.timeseries, result.requests
    assert plans["prefill_tokens"].sum() == table["prompt_tokens"].sum()
    steps = (plans["decode_seqs"] * plans["iterations"]).sum()
    assert steps == (table["output_tokens"] - 1).sum()
