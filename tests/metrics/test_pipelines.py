"""Whole runs of pipelines: what is refused, what the summary says, published orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import UsageError
from sim.units import show_share
from tests.golden_scenarios import changed

BASE: dict[str, Any] = {
    "model": "llama-2-13b",
    "fleet": {"gpu": "a100-sxm-80gb", "price_per_gpu_hour": 2.0},
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 48},
        "prompt_tokens": {"kind": "fixed", "value": 500},
        "output_tokens": {"kind": "uniform", "low": 50, "high": 150},
    },
    "run": {"requests": 150, "warmup": 0},
}


def run(**changes: Any) -> sim.Result:
    found = {key.replace("__", "."): value for key, value in changes.items()}
    return sim.simulate(changed(BASE, found))


@pytest.fixture(scope="module")
def piped() -> sim.Result:
    return run(fleet__pipeline_parallel=4)


def test_the_summary_says_what_the_stages_did(piped: sim.Result) -> None:
    own = piped.summary["infersim"]
    found = own["pipeline"]
    assert found["stages"] == 4
    assert found["layers"] == [10, 10, 10, 10]
    assert 0 < found["idle"] < 1
    assert 0 < found["waiting"] < 1
    assert 1 < found["batches"] <= 4
    assert own["gpus"] == 4
    rows = piped.timeseries
    took = rows["end_s"] - rows["start_s"]
    assert found["waiting"] == pytest.approx((rows["waited_s"] / took).mul(took).sum() / took.sum())
    busy = rows["computing_s"].sum() / (4 * piped.summary["duration"])
    assert found["idle"] == pytest.approx(1 - busy)


def test_a_note_says_how_large_the_bubbles_are(piped: sim.Result) -> None:
    own = piped.summary["infersim"]
    (note,) = [note for note in own["notes"] if "stages of a pipeline" in note]
    assert f"compute nothing in {show_share(own['pipeline']['idle'])} of the time" in note
    assert f"in {show_share(own['pipeline']['waiting'])} of theirs" in note


def test_busy_time_is_that_of_operators_and_the_host(piped: sim.Result) -> None:
    """What a batch waits for others is in neither."""
    record = piped.record
    took = float((record.plans["end"] - record.plans["start"] - record.plans["waited"]).sum())
    assert record.attribution.seconds == pytest.approx(took)
    assert "pipeline send" in piped.summary["infersim"]["time_by_operator"]


def test_the_cache_is_one_for_all_batches(piped: sim.Result) -> None:
    """Its mean use, from the rows in order of time, by hand."""
    rows = piped.timeseries.sort_values("start_s", kind="stable")
    start, end = rows["start_s"].to_numpy(), np.maximum.accumulate(rows["end_s"].to_numpy())
    lasting = np.minimum(np.append(start[1:], np.inf), end) - start
    kv = piped.summary["infersim"]["kv_cache"]
    usable = kv["tokens"] - kv["block_size"]
    used = (rows["kv_used_tokens"] * lasting).sum() / piped.summary["duration"] / usable
    assert kv["mean_used"] == pytest.approx(used)
    assert (rows["kv_used_tokens"] <= rows["kv_reserved_tokens"]).all()


def test_without_stages_there_is_no_such_section() -> None:
    assert "pipeline" not in run(run__requests=5).summary["infersim"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheduler.batching": "static"}, "static batching is not simulated with several batches"),
        ({"scheduler.policy": "vllm-v0"}, "policy: vllm-v0 is not simulated"),
        (
            {"scheduler.order": "priority"},
            "an order that preempts the newest \\(fcfs, sjf or fair\\)",
        ),
        ({"fleet.data_parallel": 2}, "the 2 data ranks of one engine cannot be pipelines of 2"),
        ({"fleet.pipeline_parallel": 64}, "64 stages cannot share the 40 layers"),
    ],
)
def test_what_cannot_be_combined_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sim.simulate(changed(BASE, {"fleet.pipeline_parallel": 2, **changes}))


def test_published_orders_of_layouts_of_four_gpus() -> None:
    """Llama-13B on four A100 under TensorRT-LLM at 3 requests/s: a p90 of 6.4 s by TP 4, 10.2 s by
    TP 2 x PP 2, and PP 4 cannot sustain it (NVIDIA/TensorRT-LLM, issue 1144). Token times order
    alike here, in batches that memory traffic bounds."""
    layouts = [{"tensor": 4, "pipeline": 1}, {"tensor": 2, "pipeline": 2}, {"pipeline": 4}]
    found = [
        run(**{f"fleet__{key}_parallel": value for key, value in layout.items()}).summary
        for layout in layouts
    ]
    by_token = [summary["mean_tpot_ms"] for summary in found]
    by_request = [summary["p90_e2el_ms"] for summary in found]
    assert by_token == sorted(by_token)
    assert by_request == sorted(by_request)
    # TP 4 decodes nearly three times as fast as PP 4 (vllm-project/vllm, issue 15330)
    assert 1.5 < by_token[2] / by_token[0] < 4
