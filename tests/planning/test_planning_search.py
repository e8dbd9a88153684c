"""The searches of ``find`` and ``plan`` on thresholds that are known, and what constraints say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UsageError
from sim.metrics.slo.objectives import Objective, SeenShare, limits_ms, pooled, wilson
from sim.planning.fleet.choose import read_rate
from sim.planning.fleet.constraints import Constraints, read_constraints
from sim.planning.fleet.sizing import smallest
from sim.planning.load.search import search


@given(
    threshold=st.floats(1e-2, 1e3),
    guess=st.floats(1e-3, 1e4),
    tolerance=st.floats(0.002, 0.3),
)
def test_a_threshold_is_bracketed_from_any_guess(
    threshold: float, guess: float, tolerance: float
) -> None:
    found = search(
        lambda load: -math.inf if load <= threshold else math.inf,
        guess,
        lowest=1e-3,
        highest=1e4,
        tolerance=tolerance,
    )
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= threshold < found.fails
    assert found.fails / found.holds <= 1 + tolerance * (1 + 1e-9)


@given(
    threshold=st.floats(1e-2, 1e3),
    guess=st.floats(1e-3, 1e4),
    tolerance=st.floats(0.002, 0.3),
    power=st.floats(0.05, 60),
    bend=st.floats(0, 50),
    noise=st.floats(0, 0.2),
)
def test_whatever_strain_says_the_threshold_is_bracketed(
    threshold: float, guess: float, tolerance: float, power: float, bend: float, noise: float
) -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        far = power * math.log(load / threshold)
        far = far * (1 + bend * far) if far > 0 else far
        far += noise * math.sin(1e4 * load)  # what it says of a load is right but for its sign
        return min(far, 0.0) if load <= threshold else max(far, 1e-3)

    found = search(strain, guess, lowest=1e-3, highest=1e4, tolerance=tolerance)
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= threshold < found.fails
    assert found.fails / found.holds <= 1 + tolerance * (1 + 1e-9)
    assert len(tried) == len(set(tried)) <= 60


def test_where_strain_says_nothing_ratios_are_halved() -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        return -math.inf if load <= 5 else math.inf

    search(strain, 1.0, lowest=1, highest=1e4, tolerance=0.1, first_step=99)
    assert tried[:4] == pytest.approx([1, 100, 10, math.sqrt(10)])


@pytest.mark.parametrize("guess", [9.0, 9.9, 10.05, 11.0, 14.0])
def test_a_latency_that_grows_as_a_power_of_the_load_takes_few_probes(guess: float) -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        return 3 * math.log(load / 10)

    found = search(strain, guess, lowest=1, highest=100, tolerance=0.02)
    assert found.holds is not None
    assert found.holds <= 10
    assert len(tried) <= 4


@given(threshold=st.integers(0, 3000), guess=st.floats(0.5, 2000.0))
def test_whole_loads_are_bracketed_to_one(threshold: int, guess: float) -> None:
    seen: list[float] = []

    def strain(load: float) -> float:
        seen.append(load)
        return -math.inf if load <= threshold else math.inf

    found = search(strain, guess, lowest=1, highest=2000, tolerance=0.0, whole=True)
    assert found.holds == (None if threshold < 1 else min(threshold, 2000))
    assert found.fails == (None if threshold >= 2000 else max(1, threshold + 1))
    assert all(load == int(load) for load in seen)
    assert len(seen) == len(set(seen)) <= 40


@given(
    least=st.integers(1, 50),
    answer=st.integers(1, 300),
    guess=st.integers(1, 200),
    most=st.integers(1, 400),
    says=st.sampled_from([0.0, 0.1, 1.0, 3.0, 30.0]),
)
def test_the_smallest_fleet_is_found_from_any_guess(
    least: int, answer: int, guess: int, most: int, says: float
) -> None:
    guess, most = max(guess, least), max(most, guess, least)
    asked: list[int] = []

    def strain(replicas: int) -> float:
        asked.append(replicas)
        return says * math.log(answer / replicas) - 1e-9 if says else _either(replicas < answer)

    found = smallest(strain, least, guess, most)
    assert found == (max(least, answer) if answer <= most else None)
    assert all(least <= replicas <= most for replicas in asked)


def _either(fails: bool) -> float:
    return math.inf if fails else -math.inf


def test_wilson_is_what_tables_say() -> None:
    # Wilson's interval of 8 of 10: worked out by hand
    z2 = 1.959964**2
    middle = (0.8 + z2 / 20) / (1 + z2 / 10)
    half = 1.959964 * math.sqrt(0.016 + z2 / 400) / (1 + z2 / 10)
    assert wilson(0.8, 10) == pytest.approx((middle - half, middle + half), rel=1e-6)
    assert wilson(1.0, 100)[1] == 1.0
    assert 0.95 < wilson(1.0, 100)[0] < 0.97


def test_what_was_always_seen_may_be_certain_and_rounding_does_not_say_otherwise() -> None:
    for count in range(1, 3000, 7):
        assert wilson(1.0, count)[1] == 1.0
        assert wilson(0.0, count)[0] == 0.0
    seen = pooled(
        Objective({"ttft": 1.0}, 1.0),
        [SeenShare(np.ones(60, dtype=bool), {"ttft": 0.5}, {"ttft": 1.0})],
    )
    assert seen.kept
    assert not seen.sure  # sixty of sixty do not prove that all keep it


def test_wilson_covers_a_known_share_at_its_rate() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        kept = random.random(400) < 0.95
        seen = pooled(
            Objective({"ttft": 1.0}, 0.95),
            [SeenShare(kept, {"ttft": 1.0}, {"ttft": float(kept.mean())})],
        )
        covered += seen.low <= 0.95 <= seen.high
    assert 930 <= covered <= 985


def test_luck_of_whole_runs_widens_the_interval() -> None:
    objective = Objective({"ttft": 1.0}, 0.9)
    of_ttft = ({"ttft": 1.0}, {"ttft": 0.9})
    even = [SeenShare(np.arange(600) % 10 > 0, *of_ttft)] * 4
    lucky = [SeenShare(np.arange(600) >= misses, *of_ttft) for misses in (0, 0, 120, 120)]
    narrow, wide = pooled(objective, even), pooled(objective, lucky)
    assert narrow.share == wide.share == 0.9
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert not wide.sure


def test_the_limit_that_most_requests_exceed_breaks_first() -> None:
    objective = Objective({"ttft": 0.5, "tpot": 0.04}, 0.99)
    late = {"ttft": 2.4, "tpot": 1.3}  # few are late for the first token, but those by much
    run = SeenShare(np.arange(100) >= 31, late, {"ttft": 0.98, "tpot": 0.70})
    assert pooled(objective, [run]).tightest == "tpot"


def test_the_tightest_limit_counts() -> None:
    objectives = [Objective({"ttft": 1.0, "tpot": 0.05}, 0.99), Objective({"ttft": 0.5}, 0.9)]
    assert limits_ms(objectives) == {"ttft": 500.0, "tpot": 50.0}


def test_constraints_are_read() -> None:
    found = read_constraints("ttft:p95<500ms; tpot<=40ms;cost < $20/h; gpus<=16")
    assert found == Constraints(
        (Objective({"ttft": 0.5}, 0.95), Objective({"tpot": 0.04}, 0.99)), 20.0, 16, None
    )
    assert read_constraints(None) == Constraints()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "nothing is in it"),
        (" ; ", "nothing is in it"),
        ("ttfft<1s", "did you mean 'ttft'"),
        ("ttft>1s", "only upper limits"),
        ("ttft:mean<1s", "no percentile"),
        ("ttft:p95<500", "500 has no unit: 500ms or 500s?"),
        ("ttft:p95<5 parsecs", "unknown unit"),
        ("ttft:p95<0s", "no latency"),
        ("cost<-3/h", "no price per hour"),
        ("cost<0/h", "nothing costs"),
        ("cost:p95<3/h", "has no percentiles"),
        ("cost<3/h;cost<4/h", "limited twice"),
        ("ttft:p95<1s;ttft:p95<2s", "limited twice"),
        ("gpus<=1.5", "whole number"),
        ("fast please", "cannot be read"),
    ],
)
def test_constraints_that_say_nothing_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match="--constraint") as caught:
        read_constraints(text)
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-3", "fast", "x", "0x", "nan", "inf", "1e12"])
def test_rates_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        read_rate(text, 5.0)


@pytest.mark.parametrize("high", [23.11503153104396, 7.3, 101.7, 0.3])
def test_a_step_of_the_tolerance_closes_the_bracket(high: float) -> None:
    tried: list[float] = []

    def strain(load: float) -> float:
        tried.append(load)
        return math.inf if load >= high else -math.inf

    found = search(strain, high, lowest=0.01, highest=1e3, tolerance=0.02, first_step=0.02)
    assert found.fails == high
    assert len(tried) == 2  # whatever a division rounds to


def test_of_a_large_fleet_the_number_is_found_up_to_a_share() -> None:
    tried: list[int] = []

    def strain(number: int) -> float:
        tried.append(number)
        return 0.1 * math.log(41.5 / number)

    found = smallest(strain, 1, 31, 104, 0.05)
    assert found is not None
    assert 42 <= found <= 44
    assert any(found * 0.95 - 1 <= number <= 41 for number in tried)
    assert smallest(strain, 1, 31, 104) == 42
