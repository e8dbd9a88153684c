"""Finds between which two loads something stops holding: doubles away from a guess, then halves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FIRST_STEP = 0.1
"""Relative size of the first step away from the guess; each next one is twice as large."""


@dataclass(frozen=True)
class Bracket:
    """``holds`` is the highest load that was seen to hold, None if not even the lowest one did;
    ``fails`` the lowest one seen to fail above it, None if not even the highest one did."""

    holds: float | None
    fails: float | None


def search(
    holds: Callable[[float], bool],
    guess: float,
    *,
    lowest: float,
    highest: float,
    tolerance: float,
    whole: bool = False,
) -> Bracket:
    """Where ``holds``, true up to some load and false from there on, changes.

    The two loads differ by no more than the share ``tolerance`` of the lower one (``whole``: by 1,
    if that is more). Loads are from ``lowest`` to ``highest``.

    >>> found = search(lambda load: load <= 10, 3, lowest=0.1, highest=1e3, tolerance=0.01)
    >>> 9.9 <= found.holds <= 10 < found.fails <= 10.1
    True
    """
    load = _placed(guess, lowest, highest, whole)
    step = 1 + FIRST_STEP
    low = high = None
    if holds(load):
        low = load
        while high is None and low < highest:
            load = _placed(low * step, lowest, highest, whole, above=low)
            low, high = (load, None) if holds(load) else (low, load)
            step = 1 + 2 * (step - 1)
    else:
        high = load
        while low is None and high > lowest:
            load = _placed(high / step, lowest, highest, whole, below=high)
            low, high = (load, high) if holds(load) else (None, load)
            step = 1 + 2 * (step - 1)
    while low is not None and high is not None and not _close(low, high, tolerance, whole):
        load = round((low + high) / 2) if whole else math.sqrt(low * high)
        if holds(load):
            low = load
        else:
            high = load
    return Bracket(low, high)


def _close(low: float, high: float, tolerance: float, whole: bool) -> bool:
    return high - low <= max(tolerance * low, 1.0 if whole else 0.0)


def _placed(
    load: float,
    lowest: float,
    highest: float,
    whole: bool,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """``load`` within the limits; of whole ones the next that is ``above`` or ``below``."""
    if whole:
        load = float(round(load))
        if above is not None:
            load = max(load, above + 1)
        if below is not None:
            load = min(load, below - 1)
    return min(max(load, lowest), highest)
