"""Rows that stand for many iterations, against the iterations written out one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.growth.leaps import Leaps
from sim.loop.recorder import PLAN
from sim.metrics.latency.gaps import Gaps

PLANS = st.lists(
    st.tuples(
        st.integers(1, 9),  # iterations
        st.integers(0, 5),  # sequences
        st.integers(1, 64),  # the first iteration, in 1/16 s: sums are exact
        st.integers(0, 8),  # what each further one takes longer
    ),
    min_size=1,
    max_size=6,
)


def lengths(times: int, first: int, step: int) -> list[float]:
    """The iterations of one plan (s)."""
    return [(first + step * i) / 16 for i in range(times)]


def plan_rows(plans: list[tuple[int, int, int, int]]) -> np.ndarray:
    rows = np.zeros(len(plans), dtype=PLAN)
    now = 0.0
    for row, (times, sequences, first, step) in zip(rows, plans, strict=True):
        row["iterations"], row["decode"], row["gap"], row["slope"] = (
            *(times, sequences),
            *(first / 16, step / 16),
        )
        row["start"] = now
        now += sum(lengths(times, first, step))
        row["end"] = now
    return rows


def table(rows: np.ndarray) -> dict[str, np.ndarray]:
    """The rows as a run directory has them."""
    return {
        "start_s": rows["start"],
        "end_s": rows["end"],
        "iterations": rows["iterations"],
        "decode_seqs": rows["decode"],
        "iteration_growth_s": rows["slope"],
    }


@given(plans=PLANS)
def test_rows_say_what_their_iterations_do(plans: list[tuple[int, int, int, int]]) -> None:
    rows = plan_rows(plans)
    ends, tokens, gained, integrals, now = [], [], [], [], 0.0
    for times, sequences, first, step in plans:
        held = integral = 0.0
        for length in lengths(times, first, step):
            now += length
            ends.append(now)
            integral += held * length
            held += sequences
        tokens.append(held)
        gained.append(held - sequences)
        integrals.append(integral)
    for leaps in (Leaps.recorded(rows), Leaps.saved(table(rows)), Leaps.saved(frame(rows))):
        assert leaps.ends() == pytest.approx(ends, rel=1e-12)
        assert leaps.tokens().tolist() == tokens
        assert leaps.gained().tolist() == gained
        assert leaps.integral(leaps.sequences) == pytest.approx(integrals, rel=1e-12)


def frame(rows: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(table(rows))


@given(plans=PLANS, late=st.integers(0, 5))
def test_gaps_are_those_of_the_iterations(
    plans: list[tuple[int, int, int, int]], late: int
) -> None:
    """Those of sequences that waited longer are noted apart."""
    rows = plan_rows(plans)
    rows["stalled"] = np.minimum(late, rows["decode"])
    expected = []
    for times, sequences, first, step in plans:
        own = lengths(times, first, step)
        expected += own[:1] * (sequences - min(late, sequences)) + own[1:] * sequences
    gaps = Gaps.recorded(rows, np.zeros(0, dtype=[("gap", "f8"), ("count", "i8")]))
    values, weights = gaps.written_out()
    assert np.repeat(values, weights.astype(int)).tolist() == sorted(expected)


def test_ends_of_a_leap_are_its_row_s_to_the_bit() -> None:
    """The last end is what was recorded, not what rounding makes of the sum."""
    saved = {
        "start_s": np.array([0.1]),
        "end_s": np.array([0.7]),
        "iterations": np.array([60_000], dtype=np.int32),
        "decode_seqs": np.array([3], dtype=np.int32),
    }
    leaps = Leaps.saved(saved)
    assert leaps.ends()[-1] == 0.7
    assert leaps.step.tolist() == [0.0]
    assert (np.diff(leaps.ends()) > 0).all()
