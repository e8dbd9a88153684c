"""Whole runs: nobody is lost, nothing precedes its cause, and the policies differ as they must."""

import json
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import sim
from sim import catalog
from sim.errors import InfeasibleError
from sim.growth.leaps import Leaps
from sim.loop.recorder import GAVE_UP
from sim.metrics.latency.gaps import Gaps
from sim.result import Result
from sim.results.tables import request_columns, timeseries_columns

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


@lru_cache(maxsize=2)
def tables(result: Result) -> tuple[SimpleNamespace, SimpleNamespace]:
    """The columns of ``requests`` and ``timeseries`` as arrays, which are made and compared much
    faster than data frames."""
    requests, plans = request_columns(result.record), timeseries_columns(result.record)
    return SimpleNamespace(**requests), SimpleNamespace(**plans)


def check_requests(result: Result) -> None:
    """Each request has one fate, and its times are in the order in which things happen."""
    rows, counts = tables(result)[0], result.summary["infersim"]["requests"]
    assert rows.request_id.tolist() == list(range(len(rows.status)))
    assert (np.diff(rows.arrival_s) >= 0).all()
    done, refused, left = (rows.status == s for s in ("completed", "rejected", "unfinished"))
    gone, tried = rows.status == "gave up", result.record.attempts is not None
    assert (done.astype(int) + refused + left + gone == 1).all()
    assert int(gone.sum()) == counts.get("gave_up", 0)
    assert len(rows.status) == counts["submitted"]
    fates = {"completed": done, "rejected": refused, "unfinished": left}
    assert {fate: int(which.sum()) for fate, which in fates.items()} == {
        k: counts[k] for k in fates
    }
    assert sum(counts["rejected_reasons"].values()) == counts["rejected"]
    assert (pd.notna(rows.reason) == refused | gone).all()
    assert (rows.replica == -1)[refused].all()
    # where a pool has no replica at times, requests wait at the gateway, perhaps until the end
    waits = any(pool.settings.scales is not None for pool in result.record.pools)
    assert tried or (rows.replica >= 0)[~refused & ~(left if waits else gone)].all()

    assert (rows.generated_tokens == rows.output_tokens)[done].all()
    assert (rows.arrival_s <= rows.scheduled_s)[done].all()
    assert (rows.scheduled_s < rows.first_token_s)[done].all()
    assert (rows.first_token_s <= rows.finish_s)[done].all()
    one_token = rows.output_tokens == 1
    assert ((rows.first_token_s == rows.finish_s) == one_token)[done].all()
    assert (np.isnan(rows.tpot_s) == one_token)[done].all()
    for late in (rows.finish_s, rows.e2el_s, rows.tpot_s):
        assert np.isnan(late)[~done].all()

    assert (rows.generated_tokens < rows.output_tokens)[left].all()
    started = rows.generated_tokens > 0
    assert (started == ~np.isnan(rows.first_token_s)).all()
    assert not np.isnan(rows.scheduled_s[started]).any()
    for nothing in (rows.scheduled_s, rows.first_token_s, rows.queue_s, rows.ttft_s):
        assert np.isnan(nothing)[refused].all()


def check_plans(result: Result) -> None:
    """A replica runs one iteration at a time, within its seats, its token budget and its memory."""
    plans = tables(result)[1]
    assert (plans.end_s > plans.start_s).all()
    assert (plans.iterations >= 1).all()
    sequences = plans.decode_seqs + plans.prefill_seqs
    # drafts planned ahead may be computed for requests that have ended
    assert ((sequences > 0) | (result.record.plans["computed"] > 0)).all()
    assert (sequences <= plans.running).all()
    assert (plans.kv_used_tokens <= plans.kv_reserved_tokens).all()
    for pool in result.record.pools:
        scheduler, mine = pool.settings.scheduler, np.isin(plans.replica, pool.settings.numbers)
        for replica in pool.settings.engines:
            own = plans.replica == replica
            order = np.argsort(plans.start_s[own])
            assert (plans.start_s[own][order][1:] >= plans.end_s[own][order][:-1]).all()
        assert (plans.running[mine] <= scheduler.max_num_seqs).all()
        usable = pool.capacity.usable_blocks * pool.capacity.block_size
        assert (plans.kv_reserved_tokens[mine] <= usable).all()
        if scheduler.batching == "continuous" and scheduler.chunked_prefill:
            drafts = pool.deployment.speculation
            slots = 1
            if drafts is not None:
                slots = drafts.slots_of(0) + plans.drafts_per_sequence
            tokens = slots * plans.decode_seqs + plans.prefill_tokens
            assert (tokens[mine] <= scheduler.max_num_batched_tokens).all()


def check_totals(result: Result) -> None:
    """Tokens counted by request, by plan and by gap agree; every share is a share."""
    (rows, plans), summary = tables(result), result.summary
    own = summary["infersim"]
    json.dumps(summary, allow_nan=False)
    generated, started = rows.generated_tokens.sum(), (rows.generated_tokens > 0).sum()
    if result.record.attempts is not None:
        earlier = earlier_attempts(result)["generated"]
        generated, started = generated + earlier.sum(), started + (earlier > 0).sum()
    decoded = Leaps.saved(vars(plans)).tokens().sum()
    # a prefill brings one token; a preempted request is prefilled again
    if result.record.attempts is None or not own["preemptions"]:
        assert decoded + started + own["resumptions"] == generated
    assert own["resumptions"] <= own["preemptions"]
    done = rows.status == "completed"
    assert summary["total_input_tokens"] == rows.prompt_tokens[done].sum()
    assert summary["total_output_tokens"] == rows.generated_tokens[done].sum()
    check_gaps(result)
    shares = [*own["utilisation"].values(), *own["bound_by"].values()]
    shares += own["time_by_operator"].values()
    shares += [own["kv_cache"][key] for key in ("mean_used", "peak_used", "mean_reserved")]
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares), shares
    if len(plans.start_s):
        assert sum(own["bound_by"].values()) == pytest.approx(1)
        assert sum(own["time_by_operator"].values()) == pytest.approx(1)


def earlier_attempts(result: Result) -> np.ndarray:
    """The rows of attempts after which their request was sent again, or was to be."""
    run = result.record
    assert run.attempts is not None
    failed = run.attempts.failed
    sent = 1 + np.bincount(run.attempts.again["request"], minlength=len(run.requests))
    last = failed["attempt"] == sent[failed["request"]]
    return failed[~(last & (run.requests["status"][failed["request"]] == GAVE_UP))]


def check_gaps(result: Result) -> None:
    """Gaps between deliveries: one per token after the first, less where several come at once, and
    they add up to the time they span."""
    rows, record = tables(result)[0], result.record
    leaps = Leaps.recorded(record.plans)
    together = leaps.tokens().sum() - (leaps.sequences * leaps.times).sum()
    seconds, weights = Gaps.recorded(record.plans, record.gaps).written_out()
    assert (seconds >= 0).all()
    assert (weights >= 0).all()
    between = np.maximum(rows.generated_tokens - 1, 0).sum()
    if record.attempts is not None:
        between += np.maximum(earlier_attempts(result)["generated"] - 1, 0).sum()
    if record.attempts is None or not result.summary["infersim"]["preemptions"]:
        assert weights.sum() == between - together
    if record.attempts is None and not (rows.status == "unfinished").any():
        spanned = np.nansum(rows.finish_s - rows.first_token_s)
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


def test_a_client_thinks_after_a_refusal_as_after_an_answer() -> None:
    clients = {"kind": "closed", "concurrency": 1, "think_time": 2.0}
    rows = serve({"workload.arrivals": clients, "max_model_len": 150}).requests
    assert set(rows["status"]) == {"completed", "rejected"}
    answered = rows["finish_s"].fillna(rows["arrival_s"]).to_numpy()
    assert np.diff(rows["arrival_s"]) == pytest.approx(answered[:-1] - rows["arrival_s"][:-1] + 2.0)


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


def test_static_batches_of_too_few_clients_run_before_a_horizon_too() -> None:
    changes = {
        "scheduler.batching": "static",
        "workload.arrivals": {"kind": "closed", "concurrency": 5},
        "run.horizon": "1h",
    }
    rows = serve(changes).requests
    assert (rows["status"] == "completed").all()
    assert len(rows) == 60


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
@pytest.mark.parametrize("horizon", [None, 0.4, 0.7])
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
        {"kind": "poisson", "rate": 400},
        {"kind": "closed", "concurrency": 100},
    ],
    ids=lambda arrivals: arrivals["kind"],
)
def test_least_outstanding_shares_the_load(arrivals: dict[str, Any]) -> None:
    counts = shares(serve(MIXED | {"workload.arrivals": arrivals, "run.requests": 4000}))
    assert sum(counts) == 4000
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
    assert batches["size"].nunique() > 1
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


def test_blocks_of_one_token_waste_nothing() -> None:
    kv = serve({"kv_cache.block_size": 1, "engine": "vllm"}).summary["infersim"]["kv_cache"]
    assert 0 <= kv["fragmentation"] < 1e-4


# -- any small scenario --------------------------------------------------------------------------

RATES = st.sampled_from([2.0, 25.0, 200.0, 1000.0])
ARRIVALS = st.one_of(
    st.just({"kind": "burst"}),
    st.fixed_dictionaries({"kind": st.sampled_from(["poisson", "constant"]), "rate": RATES}),
    st.fixed_dictionaries(
        {"kind": st.just("gamma"), "rate": RATES, "cv": st.sampled_from([0.5, 3])}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("closed"),
            "concurrency": st.integers(1, 20),
            "think_time": st.sampled_from([0.0, 0.05, 1.0]),
        }
    ),
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Changes to the base scenario that make every limit bind now and then."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    tokens = draw(st.sampled_from([None, 100, 150, 250, 400, 1000]))  # of KV memory
    changes = {
        "kv_cache.num_gpu_blocks": None if tokens is None else tokens // block_size + 1,
        "kv_cache.block_size": block_size,
        "workload.arrivals": draw(ARRIVALS),
        "seed": draw(st.integers(0, 1000)),
    }
    choices = {
        "engine": ["ideal", "vllm", "transformers"],
        "scheduler.batching": ["continuous", "request", "static"],
        "scheduler.chunked_prefill": [True, False],
        "scheduler.scheduler_reserve_full_isl": [True, False],
        "scheduler.batch_timeout": [0.0, 0.05, 2.0],
        "scheduler.max_num_seqs": [1, 3, 6, 16],
        "scheduler.max_num_batched_tokens": [16, 50, 200, 8192],
        "kv_cache.allocator": ["paged", "paged", "contiguous"],
        "max_model_len": [100, 200],
        "fleet.0.replicas": [1, 2, 3],
        "router": ["round-robin", "least-outstanding"],
        "workload.prompt_tokens.high": [10, 40, 120],
        "workload.output_tokens.high": [60, 20, 1, 100],
        "run.requests": [40, 25, 10, 1],
        "run.horizon": [None, None, 0.003, 0.1, 0.5],
        "run.leap": [True, False],
    }
    return changes | {key: draw(st.sampled_from(values)) for key, values in choices.items()}


@given(scenarios())
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


PRESSURE = {
    "scheduler.batching": "continuous",
    "scheduler.max_num_seqs": 16,
    "kv_cache.allocator": "paged",
    "workload.arrivals": {"kind": "burst"},
    "workload.output_tokens.high": 60,
}


@given(scenarios(), st.sampled_from([130, 200, 300]))
def test_leaps_change_nothing_when_memory_is_short(changes: dict[str, Any], tokens: int) -> None:
    blocks = tokens // changes["kv_cache.block_size"] + 1
    changes |= PRESSURE | {"kv_cache.num_gpu_blocks": blocks}
    leaping, stepping = (serve(changes | {"run.leap": leap}) for leap in (True, False))
    event(f"preemptions: {leaping.summary['infersim']['preemptions'] > 0}")
    pd.testing.assert_frame_equal(leaping.requests, stepping.requests, check_exact=True)
    for total in ("completed", "total_output_tokens", "duration"):
        assert leaping.summary[total] == stepping.summary[total]


RANKS = [
    {"name": "patient", "share": 0.5, "priority": 2},
    {"name": "urgent", "share": 0.25, "priority": 0},
    {"name": "urgent-too", "share": 0.25, "priority": 0},
]


@st.composite
def starved(draw: st.DrawFn) -> dict[str, Any]:
    """Long answers in a small memory, under orders that preempt by rank."""
    block_size = draw(st.sampled_from([1, 2, 4]))
    choices: dict[str, list[Any]] = {
        "scheduler.order": ["priority", "priority", "edf", "fcfs"],
        "scheduler.max_num_seqs": [16, 64],
        "scheduler.max_num_batched_tokens": [64, 100, 200],
        "workload.arrivals.rate": [20, 100, 400],
        "workload.prompt_tokens.low": [10, 50],
        "workload.output_tokens.high": [60, 150],
        "seed": list(range(50)),
        "run.horizon": [None, None, 0.5],
    }
    return {key: draw(st.sampled_from(values)) for key, values in choices.items()} | {
        "workload.arrivals.kind": "poisson",
        "workload.prompt_tokens.high": 100,
        "workload.classes": RANKS,
        "kv_cache.block_size": block_size,
        "kv_cache.num_gpu_blocks": draw(st.integers(300, 700)) // block_size,
        "slo.ttft": "20ms",
        "run.requests": 25,
    }


@given(starved())
def test_the_rows_account_for_every_token_when_sequences_are_passed_over(
    changes: dict[str, Any],
) -> None:
    """Whoever is preempted, by whatever order: decodes, first tokens and resumptions are all there
    is, with leaps and without."""
    runs = [serve(changes | {"run.leap": leap}) for leap in (True, False)]
    leaping, stepping = (result.timeseries for result in runs)
    for name in ("prefill_seqs", "prefill_tokens", "preemptions"):
        assert leaping[name].sum() == stepping[name].sum(), name
    late = runs[0].record.plans["prefill_seqs"].sum() - leaping["prefill_seqs"].sum()
    event(f"passed over while decoding: {late > 0}")


def test_a_decode_that_was_passed_over_counts_as_a_decode() -> None:
    """Three urgent classes starve one another: seven decodes run as prompts of one token."""
    scenario = {
        "seed": 21,
        "model": "llama-3.2-3b",
        "fleet": {"gpu": "a10g"},
        "engine": "ideal",
        "scheduler": {"order": "priority", "max_num_batched_tokens": 64, "max_num_seqs": 64},
        "kv_cache": {"block_size": 2, "num_gpu_blocks": 501},
        "max_model_len": 500,
        "workload": {
            "arrivals": {"kind": "constant", "rate": 10},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 150},
            "classes": [each | {"share": 1 / 3} for each in RANKS],
        },
        "run": {"requests": 20, "warmup": 0},
    }
    for leap in (True, False):
        result = sim.simulate(sim.load_scenario(scenario), leap=leap)
        check_plans(result)
        check_totals(result)
        plans, executed = result.timeseries, result.record.plans
        assert (plans["decode_seqs"] * plans["iterations"]).sum() == 3000 - 20 - 18
        assert result.summary["infersim"]["resumptions"] == 18
        late = plans["decode_seqs"] - executed["decode"]
        assert late.sum() == 7
        assert ((plans["prefill_seqs"] + late) == executed["prefill_seqs"]).all()
        assert ((plans["prefill_tokens"] + late) == executed["prefill_tokens"]).all()
        grown = plans["decode_context"] - executed["context"]
        assert ((grown >= 100 * late) & (grown < 250 * late.clip(lower=1))).all()
