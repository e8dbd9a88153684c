"""What is computed block by block is the same to the last bit, however long the blocks are."""

from __future__ import annotations

import numpy as np
import pytest

import sim
from sim.loop.recorder import Recorder
from sim.metrics.latency.latency_parts import latency_parts
from sim.metrics.record import blocks
from sim.request import Request
from sim.result import Result

SCENARIO = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "l40s"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6.0},
        "prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
        "output_tokens": {"kind": "lognormal", "mean": 100, "p95": 300, "max": 600},
    },
    "kv_cache": {"num_gpu_blocks": 1000},
    "run": {"requests": 300},
}


def test_the_length_of_blocks_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sim.simulate(SCENARIO)
    in_blocks = Result(sim.simulate(SCENARIO).record)
    assert len(whole.record.plans) > 400
    assert whole.summary["infersim"]["preemptions"]
    charts, parts = whole.charts, latency_parts(whole.record)
    monkeypatch.setattr(blocks, "ROWS", 97)
    assert in_blocks.charts == charts
    for name, seconds in latency_parts(in_blocks.record).items():
        assert seconds.tobytes() == parts[name].tobytes(), name
    for key in ("mean_itl_ms", "std_itl_ms", "p50_itl_ms", "p99_itl_ms"):
        assert in_blocks.summary[key] == whole.summary[key]
    for key in ("kv_cache", "batch", "requests"):
        assert in_blocks.summary["infersim"][key] == whole.summary["infersim"][key]


def test_requests_are_sorted_where_they_were_recorded() -> None:
    recorder = Recorder()
    for number in (2, 0, 1):
        recorder.close(Request(number, 0.5 * number, 10 + number, 5), 0, 5, finish=9.0 - number)
    rows = recorder.request_rows()
    assert np.shares_memory(rows, recorder.request_rows())
    assert rows[["id", "arrival", "prompt_tokens", "finish"]].tolist() == [
        *((0, 0.0, 10, 9.0), (1, 0.5, 11, 8.0), (2, 1.0, 12, 7.0))
    ]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_of_memory_only_the_mean_of_reserved_blocks_differs_with_leaps(model: str) -> None:
    """``sim/LIMITS.md`` says by how much; windows give blocks back within a leap."""
    changes = {"model": model, "run.requests": 60, "workload.arrivals.rate": 0.3}
    scenario = sim.load_scenario("scenarios/chat.yaml", changes)
    leaps, steps = (
        sim.simulate(scenario, leap=leap).summary["infersim"]["kv_cache"] for leap in (True, False)
    )
    assert leaps["mean_used"] == pytest.approx(steps["mean_used"], rel=1e-12)
    for peak in ("peak_used", "peak_reserved"):
        assert leaps[peak] == steps[peak]
    assert leaps["mean_reserved"] == pytest.approx(steps["mean_reserved"], rel=4e-3)
    assert leaps["mean_reserved"] != steps["mean_reserved"]
