"""Whole runs: nobody is lost, nothing precedes its cause, and the policies differ as they must."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import sim
from sim import catalog
from sim.errors import InfeasibleError
from sim.metrics.percentiles import expand_gaps
from sim.results import Result

BASE = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "ideal",  # no front end: a request reaches the scheduler when it arrives
    "max_model_len": 512,
    "scheduler": {"max_num_seqs": 8},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 200},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    },
    "run": {"requests": 60, "warmup": 0},
}


def serve(changes: dict[str, Any] | None = None) -> Result:
    """A run of the base scenario with ``changes``, checked for what holds in every run."""
    result = sim.simulate(sim.load_scenario(BASE).override(changes or {}))
    check_requests(result)
    check_plans(result)
    check_totals(result)
    return result


def check_requests(result: Result) -> None:
    """Each request has one fate, and its times are in the order in which things happen."""
    rows, counts = result.requests, result.summary["infersim"]["requests"]
    assert rows["request_id"].tolist() == list(range(len(rows)))
    assert rows["arrival_s"].is_monotonic_increasing
    fates = {
        name: int((rows["status"] == name).sum())
        for name in ("completed", "rejected", "unfinished")
    }
    assert sum(fates.values()) == len(rows) == counts["submitted"]
    assert fates == {name: counts[name] for name in fates}
    assert sum(counts["rejected_reasons"].values()) == counts["rejected"]
    assert (rows["reason"].notna() == (rows["status"] == "rejected")).all()
    assert ((rows["replica"] == -1) == (rows["status"] == "rejected")).all()

    done = rows[rows["status"] == "completed"]
    assert (done["generated_tokens"] == done["output_tokens"]).all()
    assert (done["arrival_s"] <= done["scheduled_s"]).all()
    assert (done["scheduled_s"] < done["first_token_s"]).all()
    assert (done["first_token_s"] <= done["finish_s"]).all()
    at_once = done["first_token_s"] == done["finish_s"]
    assert (at_once == (done["output_tokens"] == 1)).all()
    assert (done["tpot_s"].isna() == (done["output_tokens"] == 1)).all()

    left = rows[rows["status"] == "unfinished"]
    assert (left["generated_tokens"] < left["output_tokens"]).all()
    assert ((left["generated_tokens"] > 0) == left["first_token_s"].notna()).all()
    assert left["scheduled_s"].notna()[left["generated_tokens"] > 0].all()
    refused = rows[rows["status"] == "rejected"]
    assert (refused["generated_tokens"] == 0).all()
    for nothing in ("finish_s", "e2el_s", "tpot_s"):
        assert rows.loc[rows["status"] != "completed", nothing].isna().all()
    assert refused[["scheduled_s", "first_token_s", "queue_s", "ttft_s"]].isna().all(axis=None)


def check_plans(result: Result) -> None:
    """A replica runs one iteration at a time, within its seats, its token budget and its memory."""
    scenario, plans = result.scenario, result.timeseries
    kv = result.summary["infersim"]["kv_cache"]
    usable = result.record.capacity.usable_blocks * kv["block_size"]
    assert (plans["end_s"] > plans["start_s"]).all()
    assert (plans["iterations"] >= 1).all()
    for _, own in plans.groupby("replica"):
        ordered = own.sort_values("start_s")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1]).all()
    assert plans["running"].between(1, scenario.scheduler.max_num_seqs).all()
    assert (plans["decode_seqs"] + plans["prefill_seqs"] <= plans["running"]).all()
    assert (plans["decode_seqs"] + plans["prefill_seqs"] > 0).all()
    assert (plans["kv_used_tokens"] <= plans["kv_reserved_tokens"]).all()
    assert (plans["kv_reserved_tokens"] <= usable).all()
    if scenario.scheduler.batching == "continuous" and scenario.scheduler.chunked_prefill:
        tokens = plans["decode_seqs"] + plans["prefill_tokens"]
        assert (tokens <= scenario.scheduler.max_num_batched_tokens).all()


def check_totals(result: Result) -> None:
    """Tokens counted by request, by plan and by gap between tokens agree; every share is a share."""
    rows, plans, summary = result.requests, result.timeseries, result.summary
    own = summary["infersim"]
    json.dumps(summary, allow_nan=False)
    generated = int(rows["generated_tokens"].sum())
    decoded = int((plans["decode_seqs"] * plans["iterations"]).sum())
    started = int((rows["generated_tokens"] > 0).sum())
    # a prefill brings one token; a preempted request is prefilled again
    assert started <= generated - decoded <= started + own["preemptions"]
    done = rows[rows["status"] == "completed"]
    assert summary["total_input_tokens"] == done["prompt_tokens"].sum()
    assert summary["total_output_tokens"] == done["generated_tokens"].sum()
    assert own["preemptions"] >= rows["preemptions"].sum() * (own["requests"]["unfinished"] == 0)
    check_gaps(result)
    shares = [
        *own["utilisation"].values(),
        *own["bound_by"].values(),
        *own["time_by_operator"].values(),
    ]
    shares += [
        own["kv_cache"][key] for key in ("mean_used", "peak_used", "mean_reserved", "fragmentation")
    ]
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares), shares
    if len(plans):
        assert sum(own["bound_by"].values()) == pytest.approx(1)
        assert sum(own["time_by_operator"].values()) == pytest.approx(1)


def check_gaps(result: Result) -> None:
    """Inter-token gaps: one per token after the first, and they add up to the time they span."""
    rows, record = result.requests, result.record
    seconds, weights = expand_gaps(record.plans, record.gaps)
    assert (seconds >= 0).all()
    assert (weights >= 0).all()
    if not (rows["status"] == "unfinished").any():
        assert weights.sum() == (rows["generated_tokens"] - 1).clip(lower=0).sum()
        spanned = (rows["finish_s"] - rows["first_token_s"]).sum()
        assert np.dot(seconds, weights) == pytest.approx(spanned, rel=1e-9, abs=1e-12)


def peak_in_system(rows: pd.DataFrame) -> int:
    """The most requests that were sent and not answered at one instant."""
    ends = rows["finish_s"].fillna(rows["arrival_s"])
    changes = [(time, -1) for time in ends] + [(time, 1) for time in rows["arrival_s"]]
    inside = peak = 0
    for _, change in sorted(changes):  # at one instant, answers before new requests
        inside += change
        peak = max(peak, inside)
    return peak


# -- closed loop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batching", ["continuous", "request"])
@pytest.mark.parametrize("think_time", [0.0, 0.25])
def test_closed_loop_clients_wait_for_their_answer_and_then_think(
    batching: str, think_time: float
) -> None:
    arrivals = {"kind": "closed", "concurrency": 5, "think_time": think_time}
    result = serve({"workload.arrivals": arrivals, "scheduler.batching": batching})
    rows = result.requests
    assert len(rows) == 60
    assert peak_in_system(rows) == 5
    assert (rows["arrival_s"][:5] == 0).all()
    # the n-th request after those is sent when the n-th client has thought about its answer
    answered = np.sort(rows["finish_s"].to_numpy())[:55]
    assert (rows["arrival_s"].to_numpy()[5:] == answered + think_time).all()
    assert result.summary["infersim"]["verdict"]["state"] == "closed loop"


def test_closed_loop_has_no_more_clients_than_requests() -> None:
    arrivals = {"kind": "closed", "concurrency": 50, "think_time": "1s"}
    rows = serve({"workload.arrivals": arrivals, "run.requests": 20}).requests
    assert (rows["arrival_s"] == 0).all()


def test_client_of_a_refused_request_goes_on() -> None:
    changes = {
        "workload.arrivals": {"kind": "closed", "concurrency": 3, "think_time": "100ms"},
        "workload.prompt_tokens": {"kind": "uniform", "low": 10, "high": 900},
    }
    rows = serve(changes).requests
    assert 0 < (rows["status"] == "rejected").sum() < len(rows) == 60
    assert peak_in_system(rows) <= 3


def test_a_closed_loop_in_which_everything_is_refused_ends() -> None:
    changes = {"workload.arrivals": {"kind": "closed", "concurrency": 3}, "max_model_len": 5}
    rows = serve(changes).requests
    assert (rows["status"] == "rejected").all()
    assert len(rows) == 60


@pytest.mark.parametrize("think_time", [0.0, 0.25])
@pytest.mark.parametrize("replicas", [1, 3])
def test_static_batches_do_not_wait_for_clients_that_wait_for_them(
    replicas: int, think_time: float
) -> None:
    changes = {
        "scheduler.batching": "static",
        "workload.arrivals": {"kind": "closed", "concurrency": 5, "think_time": think_time},
        "fleet.0.replicas": replicas,
    }
    rows = serve(changes).requests
    assert (rows["status"] == "completed").all()
    assert peak_in_system(rows) <= 5


# -- open traffic --------------------------------------------------------------------------------


def test_burst_is_there_at_once() -> None:
    result = serve()
    assert (result.requests["arrival_s"] == 0).all()
    assert result.summary["infersim"]["verdict"]["state"] == "offline"
    assert result.summary["infersim"]["batch"]["peak_running"] == 8
    assert result.summary["infersim"]["batch"]["peak_waiting"] == 52


def test_front_end_delays_the_queue_and_counts_as_latency() -> None:
    delay = catalog.engine("vllm").front_end
    assert delay > 0
    rows = serve({"engine": "vllm", "workload.arrivals": {"kind": "constant", "rate": 5}}).requests
    assert (rows["scheduled_s"] >= rows["arrival_s"] + delay).all()
    assert (rows["ttft_s"] > delay).all()
    assert rows["queue_s"].min() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("batching", ["static", "request", "continuous"])
@pytest.mark.parametrize("horizon", [0.01, 0.3, 1.0])
def test_nothing_happens_after_the_horizon(batching: str, horizon: float) -> None:
    changes = {
        "scheduler.batching": batching,
        "workload.arrivals": {"kind": "poisson", "rate": 40},
        "run.horizon": horizon,
        "fleet.0.replicas": 2,
    }
    result = serve(changes)
    rows, counts = result.requests, result.summary["infersim"]["requests"]
    times = rows[["arrival_s", "scheduled_s", "first_token_s", "finish_s"]]
    assert not (times > horizon).any(axis=None)
    assert not (result.timeseries["end_s"] > horizon).any()
    assert counts["unfinished"] > 0 or len(rows) == 0
    assert counts["submitted"] + counts["not_arrived"] == 60
    if counts["unfinished"]:
        assert result.summary["duration"] == pytest.approx(horizon - rows["arrival_s"].min())


@pytest.mark.parametrize("batching", ["static", "request", "continuous"])
@pytest.mark.parametrize("horizon", [None, 0.2, 0.7])
def test_leaps_change_no_request(batching: str, horizon: float | None) -> None:
    changes = {
        "scheduler.batching": batching,
        "workload.arrivals": {"kind": "gamma", "rate": 40, "cv": 2},
        "kv_cache.num_gpu_blocks": 60,
        "run.horizon": horizon,
        "fleet.0.replicas": 2,
    }
    leaping, stepping = (serve(changes | {"run.leap": leap}) for leap in (True, False))
    pd.testing.assert_frame_equal(leaping.requests, stepping.requests, check_exact=True)
    if len(stepping.timeseries):  # two static batches may not even have been filled by then
        assert len(leaping.timeseries) < len(stepping.timeseries)
    assert leaping.timeseries["iterations"].sum() == stepping.timeseries["iterations"].sum()


# -- several replicas ----------------------------------------------------------------------------


def shares(result: Result) -> list[int]:
    """Requests of each replica."""
    return np.bincount(result.requests["replica"], minlength=4).tolist()


MIXED = {
    "fleet.0.replicas": 4,
    "scheduler.max_num_seqs": 64,
    "workload.output_tokens": {"kind": "lognormal", "mean": 60, "cv": 1.5, "max": 300},
    "run.requests": 800,
}


def test_round_robin_takes_turns() -> None:
    arrivals = {"kind": "poisson", "rate": 200}
    result = serve(MIXED | {"router": "round-robin", "workload.arrivals": arrivals})
    assert result.requests["replica"].tolist() == [0, 1, 2, 3] * 200


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "burst"},
        {"kind": "poisson", "rate": 200},
        {"kind": "closed", "concurrency": 100},
    ],
    ids=lambda arrivals: arrivals["kind"],
)
def test_least_outstanding_shares_the_load(arrivals: dict[str, Any]) -> None:
    counts = shares(serve(MIXED | {"workload.arrivals": arrivals}))
    assert sum(counts) == 800
    assert max(counts) / min(counts) < 1.2, counts


def test_least_outstanding_avoids_the_replica_with_long_answers() -> None:
    changes = MIXED | {"workload.arrivals": {"kind": "poisson", "rate": 200}}
    balanced, in_turn = (
        serve(changes | {"router": router}) for router in ("least-outstanding", "round-robin")
    )
    busy = [
        result.timeseries.assign(load=lambda p: p["running"] * (p["end_s"] - p["start_s"]))
        .groupby("replica")["load"]
        .sum()
        for result in (balanced, in_turn)
    ]
    spread = [load.max() / load.min() for load in busy]
    assert spread[0] < spread[1]


# -- whole batches -------------------------------------------------------------------------------


def test_static_launches_full_batches_when_their_last_member_arrives() -> None:
    changes = {
        "scheduler.batching": "static",
        "scheduler.max_num_seqs": 4,
        "workload.arrivals": {"kind": "constant", "rate": 1},
        "run.requests": 10,
    }
    rows = serve(changes).requests
    # four, four, and the two that are left when nobody else comes
    assert rows["scheduled_s"].tolist() == [3.0] * 4 + [7.0] * 4 + [9.0] * 2


def test_static_runs_its_last_incomplete_batch_as_soon_as_the_one_before_is_over() -> None:
    rows = serve(
        {"scheduler.batching": "static", "scheduler.max_num_seqs": 4, "run.requests": 10}
    ).requests
    batches = rows.groupby("scheduled_s")
    assert batches.size().tolist() == [4, 4, 2]
    starts, ends = batches["finish_s"].max().index, batches["finish_s"].max()
    assert starts.tolist()[1:] == ends.tolist()[:-1]


def test_request_level_batch_waits_for_its_timeout() -> None:
    changes = {
        "scheduler.batching": "request",
        "scheduler.batch_timeout": 0.125,
        "workload.arrivals": {"kind": "constant", "rate": 1},
        "workload.output_tokens": {"kind": "fixed", "value": 8},
        "run.requests": 5,
    }
    rows = serve(changes).requests
    assert rows["queue_s"].tolist()[:-1] == [0.125] * 4
    assert rows["queue_s"].iloc[-1] <= 0.125


def test_request_level_batch_starts_when_full_without_waiting() -> None:
    changes = {
        "scheduler.batching": "request",
        "scheduler.batch_timeout": "1h",
        "scheduler.max_num_seqs": 4,
        "workload.arrivals": {"kind": "constant", "rate": 4},
        "run.requests": 16,
    }
    rows = serve(changes).requests
    assert rows["scheduled_s"].tolist() == [0.75] * 4 + [1.75] * 4 + [2.75] * 4 + [3.75] * 4


def test_request_level_takes_whoever_waits_when_a_batch_is_over() -> None:
    changes = {
        "scheduler.batching": "request",
        "scheduler.batch_timeout": 0,
        "workload.arrivals": {"kind": "poisson", "rate": 30},
    }
    rows = serve(changes).requests
    batches = rows.groupby("scheduled_s").agg(
        last=("arrival_s", "max"), size=("arrival_s", "size"), end=("finish_s", "max")
    )
    assert batches["size"].max() <= 8
    assert 1 < batches["size"].nunique()
    previous_end = batches["end"].shift(fill_value=0.0)
    expected = np.maximum(previous_end, rows.groupby("scheduled_s")["arrival_s"].min())
    assert (batches.index == expected).all()


# -- what the policies are worth -----------------------------------------------------------------


def test_batching_ladder_at_saturation() -> None:
    changes = {
        "max_model_len": 2048,
        "engine": "vllm",
        "scheduler.max_num_seqs": 64,
        "workload.prompt_tokens": {"kind": "uniform", "low": 20, "high": 300},
        "workload.output_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.2, "max": 1500},
        "run.requests": 600,
    }
    static, request, continuous = (
        serve(changes | {"scheduler.batching": name}).summary["output_throughput"]
        for name in ("static", "request", "continuous")
    )
    assert static < request < continuous
    assert continuous > 2 * static


def test_paged_memory_admits_several_times_more_than_contiguous() -> None:
    changes = {
        "max_model_len": 4096,
        "scheduler.max_num_seqs": 256,
        "kv_cache.num_gpu_blocks": 2048,
        "run.requests": 300,
    }
    paged, contiguous = (
        serve(changes | {"kv_cache.allocator": name}).summary for name in ("paged", "contiguous")
    )
    assert contiguous["infersim"]["batch"]["peak_running"] == 2048 * 16 // 4096
    assert paged["infersim"]["batch"]["peak_running"] > 8 * 2048 * 16 // 4096
    assert paged["output_throughput"] > 2 * contiguous["output_throughput"]
    assert contiguous["infersim"]["kv_cache"]["fragmentation"] > 0.9
    assert paged["infersim"]["kv_cache"]["fragmentation"] < 0.2


# -- any small scenario --------------------------------------------------------------------------

RATES = st.sampled_from([2.0, 25.0, 200.0, 1000.0])
ARRIVALS = st.one_of(
    st.fixed_dictionaries({"kind": st.sampled_from(["poisson", "constant"]), "rate": RATES}),
    st.fixed_dictionaries(
        {"kind": st.just("gamma"), "rate": RATES, "cv": st.sampled_from([0.5, 3])}
    ),
    st.just({"kind": "burst"}),
    st.fixed_dictionaries(
        {
            "kind": st.just("closed"),
            "concurrency": st.integers(1, 20),
            "think_time": st.sampled_from([0.0, 0.05, 1.0]),
        }
    ),
)
SCENARIOS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "engine": st.sampled_from(["ideal", "vllm", "transformers"]),
        "scheduler.batching": st.sampled_from(["static", "request", "continuous"]),
        "scheduler.chunked_prefill": st.booleans(),
        "scheduler.scheduler_reserve_full_isl": st.booleans(),
        "scheduler.batch_timeout": st.sampled_from([0.0, 0.05, 2.0]),
        "scheduler.max_num_seqs": st.integers(1, 20),
        "scheduler.max_num_batched_tokens": st.integers(20, 400),
        "kv_cache.allocator": st.sampled_from(["paged", "contiguous"]),
        "kv_cache.block_size": st.sampled_from([1, 4, 16]),
        "kv_cache.num_gpu_blocks": st.none() | st.integers(1, 150),
        "max_model_len": st.sampled_from([100, 300]),
        "fleet.0.replicas": st.integers(1, 3),
        "router": st.sampled_from(["round-robin", "least-outstanding"]),
        "workload.arrivals": ARRIVALS,
        "workload.prompt_tokens.high": st.sampled_from([10, 60, 250]),
        "workload.output_tokens.high": st.sampled_from([1, 20, 120]),
        "run.requests": st.integers(1, 50),
        "run.horizon": st.none() | st.sampled_from([0.003, 0.1, 0.5]),
        "run.leap": st.booleans(),
    }
)


@settings(max_examples=120, deadline=None)
@given(SCENARIOS)
def test_every_request_is_accounted_for(changes: dict[str, Any]) -> None:
    try:
        result = serve(changes)
    except InfeasibleError:
        event("does not fit")
        return
    counts = result.summary["infersim"]["requests"]
    if changes["run.horizon"] is None:
        assert counts["unfinished"] == counts["not_arrived"] == 0
    assert counts["submitted"] + counts["not_arrived"] == changes["run.requests"]
    for fate in ("completed", "rejected", "unfinished"):
        event(f"some {fate}: {counts[fate] > 0}")
    event(f"preemptions: {result.summary['infersim']['preemptions'] > 0}")


@settings(max_examples=40, deadline=None)
@given(SCENARIOS)
def test_leaps_change_nothing(changes: dict[str, Any]) -> None:
    try:
        leaping, stepping = (serve(changes | {"run.leap": leap}) for leap in (True, False))
    except InfeasibleError:
        return
    pd.testing.assert_frame_equal(leaping.requests, stepping.requests, check_exact=True)
