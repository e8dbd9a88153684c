"""Bands of ratios: what two runs share cancels, what they do not adds up, and ends are used."""

from __future__ import annotations

import math

import pytest

from sim.catalog.spreads import Spreads
from sim.metrics.bands.figure_bands import figure_bands
from sim.metrics.bands.ratio_bands import Error, error_of, ratio_band, shared_parts
from sim.scenario import load_scenario
from sim.simulation import simulate

SPREADS = Spreads({"decodes": 0.1, "host": 0.2}, 0.7, 2.0, shared=1.0)
H100, H200 = {"kernels": "H100", "engine": "vllm"}, {"kernels": "H200", "engine": "vllm"}


def reach(one: Error, other: Error, spreads: Spreads = SPREADS) -> tuple[float, float]:
    """How far the 90 % band of a ratio goes down and up, in logarithms."""
    low, high = ratio_band(1.0, one, other, spreads).band90
    return -math.log(low), math.inf if high is None else math.log(high)


def test_what_is_shared_cancels_as_far_as_both_depend_on_it() -> None:
    one, other = Error({"decodes": 1.0}, H100), Error({"decodes": 0.4}, H100)
    assert reach(one, one) == pytest.approx((0, 0), abs=1e-12)
    assert reach(one, other) == pytest.approx((0.12, 0.12))  # 2 x 0.1 x 0.6
    faster = Error({"decodes": -1.0}, H100)  # a rate: it falls where the other figure grows
    assert reach(one, faster) == pytest.approx((0.4, 0.4))


def test_what_is_not_shared_adds_up_in_squares() -> None:
    one, other = (
        Error({"decodes": 1.0, "host": 0.5}, H100),
        Error({"decodes": 1.0, "host": 0.5}, H200),
    )
    assert reach(one, other) == pytest.approx((2 * math.sqrt(0.02),) * 2)  # the host is shared
    half = SPREADS._replace(shared=0.5)
    alone = 0.02 + 0.01  # and half of what it brings to both
    assert reach(one, other, half) == pytest.approx((2 * math.sqrt(alone),) * 2)
    assert shared_parts(H100, H200) == ["engine"]
    assert set(ratio_band(1.0, one, other, half).parts) == {"kernels", "engine"}


def test_runs_at_the_ends_take_the_place_of_the_times() -> None:
    """Both slow down together, the first by far more: it is near saturation."""
    one = Error({"decodes": 1.0}, H100, ends=(-0.3, 1.5))
    other = Error({"decodes": 1.0}, H100, ends=(-0.1, 0.1))
    assert reach(one, other) == pytest.approx((0.2, 1.4))
    apart = other._replace(kin=H200)
    assert reach(one, apart) == pytest.approx((math.hypot(0.3, 0.1), math.hypot(1.5, 0.1)))


def test_an_overload_at_the_slower_end_has_no_bound() -> None:
    calm = Error({"decodes": 1.0}, H100)
    over = calm._replace(overload=True)
    assert reach(over, calm)[1] == math.inf
    assert ratio_band(1.0, calm, over, SPREADS).band90[0] == 0
    assert ratio_band(1.0, over, calm, SPREADS).band50[1] > 0


def test_chance_adds_to_all_others() -> None:
    one = Error({"decodes": 1.0}, H100)
    low, high = ratio_band(2.0, one, one, SPREADS, chance=0.1).band90
    assert (low, high) == pytest.approx((2 * math.exp(-0.16449), 2 * math.exp(0.16449)))


def test_the_bands_of_a_run_say_what_puts_its_figures_off() -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 300, "run.warmup": 0})
    found = []
    for gpu in ("h100-sxm", "h200-sxm"):
        result = simulate(chat.override({"fleet.0.gpu": gpu}))
        found.append(figure_bands(result.record, result.summary, None))
    one, other = found
    assert one is not None
    assert other is not None
    assert "kernels" not in shared_parts(one["kin"], other["kin"])
    assert {"engine", "front end", "traffic"} <= set(shared_parts(one["kin"], other["kin"]))
    token, rate = error_of(one, "mean_tpot_ms"), error_of(one, "output_throughput")
    assert token is not None
    assert rate is not None
    assert token.causes["decodes"] > 0 > rate.causes["decodes"]
    assert error_of(one, "verdict.attainment") is error_of(None, "mean_tpot_ms") is None
    older = {**one, "figures": {"mean_tpot_ms": {"band50": [1, 2], "band90": [1, 2], "parts": {}}}}
    assert error_of(older, "mean_tpot_ms") is None
