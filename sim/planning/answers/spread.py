"""Writes the half-widths of a run's 95 % intervals, which stand behind its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sim.units import milliseconds


class Spread:
    """The half-widths of a run's 95 % intervals as text; empty texts for a run without."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        repetitions = summary["infersim"]["repetitions"]
        self.known = repetitions is not None
        self._intervals = repetitions["intervals"] if self.known else {}
        self.legend = ""
        if self.known:
            self.legend = (
                f"Means of {repetitions['count']:,} runs under different seeds, ± 95 % confidence: "
                "the chance in the traffic, not the error of predicted times, which all runs share."
                if repetitions["count"] > 1
                else "Of one repetition alone: there is no interval without a second one."
            )

    def half_width(self, key: str) -> float | None:
        """The half width of one headline figure, in its unit."""
        return self._intervals[key]["half_width"] if key in self._intervals else None

    def of(self, key: str) -> str:
        """`` ± 14``, to stand behind a number."""
        half = self.half_width(key)
        return f" ± {two_digits(half)}" if half else ""

    def of_share(self, key: str) -> str:
        """`` ± 1.4%``, to stand behind a share."""
        half = self.half_width(key)
        return f" ± {two_digits(100 * half)}%" if half else ""

    def of_latency(self, key: str, value: float | None) -> str:
        """``14 ms``: the half-width of a latency, in the unit in which its ``value`` is shown."""
        half = self.half_width(key)
        if value is None or half is None:
            return ""
        unit = milliseconds(value).split()[-1]
        factors = {"us": 1e3, "ms": 1.0, "s": 1e-3}
        return (
            f"{two_digits(half * factors[unit])} {unit}" if unit in factors else milliseconds(half)
        )


def two_digits(value: float) -> str:
    """A half-width: no more digits than mean something, and no exponent.

    >>> two_digits(1234.5), two_digits(13.37), two_digits(0.01234), two_digits(0)
    ('1,234', '13', '0.012', '0')
    """
    decimals = 0 if value == 0 or value >= 10 else 1 - math.floor(math.log10(value))
    return f"{value:,.{decimals}f}"
