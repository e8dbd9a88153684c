"""How far a verdict depends on what is uncertain: known flips, stated ranges, what has none."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import InfeasibleError, UsageError
from sim.planning.causes.sensitivity import End, Swing, document, sensitivity
from sim.planning.causes.uncertain import RANGES, Input, read_range, read_ranges, uncertain
from sim.planning.points.executors import local
from sim.scenario import Scenario
from tests.answers import render_sensitivity, sensitivity_view
from tests.planning_fixtures import small


def told(scenario: Scenario, **ranges: tuple[float, float]) -> dict[str, Any]:
    return document(sensitivity(scenario, local(1), ranges=ranges))


@cache
def at_ease() -> dict[str, Any]:
    """A run that meets its SLO, long enough to be sure of it."""
    return told(small(run__requests=1500))


def inputs(of: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in of["inputs"]}


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [(-0.2, 0.1, 0.3), (0.1, 0.3, 0.3), (-0.3, -0.1, 0.3), (None, -0.2, 0.2), (None, None, 0.0)],
)
def test_a_swing_reaches_from_end_to_end_with_no_effect_between_or_at_one(
    low: float | None, high: float | None, width: float
) -> None:
    ends = [cast(End, SimpleNamespace(effect=effect)) for effect in (low, high)]
    assert Swing(cast(Input, None), *ends).width == pytest.approx(width)


def test_a_verdict_with_room_stands() -> None:
    found = at_ease()
    assert found["holds"] is True
    assert found["flips"] == []
    assert "no input alone flips it" in found["answer"]
    assert found["together"]["holds"] is True
    assert found["trust"] == "sure"
    assert found["answer"].endswith(" That is sure.")
    swings = [entry["width"] for entry in found["inputs"]]
    assert swings == sorted(swings, reverse=True)


def test_a_verdict_on_the_edge_names_what_flips_it() -> None:
    """TPOT sits a hundredth below its limit: slower kernels break it, the cache has no say."""
    base = small(
        workload__arrivals={"kind": "closed", "concurrency": 4},
        workload__prompt_tokens={"kind": "fixed", "value": 100},
        workload__output_tokens={"kind": "fixed", "value": 40},
        run__warmup=5,
    )
    p99 = told(base)["figures"][3]["value"]
    edge = base.override({"slo": {"tpot": f"{1.01 * p99}ms", "attainment": 0.95}})
    found = told(edge)
    assert found["holds"] is True
    assert "kernel_time" in found["flips"]
    assert inputs(found)["kernel_time"]["high"]["holds"] is False
    assert inputs(found)["kernel_time"]["low"]["holds"] is True
    assert inputs(found)["kv_blocks"]["flips"] is False
    assert "but it flips with" in found["answer"]
    assert found["trust"] == "a guess"
    assert "kernel times x 1." in found["answer"]
    assert found["together"]["holds"] is False


def test_prices_move_by_the_band_of_the_run_and_others_by_what_is_stated() -> None:
    found = told(small())
    band, ends = found["band"], inputs(found)
    assert 0 < band < 1
    assert ends["kernel_time"]["high"]["settings"] == {"assume.kernel_time": 1 + band}
    # as `find` asks again: a band of 25 % is a factor of 1.25 both ways
    assert ends["kernel_time"]["low"]["settings"] == {"assume.kernel_time": 1 / (1 + band)}
    for name in ("host_time", "kv_blocks", "prompt_tokens", "output_tokens"):
        settings = [ends[name][end]["settings"] for end in ("low", "high")]
        assert settings == [{f"assume.{name}": factor} for factor in RANGES[name]]
    assert ends["rate"]["low"]["settings"] == {"workload.arrivals.rate": 18.0}
    assert ends["burstiness"]["high"]["settings"]["workload.arrivals"]["cv"] == 2.0


def test_another_range_takes_the_place_of_the_usual_one() -> None:
    found = told(small(), host_time=(0.5, 20.0))
    assert inputs(found)["host_time"]["high"]["changes"]["p99_tpot_ms"] > 1
    assert read_range("host_time=0.5:20") == ("host_time", (0.5, 20.0))


@pytest.mark.parametrize("text", ["host_time", "host_time=2", "host_time=2:1", "x=0:1", "x=a:b"])
def test_a_range_is_two_factors(text: str) -> None:
    with pytest.raises(UsageError, match="--range"):
        read_range(text)


def test_more_traffic_is_not_counted_as_better() -> None:
    found = told(small(workload__arrivals__rate=60))
    assert inputs(found)["rate"]["high"]["effect"] < 0 < inputs(found)["rate"]["low"]["effect"]
    longer = inputs(found)["output_tokens"]
    assert longer["high"]["effect"] < longer["low"]["effect"]


def test_without_an_slo_the_question_is_whether_the_traffic_is_held() -> None:
    found = told(small(slo={}, workload__arrivals__rate=2000, run__requests=300,
                       scheduler__max_num_seqs=8))  # fmt: skip
    assert found["question"] == "Is the traffic held?"
    assert found["holds"] is False
    offline = told(small(slo={}, workload__arrivals={"kind": "burst"}, run__requests=20))
    assert offline["holds"] is None
    assert offline["trust"] is None
    assert "no verdict to flip" in offline["answer"]


def test_the_rate_of_a_trace_may_be_more_copies_of_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{0.4 * at},{100 + at},{10 + at % 7}" for at in range(50)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    replayed = small(workload={"trace": {"path": str(trace)}}, run={"requests": None})
    ranges = {"rate": (1.0, 2.0)}
    copied = document(sensitivity(replayed, local(1), ranges=ranges, scale="overlay"))
    rate = inputs(copied)["rate"]
    assert rate["high"]["settings"] == {"workload.trace.overlay": 2.0}
    assert rate["high"]["text"] == "x 2 (more copies of the trace)"
    # twice the users bring twice the tokens in the same time; compressed, half the time
    assert rate["high"]["changes"]["output_throughput"] == pytest.approx(1, abs=0.05)
    paced = document(sensitivity(replayed, local(1), ranges=ranges))
    settings = inputs(paced)["rate"]["high"]["settings"]
    assert settings == {"workload.trace.time_scale": 0.5}
    for found, how in ((copied, "copies of the trace, shifted"), (paced, "--scale overlay")):
        console = Console(width=88, color_system=None)
        with console.capture() as captured:
            console.print(sensitivity_view(found))
        assert how in " ".join(captured.get().split())
        assert how in render_sensitivity(found)


def test_copies_that_are_cut_are_not_copied_again(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,5\n2,30,5\n")
    scenario = tmp_path / "copied.yaml"
    scenario.write_text(
        small(workload={"trace": {"path": str(trace), "overlay": 2}}, run={"requests": 4}).to_yaml()
    )
    done = CliRunner().invoke(app, ["sensitivity", str(scenario), "--scale", "overlay"])
    assert done.exit_code == 2
    assert "--scale overlay: run.requests cuts copies" in " ".join(done.stderr.split())


def test_what_has_no_range_says_why(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,5\n2,30,5\n")
    replayed = small(
        workload={"trace": {"path": str(trace), "time_scale": 0.5}},
        run={"requests": None},
        kv_cache__num_gpu_blocks=500,
    )
    found = {each.name: each for each in uncertain(replayed, 0.1, {})}
    assert found["burstiness"].missing == "a trace is as bursty as it was recorded"
    assert found["kv_blocks"].missing == "given as the engine found them"
    assert found["rate"].high == {"workload.trace.time_scale": 0.5 / 1.1}
    constant = small(workload__arrivals={"kind": "constant", "rate": 3})
    burstiness = {each.name: each for each in uncertain(constant, 0.1, {})}["burstiness"]
    assert burstiness.low is None
    assert burstiness.high is not None
    assert told(replayed)["holds"] is True


def test_an_assumption_is_varied_on_top_of_itself() -> None:
    found = {each.name: each for each in uncertain(small(assume__host_time=2), 0.1, {})}
    assert found["host_time"].low == {"assume.host_time": pytest.approx(1.4)}


def test_worse_ends_together_may_bring_another_law_and_another_rate() -> None:
    found = told(small(workload__arrivals__rate=60))
    merged = found["together"]["settings"]["workload.arrivals"]
    assert merged == {"kind": "gamma", "rate": pytest.approx(66.0), "cv": 2.0}


def test_a_range_of_what_the_scenario_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="--range acceptance: nothing is speculated"):
        told(small(), acceptance=(0.5, 1.0))
    closed = small(workload__arrivals={"kind": "closed", "concurrency": 2})
    with pytest.raises(UsageError, match="--range rate: these arrivals have no rate"):
        told(closed, rate=(0.5, 1.0))
    with pytest.raises(UsageError, match="--range rate: is given twice"):
        read_ranges(["rate=0.5:1", "rate=0.5:2"])
    assert read_ranges(["rate=0.5:1", "kv_blocks=0.5:2"])["kv_blocks"] == (0.5, 2.0)
    assert inputs(told(small()))["acceptance"]["missing"] == (
        "nothing is speculated in this scenario"
    )


def test_wrong_questions_have_one_answer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'host_time'"):
        told(small(), host_tim=(1, 2))
    with pytest.raises(InfeasibleError, match="the scenario itself does not run"):
        told(small(max_model_len=2))


def test_the_command_says_it_in_88_columns(tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(small(run__requests=20).to_yaml(), encoding="utf-8")
    asked = ["sensitivity", str(scenario), "--jobs", "1", "--no-report"]
    done = CliRunner().invoke(
        app, [*asked, "-o", str(tmp_path / "out"), "--range", "host_time=0.5:2"]
    )
    assert done.exit_code == 0, done.stderr
    assert "host overhead x 2" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "/" not in line) <= 88
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert saved["kind"] == "sensitivity"
    wrong = CliRunner().invoke(app, [*asked, "--range", "x=1:2"])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: --range: no input is called 'x'")


def test_a_verdict_that_chance_decides_is_marked_so() -> None:
    told = document(sensitivity(small(run__requests=60), local(1)))
    assert told["verdict"]["slo_state"] == "too close to call"
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(sensitivity_view(told))
    text = captured.get()
    first = next(line for line in text.splitlines() if line.strip().startswith("unchanged"))
    assert "met ?" in first
    assert "?: too close to call" in text
    sure = at_ease()
    assert sure["verdict"]["slo_state"] == "met"
    assert "met ?" not in render_sensitivity(sure).split("unchanged<")[1][:400]


def links(**pool: object) -> Input | None:
    """The links between GPUs as an uncertain input."""
    scenario = small(**{f"fleet__0__{key}": value for key, value in pool.items()})
    return next((each for each in uncertain(scenario, 0.05, {}) if each.name == "link"), None)


def test_links_are_uncertain_where_there_are_any() -> None:
    assert links() is None
    nvlink = links(tensor_parallel=2)
    assert nvlink is not None
    assert (nvlink.low, nvlink.high) == ({"assume.link": 0.8}, {"assume.link": 1.2})
    unsaid = links(gpu="l40s", tensor_parallel=2)
    assert unsaid is not None
    assert unsaid.low == {"fleet.0.link": {"kind": "pcie", "peer_to_peer": False}}
    assert unsaid.texts == ("through the host", "peer to peer")
    stated = links(gpu="l40s", tensor_parallel=2, link={"kind": "pcie", "peer_to_peer": True})
    assert stated is not None
    assert stated.low == {"assume.link": 0.8}
    with pytest.raises(UsageError, match="--range link: each replica has one GPU"):
        uncertain(small(), 0.05, {"link": (0.5, 2)})


def test_a_slower_link_slows_answers_on_several_gpus() -> None:
    scenario = small(fleet__0__gpu="l40s", fleet__0__tensor_parallel=2, run__requests=30)
    found = inputs(told(scenario))["link"]
    assert found["low"]["changes"]["p99_tpot_ms"] > found["high"]["changes"]["p99_tpot_ms"]
