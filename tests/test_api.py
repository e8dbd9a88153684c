"""The Python API: what ``import sim`` offers, and that a simulation only computes."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sim
from sim.errors import InfeasibleError, ScenarioError, UsageError
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.result import Result
from sim.routers import LeastOutstanding

SCENARIO = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "max_model_len": 1024,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 50},
        "prompt_tokens": {"kind": "lognormal", "mean": 100, "p95": 300, "max": 500},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    },
    "run": {"requests": 150},
}
TRAFFIC = ["arrival_s", "prompt_tokens", "output_tokens"]


@pytest.fixture
def scenario() -> sim.Scenario:
    return sim.load_scenario(SCENARIO)


# -- what there is -------------------------------------------------------------------------------


def test_names() -> None:
    assert sim.__all__ == sorted(sim.__all__)
    decisions = {"Answer", "compare", "find", "plan", "report", "sweep"}
    assert set(sim.__all__) == decisions | {"Result", "Scenario", "load_scenario", "simulate"}
    assert set(sim.__all__) <= set(dir(sim))
    for name in sim.__all__:
        assert getattr(sim, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'simluate'"):
        sim.simluate  # noqa: B018


def test_from_a_scenario_to_a_run_directory(scenario: sim.Scenario, tmp_path: Path) -> None:
    changed = scenario.override({"workload.arrivals.rate": 20, "name": "api"})
    assert scenario.workload.arrivals != changed.workload.arrivals
    result = sim.simulate(changed)
    assert isinstance(result, sim.Result)
    assert result.summary["completed"] == 150
    assert 0 < result.summary["p50_ttft_ms"] <= result.summary["p99_ttft_ms"]
    assert result.summary["infersim"]["scenario"] == "api"
    assert isinstance(result.requests, pd.DataFrame)
    assert isinstance(result.timeseries, pd.DataFrame)
    assert len(result.requests) == 150
    assert result.scenario is changed
    directory = result.save(tmp_path / "new" / "run")
    assert directory == tmp_path / "new" / "run"
    assert (directory / "summary.json").is_file()
    assert result.save(str(tmp_path / "text")) == tmp_path / "text"


def test_a_file_and_a_mapping_mean_the_same(scenario: sim.Scenario, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario.to_yaml(), encoding="utf-8")
    for source in (path, str(path)):
        assert sim.load_scenario(source) == scenario
        assert sim.simulate(sim.load_scenario(source)).summary == sim.simulate(scenario).summary


def test_mistakes_are_errors_of_the_tree(scenario: sim.Scenario) -> None:
    with pytest.raises(ScenarioError, match="did you mean 'rate'"):
        scenario.override({"workload.arrivals.rat": 20})
    with pytest.raises(InfeasibleError, match="does not fit"):
        sim.simulate(scenario.override({"model": "llama-3.1-70b"}))
    with pytest.raises(UsageError, match="131,072"):
        sim.simulate(scenario.override({"max_model_len": 1_000_000}))


# -- a simulation only computes ------------------------------------------------------------------


def test_simulate_writes_and_prints_nothing(
    scenario: sim.Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    result = sim.simulate(scenario)
    assert result.summary
    assert len(result.requests)
    assert len(result.timeseries)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_simulate_changes_nothing_it_was_given(scenario: sim.Scenario) -> None:
    before = scenario.to_yaml()
    first, second = sim.simulate(scenario), sim.simulate(scenario)
    assert scenario.to_yaml() == before
    assert first.summary == second.summary
    pd.testing.assert_frame_equal(first.requests, second.requests, check_exact=True)


def test_simulate_in_a_thread(scenario: sim.Scenario) -> None:
    expected, results = sim.simulate(scenario).summary, []
    threads = [
        threading.Thread(target=lambda: results.append(sim.simulate(scenario).summary))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 3


def test_progress_is_told(scenario: sim.Scenario) -> None:
    told: list[tuple[int, int]] = []
    sim.simulate(
        scenario.override({"run.requests": 9000}),
        progress=lambda done, total: told.append((done, total)),
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {9000}
    assert len(told) >= 3


def test_leap_argument_overrides_the_scenario(scenario: sim.Scenario) -> None:
    stepping = sim.simulate(scenario, leap=False)
    assert (stepping.timeseries["iterations"] == 1).all()
    slow = scenario.override({"run.leap": False})
    assert (sim.simulate(slow).timeseries["iterations"] == 1).all()
    assert (sim.simulate(slow, leap=True).timeseries["iterations"] > 1).any()
    pd.testing.assert_frame_equal(stepping.requests, sim.simulate(scenario).requests)


# -- common random numbers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"scheduler.batching": "static"},
        {"scheduler.batching": "request"},
        {"scheduler.max_num_seqs": 3, "scheduler.policy": "vllm-v0"},
        {"kv_cache.num_gpu_blocks": 70},
        {"kv_cache.allocator": "contiguous"},
        {"fleet.0.replicas": 4, "router": "round-robin"},
        {"fleet.0.gpu": "a100-sxm-80gb", "engine": "transformers"},
        {"model": "mistral-7b", "precision.kv_cache": "fp8"},
        {"run.horizon": "1h", "run.warmup": 10, "slo.ttft": "1s"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_policy_sees_the_same_traffic(
    scenario: sim.Scenario, changes: dict[str, Any]
) -> None:
    same, other = sim.simulate(scenario), sim.simulate(scenario.override(changes))
    pd.testing.assert_frame_equal(other.requests[TRAFFIC], same.requests[TRAFFIC], check_exact=True)


def test_rate_and_length_laws_leave_the_other_draws_alone(scenario: sim.Scenario) -> None:
    base = sim.simulate(scenario).requests
    faster = sim.simulate(scenario.override({"workload.arrivals.rate": 100})).requests
    assert (faster["arrival_s"] * 2 == base["arrival_s"]).all()
    pd.testing.assert_frame_equal(faster[TRAFFIC[1:]], base[TRAFFIC[1:]])
    longer = sim.simulate(scenario.override({"workload.output_tokens.high": 90})).requests
    pd.testing.assert_frame_equal(longer[TRAFFIC[:2]], base[TRAFFIC[:2]])
    assert (longer["output_tokens"] != base["output_tokens"]).any()


def test_prompts_and_answers_of_one_law_are_drawn_apart(scenario: sim.Scenario) -> None:
    law = {"kind": "uniform", "low": 1, "high": 500}
    changes = {"workload.prompt_tokens": law, "workload.output_tokens": law}
    rows = sim.simulate(scenario.override(changes)).requests
    assert abs(rows["prompt_tokens"].corr(rows["output_tokens"])) < 0.3


def test_a_closed_loop_has_the_lengths_of_open_traffic(scenario: sim.Scenario) -> None:
    closed = scenario.override({"workload.arrivals": {"kind": "closed", "concurrency": 5}})
    pd.testing.assert_frame_equal(
        sim.simulate(closed).requests[TRAFFIC[1:]], sim.simulate(scenario).requests[TRAFFIC[1:]]
    )


# -- interrupts ----------------------------------------------------------------------------------


def interrupt_at(call: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, but Ctrl-C is pressed as its ``call``-th call begins."""
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    return interrupted


def simulate_interrupted(
    monkeypatch: pytest.MonkeyPatch, place: type, method: str, call: int, **changes: Any
) -> Result:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(place, method, interrupt_at(call, getattr(place, method)))
        overrides = {"fleet.0.replicas": 2, **changes}
        result = sim.simulate(sim.load_scenario(SCENARIO).override(overrides))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return result
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("place", "method"),
    [
        (Replica, "submit"),
        (LeastOutstanding, "choose"),
        (Replica, "account"),
        (Recorder, "close"),
        (Recorder, "reject"),
    ],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_an_interrupt_anywhere_loses_no_request(
    monkeypatch: pytest.MonkeyPatch, place: type, method: str, batching: str
) -> None:
    changes = {"scheduler.batching": batching, "scheduler.max_num_seqs": 20, "max_model_len": 300}
    result = simulate_interrupted(monkeypatch, place, method, 3, **changes)
    rows, summary = result.requests, result.summary
    counts = summary["infersim"]["requests"]
    assert result.interrupted
    assert summary["infersim"]["interrupted"] is True
    assert any("Interrupted" in note for note in summary["infersim"]["notes"])
    assert rows["request_id"].tolist() == list(range(len(rows)))
    assert counts["submitted"] == len(rows) < 150
    assert counts["submitted"] + counts["not_arrived"] == 150
    assert len(rows) == sum(counts[fate] for fate in ("completed", "rejected", "unfinished"))
    left = rows[rows["status"] == "unfinished"]
    assert (left["generated_tokens"] <= left["output_tokens"]).all()
    assert ((left["generated_tokens"] > 0) == left["first_token_s"].notna()).all()
