"""First tokens that SGLang hands out when the prompts behind them have been launched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.export.source import columns
from sim.metrics.latency.latency_parts import latency_parts
from sim.results.trail_files import absence_columns, chunk_columns
from sim.setup import prepare
from sim.trails.courses import Courses
from sim.trails.tokens import token_times

ASKED = {
    "model": "qwen3-32b",
    "fleet": {"gpu": "h100-sxm", "tensor_parallel": 4},
    "engine": "sglang@0.5.6",
    "scheduler": {"max_num_batched_tokens": 2048},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 2048},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
    "run": {"requests": 4, "warmup": 0},
}


def played(**changes: Any) -> sim.Result:
    return sim.simulate(sim.load_scenario({**ASKED, **changes}))


def test_a_first_token_waits_for_the_launch_of_the_prompts_behind_it() -> None:
    """The last prompt of a burst has none behind it."""
    record = played().record
    plans = record.plans[record.plans["prefill_seqs"] > 0]
    launched = prepare(sim.load_scenario(ASKED)).only.cost.launched
    gaps = plans["end"] - plans["start"]
    late = np.array([*[launched(gap) for gap in gaps[1:].tolist()], 0.0])
    assert (late[:-1] > 0.02).all()
    assert record.requests["first_token"] == pytest.approx(plans["end"] + late)


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "sglang"},  # prompts replay graphs
        {"scheduler": {"max_num_batched_tokens": 2048, "async_scheduling": False}},
        {"scheduler": {"max_num_batched_tokens": 2048, "enable_mixed_chunk": True}},
        {"engine": "vllm@0.14"},
    ],
)
def test_no_other_engine_hands_out_late(changes: dict[str, Any]) -> None:
    record = played(**changes).record
    assert np.isin(record.requests["first_token"], record.plans["end"]).all()


@pytest.mark.parametrize("leap", [True, False])
def test_all_that_is_said_of_tokens_agrees(leap: bool) -> None:
    """Token times by the saved courses, gaps between them, and parts of latencies."""
    workload = {**ASKED["workload"], "arrivals": {"kind": "closed", "concurrency": 4}}
    found = played(workload=workload, run={"requests": 40, "warmup": 0, "leap": leap})
    record = found.record
    assert record.trail is not None
    rows, plans = columns(found.requests), columns(found.timeseries)
    chunks, absences = record.trail
    courses = Courses(chunk_columns(chunks), absence_columns(absences), plans)
    times = list(token_times(rows, plans, courses))
    assert {how for _, how in times} == {"exact"}
    assert all((np.diff(each) >= 0).all() for each, _ in times)
    gaps = np.concatenate([np.diff(each) for each, _ in times])
    assert found.summary["mean_itl_ms"] == pytest.approx(1e3 * gaps.mean())
    parts = latency_parts(record)
    assert min(each.min() for each in parts.values()) >= 0
    whole = record.requests["finish"] - record.requests["arrival"]
    assert sum(parts.values()) == pytest.approx(whole)
