"""What random routing gives to the busiest of several GPUs, against draws."""

from __future__ import annotations

import numpy as np
import pytest

from sim.specs.routing import busiest, expected_maximum, touched


def drawn(experts: int, chosen: int, groups: int, tokens: int) -> tuple[float, float]:
    """Rows and touched experts of the busiest group, each the mean of 2,000 passes."""
    rng, held = np.random.default_rng(7), experts // groups
    scores = rng.random((2000, tokens, experts))
    picked = np.argpartition(scores, chosen, axis=2)[:, :, :chosen]
    hits = np.zeros((2000, experts), dtype=np.int64)
    for column in range(chosen):
        for token in range(tokens):
            hits[np.arange(2000), picked[:, token, column]] += 1
    by_group = hits.reshape(2000, groups, held)
    rows = by_group.sum(axis=2).max(axis=1).mean()
    return float(rows), float((by_group > 0).sum(axis=2).max(axis=1).mean())


@pytest.mark.parametrize(
    ("experts", "chosen", "groups", "tokens"),
    [(8, 2, 2, 16), (32, 4, 4, 8), (64, 8, 8, 16), (64, 8, 4, 32)],
)
def test_the_busiest_group_is_that_of_drawn_passes(
    experts: int, chosen: int, groups: int, tokens: int
) -> None:
    found = busiest(experts, chosen, groups, experts // groups, tokens)
    rows, different = drawn(experts, chosen, groups, tokens)
    assert float(found.rows) == pytest.approx(rows, rel=0.02)
    assert float(found.touched) == pytest.approx(different, rel=0.02)


def test_one_group_has_all_and_many_tokens_are_shared_out_evenly() -> None:
    alone = busiest(128, 8, 1, 128, 16)
    assert alone.rows == 16 * 8
    assert alone.touched == touched(128, 8, 16)
    many = busiest(128, 8, 8, 16, 1e6)
    assert many.rows / 1e6 == pytest.approx(1.0, rel=0.002)
    assert many.touched == 16


def test_no_token_brings_nothing_and_arrays_are_numbers_side_by_side() -> None:
    tokens = np.array([0.0, 1.0, 7.0, 300.0])
    together = busiest(64, 6, 4, 16, tokens)
    assert together.rows[0] == together.touched[0] == 0
    for at, count in enumerate(tokens):
        one = busiest(64, 6, 4, 16, float(count))
        assert (together.rows[at], together.touched[at]) == (one.rows, one.touched)


def test_a_group_is_never_given_more_than_there_is() -> None:
    """One token: at most its own choices, and never more experts than rows."""
    one = busiest(16, 2, 8, 2, 1)
    assert one.rows <= 2
    assert one.touched <= one.rows


def test_expected_maximum_of_normal_numbers() -> None:
    """1/sqrt(pi) of two, 3/(2 sqrt(pi)) of three."""
    assert expected_maximum(2) == pytest.approx(np.pi**-0.5, rel=1e-9)
    assert expected_maximum(3) == pytest.approx(1.5 * np.pi**-0.5, rel=1e-9)
