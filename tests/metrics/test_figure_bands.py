"""Bands around the figures of a run: what they are made of, and where they reach an overload."""

from __future__ import annotations

import re
from itertools import product

import pytest

from sim.metrics.bands.bands import CHANCE
from sim.metrics.bands.figure_bands import RISING, figure_bands
from sim.result import simulate
from sim.scenario import load_scenario
from tests.places import FROZEN

CHAT = load_scenario(FROZEN / "chat.yaml").override({"run.requests": 400, "run.warmup": 0})


def test_every_headline_figure_has_bands_with_named_parts() -> None:
    result = simulate(CHAT.override({"run.requests": 1500}))
    found = figure_bands(result.record, result.summary, None)
    assert found is not None
    figures = found["figures"]
    wanted = ("mean_ttft_ms", "p99_tpot_ms", "mean_e2el_ms", "output_throughput", "capacity")
    assert {*wanted, "usd_per_million_output_tokens"} <= set(figures)
    for key in wanted[:-1]:
        (low, high), (least, most) = figures[key]["band50"], figures[key]["band90"]
        assert least < low <= result.summary[key] < high, key
        assert high < most or key == "output_throughput", key  # no more than arrives
    assert {"engine", "GPU", "this run"} <= set(figures["mean_tpot_ms"]["parts"])
    assert found["place"]["gpu"] == "h100-sxm"
    assert figures["p99_ttft_ms"]["parts"][CHANCE] > 0
    assert CHANCE not in figures["mean_ttft_ms"]["parts"]
    assert "With a chance of 90 %" in found["text"]


def test_no_more_is_served_than_arrives_in_an_open_loop() -> None:
    """6 requests/s arrive; the error of the times alone would reach to a sixth more."""
    asked = CHAT.override({"run.requests": 1500})
    result = simulate(asked)
    found = figure_bands(result.record, result.summary, None)
    assert found is not None
    figures, requests = found["figures"], result.record.requests
    assert figures["request_throughput"]["band90"][1] == pytest.approx(6.0)
    tokens = 6.0 * float(requests["output_tokens"].mean())
    assert figures["output_throughput"]["band90"][1] == pytest.approx(tokens)
    assert figures["capacity"]["band90"][1] > result.summary["infersim"]["verdict"]["headroom"]
    assert "output tokens/s, no more than arrive." in found["text"]
    users = {"kind": "closed", "concurrency": 8}
    closed = simulate(asked.override({"workload.arrivals": users, "run.requests": 100}))
    wide = figure_bands(closed.record, closed.summary, None)
    assert wide is not None
    assert wide["figures"]["output_throughput"]["band90"][1] > closed.summary["output_throughput"]
    assert "no more than arrive" not in wide["text"]


def test_a_token_costs_more_where_fewer_are_served() -> None:
    result = simulate(CHAT)
    found = figure_bands(result.record, result.summary, None)
    assert found is not None
    rate, cost = (
        found["figures"][key]["band90"]
        for key in ("output_throughput", "usd_per_million_output_tokens")
    )
    products = [low * high for low, high in zip(rate, reversed(cost), strict=True)]
    assert products[0] == pytest.approx(products[1])


def test_near_saturation_the_band_reaches_the_overload() -> None:
    asked = CHAT.override({"workload.arrivals.rate": 28, "run.requests": 4000})
    result = simulate(asked)
    assert result.summary["infersim"]["bands"] is None  # only what is shown has them
    found = result.bands
    assert found is not None
    assert found["figures"]["p99_ttft_ms"]["band90"][1] is None
    assert found["figures"]["p99_ttft_ms"]["band50"][1] is not None
    assert found["figures"]["p99_itl_ms"]["band90"][1] is not None  # full batches bound it
    assert re.search(r"TTFT p99 \d+ ms and up \(no upper end\)", found["text"])
    assert "The slower end is overloaded" in found["text"]
    calm = simulate(CHAT.override({"workload.arrivals.rate": 2})).bands
    assert calm is not None
    assert calm["figures"]["p99_ttft_ms"]["band90"][1] is not None


def test_ends_of_bands_are_in_the_order_of_the_figures() -> None:
    """A client of a closed loop waits behind others for a first token in some rounds alone, so that
    its median is far less sure than its mean."""
    closed = CHAT.override({"workload.arrivals": {"kind": "closed", "concurrency": 60}})
    for asked in (CHAT, closed):
        result = simulate(asked)
        found = figure_bands(result.record, result.summary, None)
        assert found is not None
        figures = found["figures"]
        for rising in (
            *([f"{rank}_{name}_ms" for rank in RISING] for name in ("ttft", "tpot", "itl", "e2el")),
            *([f"{rank}_ttft_ms", f"{rank}_e2el_ms"] for rank in ("mean", *RISING)),
        ):
            known = [figures[key] for key in rising if key in figures]
            for level, end in product(("band50", "band90"), (0, 1)):
                ends = [figure[level][end] for figure in known]
                assert ends == sorted(ends), (rising, level)
