"""Between which loads chance leaves the answer open: hand-made shares on a known curve."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest

from sim.metrics.bands.end_times import TimeBand
from sim.metrics.latency.intervals import wilson
from sim.metrics.slo.objectives import Attained, Objective
from sim.planning.load.probe import STABILITY, Probe
from sim.planning.load.settled import open_between

TARGET, SLOPE, CHANGE = 0.95, 12.0, 100.0
NORMAL = NormalDist()


def share_at(load: float) -> float:
    """A probit that falls by ``SLOPE`` where the load is e times as high."""
    return NORMAL.cdf(NORMAL.inv_cdf(TARGET) - SLOPE * math.log(load / CHANGE))


def probe(load: float, effective: float = 400.0, *, share: float | None = None) -> Probe:
    """Of 10,000 requests that tell as much as ``effective`` independent ones."""
    kept = share_at(load) if share is None else share
    low, high = wilson(kept, effective)
    seen = Attained(Objective({"ttft": 0.5}, TARGET), kept, low, high, (), 10_000, effective)
    return Probe(
        load=load,
        holds=seen.kept,
        sure=seen.sure,
        breaks="ttft",
        runs=2,
        requests=10_000,
        attained=(seen,),
        state="stable",
        utilisation=0.8,
        figures={},
        band=TimeBand(0.1, 0.1),
    )


def test_the_ends_are_where_the_ends_of_the_share_reach_the_target() -> None:
    best, fails = probe(99.0), probe(101.0)
    low, high = open_between(best, fails, [best, fails])
    assert low is not None
    assert high is not None
    for bound, reached, furthest in ((0, low, min), (1, high, max)):
        carried = []
        for load in (99.0, 101.0):
            end = NORMAL.inv_cdf(wilson(share_at(load), 400.0)[bound])
            carried.append(load * math.exp((end - NORMAL.inv_cdf(TARGET)) / SLOPE))
        assert reached == pytest.approx(furthest(carried))
    assert low < best.load
    assert fails.load < high


def test_more_requests_leave_less_open() -> None:
    widths = []
    for effective in (100.0, 400.0, 1_600.0):
        low, high = open_between(probe(99.0, effective), probe(101.0, effective), [])
        assert low is not None
        assert high is not None
        widths.append(math.log(high / low))
    assert widths == sorted(widths, reverse=True)
    assert widths[0] / widths[2] == pytest.approx(4, rel=0.25)


def test_a_run_that_met_no_crowd_is_as_unsure_as_the_others() -> None:
    alone = open_between(probe(99.0, 4_000), probe(101.0, 4_000), [])
    beside = open_between(probe(99.0, 4_000), probe(101.0, 4_000), [probe(104.0, 400)])
    assert beside == pytest.approx(open_between(probe(99.0), probe(101.0), []), rel=1e-6)
    assert alone[0] is not None
    assert beside[0] is not None
    assert beside[0] < alone[0]


def test_what_is_decided_is_its_own_end() -> None:
    assert open_between(probe(90.0), probe(112.0), []) == (90.0, 112.0)
    assert open_between(probe(90.0), None, []) == (90.0, None)
    assert open_between(probe(99.0), None, []) == (None, None)


def test_a_cliff_is_between_its_two_loads() -> None:
    best, fails = probe(99.0, share=1.0), probe(101.0, share=0.0)
    assert open_between(best, fails, []) == (99.0, 101.0)


def test_a_load_without_capacity_to_spare_is_not_sure_to_hold() -> None:
    full = replace(probe(90.0), utilisation=1.0)
    low, _ = open_between(full, probe(112.0), [])
    assert low is not None
    assert 0.9 * 90.0 < low < 90.0


def test_shares_that_do_not_fall_say_nothing_of_the_load() -> None:
    best = probe(99.0, share=0.951)
    fails = replace(probe(101.0, share=0.952), holds=False, sure=True, breaks=STABILITY)
    assert open_between(best, fails, []) == (None, 101.0)
