"""Statistics of gaps kept as rows are those of the gaps written out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.metrics.latency import gaps as module
from sim.metrics.latency.gaps import Gaps

PERCENTILES = (1, 50, 90, 95, 99, 100)

# few different values, so that rows overlap and tie
rows = st.lists(
    st.tuples(
        st.sampled_from([0.25, 0.5, 0.7, 1.0, 3.0]),
        st.sampled_from([0.0, 0.1, 1 / 3, 1e-9]),
        st.integers(1, 30),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


def made(parts: list[tuple[float, float, int, int]]) -> tuple[Gaps, np.ndarray]:
    gaps = Gaps(*(np.array(column, float) for column in zip(*parts, strict=True)))
    each = [
        first + slope * i
        for first, slope, count, weight in parts
        for i in range(count)
        for _ in range(weight)
    ]
    return gaps, np.sort(np.array(each))


@pytest.mark.parametrize("few", [1, 100_000])  # nearly all by bisection, all by sorting
@settings(deadline=None)
@given(parts=rows)
def test_percentiles_are_numpys(few: int, parts: list[tuple[float, float, int, int]]) -> None:
    gaps, each = made(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        found = gaps.percentiles(PERCENTILES)
    assert found == pytest.approx(np.percentile(each, PERCENTILES).tolist(), rel=1e-14, abs=0)


@settings(deadline=None)
@given(parts=rows, bound=st.floats(0, 15))
def test_counts_mean_and_spread(parts: list[tuple[float, float, int, int]], bound: float) -> None:
    gaps, each = made(parts)
    assert gaps.total() == len(each)
    assert gaps.mean() == pytest.approx(each.mean(), rel=1e-12)
    assert gaps.std() == pytest.approx(each.std(), rel=1e-9, abs=1e-7)
    for at in (bound, *each[:: max(1, len(each) // 7)]):
        assert gaps.up_to(at) == (each <= at).sum()


@settings(deadline=None)
@given(parts=rows, ends=st.tuples(st.floats(0, 15), st.floats(0, 15)).map(sorted))
def test_writing_out_a_part(parts: list[tuple[float, float, int, int]], ends: list[float]) -> None:
    gaps, each = made(parts)
    values, weights = gaps.written_out(*ends)
    expected = each[(each >= ends[0]) & (each <= ends[1])]
    assert np.repeat(values, weights.astype(int)).tolist() == expected.tolist()


def test_a_million_gaps_take_no_memory_of_their_own() -> None:
    """One leap of 10 million iterations: the median is the middle one, not written out."""
    gaps = Gaps(*(np.array([value]) for value in (1.0, 1e-6, 1e7, 3.0)))
    assert gaps.percentiles((50,)) == [pytest.approx(1 + 1e-6 * (1e7 - 1) / 2, rel=1e-12)]
