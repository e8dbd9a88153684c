"""A fit to made-up powers finds the draw that they were made with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.power import HBM_BYTE, PowerSample, fit_draw, left_out, watts
from sim.specs.power import PowerDraw

LIMIT = 700.0
IDLE = 70.0
TRUE = PowerDraw(0.0, 150.0, 400.0, HBM_BYTE, 1.6e-10, 5e-13, 0.0, "made up")


def made_up(seed: int, draw: PowerDraw = TRUE) -> PowerSample:
    """A second of passes: 0.2 s waiting, 0.5 s of two operators, the rest decode attention."""
    random = np.random.default_rng(seed)
    share = random.dirichlet([2.0, 2.0, 2.0])
    waits, works = 0.3 * share[0], 0.7 * share[1] + 0.05
    work = np.array(
        [
            [[waits / 2], [works / 2], [1.5e12 * works], [2e13 * works]],
            [[waits / 2], [works / 2], [1e11 * works], [2.5e14 * random.uniform() * works]],
        ]
    )
    reads = np.array([[random.uniform(0.1, 0.9) * 1e12], [1e12]])
    sample = PowerSample(f"model {seed % 3}", "h100-sxm", 1.0, work, reads, np.array([1.0]))
    return replace(sample, watts=watts(sample, draw, LIMIT))


def test_the_fit_finds_what_was_put_in() -> None:
    samples = [made_up(seed) for seed in range(24)]
    found = fit_draw(samples, LIMIT, IDLE)
    for name in ("working", "waiting", "kv_byte", "flop"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name
    assert found.byte == HBM_BYTE
    for errors in left_out(samples, LIMIT, IDLE).values():
        assert np.abs(errors).max() < 0.02


def test_a_gpu_that_waits_draws_no_less_than_an_idle_one() -> None:
    samples = [made_up(seed, replace(TRUE, waiting=IDLE / 2)) for seed in range(12)]
    assert fit_draw(samples, LIMIT, 0.0).waiting < 0.9 * IDLE
    assert fit_draw(samples, LIMIT, IDLE).waiting >= IDLE


def test_a_run_by_hand() -> None:
    """0.1 s waiting, 0.4 s working on 1 TB and 100 TFLOP, 0.5 s of attention over 0.2 TB."""
    work = np.array([[[0.1], [0.4], [1e12], [1e14]]])
    sample = PowerSample("x", "h100-sxm", 1.0, work, np.array([[2e11], [0.0]]), np.array([1.0]))
    operators = 150 * 0.1 + 400 * 0.4 + 31 + 50
    attention = 400 * 0.5 + 1.6e-10 * 2e11
    assert watts(sample, TRUE, LIMIT) == pytest.approx(operators + attention)
    assert watts(sample, TRUE, 500.0) == pytest.approx(250 + attention)  # the operators at it
    assert watts(sample, TRUE, 300.0) == pytest.approx(150 + 150)  # both at the limit
