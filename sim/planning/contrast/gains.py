"""Computes how much better one run is than another, in the metrics that a decision looks at.

Gains are natural logarithms of ratios, signed so that more is better: a throughput that doubles and
a latency that halves gain both ``ln 2``. Logarithms add up where speed-ups multiply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.metrics.terms.definitions import METRIC, STUDIED
from sim.planning.points.points import Outcome

Summary = Mapping[str, Any]
Figures = Mapping[str, float | None]

CLIP = math.log(10)
"""No figure counts for more than a factor of ten in a mean of gains: an unstable queue would drown
out everything else."""

SCANT = 0.01
"""A goodput below this share of the requests that are served is almost none."""


class GainFigure(NamedTuple):
    """A figure of a run: its key in ``summary.json``, what it is called, and whether ``more`` of it
    is better."""

    key: str
    title: str
    unit: str
    more: bool

    def of(self, summary: Mapping[str, Any]) -> float | None:
        """The value of the figure; None where it is undefined."""
        if self.key != CAPACITY.key:
            value = summary[self.key]
            return None if value is None else float(value)
        verdict = summary["infersim"]["verdict"]
        used, one = verdict["utilisation"], verdict.get("busiest_replica")
        if used and one is not None:  # which is full before the fleet is
            used = max(used, one["utilisation"])
        return 1 / used if used else None

    def is_scant(self, summary: Mapping[str, Any]) -> bool:
        """Whether it is a goodput that is almost nothing of what is served, so that multiples of it
        say nothing."""
        if self.key != GOODPUT.key:
            return False
        good, served = summary[self.key], summary["request_throughput"]
        return bool(served) and (good or 0.0) < SCANT * served

    def chance(self, summary: Mapping[str, Any]) -> float | None:
        """How far chance in the traffic of one run moves it, relative to its value: half of the
        95 % interval, None where that is not known. For what counts requests two deviations of
        the number of random arrivals, 1 / sqrt(n) each."""
        verdict = summary["infersim"]["verdict"]
        error = verdict["utilisation_error"]
        if self.key == CAPACITY.key:
            return 2 * error / verdict["utilisation"] if error and verdict["utilisation"] else None
        found = (summary["infersim"]["precision"] or {}).get(self.key)
        if found is None:
            counted = self.more and error and summary["completed"]
            return 2 / math.sqrt(summary["completed"]) if counted else None
        value = self.of(summary)
        ends = [end for end in (found["low"], found["high"]) if end is not None]
        return max((abs(end / value - 1) for end in ends), default=None) if value else None

    def gain(self, before: float | None, after: float | None) -> float | None:
        """How much better ``after`` is; None if either is missing or not above 0.

        >>> round(LATENCIES[0].gain(200.0, 100.0), 4)
        0.6931
        """
        if not before or not after:
            return None
        ratio = math.log(after / before)
        return ratio if self.more else -ratio


FIGURES = tuple(
    GainFigure(key, METRIC[key].called, METRIC[key].unit, METRIC[key].better == "higher")
    for key in STUDIED
)
THROUGHPUT, GOODPUT, *LATENCIES, CAPACITY = FIGURES
"""The capacity is what full batches could serve, in multiples of the traffic: it says more than the
throughput where the arrivals set that."""


def figures_of(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Every figure of a run, by its key."""
    return {figure.key: figure.of(summary) for figure in FIGURES}


def gains(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> dict[str, float | None]:
    """How much better each figure is ``after``."""
    return {figure.key: figure.gain(before[figure.key], after[figure.key]) for figure in FIGURES}


def mean_gain(found: Mapping[str, float | None]) -> float:
    """The mean of the gains that are defined, each within a factor of ten; 0 if none is."""
    known = [max(-CLIP, min(CLIP, gain)) for gain in found.values() if gain is not None]
    return math.fsum(known) / len(known) if known else 0.0


@dataclass(frozen=True)
class Gained:
    """The outcome of a variant, its ``figures`` and ``gains`` (positive: better; both empty if it
    does not run), and its ``effect``, a mean of gains; None if it does not run."""

    outcome: Outcome
    figures: Figures
    gains: Figures
    effect: float | None

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """The verdict of its run; None if it does not run."""
        summary = self.outcome.summary
        return None if summary is None else summary["infersim"]["verdict"]

    def judged(self, key: str) -> Any:
        """An entry of its verdict; None if it does not run."""
        return None if self.verdict is None else self.verdict[key]

    def document(self, base: Figures) -> dict[str, Any]:
        """Its figures as plain data, with their changes relative to those of ``base``."""
        return {
            "error": self.outcome.error,
            "figures": dict(self.figures) or None,
            "changes": {key: _relative(base[key], value) for key, value in self.figures.items()},
            "effect": None if self.effect is None else math.expm1(self.effect),
        }


def gained(
    base: Summary,
    outcome: Outcome,
    judged: Callable[[Figures], Sequence[GainFigure]],
    left_out: Sequence[str] = (),
) -> tuple[Outcome, Figures, Figures, float | None]:
    """The fields of a ``Gained`` over ``base``; ``judged`` are the figures whose mean counts, those
    ``left_out`` are not known."""
    if outcome.summary is None:
        return outcome, {}, {}, None
    figures = figures_of(outcome.summary) | dict.fromkeys(left_out)
    found = gains(figures_of(base), figures)
    return outcome, figures, found, mean_gain({each.key: found[each.key] for each in judged(found)})


def _relative(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def figure_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every figure of a run as plain data: its name, its value, how far chance moves it, and
    whether it is too little to take multiples of."""
    return [
        f._asdict()
        | {"value": f.of(summary), "chance": f.chance(summary), "scant": f.is_scant(summary)}
        for f in FIGURES
    ]
