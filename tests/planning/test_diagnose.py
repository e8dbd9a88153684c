"""What bounds a run: known answers, and advice whose commands do what they say."""

from __future__ import annotations

import json
import math
import re
import shlex
from copy import deepcopy
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import sim
from sim.band_runs import run_ends
from sim.cli import app
from sim.errors import InfeasibleError
from sim.metrics.states import DoubtKind
from sim.planning.answers import findings_of
from sim.planning.causes.counterfactuals import EFFORTS, FLAG, PROBE, SPECULATION, counterfactuals
from sim.planning.causes.diagnose import Diagnosis, Trial, diagnose
from sim.planning.causes.diagnose_document import _open, document
from sim.planning.contrast.gains import gains, mean_gain
from sim.planning.points.executors import local
from sim.planning.points.footnote_words import footnotes
from sim.planning.points.wording import share
from sim.request import Refusal
from sim.scenario import Scenario
from sim.terminal.console import as_text
from sim.terminal.findings import actions_view
from tests.answers import diagnose_view, render_diagnosis
from tests.places import MODELS
from tests.planning_fixtures import small
from tests.report_fixtures import on_page

BURST: dict[str, Any] = {"workload__arrivals": {"kind": "burst"}, "run__warmup": 0}


def fixed(tokens: int) -> dict[str, Any]:
    return {"kind": "fixed", "value": tokens}


def found(scenario: Scenario) -> Diagnosis:
    return diagnose(scenario, local(1), target="x.yaml")


def effects(of: Diagnosis) -> dict[str, float]:
    """Gain in output tokens per second of every change that ran."""
    return {
        trial.change.name: trial.gains["output_throughput"] or 0.0
        for trial in of.trials
        if trial.effect is not None
    }


def test_a_run_bound_by_memory_gains_from_memory_and_not_from_arithmetic() -> None:
    # llama-3.1-8b in bf16 leaves a 24 GB part room for few long sequences at a time
    scenario = small(
        fleet__0__gpu="l4",
        max_model_len=8192,
        scheduler={"max_num_batched_tokens": 2048, "max_num_seqs": 128},
        workload__prompt_tokens=fixed(200),
        workload__output_tokens=fixed(1200),
        **{**BURST, "run__requests": 60},
    )
    told = found(scenario)
    gained = effects(told)
    assert gained["memory"] > 0.3
    assert abs(gained["compute"]) < 0.05
    bound = document(told)["bound"]
    limited = {"by": "memory capacity", "shown_by": "2x GPU memory"}
    assert bound["figures"]["output_throughput"] == limited
    assert "output tokens/s: memory capacity (2x GPU memory: +" in bound["text"]
    assert "utilization" in [trial.change.name for trial in told.advice]


def test_decodes_of_few_gain_from_bandwidth() -> None:
    scenario = small(
        engine="ideal",
        workload={
            "arrivals": {"kind": "closed", "concurrency": 2},
            "prompt_tokens": fixed(10),
            "output_tokens": fixed(200),
        },
        run__requests=20,
    )
    told = found(scenario)
    gained = effects(told)
    assert gained["bandwidth"] > 0.6 * math.log(2)
    assert max(abs(gained[name]) for name in ("memory", "compute")) < 0.05
    assert document(told)["bound"]["by"] == "memory bandwidth"


def test_prompts_gain_from_arithmetic() -> None:
    scenario = small(
        engine="ideal",
        max_model_len=8192,
        workload__prompt_tokens=fixed(4000),
        workload__output_tokens=fixed(1),
        **{**BURST, "run__requests": 20},
    )
    told = found(scenario)
    gained = effects(told)
    assert gained["compute"] > 0.8 * math.log(2)
    assert max(abs(gained[name]) for name in ("memory", "bandwidth")) < 0.1
    assert document(told)["bound"]["by"] == "compute"


def test_an_engine_that_dawdles_is_told() -> None:
    scenario = small(
        assume__host_time=30,
        workload__arrivals={"kind": "closed", "concurrency": 1},
        workload__prompt_tokens=fixed(10),
        workload__output_tokens=fixed(50),
        run__requests=10,
    )
    told = found(scenario)
    assert document(told)["bound"]["by"] == "the engine's host time"
    assert effects(told)["host"] > 1


def test_seats_and_replicas_help_where_seats_are_short() -> None:
    scenario = small(scheduler__max_num_seqs=4, workload__arrivals__rate=200)
    told = found(scenario)
    gained = effects(told)
    assert gained["more-seats"] > 0.3
    assert gained["replicas"] > 0.3
    assert gained["fewer-seats"] < -0.3
    first = document(told)["advice"][0]
    assert first == "more-seats"  # a flag goes before twice the GPUs


def test_drafts_are_tried_and_leave_out_what_goes_without_them() -> None:
    told = document(found(small(run__requests=20)))
    assert "speculation" in {trial["name"] for trial in told["trials"]}
    drafted = small(run__requests=20, speculative=dict(SPECULATION))
    tried = {trial["name"] for trial in document(found(drafted))["trials"]}
    assert {"more-seats", "no-drafts"} <= tried
    assert not tried & {"speculation", "threshold"}  # settings that drafts rule out


def test_no_figure_drowns_out_the_others() -> None:
    ten = math.log(10)
    assert mean_gain({"a": 100.0, "b": 0.0}) == pytest.approx(ten / 2)
    assert mean_gain({"a": -100.0, "b": None}) == pytest.approx(-ten)
    assert mean_gain({"a": None}) == 0.0


def test_an_idle_fleet_is_bound_by_its_traffic() -> None:
    scenario = small(workload__arrivals__rate=0.5, run__requests=20)
    gained = effects(found(scenario))
    assert max(abs(value) for value in gained.values()) < 0.02


@pytest.mark.slow
def test_advice_begins_with_the_least_that_meets_the_slo_and_its_commands_work(
    tmp_path: Path,
) -> None:
    scenario = tmp_path / "small scenario.yaml"
    slo = {"ttft": "100ms", "tpot": "20ms", "attainment": 0.9}
    short = small(scheduler__max_num_seqs=8, workload__arrivals__rate=60, slo=slo)
    scenario.write_text(short.to_yaml(), encoding="utf-8")
    asked = ["diagnose", str(scenario), "--jobs", "1", "--set", "run.requests=100"]
    done = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "out"), "--no-report", "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"]["slo_met"] is False
    trials = {trial["name"]: trial for trial in told["trials"]}
    advised = [trials[name] for name in told["advice"]]
    effort = {each["name"]: each["weight"] for each in told["efforts"]}
    met = [trial["slo_met"] for trial in advised]
    assert True in met
    assert met == sorted(met, reverse=True)
    meeting = [effort[trial["effort"]] for trial in advised if trial["slo_state"] == "met"]
    assert meeting == sorted(meeting)
    sure = "The least that meets it" if meeting else "the least that does at the predicted times"
    assert f"{sure}: {advised[0]['title']}." in told["headline"]
    before = told["verdict"]["attainment"]
    assert all(trial["attainment"] > before for trial in advised)
    missing = [t["attainment"] / effort[t["effort"]] for t in advised if not t["slo_met"]]
    assert missing == sorted(missing, reverse=True)
    weights = {effort["name"]: effort["weight"] for effort in told["efforts"]}
    for name in told["advice"]:
        effect, weight = trials[name]["effect"], weights[trials[name]["effort"]]
        assert trials[name]["per_effort"] == pytest.approx(math.log1p(effect) / weight)
    best = trials[told["advice"][0]]
    command = shlex.split(best["command"])
    assert command[:2] == ["infersim", "run"]
    run = CliRunner().invoke(
        app, [*command[1:], "--json", "--no-report", "-o", str(tmp_path / "run")]
    )
    summary = json.loads(run.stdout)
    assert summary["output_throughput"] == best["figures"]["output_throughput"]
    assert summary["p99_ttft_ms"] == best["figures"]["p99_ttft_ms"]


@pytest.mark.slow
def test_where_the_slo_is_met_with_room_nothing_needs_to_change() -> None:
    asked = small(run__requests=1500, fleet__0__replicas=2, slo={"ttft": "1s", "tpot": "50ms"})
    told = document(found(asked))
    assert told["at_ease"]
    assert told["headline"] == (
        "Nothing needs to change: 100% of requests are within the SLO, 99% are asked for. "
        "1 replica would also meet it."
    )
    assert told["savings"] == ["fewer-replicas"]
    assert "fewer-replicas" not in told["advice"]
    ranks = [t["per_effort"] for n in told["advice"] for t in told["trials"] if t["name"] == n]
    assert ranks == sorted(ranks, reverse=True)
    text = actions_view(findings_of("diagnose", told)).plain
    assert text.startswith("If more is wanted, the most for its effort first:")
    assert "infersim plan x.yaml --gpus h100-sxm" in text


@cache
def near_its_limit() -> Diagnosis:
    """A run whose TPOT is within the error band of its limit."""
    slo = {"tpot": "7.1ms", "attainment": 0.9}
    return diagnose(small(run__requests=200, slo=slo), local(1), target="x.yaml")


@pytest.mark.slow
def test_every_change_is_judged_as_run_judges_it() -> None:
    of = near_its_limit()
    told = document(of)
    states = set()
    chosen = ("compute", "more-seats", "kv-fp8", "int4", "replicas")
    for trial in (trial for trial in of.trials if trial.change.name in chosen):
        result = sim.simulate(of.scenario.override(trial.change.settings))
        ends = run_ends(result.scenario, result.summary)
        if ends is not None:
            result.add_ends(ends)
        verdict = result.summary["infersim"]["verdict"]
        assert (trial.slo, trial.verdict) == (verdict["slo_state"], verdict)
        states.add((trial.slo, verdict["slo_met"]))
    # at the predicted times alone, these would be called met and missed
    assert {("too close to call", True), ("too close to call", False)} <= states
    open_ones = [t for t in told["trials"] if t["slo_state"] == "too close to call"]
    assert not any(t["told"].startswith(("SLO met", "SLO missed")) for t in open_ones)
    met = [t["told"] for t in open_ones if t["slo_met"]]
    ends = r"SLO \([\d.]+% if iterations are (\d+%|[\d.]+ times) slower\)"
    assert all(re.search(ends, text) for text in met)


def test_advice_begins_with_what_meets_the_slo_at_both_ends_of_the_band() -> None:
    told = document(near_its_limit())
    trials = {trial["name"]: trial for trial in told["trials"]}
    states = [trials[name]["slo_state"] for name in told["advice"]]
    assert states == sorted(states), "met, then too close to call"
    assert len(set(states)) == 2
    first = trials[told["advice"][0]]["title"]
    assert "The SLO is missed at the predicted times: only 55% of " in told["headline"]
    assert "more requests do not narrow it, and a longer run may hold less" in told["headline"]
    assert told["headline"].endswith(f" The least that meets it: {first}.")
    assert (
        told["order"]
        == "Advice: what meets the SLO, the least effort first; then what helps it most:"
    )


@pytest.mark.slow
def test_what_meets_the_slo_at_the_predicted_times_goes_before_what_only_helps() -> None:
    slo = {"tpot": "6.9ms", "attainment": 0.9}
    of = diagnose(small(run__requests=200, slo=slo), local(1), target="x.yaml")
    kept = {trial.change.name: trial for trial in of.advice if not trial.meets}
    more = kept["replicas"]  # what it brings counts for more where it takes no effort
    kept["replicas"] = replace(more, change=replace(more.change, effort=FLAG))
    advised = replace(of, trials=list(kept.values())).advice
    assert [t.change.name for t in advised][-1] == "replicas"
    assert [t.is_predicted for t in advised] == [*[True] * (len(advised) - 1), False]
    assert of.gained(more) / FLAG.weight > of.gained(advised[0]) / advised[0].change.effort.weight


def test_terminal_and_page_of_a_diagnosis_explain_the_mark_and_say_how_sure_it_is() -> None:
    told = document(near_its_limit())
    (mark,) = told["footnotes"]
    assert mark.startswith("?: too close to call, the error band of the predicted times")
    text = " ".join(as_text(diagnose_view(told)).split())
    page = " ".join(unescape(re.sub("<[^>]*>", " ", render_diagnosis(told))).split())
    band = near_its_limit().base["infersim"]["error_band"]["text"]
    for sentence in (mark, f"How sure: {band}", near_its_limit().base["infersim"]["ends"]["text"]):
        assert sentence in text
        assert on_page(sentence) in page
    assert told["order"] in actions_view(findings_of("diagnose", told)).plain
    assert told["order"] in page
    assert "% ?" in text
    calm = {"slo_state": "met", "slo_doubts": [], "requests_to_decide": None}
    assert footnotes([calm]) == []


def test_an_slo_that_chance_decides_is_no_reason_to_change_anything() -> None:
    told = document(found(small(run__requests=60)))
    assert told["verdict"]["slo_met"]
    assert not told["at_ease"]
    assert told["headline"].startswith("The SLO is too close to call: ")


@pytest.mark.parametrize(
    ("horizon", "todo"), [(None, "more requests"), ("5s", "a longer time (run.horizon)")]
)
def test_what_would_tell_is_what_ends_the_run(horizon: str | None, todo: str) -> None:
    verdict = {"slo_doubts": [DoubtKind.UNFINISHED], "requests_to_decide": None, "cut": None}
    asked = SimpleNamespace(
        scenario=small(run__horizon=horizon), verdict=verdict, open_by_band=False
    )
    _, text = _open(asked, "98% of requests", "99% are asked for")  # type: ignore[arg-type]
    assert text.endswith(f"Simulate {todo} before changing anything.")


@pytest.mark.slow
def test_rejected_requests_are_named_first_with_the_setting_that_admits_them() -> None:
    asked = small(
        run__requests=300,
        workload__prompt_tokens={"kind": "uniform", "low": 10, "high": 2000},
        slo={"ttft": "300ms", "tpot": "40ms", "attainment": 0.95},
    )
    told = document(found(asked))
    assert "are longer than max_model_len (1,024 tokens" in told["rejection"]["text"]
    assert told["advice"] == ["max-model-len"]  # nothing else brings them within the limits
    (trial,) = [each for each in told["trials"] if each["name"] == "max-model-len"]
    assert trial["settings"] == {"max_model_len": told["rejection"]["longest_tokens"]}
    assert trial["slo_met"]
    assert trial["told"].startswith("SLO met, ")
    shown = [line for line in str(told["headline"]).split(". ") if "least" in line]
    assert shown == [f"The least that meets it: {trial['title']}."]
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(diagnose_view(told))
    text = captured.get()
    assert text.index("The SLO is missed: ") < text.index("Rejected: ") < text.index("What limits")


def test_parts_of_latencies_have_the_unit_that_suits_them() -> None:
    told = document(found(small()))
    latency = {name: {**of, "queue": 45_000.0} for name, of in told["latency"].items()}
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(diagnose_view({**told, "latency": latency}))
    (queue,) = [line.split() for line in captured.get().splitlines() if "queue" in line.split()]
    assert queue == ["queue", *["45", "s"] * 4]


def test_whole_prompts_are_tried_with_the_tokens_that_vllm_needs_for_them() -> None:
    def settings(name: str, **changes: Any) -> dict[str, object]:
        tried = {each.name: each for each in counterfactuals(small(max_model_len=4096, **changes))}
        return dict(tried[name].settings) if name in tried else {}

    tokens = "scheduler.max_num_batched_tokens"
    whole = {"scheduler.chunked_prefill": False}
    budget = {"max_num_batched_tokens": 1024, "max_num_seqs": 64}
    assert settings("chunks", scheduler=budget) == {**whole, tokens: 4096}
    assert settings("chunks", scheduler={**budget, "max_num_batched_tokens": 8192}) == whole
    cut_off = {"max_num_batched_tokens": 4096, "max_num_seqs": 64, "chunked_prefill": False}
    assert settings("fewer-tokens", scheduler=cut_off) == {}
    assert settings("fewer-tokens", scheduler={**cut_off, "chunked_prefill": True})


def test_a_change_that_rejects_requests_says_so_and_is_not_advised() -> None:
    of = near_its_limit()
    trial = next(each for each in of.trials if each.meets and each in of.advice)
    summary = deepcopy(trial.outcome.summary)
    assert summary is not None
    reasons = {Refusal.UNCUT.value: 42}
    summary["infersim"]["requests"] |= {"rejected": 42, "rejected_reasons": reasons}
    refusing = Trial.of(of.base, replace(trial.outcome, summary=summary), trial.change)
    assert (refusing.rejects, refusing.gains["capacity"]) == (0.21, None)
    trials = [refusing if each is trial else each for each in of.trials]
    told = document(replace(of, trials=trials))
    assert trial.change.name not in told["advice"]
    (said,) = [each for each in told["trials"] if each["name"] == trial.change.name]
    assert said["told"].startswith("rejects 21% of the requests (prompt longer than max_num_b")
    assert "capacity" not in said["told"]
    assert on_page("rejects 21%</th>") in " ".join(render_diagnosis(told).split())


def test_the_share_is_named_by_the_limit_it_is_of_and_almost_no_goodput_has_no_multiples() -> None:
    of = near_its_limit()
    base = deepcopy(dict(of.base))
    verdict = base["infersim"]["verdict"]
    limit = {"limit_ms": 60.0, "target": 0.95, "percentile": 95.0, "value_ms": 90.0}
    limits = {"ttft_p95": limit | {"attainment": 0.5}, "tpot_p95": limit | {"attainment": 0.0059}}
    verdict |= {"limits": limits, "first_limit": "tpot_p95", "attainment": 0.0059, "target": 0.95}
    verdict |= {"slo_state": "missed", "slo_met": False}
    base["request_goodput"] = 0.002 * base["request_throughput"]
    told = document(replace(of, base=base))
    said = "only 0.59% of requests are within the 60 ms of TPOT p95, 95% are asked for."
    assert told["headline"].startswith(f"The SLO is missed: {said}")
    replicas = next(each for each in told["trials"] if each["name"] == "replicas")
    assert ", 0.59% of requests within the 60 ms of TPOT p95 -> 96.5% of" in replicas["told"]
    assert re.search(r"goodput from almost none to 19.6 requests/s;", replicas["told"])
    assert "from almost none" in as_text(diagnose_view(told))
    trial = next(each for each in of.trials if each.is_predicted)
    summary = deepcopy(trial.outcome.summary)
    assert summary is not None
    own = summary["infersim"]["verdict"]
    kept = {"ttft_p95": limit | {"attainment": 0.96}, "tpot_p95": limit | {"attainment": 0.99}}
    own |= {"limits": kept, "first_limit": "ttft_p95", "attainment": 0.96, "target": 0.95}
    better = replace(trial, outcome=replace(trial.outcome, summary=summary))
    (told_of,) = document(replace(of, base=base, trials=[better]))["trials"]
    assert ", 0.59% -> 99% of requests within the 60 ms of TPOT p95" in told_of["told"]


def test_advice_that_meets_nothing_does_not_say_that_it_does() -> None:
    asked = small(
        run__requests=150,
        workload__arrivals={"kind": "poisson", "rate": 400},
        workload__prompt_tokens={"kind": "uniform", "low": 10, "high": 2000},
        slo={"ttft": "30ms", "tpot": "12ms", "attainment": 0.95},
    )
    told = document(found(asked))
    (trial,) = [each for each in told["trials"] if each["name"] == "max-model-len"]
    assert not any(each["slo_met"] for each in told["trials"] if each["name"] in told["advice"])
    assert "No single change that was tried meets it. max_model_len " in told["headline"]
    within = share(trial["attainment"])
    assert f"accepts all lengths, and then {within} of requests" in told["headline"]
    text = str(actions_view(findings_of("diagnose", told)))
    assert "Advice, the most for its effort first:" in text
    assert "what meets the SLO" not in text
    # a fleet of any size would reject them
    assert told["plan"].endswith(f"--set max_model_len={trial['settings']['max_model_len']}")
    trials = [hundredfold(each) if each is trial else each for each in told["trials"]]
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(diagnose_view({**told, "trials": trials}))
    assert "1,720x" in captured.get()


def hundredfold(trial: dict[str, Any]) -> dict[str, Any]:
    return {**trial, "changes": {**trial["changes"], "p99_ttft_ms": 1719.0}}


def test_each_figure_has_its_own_limit_and_busy_time_another() -> None:
    # few sequences decode at the speed of the memory, and long prompts compute
    asked = small(
        engine="ideal",
        max_model_len=8192,
        workload__arrivals={"kind": "closed", "concurrency": 1},
        workload__prompt_tokens=fixed(6000),
        workload__output_tokens=fixed(100),
        run__requests=20,
    )
    told = document(found(asked))
    limited = {key: each["by"] for key, each in told["bound"]["figures"].items()}
    assert limited["p99_ttft_ms"] == "compute"
    assert limited["p99_tpot_ms"] == "memory bandwidth"
    text = told["bound"]["text"]
    assert "TTFT p99: compute (2x compute: -" in text
    assert "TPOT p99: memory bandwidth (2x memory bandwidth: -" in text
    assert "(what a run calls 'Bound by')" in text


def test_large_changes_are_told_by_both_values() -> None:
    asked = small(scheduler__max_num_seqs=2, workload__arrivals__rate=100, run__requests=100)
    told = document(found(asked))
    trial = next(each for each in told["trials"] if each["name"] == "replicas")
    assert trial["changes"]["request_goodput"] > 2
    assert re.search(r"goodput [\d.]+ requests/s -> [\d.]+ requests/s", trial["told"])
    assert not re.search(r"\+([3-9]\d\d|\d{4,})%", trial["told"])
    page = render_diagnosis(told)
    assert "SLO missed, " in page
    assert "What limits each figure" in page


def test_a_run_directory_is_diagnosed_as_its_scenario(tmp_path: Path) -> None:
    scenario = small(run__requests=20)
    sim.simulate(scenario).save(tmp_path / "run")
    asked = ["diagnose", str(tmp_path / "run"), "--jobs", "1", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*asked, "--no-report"])
    assert done.exit_code == 0, done.stderr
    told = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert told["target"] == str(tmp_path / "run" / "resolved.yaml")
    assert told["trials"] == document(
        diagnose(scenario, local(1), target=told["target"])
    )["trials"]  # fmt: skip
    commands = [line for line in done.stdout.splitlines() if "infersim run" in line]
    assert all("--set" in line for line in commands)  # never broken over lines
    others = [line for line in done.stdout.splitlines() if "/" not in line]
    assert max(map(len, others)) <= 88
    nothing = CliRunner().invoke(app, ["diagnose", str(tmp_path)])
    assert nothing.exit_code == 2
    assert "no directory of a run" in nothing.stderr


def test_latency_parts_add_up_in_the_mean() -> None:
    told = document(found(small()))
    values = {figure["key"]: figure["value"] for figure in told["figures"]}
    result = sim.simulate(small()).summary
    assert sum(told["latency"]["ttft"].values()) == pytest.approx(result["mean_ttft_ms"])
    assert sum(told["latency"]["e2el"].values()) == pytest.approx(result["mean_e2el_ms"])
    assert sum(told["latency"]["slowest_ttft"].values()) >= values["p99_ttft_ms"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheduler": {"batching": "static", "max_num_batched_tokens": 100, "max_num_seqs": 200}},
        {"kv_cache__allocator": "contiguous", "scheduler__policy": "vllm-v0"},
        {"scheduler__chunked_prefill": False},
        {"fleet__0__replicas": 2, "router": "random", "fleet__0__tensor_parallel": 2},
        {"precision": {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"}},
        {"kv_cache__num_gpu_blocks": 500, "scheduler__max_num_seqs": 1},
    ],
)
def test_every_change_makes_a_valid_scenario(changes: dict[str, Any]) -> None:
    scenario = small(**changes)
    tried = counterfactuals(scenario)
    assert len({change.name for change in tried}) == len(tried)
    for change in tried:
        assert scenario.override(change.settings) != scenario, change
        assert change.effort in EFFORTS
        assert (change.effort is PROBE or change.name == "continuous") == bool(change.bound)


def test_padding_of_whole_batches_is_a_limit_in_the_table_too() -> None:
    scenario = small(scheduler={"batching": "static", "max_num_seqs": 16}, **BURST)
    told = document(found(scenario))
    limit = {"by": "padding", "shown_by": "continuous batching"}
    assert told["bound"]["figures"]["output_throughput"] == limit
    assert "output tokens/s: padding (continuous batching: " in told["bound"]["text"]


def test_what_does_not_fit_is_said_and_nothing_else_lost() -> None:
    # 64 GPUs cannot share the 32 attention heads
    told = document(found(small(fleet__0__tensor_parallel=32, run__requests=10)))
    failed = {trial["name"]: trial["error"] for trial in told["trials"] if trial["error"]}
    assert set(failed) == {"tensor-parallel"}
    assert "attention heads" in failed["tensor-parallel"]


def test_a_scenario_that_does_not_run_is_infeasible() -> None:
    with pytest.raises(InfeasibleError):
        found(small(max_model_len=2))


def test_gains_are_signed_so_that_more_is_better() -> None:
    keys = ("output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms", "capacity")
    before: dict[str, float | None] = dict.fromkeys(keys, 100.0)
    halved = gains(before, dict.fromkeys(keys, 50.0))
    assert halved["output_throughput"] == pytest.approx(-math.log(2))
    assert halved["p99_ttft_ms"] == pytest.approx(math.log(2))


def test_gpus_that_share_experts_are_tried_in_other_layouts() -> None:
    """Experts cut or whole, and tensor ranks for data ranks, always on the same GPUs."""

    def tried(**fleet: object) -> dict[str, dict[str, object]]:
        asked = small(model=str(MODELS / "tiny-experts"), fleet={"gpu": "h100-sxm", **fleet})
        names = ("experts", "ranks", "tensor-parallel")
        found = {each.name: each for each in counterfactuals(asked) if each.name in names}
        return {
            name: {
                "layout": asked.override(dict(each.settings)).only_pool.layout.text,
                "title": each.title,
            }
            for name, each in found.items()
        }

    four = tried(tensor_parallel=4)
    assert four["experts"] == {"layout": "TP 4, EP", "title": "whole experts on each GPU"}
    assert four["ranks"] == {"layout": "DP 4, EP", "title": "4 data ranks with a KV cache each"}
    ranks = tried(data_parallel=4, expert_parallel=True)
    assert ranks["experts"]["layout"] == "DP 4"
    assert ranks["ranks"] == {"layout": "TP 4, EP", "title": "4 tensor ranks"}
    assert ranks["tensor-parallel"] == {
        "layout": "TP 2 x DP 4, EP",
        "title": "each replica on 8 GPUs",
    }
    assert tried().keys() == {"tensor-parallel"}
    dense = counterfactuals(small(fleet__0__tensor_parallel=2))
    assert not {each.name for each in dense} & {"experts", "ranks"}


def test_the_state_and_the_advice_are_texts_of_their_own() -> None:
    """Together they are the headline, whatever full stops the first has."""
    told = document(diagnose(small(slo={"ttft": "1ms", "attainment": 0.9}), local(), target="chat"))
    shown = findings_of("diagnose", told).headline
    assert shown.title == told["state"]
    assert shown.title.endswith("are asked for.")
    assert shown.text.startswith(told["least"])
    assert told["headline"] == f"{told['state']} {told['least']}"
