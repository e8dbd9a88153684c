"""A terminal calls what was observed observed, and what nobody knows a dash."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from rich.console import Console

import sim
from sim.terminal.console import WIDTH
from sim.terminal.findings import run_view

LENGTHS = {"kind": "fixed", "value": 20}
SCENARIO = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": LENGTHS,
        "output_tokens": LENGTHS,
    },
    "run": {"requests": 3},
}


@pytest.fixture(scope="module")
def simulated() -> dict[str, Any]:
    return sim.simulate(sim.load_scenario(SCENARIO)).summary


def printed(summary: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(run_view(summary))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= WIDTH
    return str(text)


def observed(simulated: dict[str, Any]) -> dict[str, Any]:
    summary = copy.deepcopy(simulated)
    summary["infersim"]["verdict"]["state"] = "observed"
    summary["infersim"]["provenance"] = "some engine on some device"
    return summary


def test_an_observed_run_is_not_called_simulated(simulated: dict[str, Any]) -> None:
    text = printed(observed(simulated))
    for word in ("observed time", "Source: some engine on some device"):
        assert word in text
    for word in ("simulated", "Prices", "Bound by"):
        assert word not in text


def test_a_simulated_run_is_called_so(simulated: dict[str, Any]) -> None:
    text = printed(simulated)
    for word in ("simulated time", "Kernel timings: ", "Bound by: ", "KV cache size: "):
        assert word in text
    assert "observed" not in text


def test_what_nobody_knows_is_a_dash(simulated: dict[str, Any]) -> None:
    summary = observed(simulated)
    own = summary["infersim"]
    for part in ("batch", "utilisation", "queue_ms", "kv_cache"):
        own[part] = dict.fromkeys(own[part])
    own["preemptions"] = None
    text = printed(summary)
    cells = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("│")]
        if len(parts) == 6:
            cells |= {parts[1]: parts[2], parts[3]: parts[4]}
    assert cells["preemptions"] == cells["iterations"] == cells["mean iteration"] == "-"
    assert cells["running (peak)"] == cells["waiting (peak)"] == "- (-)"
    assert cells["completed"] == "3"
    assert "KV cache size" not in text
    assert "Maximum concurrency" not in text
