"""Both ends of the error band: when they are simulated, and what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import sim
from calibrate.scoring.whole_runs import errors_by_kind
from sim import catalog
from sim.band_runs import _text, at_end, run_ends
from sim.catalog.spreads import related
from sim.catalog.whole_runs import whole_run_errors, whole_runs_text
from sim.metrics.bands.end_times import EndTimes
from sim.simulation import simulate
from tests.places import ROOT, VLLM

CHAT = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 25},
        "prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
        "output_tokens": {"kind": "lognormal", "mean": 220, "p95": 600, "max": 1500},
    },
    "slo": {"ttft": "500ms", "tpot": "40ms", "attainment": 0.99},
    "run": {"requests": 1500, "warmup": 0},
}


def chat(**changes: object) -> sim.Scenario:
    return sim.load_scenario(CHAT).override(changes)


def test_ends_are_the_run_with_all_times_multiplied() -> None:
    scenario = chat()
    summary = simulate(scenario).summary
    ends = run_ends(scenario, summary)
    assert ends is not None
    error = summary["infersim"]["error_band"]["throughput"]
    assert ends["error"] == error > 0.01
    slower = scenario.override({"assume.kernel_time": 1 + error, "assume.host_time": 1 + error})
    again = simulate(slower).summary
    assert ends["slower"]["p99_tpot_ms"] == again["p99_tpot_ms"]
    assert ends["slower"]["verdict"]["attainment"] == again["infersim"]["verdict"]["attainment"]


def test_latencies_of_the_run_lie_between_its_ends_and_move_by_more_than_the_band() -> None:
    scenario = chat()
    summary = simulate(scenario).summary
    ends = run_ends(scenario, summary)
    assert ends is not None
    for key in ("p99_ttft_ms", "p99_tpot_ms", "mean_e2el_ms"):
        low, high = ends["faster"][key], ends["slower"][key]
        assert low < summary[key] < high
        assert high / summary[key] - 1 > ends["error"], "near saturation a band is amplified"


def test_ranges_read_upwards_and_say_when_the_faster_end_is_the_longer() -> None:
    """In a retry storm the faster end answers more late requests, whose latencies then count."""
    judged = {"slo_met": False, "slo_state": "missed", "slo_doubts": [], "state": "overloaded"}
    ends = {
        "error": 0.1,
        "faster": {"p95_ttft_ms": 13_700.0, "p95_tpot_ms": 50.0,
                   "verdict": {**judged, "attainment": 0.1605}},
        "slower": {"p95_ttft_ms": 4_680.0, "p95_tpot_ms": 60.0,
                   "verdict": {**judged, "attainment": 0.1643}},
    }  # fmt: skip
    summary = {"p95_ttft_ms": 9_000.0, "p95_tpot_ms": 44.0}
    assert _text(summary, ends, "p95") == (
        "With iterations that take 0.91 to 1.10 times as long, and all else as predicted, TTFT "
        "p95 is 4.68 s to 13.7 s, the longer one if faster, TPOT p95 is 50 ms to 60 ms (chance "
        "moves it more: 44 ms as predicted), 16.05% to 16.43% of requests are within the SLO "
        "(missed at both ends)."
    )


def test_an_slo_met_at_one_end_only_is_too_close_to_call() -> None:
    scenario = chat()
    result = simulate(scenario)
    found = run_ends(scenario, result.summary)
    assert found is not None
    result.add_ends(found)
    ends = result.summary["infersim"]["ends"]
    assert ends["faster"]["verdict"]["slo_met"]
    assert not ends["slower"]["verdict"]["slo_met"]
    assert not ends["decided"]
    assert "met only if faster" in ends["text"]
    assert result.summary["infersim"]["verdict"]["slo_state"] == "too close to call"


def test_a_verdict_does_not_call_an_open_slo_missed() -> None:
    light = chat(**{"workload.arrivals.rate": 12})
    limit = 0.96 * simulate(light).summary["median_tpot_ms"]  # 5 % faster iterations keep it
    asked = {"slo.ttft": None, "slo.tpot": None, "slo.tpot_p50": f"{limit!r}ms"}
    scenario = light.override(asked)
    result = simulate(scenario)
    assert "The SLO is missed all the same" in result.summary["infersim"]["verdict"]["text"]
    found = run_ends(scenario, result.summary)
    assert found is not None
    result.add_ends(found)
    verdict = result.summary["infersim"]["verdict"]
    assert verdict["slo_state"] == "too close to call"
    assert "missed all the same" not in verdict["text"]
    assert "At the predicted times the SLO is missed" in verdict["text"]


def test_a_run_far_from_its_limits_and_from_saturation_is_not_run_again() -> None:
    scenario = chat(**{"workload.arrivals.rate": 2})
    assert run_ends(scenario, simulate(scenario).summary) is None


def test_a_low_load_near_a_limit_is_run_again() -> None:
    scenario = chat(**{"workload.arrivals.rate": 2, "slo.tpot": "10ms"})
    assert run_ends(scenario, simulate(scenario).summary) is not None


def test_an_engine_without_error_has_no_ends() -> None:
    scenario = chat()
    summary = simulate(scenario).summary
    summary["infersim"]["error_band"]["throughput"] = 0.0
    assert run_ends(scenario, summary) is None


def test_factors_come_on_top_of_what_is_assumed() -> None:
    scenario = at_end(chat(**{"assume.kernel_time": 1.5}), EndTimes(1.25))
    assert scenario.assume.kernel_time == pytest.approx(1.875)
    assert scenario.assume.host_time == 1.25


def published(evidence: dict[str, Any], part: str) -> dict[tuple[str, str], Any]:
    """Rows, median and p90 by kind of measurement and metric."""
    return dict(errors_by_kind(evidence[part]))


def test_whole_run_errors_are_those_of_the_evidence(evidence: dict[str, Any]) -> None:
    dense = published(evidence, "dense")
    assert len(dense) > 20
    for engine, names in {
        "vllm": ("closed loop, vllm", "replay, vllm"),
        "tensorrt-llm": ("closed loop, tensorrt-llm", "online, tensorrt-llm"),
        "tensorrt-llm-pytorch": ("offline, tensorrt-llm-pytorch",),
    }.items():
        mine = {(e.kind, e.of): (e.rows, e.median, e.p90) for e in whole_run_errors(engine)}
        theirs = {
            (kind.removesuffix(f", {engine}"), of): figures
            for (kind, of), figures in dense.items()
            if kind in names
        }
        assert mine == theirs, f"{engine}: sim/catalog/whole_runs.yaml is out of date"


@pytest.mark.parametrize("engine", ["sglang"])
def test_dense_models_that_every_row_has_alone(engine: str, evidence: dict[str, Any]) -> None:
    theirs = {
        (of, *figures)
        for (kind, of), figures in published(evidence, "every").items()
        if kind == f"closed loop, {engine}"
    }
    assert {of for of, *_ in theirs} == {"TTFT", "TPOT"}
    mine = whole_run_errors(engine)
    assert {(e.of, e.rows, e.median, e.p90) for e in mine} == theirs
    assert {e.models for e in mine} == {"Qwen3-32B, Llama-3.1-8B"}


def test_whole_run_errors_of_experts_are_those_of_the_evidence(evidence: dict[str, Any]) -> None:
    theirs = set()
    for (kind, of), figures in published(evidence, "every").items():
        name, _, engine = kind.removesuffix(", experts").rpartition(", ")
        if kind.endswith(", experts") and engine in catalog.names("engines"):
            theirs.add((engine, name, of, *figures))
    assert len(theirs) > 10
    mine = {
        (engine, e.kind, e.of, e.rows, e.median, e.p90)
        for engine in catalog.names("engines")
        for e in whole_run_errors(engine, experts=True)
        if related(engine) == engine
    }
    assert mine == theirs, "sim/catalog/whole_runs.yaml is out of date"


CARDS = {"h100-sxm": "H100-SXM", "a100-sxm-80gb": "A100", "rtx-4090": "RTX 4090"}
SOURCES = {
    "closed_loop.csv": {"vllm": "vllm", "trtllm": "tensorrt-llm"},
    "vllm_rtx4090_llama-3.1-8b": {"vLLM": "vllm"},
}


def test_gpus_and_models_of_whole_runs_are_those_of_the_evidence(evidence: dict[str, Any]) -> None:
    found: dict[str, set[tuple[str, str]]] = {}
    for each in evidence["dense"]["sources"]:
        if each["engine"] in SOURCES.get(each["source"], {}):
            engine = SOURCES[each["source"]][each["engine"]]
            found.setdefault(engine, set()).add((each["gpu"], each["model"]))
    assert set(found) == set().union(*(engines.values() for engines in SOURCES.values()))
    for engine, rows in found.items():
        mine = whole_run_errors(engine)
        named = {card for card, name in CARDS.items() if any(name in gpu for gpu, _ in rows)}
        assert {gpu for each in mine for gpu in each.gpus} == named, engine
        families = " ".join(each.models for each in mine).lower()
        for _, model in rows:
            word = re.split(r"[-/ ]", model.removeprefix("meta-llama/"))[0].lower()
            assert word in families or word.rstrip("2") in families, model
    assert {each.models for each in whole_run_errors("vllm")} == {"Llama-3.1-70B", "Llama-3.1-8B"}


def said(**changes: Any) -> str:
    summary = simulate(chat(**{"run.requests": 30, **changes})).summary
    return str(summary["infersim"]["whole_runs"]["text"])


def test_what_is_known_of_whole_runs_names_where_they_ran() -> None:
    closed = {"workload.arrivals": {"kind": "closed", "concurrency": 4}}
    text = said(**closed)
    assert "closed loop, Llama-3.1-70B on h100-sxm: TTFT 4 / 10 %, TPOT 11 / 18 %." in text
    assert "None of them" not in text
    assert said(engine="vllm@0.18", **closed) == text  # which differs by a single time
    assert said().endswith(" None of them with requests that arrive at a rate.")
    assert said(**{"scheduler.batching": "static"}).endswith(" None of them with static batches.")
    other = "No published run of vllm on l40s was compared with its prediction."
    assert said(**{"fleet.0.gpu": "l40s", **closed}) == other
    both = whole_runs_text("vllm", ["h100-sxm", "l40s"], "online")
    assert both.endswith(" None of them with l40s, nor with requests that arrive at a rate.")


def test_run_writes_the_ends_into_the_summary_on_disk(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sim.cli import app

    out = tmp_path / "run"
    args = ["run", str(ROOT / "scenarios" / "chat.yaml"), "--set", "workload.arrivals.rate=25"]
    args += ["--set", "run.requests=800", "--no-report", "-o", str(out)]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["infersim"]["ends"]["slower"]["p99_ttft_ms"] > summary["p99_ttft_ms"]
    assert "With iterations that take" in done.output
    assert "Whole published runs of vllm" in done.output


@pytest.mark.slow
def test_find_gives_the_highest_load_at_both_ends() -> None:
    """In runs as long as usual: by chance in brief ones the two answers are a tenth apart."""
    from sim.planning.load.find import find
    from sim.planning.load.find_document import document
    from tests.planning_fixtures import small

    slo = {"ttft": "80ms", "tpot": "14ms", "attainment": 0.9}
    scenario = small(run__requests=100, slo=slo)
    found = find(scenario, "rate", tolerance=0.04)
    assert found.ends is not None
    assert found.ends.error == found.best.error
    assert found.best.band is not None
    assert found.ends.first_tokens[1] > 1
    slower = find(at_end(scenario, found.best.band.ends[1]), "rate", tolerance=0.04)
    assert found.ends.slower is not None
    assert found.ends.slower == pytest.approx(slower.best.load, rel=0.08)
    assert found.ends.slower < found.best.load < (found.ends.faster or float("inf"))
    written = document(found)
    assert written["ends"]["slower"] == found.ends.slower
    assert any(
        "times as long as predicted, and TTFT a further" in line for line in written["sentences"]
    )
