"""Every feature whose cost is measured is a scenario that can be run."""

import pytest

from sim.setup import prepare
from tests.bench_features import FEATURES, cost, scenario_of


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_a_scenario(feature: str) -> None:
    assert prepare(scenario_of(feature)).pools


def test_attempts_count_where_clients_try_again() -> None:
    storm = scenario_of("retry storm, of an attempt")
    seconds, plans = cost(storm)
    assert 0 < seconds < 0.1
    assert 0 < plans < 10
