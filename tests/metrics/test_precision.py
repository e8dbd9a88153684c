"""A run is long enough for its p99 or says so: intervals cover, notes speak when they must."""

import json
import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sim
from sim.metrics.enough.precision import conclusion
from sim.metrics.latency.intervals import (
    inflation,
    percentile_interval,
    share_interval,
    wilson,
)
from tests.places import ROOT
from tests.planning_fixtures import SMALL

Floats = NDArray[np.float64]

LEAST = 368
"""Independent values from which on the largest of them is a bound for p99."""


def chat(**changes: Any) -> dict[str, Any]:
    """``infersim`` of the summary of scenarios/chat.yaml with other values."""
    scenario = sim.load_scenario(ROOT / "scenarios" / "chat.yaml")
    own = sim.simulate(scenario.override({k.replace("__", "."): v for k, v in changes.items()}))
    summary: dict[str, Any] = own.summary["infersim"]
    json.dumps(summary, allow_nan=False)
    return summary


def covers(values: Floats, truth: float) -> bool:
    found = percentile_interval(values, 0.99)
    assert found.low is not None
    return found.low <= truth <= (math.inf if found.high is None else found.high)


# -- coverage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [368, 1000, 4000])
def test_independent_values(size: int) -> None:
    draws = np.random.default_rng(7).exponential(size=(1000, size))
    covered = sum(covers(row, -math.log(0.01)) for row in draws)
    assert 920 <= covered <= 985


def test_correlated_values() -> None:
    random, phi, truth = np.random.default_rng(8), 0.9, 2.3263478740408408
    covered = 0
    for _ in range(100):
        noise = random.normal(size=8000) * math.sqrt(1 - phi**2)
        steps = accumulate(noise.tolist(), lambda a, b: phi * a + b, initial=random.normal())
        covered += covers(np.array(list(steps)), truth)
    assert covered >= 85


def test_a_queue() -> None:
    """M/M/1 at half its capacity: times in the system are exponential with mean 1 / (1 - 0.5)."""
    random, load = np.random.default_rng(9), 0.5
    truth = -math.log(0.01) / (1 - load)
    covered = bounded = 0
    for _ in range(100):
        gaps, work = random.exponential(1 / load, 8000), random.exponential(size=8000)
        change = np.concatenate([[0.0], work[:-1] - gaps[1:]])
        walk = np.cumsum(change)
        waits = walk - np.minimum.accumulate(walk)
        covered += covers(waits + work, truth)
        bounded += percentile_interval(waits + work, 0.99).high is not None
    assert covered >= 85
    assert bounded > 80


# -- the arithmetic ------------------------------------------------------------------------------


def test_bounds_by_hand() -> None:
    # of 1,000 values, binomial(1000, 0.01): P(<= 3) = 0.010, P(<= 4) = 0.029; P(>= 17) = 0.026,
    # P(>= 18) = 0.014. So 3 values lie above the upper bound and 17 above the lower one.
    spread_out = np.arange(1000.0) % 100 + np.arange(1000) / 1000  # exceedances at equal distances
    found = percentile_interval(spread_out, 0.99)
    assert found.effective == 1000
    ranked = np.sort(spread_out)[::-1]
    assert (found.low, found.high) == (ranked[17], ranked[3])


def test_too_few_values_have_no_upper_bound() -> None:
    assert 0.99**LEAST <= 0.025 < 0.99 ** (LEAST - 1)
    even = np.tile([*range(99), 200.0], 4)
    assert percentile_interval(even[: LEAST - 1], 0.99).high is None
    assert percentile_interval(even[:LEAST], 0.99).high == 200.0
    assert percentile_interval(np.array([3.0]), 0.99).low == 3.0
    assert percentile_interval(np.array([]), 0.99) == (None, None, 0, 0)


def test_equal_values_are_sure() -> None:
    assert percentile_interval(np.full(1000, 2.5), 0.99)[:2] == (2.5, 2.5)


def test_a_single_burst_of_long_ones_counts_as_little() -> None:
    values = np.random.default_rng(2).random(10_000)
    values[5000:5100] += 10
    found = percentile_interval(values, 0.99)
    assert found.effective < 150
    assert found.high is None


def test_how_many_requests_would_do() -> None:
    entry = {"low": 80.0, "high": 130.0, "effective_samples": 900}
    said = conclusion({"p99_ttft_ms": entry}, {"p99_ttft_ms": 100.0}, 1000)
    assert said["sufficient"] is False
    assert said["requests_needed"] == 4000  # twice as wide as allowed: four times as many
    assert said["text"].endswith("TTFT 80 ms to 130 ms. About 4,000 requests would do.")
    few = {"low": 80.0, "high": None, "effective_samples": 184}
    said = conclusion({"p99_e2el_ms": few}, {"p99_e2el_ms": 100.0}, 1000)
    assert said["requests_needed"] == 2000
    assert said["text"].endswith("E2EL above 80 ms. At least 2,000 requests are needed.")
    narrow = {"low": 90.0, "high": 115.0, "effective_samples": 900}
    assert conclusion({"p99_tpot_ms": narrow}, {"p99_tpot_ms": 100.0}, 9)["sufficient"] is True


# -- runs ----------------------------------------------------------------------------------------


def test_a_run_of_200_requests_is_too_short() -> None:
    own = chat(run__requests=200)
    assert own["precision"]["sufficient"] is False
    assert own["precision"]["p99_ttft_ms"]["high"] is None
    assert own["precision"]["text"] in own["notes"]
    assert own["precision"]["requests_needed"] >= 368


def test_the_chat_scenario_is_long_enough_and_says_nothing() -> None:
    own = chat()
    assert own["precision"]["sufficient"] is True
    assert not any("p99" in note for note in own["notes"])
    for name in ("ttft", "tpot", "e2el"):
        entry = own["precision"][f"p99_{name}_ms"]
        assert entry["samples"] >= entry["effective_samples"] > LEAST
        assert 0 < entry["high"] - entry["low"] < 0.25 * entry["high"]


def test_what_it_asks_for_is_enough() -> None:
    needed = chat(run__requests=1500)["precision"]["requests_needed"]
    assert 1500 < needed < 15_000
    assert chat(run__requests=2 * needed)["precision"]["sufficient"] is True


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workload__arrivals": {"kind": "burst"}}, "there from the start"),
        ({"workload__arrivals__rate": 200}, "overload"),
        ({"max_model_len": 2}, "no request was completed"),
        ({"run__warmup": "1h"}, "belongs to the warm-up"),
        ({"workload__arrivals": {"kind": "ramp", "rate": 1, "final_rate": 6, "duration": "1min"}},
         "rate of arrivals changes"),
    ],
)  # fmt: skip
def test_silence_where_the_p99_is_no_property_of_the_system(
    changes: dict[str, Any], why: str
) -> None:
    own = chat(run__requests=1500, **changes)
    assert own["precision"]["sufficient"] is None
    assert why in own["precision"]["text"]
    assert own["precision"]["p99_ttft_ms"]["high"] is None
    assert not any("p99" in note for note in own["notes"])


def test_a_trace_that_was_played_to_its_end_has_no_more_requests(tmp_path: Path) -> None:
    rows = "".join(f"{i / 10},{100 + i % 7 * 30},{10 + i % 11}\n" for i in range(200))
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    scenario = {**SMALL, "workload": {"trace": {"path": str(tmp_path / "t.csv")}}}
    for requests, whole in ((None, True), (150, False)):
        result = sim.simulate({**scenario, "run": {"requests": requests}})
        text = result.summary["infersim"]["precision"]["text"]
        assert text.startswith("Too few requests")
        assert text.endswith("The trace has no more than these 200.") == whole


def test_batches_as_long_as_the_memory_see_correlation_that_short_ones_miss() -> None:
    """Crowds that last 500 requests: batches of 100 take each for five independent ones."""
    random = np.random.default_rng(3)
    crowded = np.repeat(random.random(6) < 0.5, 500)
    late = crowded & (random.random(3000) < 0.5)
    assert inflation(late, 500.0) > 2 * inflation(late)
    alone = random.random(3000) < 0.1
    assert inflation(alone, 500.0) < 10, "independent requests stay so, but for Student's t"


def test_few_batches_bound_a_percentile_from_below_only() -> None:
    values = np.random.default_rng(4).exponential(size=4000)
    found = percentile_interval(values, 0.99, 300.0)
    assert found.high is None
    assert found.low is not None
    assert found.low < -np.log(0.01)
    assert percentile_interval(values, 0.99, 100.0).high is not None


def test_a_share_of_neighbours_that_fare_alike_is_less_sure() -> None:
    """Ten long crowds in 3,000 requests, and as many late ones without any order."""
    crowds = np.arange(3000) % 300 >= 30
    mixed = np.random.default_rng(1).permutation(crowds)
    alike, apart = share_interval(crowds), share_interval(mixed)
    assert alike[0] < apart[0] < 0.9 < apart[1] < alike[1]
    assert alike == wilson(0.9, 3000 / inflation(crowds))
    assert alike[1] - alike[0] > 1.5 * (apart[1] - apart[0])
