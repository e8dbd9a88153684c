"""The results of small scenarios are, to the byte, those of the files in ``tests/golden``.

A failure says which scenario, which column or number, and its figures before and after. How
machines that round otherwise are compared, and how to write the files anew where a change of
results is meant (and only there), stands in ``tests.golden``: ``python -m tests.golden``.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import sim
from sim import catalog
from sim.catalog.releases import spelled
from sim.routers import ROUTERS
from sim.scenario.sections.arrivals import Arrivals
from sim.scenario.sections.deployment import PrecisionName
from sim.scenario.sections.support import refusal
from sim.schedulers.orders import ORDERS
from sim.specs.precision import GGUF
from tests.golden import FOLDER, added, moved, moved_in_summary, moved_in_table, pin, pins_of, read
from tests.golden_scenarios import CHANGES, FROZEN, ROUNDED, scenario
from tests.places import ROOT


@pytest.mark.parametrize("name", CHANGES)
def test_results_are_the_same_to_the_byte(name: str) -> None:
    lines = moved(read(name), pins_of(name))
    assert not lines, "\n  ".join(
        [f"the results of the scenario {name} moved (file -> now):", *lines]
    )


def test_each_file_has_its_scenario() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == CHANGES.keys()
    assert {name for name in CHANGES if read(name)["arithmetic"] is not None} == ROUNDED


@pytest.mark.slow
def test_without_wide_vectors_the_results_are_the_same() -> None:
    """As on an older processor: nothing but ``ROUNDED`` may depend on it, and that at the last
    bits."""
    features = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    older = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(features)}
    command = [sys.executable, "-m", "tests.golden", "--check"]
    run = subprocess.run(command, cwd=ROOT, env=older, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_scenarios_cover_every_policy() -> None:
    loaded = [sim.load_scenario(scenario(name)) for name in CHANGES]
    schedulers, caches = [s.scheduler for s in loaded], [s.kv_cache for s in loaded]
    assert {s.batching for s in schedulers} == {"static", "request", "continuous"}
    assert {s.chunked_prefill for s in schedulers} == {True, False}
    orders = {name for name in ORDERS if not ORDERS[name].by_prefix}  # lpm needs SGLang's tree
    assert {s.order for s in schedulers} == orders
    assert {s.allocator for s in caches} == {"paged", "contiguous"}
    assert {s.router for s in loaded if s.replicas > 1} == set(ROUTERS)
    kinds = {s.workload.arrivals.kind for s in loaded if s.workload.arrivals is not None}
    variants = get_args(get_args(Arrivals)[0])
    assert kinds == {get_args(v.model_fields["kind"].annotation)[0] for v in variants}
    formats = set(get_args(PrecisionName)) - set(GGUF)  # of llama.cpp: tests/cost/test_llama_cpp
    weights = {w for w in formats if refusal("Precision", "weights", w) is None}
    assert {s.precision.weights for s in loaded} == weights - {"fp16", "fp32"}
    served = {"vllm", "sglang", "tensorrt-llm", "ideal", "reference", "transformers"}
    assert {spelled(s.engine).name for s in loaded} == {*served, str(FROZEN / "vllm.yaml")}
    assert served <= set(catalog.names("engines"))


def test_the_scenarios_reach_what_they_are_for() -> None:
    def most(*keys: str) -> int:
        return max(_at(read(name)["infersim"], keys) for name in CHANGES)

    assert most("preemptions") >= 20
    assert most("requests", "rejected") >= 50
    assert most("requests", "unfinished") >= 50
    assert most("requests", "not_arrived") >= 50
    assert most("requests", "warmup") >= 50
    states = {read(name)["infersim"]["verdict"]["state"] for name in CHANGES}
    assert states >= {"stable", "near saturation", "overloaded", "offline", "closed loop"}


def _at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def table(change: Callable[[pd.DataFrame], object] = lambda frame: None) -> dict[str, Any]:
    """Pins of a small table with a float, a whole and a worded column, after ``change``."""
    frame = pd.DataFrame(
        {"time": np.arange(9) / 7, "tokens": np.arange(9), "reason": [None, "long", "wide"] * 3}
    )
    change(frame)
    return {name: pin(name, frame[name].to_numpy()) for name in frame}


def test_one_changed_value_is_shown_with_its_figures() -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[3, "tokens"] = 13

    assert moved_in_table("requests", table(), table(change), True) == [
        "requests: tokens (int64, 9 values)",
        "    sum 36 -> 46",
        "    max 8 -> 13",
    ]


def test_the_last_bit_counts_where_the_arithmetic_is_the_same() -> None:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[3, "time"] = np.nextafter(3 / 7, 1)

    assert moved_in_table("requests", table(), table(change), True)
    assert moved_in_table("requests", table(), table(change), False) == []

    def more(frame: pd.DataFrame) -> None:
        frame.loc[3, "time"] += 1e-8

    shown = moved_in_table("requests", table(), table(more), False)
    assert shown[0] == "requests: time (float64, 9 values)"


def test_values_in_another_order_moved() -> None:
    def swap(frame: pd.DataFrame) -> None:
        frame.loc[[5, 7], "tokens"] = [7, 5]

    assert moved_in_table("requests", table(), table(swap), False) == [
        "requests: tokens (int64, 9 values)",
        "    other bytes; none of the figures differs",
    ]


def test_a_column_of_another_type_or_length_or_none_moved() -> None:
    def narrower(frame: pd.DataFrame) -> None:
        frame["tokens"] = frame["tokens"].astype("int32")

    assert moved_in_table("t", table(), table(narrower), True)[1] == '    dtype "int64" -> "int32"'
    assert moved_in_table("t", table(), {"time": table()["time"]}, True) == [
        "t: tokens is gone",
        "t: reason is gone",
    ]


def test_the_wording_of_a_reason_may_change_but_not_whose_it_is() -> None:
    def worded(frame: pd.DataFrame) -> None:
        frame["reason"] = frame["reason"].replace({"long": "too long", "wide": "too wide"})

    def other(frame: pd.DataFrame) -> None:
        frame.loc[1, "reason"] = "wide"

    assert moved_in_table("requests", table(), table(worded), True) == []
    assert moved_in_table("requests", table(), table(other), True)


def test_numbers_of_the_summary() -> None:
    old = {"a": 1, "b": 2.0, "c": None}
    assert moved_in_summary("summary", old, {**old, "d": 4}, True) == []
    assert moved_in_summary("summary", old, {"a": 1.0, "c": 0}, True) == [
        "summary: a 1 -> 1.0",
        "summary: b is gone, it was 2.0",
        "summary: c null -> 0",
    ]
    assert moved_in_summary("summary", {"b": 0.3}, {"b": 0.1 + 0.2}, False) == []
    assert moved_in_summary("summary", {"b": 0.3}, {"b": 0.1 + 0.2}, True)
    assert moved_in_summary("summary", {"b": 3.0}, {"b": 3.0 + 1e-8}, False)


def test_new_keys_are_a_note_and_no_failure() -> None:
    old = read("int4")
    new = copy.deepcopy(old)
    new["infersim"]["fresh"] = 1
    assert added(old, new) == ["summary: infersim.fresh"]
    assert moved(old, new) == []
    new["summary"]["duration"] *= 2
    first, *_, last = moved(old, new)
    assert first.startswith("summary: duration ")
    assert last == "(new, and no failure: summary: infersim.fresh)"
