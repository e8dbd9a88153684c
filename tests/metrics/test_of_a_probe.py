"""What a search asks of a run is what the summary of the run says."""

from collections.abc import Mapping
from typing import Any

import pytest

from sim import simulate
from sim.metrics.summary import of_a_probe
from tests.golden_scenarios import CHANGES, scenario


def within(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether ``whole`` has every value of ``part``, or a table of more than those."""
    return all(
        within(value, whole[key]) if key in ("infersim", "verdict") else whole[key] == value
        for key, value in part.items()
    )


@pytest.mark.parametrize("name", CHANGES)
def test_it_says_what_the_summary_says(name: str) -> None:
    result = simulate(scenario(name))
    assert within(of_a_probe(result.record), result.summaries[0])
