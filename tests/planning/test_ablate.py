"""A speed-up taken apart: parts that add up exactly, on games and on scenarios."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import InfeasibleError, UsageError
from sim.planning.causes import ablate as ablation
from sim.planning.causes.ablate import ablate, document
from sim.planning.causes.shapley import (
    Coalition,
    all_orders,
    contributions,
    subsets,
    these_orders,
)
from sim.planning.causes.techniques import techniques
from sim.planning.contrast.gains import FIGURES
from sim.planning.points.executors import local
from tests.answers import ablate_view
from tests.planning_fixtures import small

LOADED: dict[str, Any] = {
    "workload__arrivals__rate": 400,
    "scheduler__max_num_seqs": 32,
    "kv_cache__num_gpu_blocks": 1024,
    "precision__kv_cache": "fp8",
    "slo": {"ttft": "1h"},
}
"""More than can be served, with every part of the memory in use, and goodput everywhere."""

games = st.integers(0, 5).flatmap(
    lambda count: st.lists(
        st.floats(-1e9, 1e9, allow_nan=False), min_size=2**count, max_size=2**count
    )
)


@given(games)
def test_parts_add_up_to_the_whole_without_any_rounding(values: list[float]) -> None:
    names = "abcdefgh"[: len(values).bit_length() - 1]
    worth = dict(zip(subsets(names), values, strict=True))
    parts = contributions(all_orders(names, lambda present: True), worth)
    whole = Fraction(worth[frozenset(names)]) - Fraction(worth[frozenset()])
    assert sum(parts.values(), Fraction(0)) == whole


@given(games, st.data())
def test_counted_along_the_lattice_is_as_counted_order_by_order(
    values: list[float], data: st.DataObject
) -> None:
    names = "abcdefgh"[: len(values).bit_length() - 1]
    inner = [present for present in subsets(names) if 0 < len(present) < len(names)]
    banned = data.draw(st.sets(st.sampled_from(inner))) if inner else set()

    def passable(order: tuple[str, ...]) -> bool:
        return not any(frozenset(order[:n]) in banned for n in range(len(order)))

    orders = [order for order in permutations(names) if passable(order)]
    assert all_orders(names, lambda present: present not in banned) == these_orders(orders)


def test_who_brings_nothing_gets_nothing_and_equals_share_alike() -> None:
    def value(present: Coalition) -> float:
        return 10.0 if {"a", "b"} <= present else 0.0

    worth = {present: value(present) for present in subsets("abc")}
    parts = contributions(all_orders("abc", lambda present: True), worth)
    assert parts == {"a": 5, "b": 5, "c": 0}


@cache
def taken_apart() -> ablation.Ablation:
    return ablate(small(**LOADED), local(1))


def test_every_set_is_simulated_once_and_what_changes_nothing_is_not() -> None:
    found = taken_apart()
    names = [technique.name for technique in found.known]
    assert names == [
        *("continuous-batching", "large-batch", "chunked-prefill", "paging", "quantised-kv")
    ]
    without = 2**3  # sets with chunked prefill alone, which is nothing without continuous batching
    assert len(found.outcomes) == 2**5 - without


def test_differences_add_up_and_factors_multiply_in_every_figure() -> None:
    for figure in document(taken_apart())["figures"]:
        parts, steps = figure["parts"], figure["steps"]
        whole = figure["full"] - figure["baseline"]
        for found in (parts, steps):
            total = math.fsum(part["difference"] for part in found)
            assert total == pytest.approx(whole, rel=1e-9, abs=1e-9)
            product = math.prod(part["factor"] for part in found)
            assert product == pytest.approx(figure["full"] / figure["baseline"], rel=1e-12)


def test_a_loaded_server_gains_from_all_that_it_uses() -> None:
    found = {figure["key"]: figure for figure in document(taken_apart())["figures"]}
    factors = {p["technique"]: p["factor"] for p in found["output_throughput"]["parts"]}
    assert found["output_throughput"]["factor"] > 3
    assert min(factors["large-batch"], factors["continuous-batching"]) > 1.2
    assert factors["paging"] > 1.05
    assert sorted(factors, key=lambda name: -factors[name])[:2] != ["quantised-kv", "paging"]


def test_the_order_changes_the_steps_and_not_the_parts() -> None:
    names = [technique.name for technique in taken_apart().known]
    other = document(ablate(small(**LOADED), local(1), order=names[::-1]))["figures"][0]
    usual = document(taken_apart())["figures"][0]
    assert [step["technique"] for step in other["steps"]] == names[::-1]
    assert {s["technique"]: s["value"] for s in other["steps"]} != {
        s["technique"]: s["value"] for s in usual["steps"]
    }
    parts = [{p["technique"]: p["factor"] for p in figure["parts"]} for figure in (other, usual)]
    assert parts[0] == pytest.approx(parts[1], rel=1e-12)


def test_what_nothing_runs_without_is_in_the_baseline_and_said() -> None:
    # 70 billion parameters in 16 bits are more than one H200 holds
    big = small(
        model="llama-3.1-70b",
        fleet__0__gpu="h200-sxm",
        precision={"weights": "fp8", "activations": "fp8"},
        run__requests=30,
    )
    found = ablate(big, local(1))
    told = document(found)
    assert found.needed == {"quantised-weights"}
    assert "with fp8 weights, fp8 products, since nothing runs without" in told["baseline"]["text"]
    assert "does not fit" in told["infeasible"][0]["why"]
    figure = told["figures"][0]
    assert [part["technique"] for part in figure["parts"]][-1] == "paging"
    product = math.prod(part["factor"] for part in figure["parts"])
    assert product == pytest.approx(figure["factor"], rel=1e-12)


@pytest.mark.parametrize("policy", ["vllm", "sglang", "guaranteed-no-evict"])
def test_the_keys_of_a_rule_go_with_its_batches(policy: str) -> None:
    """So that the baseline is static, whatever the rule; one that counts pages needs them first."""
    waits = {"batch_wait_timeout_iters": 5, "batch_wait_max_tokens_ratio": 0.5}
    knobs = waits if policy == "guaranteed-no-evict" else {}
    found = ablate(small(scheduler={"policy": policy, **knobs}, run__requests=30), local(1))
    assert not found.needed
    names = [technique.name for technique in found.known]
    (batching,) = (each for each in found.known if each.name == "continuous-batching")
    assert batching.off == {
        "scheduler.batching": "static",
        "scheduler.policy": None,
        **{f"scheduler.{key}": None for key in knobs},
    }
    assert (names[0] == "paging") is (policy != "vllm")
    steps = [found.outcome(frozenset(names[:count])) for count in range(len(names) + 1)]
    assert all(step.error is None for step in steps)


def test_many_techniques_are_sampled_and_still_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "MOST_EXACT", 3)
    monkeypatch.setattr(ablation, "SAMPLED_ORDERS", 4)
    found = ablate(small(**LOADED, run__requests=30), local(1))
    assert not found.exact
    figure = document(found)["figures"][0]
    product = math.prod(part["factor"] for part in figure["parts"])
    assert product == pytest.approx(figure["factor"], rel=1e-12)


def test_all_at_once_compares_capacities() -> None:
    held = document(ablate(small(run__requests=30), local(1)))
    assert any("--saturate" in note for note in held["notes"])
    figure = document(ablate(small(run__requests=30), local(1), saturate=True))["figures"][0]
    assert figure["factor"] > held["figures"][0]["factor"]


def test_goodput_that_is_none_without_a_technique_is_taken_apart_by_differences() -> None:
    found = document(ablate(small(slo={"ttft": "50ms"}), local(1)))
    goodput = found["figures"][1]
    assert goodput["key"] == "request_goodput"
    assert min(entry["figures"]["request_goodput"] for entry in found["subsets"]) == 0
    parts = [part["difference"] for part in goodput["parts"]]
    assert math.fsum(parts) == pytest.approx(goodput["full"] - goodput["baseline"], rel=1e-12)
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(ablate_view(found))
    shares = captured.get().split("What each brings")[1]
    line = next(line for line in shares.splitlines() if "continuous batching" in line)
    assert f"+{parts[0]:.3g}" in line
    assert max(map(len, captured.get().splitlines())) <= 88


def test_a_trace_all_at_once_has_no_capacity_in_multiples_of_itself(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{i / 10},{100 + i % 7 * 30},{10 + i % 11}\n" for i in range(40))
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    replayed = small(workload={"trace": {"path": str(trace)}}, run={})
    found = document(ablate(replayed, local(1), saturate=True))
    figures = {figure["key"]: figure for figure in found["figures"]}
    assert figures["capacity"]["full"] is None
    assert all(entry["figures"]["capacity"] is None for entry in found["subsets"])
    assert figures["output_throughput"]["factor"] > 1.5


def test_wrong_questions_have_one_answer() -> None:
    naive = small(
        scheduler={"batching": "static", "max_num_seqs": 8}, kv_cache__allocator="contiguous"
    )
    assert techniques(naive) == []
    with pytest.raises(UsageError, match="naive baseline already"):
        ablate(naive, local(1))
    with pytest.raises(UsageError, match=r"no technique 'pagin'.*did you mean 'paging'"):
        ablate(small(), local(1), order=["pagin"])
    with pytest.raises(UsageError, match="each technique once"):
        ablate(small(), local(1), order=["paging"])
    with pytest.raises(InfeasibleError, match="the scenario itself does not run"):
        ablate(small(max_model_len=2), local(1))
    closed = small(workload__arrivals={"kind": "closed", "concurrency": 2})
    with pytest.raises(UsageError, match="closed loop"):
        ablate(closed, local(1), saturate=True)


def test_figures_are_read_and_compared() -> None:
    assert [figure.gain(1.0, 2.0) for figure in FIGURES] == pytest.approx(
        [math.log(2), math.log(2), -math.log(2), -math.log(2), math.log(2)]
    )
    assert FIGURES[0].gain(0.0, 1.0) is None
    assert FIGURES[0].gain(None, 1.0) is None


def test_the_command_writes_the_result_and_fits_the_terminal(tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(small(run__requests=20).to_yaml(), encoding="utf-8")
    asked = ["ablate", str(scenario), "--jobs", "1", "--no-report"]
    done = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
    assert "continuous batching" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "/" not in line) <= 88
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "complete"
    as_json = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "json"), "--json"])
    printed = json.loads(as_json.stdout)
    assert printed.pop("page") is None
    assert printed.pop("directory") == str(tmp_path / "json")
    assert printed == saved
    again = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "out")])
    assert (again.exit_code, again.stdout) == (2, "")
    wrong = CliRunner().invoke(app, [*asked, "--order", "x", "-o", str(tmp_path / "no")])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: --order: the scenario uses no technique 'x'")
    assert not (tmp_path / "no").exists()


def test_a_cache_that_the_engine_chooses_is_a_part_where_prompts_begin_alike() -> None:
    def parts(**changes: Any) -> set[str]:
        return {each.name for each in techniques(small(engine="vllm", **changes))}

    assert small(engine="vllm").kv_cache.enable_prefix_caching
    assert "prefix-caching" not in parts()
    assert "prefix-caching" in parts(workload__shared_prefix={"tokens": 5})
    assert "prefix-caching" in parts(kv_cache__enable_prefix_caching=True)  # as was asked for
    longest = {"engine": "sglang", "scheduler__order": "lpm"}
    assert {"prefix-caching", "order"} <= {each.name for each in techniques(small(**longest))}
