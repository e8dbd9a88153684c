"""Bands of ratios: what two runs share cancels, what they do not adds up, and ends are used."""

from __future__ import annotations

import math

import pytest

from sim.catalog.spreads import PARTS, Deployed
from sim.metrics.bands.bands import WITHIN, Reach
from sim.metrics.bands.figure_bands import figure_bands
from sim.metrics.bands.ratio_bands import Error, alike_in, error_of, ratio_band
from sim.scenario import load_scenario
from sim.simulation import simulate

H100 = Deployed("vllm", "h100-sxm", "llama-3.1-8b", "llama, dense", "0.33")
H200 = H100._replace(gpu="h200-sxm")
ENGINE, GPU, OWN, LEFT = 0.1, 0.2, 0.3, 0.05


def error(where: Deployed, **changes: object) -> Error:
    parts = {"engine": ENGINE, "GPU": GPU, "this deployment": OWN, WITHIN: LEFT}
    spread = math.sqrt(sum(each**2 for each in parts.values()))
    return Error(where, "tpot, dense", Reach(0.0, 0.7 * spread, 2 * spread, parts))._replace(
        **changes
    )


def reach(one: Error, other: Error, shared: float = 0.0) -> tuple[float, float]:
    """How far the 90 % band of a ratio goes down and up, in logarithms."""
    low, high = ratio_band(1.0, one, other, shared=shared).band90
    return -math.log(low), math.inf if high is None else math.log(high)


def test_runs_of_one_deployment_differ_by_what_is_within_alone() -> None:
    one = error(H100)
    assert reach(one, one) == pytest.approx((2 * LEFT * math.sqrt(2),) * 2)
    assert reach(one, one, shared=1.0) == pytest.approx((0, 0), abs=1e-12)
    half = reach(one, one, shared=0.5)
    assert half == pytest.approx((2 * LEFT,) * 2)


def test_what_is_not_shared_adds_up_in_squares() -> None:
    one, other = error(H100), error(H200)  # of one engine
    alone = 2 * (GPU**2 + OWN**2 + LEFT**2)
    assert reach(one, other) == pytest.approx((2 * math.sqrt(alone),) * 2)
    assert alike_in(H100, H200) == ["kind of figure", "engine", "model family"]
    assert alike_in(H100, H100) == list(PARTS)
    older = H100._replace(release="0.19")
    assert alike_in(H100, older) == [part for part in PARTS if part != "release"]
    assert set(ratio_band(1.0, one, other).parts) == {"GPU", "this deployment", WITHIN}


def test_figures_of_another_kind_share_nothing() -> None:
    one, other = error(H100), error(H100, kind="ttft, online, dense")
    whole = 2 * (ENGINE**2 + GPU**2 + OWN**2 + LEFT**2)
    assert reach(one, other) == pytest.approx((2 * math.sqrt(whole),) * 2)


def test_a_ratio_is_expected_where_both_figures_are() -> None:
    one, other = error(H100), error(H200)
    moved = one._replace(reach=one.reach._replace(centre=0.2))
    (down, up), (low, high) = reach(one, other), reach(moved, other)
    assert (low, high) == pytest.approx((down - 0.2, up + 0.2))


def test_runs_at_the_ends_are_within_the_band() -> None:
    """Both slow down together, the first by far more: it is near saturation."""
    one = error(H100, ends=(-0.9, 2.5))
    other = error(H100, ends=(-0.4, 0.4))
    assert reach(one, other) == pytest.approx((0.5, 2.1))
    apart = other._replace(place=H200)
    assert reach(one, apart)[1] == pytest.approx(math.hypot(2.5, 0.4))


def test_an_overload_at_the_slower_end_has_no_bound() -> None:
    calm = error(H100)
    over = calm._replace(overload=True)
    assert reach(over, calm)[1] == math.inf
    assert ratio_band(1.0, calm, over).band90[0] == 0
    assert ratio_band(1.0, over, calm).band50[1] > 0


def test_the_error_of_a_figure_is_read_from_the_bands_of_its_run() -> None:
    result = simulate(load_scenario("scenarios/chat.yaml").override({"run.requests": 50}))
    bands = figure_bands(result.record, result.summary, None)
    found = error_of(bands, "mean_tpot_ms")
    assert found is not None
    assert found.place == H100
    assert found.kind == "tpot, dense"
    assert found.reach.ninety > found.reach.half > 0
    assert error_of(bands, "no such figure") is None
    assert error_of(None, "mean_tpot_ms") is None
