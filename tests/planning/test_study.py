"""The engine of studies: variants in order, whatever comes first, and who hears how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from sim.errors import InfeasibleError
from sim.planning.points.points import Outcome, Point
from sim.planning.points.study import Study, running, told_of
from sim.scenario import Scenario
from tests.planning_fixtures import small


class Backwards:
    """Evaluates the last point first; those that are called ``broken`` fail."""

    def run(self, scenario: Scenario, points: Iterable[Point]) -> Iterator[Outcome]:
        for point in reversed(list(points)):
            if point.label == "broken":
                yield Outcome(point, None, "does not fit", 3)
            else:
                yield Outcome(point, {"settings": point.settings, "ends": point.at_ends}, None, 0)


def test_outcomes_are_in_the_order_of_the_variants_and_counted_as_they_come() -> None:
    heard: list[tuple[int, int]] = []
    study = Study(small(), Backwards(), lambda done, total: heard.append((done, total)))
    found = study.variants([("a", {"seed": 1}), ("broken", {}), ("b", {"seed": 2})], at_ends=True)
    assert [each.point.label for each in found] == ["a", "broken", "b"]
    assert told_of((each.point.label, each) for each in found) == [
        ("a", {"settings": {"seed": 1}, "ends": True}),
        ("b", {"settings": {"seed": 2}, "ends": True}),
    ]
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_what_is_known_already_counts_and_a_single_run_does_not() -> None:
    heard: list[tuple[int, int]] = []
    study = Study(small(), Backwards(), lambda done, total: heard.append((done, total)))
    assert [o.point.index for o in study.each([Point(4, {}, ""), Point(7, {}, "")], 5)] == [7, 4]
    assert study.one("alone", {}).point.label == "alone"
    assert list(study.each([], 7)) == []
    assert heard == [(6, 7), (7, 7)]


def test_a_scenario_that_does_not_run_ends_a_study() -> None:
    with pytest.raises(InfeasibleError, match="does not run"):
        running(Study(small(), Backwards()).one("broken", {}))
