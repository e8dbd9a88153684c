"""Fits an engine preset to observed iterations.

The predicted time of their kernels is subtracted from what they took; the rest is the host's, as
so much an iteration, a sequence and a new request. Where the engine's kernels are not those of the
cost model, what depends on the batch is fitted as multiples of its predicted time too. Robust least
squares, none of the times negative. Seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.expected import Expected, expect
from calibrate.validation.iterations import Floats
from calibrate.validation.observed import ObservedRun
from calibrate.validation.prediction import ValidationQuestion
from calibrate.validation.proposals import FEW, idle_delays, middle_of
from calibrate.validation.residuals import (
    HOST,
    KERNELS,
    LOWEST,
    balanced,
    half_widths,
    solve,
    stretches,
)
from sim.errors import UsageError
from sim.specs.engine import EngineSpec

LEAST_ITERATIONS = 50
"""Fewer do not tell the terms apart."""

LEAST_TIME = 1e-8
"""A host's time below 10 ns is none."""

NOTHING_IN_FRONT = "nothing stood in front"
"""Why a front end is none, rather than kept."""

LEAST_VARIETY = 0.05
"""Batches must differ by that (standard deviation over mean), or sequences cannot be separated from
the iteration itself."""


class FittedTerm(NamedTuple):
    """A time of the engine, or a factor of its kernels, with its 95 % interval; ``why`` it was left
    as it was, if it was."""

    name: str
    value: float
    low: float
    high: float
    why: str


class Quality(NamedTuple):
    """How well a run's iterations are predicted: error of their sum, and median error of one."""

    run: str
    iterations: int
    error: float
    typical: float


class EngineFit(NamedTuple):
    """``base`` is the preset that was fitted anew; ``factors`` those of its kernels, none where
    only the host was asked for; ``held_out`` the median error of iterations in stretches that the
    fit had not seen, ``short`` the share that took less than the predicted time of their kernels.
    """

    base: EngineSpec
    terms: Sequence[FittedTerm]
    factors: Sequence[FittedTerm]
    front_end: FittedTerm
    before: Sequence[Quality]
    after: Sequence[Quality]
    held_out: float
    short: float

    def document(self) -> dict[str, Any]:
        """The fit as plain data."""
        return {
            "base": self.base.name,
            "terms": [term._asdict() for term in (*self.terms, self.front_end)],
            "factors": [term._asdict() for term in self.factors],
            "before": [quality._asdict() for quality in self.before],
            "after": [quality._asdict() for quality in self.after],
            "held_out": self.held_out,
            "short": self.short,
        }


class EngineSample(NamedTuple):
    """One run to fit to, with its cost model."""

    run: ObservedRun
    asked: ValidationQuestion
    duration: Floats
    expected: Expected


def fit_engine(
    runs: Sequence[tuple[ObservedRun, ValidationQuestion]], *, kernels: bool = False
) -> EngineFit:
    """Host terms for all ``runs`` together, with ``kernels`` also factors of their kernels;
    UsageError where their iterations cannot tell."""
    samples = [_sample(run, asked) for run, asked in runs]
    engines = {sample.asked.setup.only.deployment.engine.name for sample in samples}
    if len(engines) > 1:
        raise UsageError(
            f"--fit-engine: the runs are predicted with different engines ({', '.join(engines)}); "
            "give --set engine=NAME to start from one"
        )
    base = samples[0].asked.setup.only.deployment.engine
    design = _Design.of(samples, base, kernels)
    if len(design.left) < LEAST_ITERATIONS:
        raise UsageError(
            f"--fit-engine: {len(design.left):,} iterations are too few; at least "
            f"{LEAST_ITERATIONS} are needed"
        )
    values, spread, held_out = _fit_with_spread(design)
    found = dict(zip(design.names, zip(values.tolist(), spread.tolist(), strict=True), strict=True))
    return EngineFit(
        base=base,
        terms=[_time(name, *found[name], design.why[name]) for name in HOST],
        factors=[
            _factor(name, getattr(base.factors, name), *found[name], design.why[name])
            for name in design.names
            if name in KERNELS
        ],
        front_end=_front_end(samples, base),
        before=[_quality(s, s.expected.seconds) for s in samples],
        after=[
            _quality(s, s.expected.kernels + _columns(s, design.names) @ values) for s in samples
        ],
        held_out=held_out,
        short=float(np.mean(design.left < 0)),
    )


def _time(name: str, value: float, off: float, why: str) -> FittedTerm:
    return FittedTerm(name, value, max(0.0, value - off), value + off, why)


def _factor(name: str, base: float, change: float, off: float, why: str) -> FittedTerm:
    low, high = (max(LOWEST, change + side) for side in (-off, off))
    return FittedTerm(name, base * (1 + change), base * (1 + low), base * (1 + high), why)


def _sample(run: ObservedRun, asked: ValidationQuestion) -> EngineSample:
    if run.iterations is None:
        raise UsageError(f"--fit-engine: {run.path} has no iterations.csv to fit to")
    expected = expect(run.iterations, asked.setup.only.deployment)
    return EngineSample(run, asked, run.iterations.duration, expected)


class _Design(NamedTuple):
    """The residual of the kernels, and its possible causes: seconds of the host, and changes of
    kernels relative to their predicted time, of at least ``low``. ``fixed`` terms keep their value.
    """

    names: tuple[str, ...]
    low: Floats
    left: Floats
    columns: NDArray[np.float64]
    duration: Floats
    weights: Floats
    fixed: dict[int, float]
    why: dict[str, str]

    @classmethod
    def of(cls, samples: Sequence[EngineSample], base: EngineSpec, kernels: bool) -> _Design:
        names = (*HOST, *KERNELS) if kernels else HOST
        duration = np.concatenate([s.duration for s in samples])
        expected_kernels = np.concatenate([s.expected.kernels for s in samples])
        sequences = np.concatenate([s.expected.sequences for s in samples])
        admitted = np.concatenate([s.expected.admitted for s in samples])
        prompts = np.concatenate([s.expected.prompts for s in samples])
        columns = np.concatenate([_columns(sample, names) for sample in samples])
        known = duration > 0
        fixed, why = dict[int, float](), dict.fromkeys(names, "")
        if sequences.std() < LEAST_VARIETY * sequences.mean():
            fixed[1], why["per_sequence"] = base.per_sequence, "all batches are of one size"
        if (admitted > 0).sum() < FEW:
            fixed[2], why["per_new_request"] = base.per_new_request, "hardly a request came"
        for place, name in enumerate(names):
            if name in KERNELS and (columns[:, place] > 0).sum() < LEAST_ITERATIONS:
                fixed[place], why[name] = 0.0, "hardly an iteration has any"
        low = np.array([LOWEST if name in KERNELS else 0.0 for name in names])
        left, weights = (duration - expected_kernels)[known], balanced(prompts[known] > 0)
        return cls(names, low, left, columns[known], duration[known], weights, fixed, why)


def _fit_with_spread(design: _Design) -> tuple[Floats, Floats, float]:
    """The terms, half-widths of their 95 % intervals, and the median error on stretches of the run
    that the terms were fitted without."""
    count = len(design.left)
    values = _fit(design, np.ones(count, dtype=bool))
    masks = list(stretches(count))
    others = np.array([_fit(design, rows) for rows in masks])
    errors = np.zeros(count)
    for rows, fitted in zip(masks, others, strict=True):
        unseen = ~rows
        errors[unseen] = (design.columns[unseen] @ fitted - design.left[unseen]) / (
            design.duration[unseen]
        )
    return values, half_widths(others), float(np.median(np.abs(errors)))


def _fit(design: _Design, rows: NDArray[np.bool_]) -> Floats:
    places = range(len(design.names))
    free = [place for place in places if place not in design.fixed]
    values = np.array([design.fixed.get(place, 0.0) for place in places])
    columns, seconds = design.columns[rows], design.duration[rows]
    target = (design.left[rows] - columns @ values) / seconds
    matrix = columns[:, free] / seconds[:, None]
    found = solve(matrix, target, design.weights[rows], design.low[free])
    tiny = (design.low[free] == 0.0) & (found <= LEAST_TIME)
    values[free] = np.where(tiny, 0.0, found)
    return values


def _columns(sample: EngineSample, names: Sequence[str]) -> NDArray[np.float64]:
    """Seconds of each iteration that one of each of ``names`` would explain."""
    expected = sample.expected
    every = {
        "per_iteration": np.ones(len(expected.sequences)),
        "per_sequence": expected.sequences,
        "per_new_request": expected.admitted,
        "tokens": expected.growth,
        "decode_attention": expected.decode_attention,
        "prefill_attention": expected.prefill_attention,
    }
    return np.column_stack([every[name] for name in names])


def _front_end(samples: Sequence[EngineSample], base: EngineSpec) -> FittedTerm:
    delays = np.concatenate([_delays(sample.run, base) for sample in samples])
    if all(sample.run.front_end == "none" for sample in samples):
        return FittedTerm("front_end", 0.0, 0.0, 0.0, NOTHING_IN_FRONT)
    if len(delays) < FEW:
        why = "no request came while nothing ran"
        return FittedTerm("front_end", base.front_end, base.front_end, base.front_end, why)
    middle, error = middle_of(delays)
    low, high = max(0.0, middle - 2 * error), max(0.0, middle + 2 * error)
    return FittedTerm("front_end", max(0.0, middle), low, high, "")


def _delays(run: ObservedRun, base: EngineSpec) -> Floats:
    if run.iterations is None:
        return np.zeros(0)
    return idle_delays(run, run.iterations, base.per_prompt_token)


def _quality(sample: EngineSample, predicted: Floats) -> Quality:
    duration = sample.duration
    known = duration > 0
    return Quality(
        run=sample.run.name,
        iterations=len(duration),
        error=float(predicted.sum() / duration.sum() - 1.0),
        typical=float(np.median(np.abs(predicted[known] / duration[known] - 1.0))),
    )
