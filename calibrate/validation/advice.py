"""Advises what to change so that the prediction fits, with the share of the error each explains.

Every cause that the data suggest is corrected in turn, and the prediction runs again with it: what
improves the table of metrics most goes first, the others are tried on top of it. So a share of
the error is what the metrics themselves gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log1p

from calibrate.validation import proposals
from calibrate.validation.alternatives import TriedSetting, tried
from calibrate.validation.figures import HEADLINES, ValidatedFigure, figures, mean_error
from calibrate.validation.observed import ObservedRun
from calibrate.validation.prediction import Prediction, ValidationQuestion, Variant, predict
from calibrate.validation.proposals import Cause, merged
from calibrate.validation.residuals import Term

LEAST_SHARE = 0.03
"""A change that explains less of the error is not proposed: of an error of a fifth that is 0.6 %,
less than two runs of one engine differ by."""

MOST_CHANGES = 5

CERTAIN, HIGH, MEDIUM, LOW = "certain", "high", "medium", "low"

QUIET = 2.0
"""An error of that many times the noise is not distinguished from it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change; ``share`` of the whole error goes with it, after those before it."""

    cause: Cause
    share: float
    confidence: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The changes, most telling first.

    ``quiet`` says that the error is within the engine's noise, so that nothing need be changed;
    ``left`` is the mean error (a ratio's logarithm) with all changes made, ``before`` without.
    ``tried`` has the settings that the prediction leaves open, the best first: where that one
    explains the metrics, it is what to change, and nothing is said of kernels.
    """

    changes: Sequence[Change]
    quiet: bool
    before: float
    left: float
    tried: Sequence[TriedSetting] = ()

    @property
    def setting(self) -> TriedSetting | None:
        """The open setting that explains the metrics; None where none does."""
        return next((each for each in self.tried if each.explains), None)


def within_noise(rows: Sequence[ValidatedFigure]) -> bool:
    """Whether none of the headline figures is off by more than two runs of the engine may be."""
    judged = [row for row in rows if row.key in HEADLINES]
    return bool(judged) and all(abs(row.error) <= QUIET * row.expected_noise for row in judged)


def failures_explain(run: ObservedRun, error: float) -> bool:
    """Whether what the engine did for requests that failed may be all of a mean ``error``
    (``mean_error``): each may have loaded it like one that was served, and only recorded iterations
    would show it."""
    served = len(run.requests)
    return run.iterations is None and served > 0 and log1p(run.failed / served) >= error > 0


def advise(
    run: ObservedRun,
    asked: ValidationQuestion,
    baseline: Prediction,
    rows: Sequence[ValidatedFigure],
    terms: Sequence[Term],
) -> Advice:
    """The advice on ``baseline``, whose error table is ``rows``; the residuals of the iterations
    ask for ``terms``."""
    before = left = mean_error(rows)
    if within_noise(rows):
        return Advice(_harmless(run, asked, []), True, before, left)
    if failures_explain(run, before):
        return Advice(_harmless(run, asked, []), False, before, left)
    open_settings = tried(run, asked, baseline, rows)
    for each in open_settings:
        if each.explains:
            return Advice(_harmless(run, asked, []), False, before, each.left, open_settings)
    current, changes = baseline, list[Change]()
    while len(changes) < MOST_CHANGES and left > 0:
        best = _best(run, asked, current, rows, terms, changes)
        if best is None:
            break
        cause, corrected, error = best
        if left - error < LEAST_SHARE * before:
            break
        changes.append(Change(cause, (left - error) / before, confidence(cause)))
        current, left = corrected, error
    every = [*changes, *_harmless(run, asked, changes)]
    return Advice(every, False, before, left, open_settings)


def _best(
    run: ObservedRun,
    asked: ValidationQuestion,
    current: Prediction,
    rows: Sequence[ValidatedFigure],
    terms: Sequence[Term],
    changes: Sequence[Change],
) -> tuple[Cause, Prediction, float] | None:
    """The cause that is best corrected next, the run with it, and the error that is left."""
    made = {change.cause.name for change in changes}
    found: tuple[Cause, Prediction, float] | None = None
    for proposed in _causes(run, asked, current, terms, made):
        cause, corrected = proposed, _with(run, asked, current, proposed)
        if cause.name in proposals.BY_REQUESTS and run.iterations is None:
            cause = proposals.sharpened(run, cause, current, corrected)
            corrected = _with(run, asked, current, cause)
        error = mean_error(figures_of(run, corrected, rows))
        if found is None or error < found[2]:
            found = cause, corrected, error
    return found


def _with(
    run: ObservedRun, asked: ValidationQuestion, current: Prediction, cause: Cause
) -> Prediction:
    """``current`` with one more correction."""
    return predict(run, asked, merged(current.variant, cause.variant))


def figures_of(
    run: ObservedRun, tried: Prediction, rows: Sequence[ValidatedFigure]
) -> list[ValidatedFigure]:
    """The error table of another prediction of the same run, with the rows of ``rows``."""
    wanted = {row.key for row in rows}
    return [row for row in figures(run.summary, tried.summary, []) if row.key in wanted]


def _causes(
    run: ObservedRun,
    asked: ValidationQuestion,
    current: Prediction,
    terms: Sequence[Term],
    made: set[str],
) -> list[Cause]:
    """The possible faults of ``current``, except those changed already."""
    found = [proposals.blocks(run, asked), *map(proposals.of_term, terms)]
    if run.iterations is None and not made & proposals.BY_REQUESTS:
        found += proposals.of_requests(run, current)
    found.append(proposals.front_end(run, current))
    return [cause for cause in found if cause is not None and cause.name not in made]


def _harmless(
    run: ObservedRun, asked: ValidationQuestion, changes: Sequence[Change]
) -> list[Change]:
    """Blocks that differ are named even where this traffic does not feel them."""
    cause = proposals.blocks(run, asked)
    if cause is None or any(change.cause.name == cause.name for change in changes):
        return []
    return [Change(cause, 0.0, CERTAIN)]


def confidence(cause: Cause) -> str:
    """How sure a cause is: by the width of its interval, and by what else would do as well."""
    if cause.name == proposals.BLOCKS:
        return CERTAIN
    if cause.low is None or cause.high is None or not isfinite(cause.high - cause.low):
        return LOW
    width = (cause.high - cause.low) / 2 / abs(cause.value) if cause.value else 1.0
    if cause.rivals:
        return LOW if width > 0.5 or set(cause.rivals) & proposals.BY_REQUESTS else MEDIUM
    return HIGH if width <= 0.2 else MEDIUM if width <= 0.5 else LOW


def all_changes(advice: Advice) -> Variant:
    """The changes of ``advice`` as one."""
    variant = Variant()
    for change in advice.changes:
        variant = merged(variant, change.cause.variant)
    return variant
