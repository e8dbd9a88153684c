"""``charts.json`` and what operators did: exact where they say so, and consistent with the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from sim.metrics.charts import work
from sim.metrics.latency.gaps import STEPS, Gaps
from sim.result import Result
from sim.scenario.pools import only
from tests.dense_models import attention_of, mlp_of
from tests.reports.test_report_sections import SCENARIO


@pytest.fixture(scope="module", params=[1, 2])
def result(request: pytest.FixtureRequest) -> Result:
    """On one GPU a replica, and on two."""
    fleet = {"fleet.0.tensor_parallel": request.param}
    return sim.simulate(sim.load_scenario(SCENARIO).override(fleet))


def points(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.charts["roofline"]["points"]
    return found


def test_the_operating_points_are_the_whole_run(result: Result) -> None:
    attribution = result.record.attribution
    sums = {name: sum(point[name] for point in points(result)) for name in ("flops", "bytes")}
    assert sums["flops"] == pytest.approx(attribution.flops, rel=1e-12)
    assert sums["bytes"] == pytest.approx(attribution.bytes, rel=1e-12)
    assert sum(p["seconds"] for p in points(result)) == pytest.approx(attribution.seconds)
    iterations = result.summary["infersim"]["batch"]["iterations"]
    assert sum(point["iterations"] for point in points(result)) == iterations


def test_points_are_told_apart_by_what_they_do(result: Result) -> None:
    plans = result.record.plans
    for kind, chosen in (
        ("decode", plans["prefill_seqs"] == 0),
        ("prefill", plans["computed"] == 0),
        ("mixed", (plans["prefill_seqs"] > 0) & (plans["computed"] > 0)),
    ):
        iterations = sum(point["iterations"] for point in points(result) if point["kind"] == kind)
        assert iterations == plans["iterations"][chosen].sum()


def test_the_work_of_one_decode_by_hand(result: Result) -> None:
    """Two FLOP for each weight of a product and each token, and attention over the context."""
    record = result.record
    alone = record.plans[(record.plans["prefill_seqs"] == 0)][:1]
    flops, moved = work(only(record.pools).cost, alone)
    d = only(record.pools).deployment
    model, gpus, weights = d.model, d.layout.gpus, d.weight_bytes()
    heads, h, head = attention_of(model), model.hidden_size, attention_of(model).head_dim
    layer = h * (heads.num_heads + 2 * heads.num_kv_heads) * head + heads.num_heads * head * h
    layer += 3 * h * mlp_of(model).intermediate_size
    n, times = int(alone["computed"][0]), int(alone["iterations"][0])
    products = 2 * n * (model.num_layers * layer + h * model.vocab_size) / gpus
    context = int(alone["context"][0]) + n + n * (times - 1) / 2
    attention = 4 * heads.num_heads * head * context * model.num_layers / gpus
    assert flops[0] == pytest.approx(times * (products + attention))
    assert moved[0] > times * weights * 0.85  # no embedding is read


def test_what_operators_did_adds_up(result: Result) -> None:
    own, attribution = result.summary["infersim"], result.record.attribution
    for name, share in own["time_by_operator"].items():
        if name == "host":
            assert name not in own["operators"]
            continue
        entry = own["operators"][name]
        bounds = ("compute", "memory", "latency", "communication")
        seconds = sum(entry[bound] for bound in bounds)
        assert seconds == pytest.approx(share * attribution.seconds)
    for bound, share in own["bound_by"].items():
        if bound != "host":
            total = sum(entry[bound] for entry in own["operators"].values())
            assert total == pytest.approx(share * attribution.seconds)


def test_the_distribution_of_gaps_is_exact_where_it_is_given(result: Result) -> None:
    gaps = Gaps.recorded(result.record.plans, result.record.gaps)
    seconds, share = gaps.curve()
    values, weights = gaps.written_out()
    for at in range(0, len(seconds), 7):
        within = weights[values <= seconds[at]].sum() / weights.sum()
        assert share[at] == pytest.approx(within, abs=1e-12)
    assert share[-1] == pytest.approx(1.0)
    assert seconds[-1] == values[-1]
    assert (np.diff(seconds) > 0).all()
    assert seconds[0] >= values[0] * 10 ** (-2 / STEPS)


def test_gaps_of_an_even_beat_and_of_nothing() -> None:
    one = np.ones(1)
    seconds, share = Gaps(0.02 * one, 0 * one, 5 * one, 3 * one).curve()
    assert (seconds[-1], share[-1]) == (0.02, 1.0)
    assert share[:-1].tolist() == [0.0] * (len(share) - 1)
    none = np.empty(0)
    assert [len(column) for column in Gaps(none, none, none, none).curve()] == [0, 0]
    zero = Gaps(0 * one, 0 * one, one, one).curve()
    assert (zero[0][-1], zero[1][-1]) == (0.0, 1.0)


def test_the_file_has_what_the_result_has(result: Result, tmp_path: Path) -> None:
    directory = result.save(tmp_path / "run")
    assert json.loads((directory / "charts.json").read_text()) == result.charts


def test_nothing_was_run(tmp_path: Path) -> None:
    scenario = sim.load_scenario(SCENARIO).override({"max_model_len": 40})
    result = sim.simulate(scenario)
    assert result.charts == {"itl": None, "roofline": None, "power": None}
    assert result.summary["infersim"]["operators"] == {}
    limits = result.summary["infersim"]["verdict"]["limits"]
    assert limits["ttft"]["attainment"] == limits["ttft"]["low"] == 0.0
    assert 0 < limits["ttft"]["high"] < 0.05
