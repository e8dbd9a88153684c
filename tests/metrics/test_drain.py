"""A token costs what it does while requests come, not what the end of a run makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from sim.cost.power import PowerModel
from sim.metrics.texts import replica_name
from sim.planning.contrast.runs import compare_runs
from sim.result import Result
from sim.terminal.console import as_text
from sim.units import show_utilisation
from tests.answers import compare_view, headlines
from tests.places import VLLM

PRICE = 3.6
"""USD per GPU hour: a thousandth of a dollar a second."""


def run(rate: float, **changes: Any) -> Result:
    """100 requests of 900 tokens of answer: each takes long to end after the last has come."""
    scenario = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm", "price_per_gpu_hour": PRICE},
        "max_model_len": 2048,
        "workload": {
            "arrivals": {"kind": "constant", "rate": rate},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 900},
        },
        "run": {"requests": 100},
    }
    return sim.simulate(scenario | changes)


def noted(result: Result) -> list[str]:
    notes = result.summary["infersim"]["notes"]
    return [note for note in notes if "only finished what it had begun" in note]


def test_a_token_costs_the_rate_at_which_requests_come() -> None:
    """10 requests/s of 900 tokens are 9,000 tokens a thousandth of a dollar, however long the last
    answers take after that."""
    result = run(10.0)
    duration, cost = result.summary["duration"], result.summary["infersim"]["cost"]
    assert duration > 12
    assert cost["usd"] == pytest.approx(PRICE / 3600 * duration)
    assert cost["usd_per_million_output_tokens"] == pytest.approx(1e-3 / 9000 * 1e6)
    assert cost["usd_per_million_tokens"] == pytest.approx(1e-3 / 10_000 * 1e6)
    (note,) = noted(result)
    assert note.startswith("10 requests/s were accepted and served while they came")


def uneven(path: Path, router: str) -> Result:
    """One session of a trace has half of the requests: more than its replica of two serves."""
    random = np.random.default_rng(1)
    arrivals = np.cumsum(random.exponential(1 / 40, 3000))
    rows = [
        f"{at:.4f},700,300,{'big' if random.random() < 0.8 else f's{number}'}"
        for number, at in enumerate(arrivals)
    ]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,session", *rows]), "utf-8")
    return sim.simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm", "replicas": 2, "price_per_gpu_hour": PRICE},
            "engine": VLLM,
            "router": router,
            "max_model_len": 8192,
            "workload": {"trace": {"path": str(path)}},
            "slo": {"ttft": "1s", "attainment": 0.9},
        }
    )


def test_an_overloaded_replica_does_not_stretch_the_time_of_the_others(tmp_path: Path) -> None:
    """Rates of the whole run are divided by the drain of one replica; those of ``while_arriving``
    and the cost of a token are not."""
    result = uneven(tmp_path / "skewed.csv", "session-affinity")
    table, own = result.requests, result.summary["infersim"]
    found, last = own["while_arriving"], table["arrival_s"].max()
    finished = table.groupby("replica")["finish_s"].max()
    late = int(finished.idxmax())
    assert own["verdict"]["state"] == "overloaded"
    assert (found["last"], found["drain_s"]) == (
        replica_name(late),
        pytest.approx(finished[late] - last),
    )
    assert found["others_s"] == pytest.approx(max(0.0, finished[1 - late] - last))
    came = (last - table["arrival_s"].min()) * 3000 / 2999
    assert found["request_goodput"] == pytest.approx(table["slo_met"].sum() / came)
    tokens = table.groupby("replica")["generated_tokens"].sum()
    busy = finished[late] - table["arrival_s"].min()
    rate = tokens[late] / busy + tokens[1 - late] / came
    assert found["output_throughput"] == pytest.approx(rate)
    assert found["output_throughput"] > 1.05 * result.summary["output_throughput"]
    per_token = own["cost"]["usd_per_million_output_tokens"]
    assert per_token == pytest.approx(2 * PRICE / 3600 / rate * 1e6)
    assert any("was still working" in note for note in own["notes"])


def test_a_comparison_has_the_ratio_while_requests_come(tmp_path: Path) -> None:
    """The ratio of whole runs stands behind that of the offered load, and the table has the latter;
    latencies of the overloaded one are no measure."""
    path, folders = tmp_path / "skewed.csv", []
    for router in ("least-outstanding", "session-affinity"):
        folders.append(tmp_path / router)
        uneven(path, router).save(folders[-1])
    document = compare_runs(folders)
    keys = "request_goodput", "while_arriving.request_goodput"
    whole, goodput = (next(f for f in document["figures"] if f["key"] == key) for key in keys)
    even, one = document["variants"]
    times = even["while_arriving"]["request_goodput"] / one["while_arriving"]["request_goodput"]
    assert goodput["means"][0] / goodput["means"][1] == times
    over_all = whole["means"][0] / whole["means"][1]
    assert over_all > 1.2 * times
    text = " ".join(headlines(document))
    assert f"Over the whole run: {over_all:.3g}x session-affinity" in text
    assert text.index(f"{times:.2g}x session-affinity") < text.index("Over the whole run")
    assert "was still working" in text
    assert "Latencies of session-affinity grow with the length of the run" in text
    shown = as_text(compare_view(document))
    assert f" {even['while_arriving']['request_goodput']:.3g} " in shown
    assert f" {whole['means'][0]:.3g} " not in shown
    assert "Busiest" in shown
    assert f" {show_utilisation(one['busiest_replica']['utilisation'])[:-1]} " in shown


def test_a_token_draws_what_it_does_without_the_rest_at_the_end() -> None:
    """Joules of a token are those of the run less the rest of the GPU after the last arrival."""
    result = run(10.0)
    energy, duration = result.summary["infersim"]["energy"], result.summary["duration"]
    whole = energy["mean_watts_per_gpu"] * duration
    rest = whole - energy["joules_per_output_token"] * 90_000
    idle = rest / (duration - 10.0)
    assert idle == pytest.approx(PowerModel(result.record.pools[0].deployment).idle)
    assert energy["joules_per_request"] == pytest.approx(900 * energy["joules_per_output_token"])


def test_a_long_run_has_no_drain_to_name() -> None:
    assert noted(run(1.0, run={"requests": 400})) == []


@pytest.mark.parametrize(
    "arrivals", [{"kind": "closed", "concurrency": 8}, {"kind": "burst"}], ids=["closed", "burst"]
)
def test_requests_that_do_not_come_by_the_clock_cost_the_whole_run(arrivals: Any) -> None:
    workload = {
        "arrivals": arrivals,
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 900},
    }
    result = run(0.0, workload=workload)
    cost = result.summary["infersim"]["cost"]
    assert cost["usd_per_million_output_tokens"] == pytest.approx(cost["usd"] / 90_000 * 1e6)
    assert noted(result) == []


def test_an_overloaded_fleet_costs_the_whole_run() -> None:
    """It works on at its capacity after the last arrival."""
    result = run(200.0, run={"requests": 3000})
    cost, outputs = result.summary["infersim"]["cost"], result.summary["total_output_tokens"]
    assert result.summary["infersim"]["verdict"]["state"] == "overloaded"
    assert cost["usd_per_million_output_tokens"] == pytest.approx(cost["usd"] / outputs * 1e6)
