"""Two looks at a point, and a machine that drifts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from calibrate.measurements import Measurement, MeasurementTable, Purpose
from calibrate.settle import drift_levels, settled

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(m: float, seconds: float, after: float = 0.0, purpose: Purpose = "") -> Measurement:
    at = (START + timedelta(seconds=after)).strftime("%Y-%m-%dT%H:%M:%SZ")
    shape = {"m": m, "n": 64.0, "k": 64.0}
    return Measurement(
        "gemm", "fp32", "made up", shape, seconds, None, None, 9, "ok", at=at, purpose=purpose
    )


def test_looks_that_agree_are_averaged_and_of_others_the_shorter_counts() -> None:
    table = MeasurementTable((
        row(1, 1.00), row(2, 1.00), row(3, 2.00), row(4, 5.0),
        row(1, 1.04, purpose="again"), row(2, 3.00, purpose="again"),
        row(3, 1.00, purpose="again"),
    ))  # fmt: skip
    assert [found.seconds for found in settled(table)] == pytest.approx([1.02, 1.00, 1.00, 5.0])


def drifting(speed: float) -> MeasurementTable:
    """A machine whose times are ``speed`` as long for a third of the time; an anchor every 10 s."""
    level = [1.0] * 4 + [speed] * 4 + [1.0] * 4
    anchors = [row(8, 0.5 * s, 10 * i, "anchor") for i, s in enumerate(level)]
    points = [row(100 + i, s, 10 * i + 1) for i, s in enumerate(level)]
    return MeasurementTable((*anchors, *points))


@pytest.mark.parametrize("speed", [1.5, 0.6])
def test_what_was_measured_while_the_machine_was_slow_or_fast_is_put_right(speed: float) -> None:
    found = [measured.seconds for measured in settled(drifting(speed))]
    assert found[5] == pytest.approx(1.0, abs=0.05)  # in the middle of it
    assert found[0] == found[11] == 1.0


def test_a_little_drift_is_left_alone() -> None:
    assert {m.seconds for m in settled(drifting(1.04))} == {1.0, 1.04}


def test_one_bad_look_at_an_anchor_is_no_drift() -> None:
    anchors = [row(8, 0.5, 10 * i, "anchor") for i in range(9)]
    anchors[4] = row(8, 2.0, 40, "anchor")
    assert all(level == 0.0 for _, level in drift_levels(MeasurementTable(tuple(anchors))))


def test_few_anchors_and_anchors_that_differ_tell_nothing() -> None:
    few = [row(8, 0.5 * (1 + i), 10 * i, "anchor") for i in range(3)]
    assert drift_levels(MeasurementTable(tuple(few))) == []
    up = [row(8, 0.5 * 1.2**i, 10 * i, "anchor") for i in range(8)]
    down = [row(16, 0.5 * 1.2**-i, 10 * i, "anchor") for i in range(8)]
    assert all(level == 0.0 for _, level in drift_levels(MeasurementTable((*up, *down))))
