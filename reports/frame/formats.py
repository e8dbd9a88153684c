"""Writes numbers for people: how many digits, in which unit, and what stands for a missing one."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from sim.units import show_cost, show_number, show_time

Kind = Literal["count", "number", "share", "usd", "ms", "s"]
"""``share`` is given as 0..1 and shown in percent; times, given in ``ms`` or ``s``, are shown with
the unit that suits them (``28.8 min``); the others in the unit they have."""

MISSING = "–"
"""The stand-in for a number that does not exist."""

LEAST = 0.01
"""Percent below which a page says no more than that it is less, or more than the rest of 100."""

NARROW_SPACE = "\u202f"
"""Between a number and its percent sign."""


class ShownValue(NamedTuple):
    """A number ready for a page: ``text`` is for reading, ``value`` for sorting and copying."""

    text: str
    value: float | None


def show(number: float | None, kind: Kind) -> ShownValue:
    """``number`` as people read it, times with their unit; None, NaN and infinities become a dash.

    >>> show(0.8314, "share"), show(None, "number")
    (ShownValue(text='83.1', value=83.14), ShownValue(text='–', value=None))
    >>> show(12345, "count").text, show(0.4217, "usd").text, show(1234.5, "number").text
    ('12,345', '0.422', '1,234')
    >>> show(1_730_265.0, "ms"), show(0.412, "s").text
    (ShownValue(text='28.8 min', value=1730265.0), '412 ms')
    """
    if number is None or not math.isfinite(number):
        return ShownValue(MISSING, None)
    value = round(number * 100, 9) if kind == "share" else float(number)
    if kind == "count":
        return ShownValue(f"{value:,.0f}", value)
    if kind == "share":
        return ShownValue(_percent(value), value)
    if kind in ("ms", "s"):
        return ShownValue(show_time(value / 1e3 if kind == "ms" else value), value)
    return ShownValue(show_cost(value) if kind == "usd" else show_number(value), value)


def split(shown: ShownValue) -> tuple[str, str]:
    """The digits of a time, and its unit.

    >>> split(show(1_730_265.0, "ms")), split(show(None, "ms"))
    (('28.8', 'min'), ('–', ''))
    """
    digits, _, unit = shown.text.partition(" ")
    return digits, unit


def phrase(number: float | None, kind: Kind, unit: str = "") -> str:
    """``number`` with its unit, for the middle of a sentence.

    >>> phrase(412.3, "number", "ms"), phrase(0.42, "usd"), phrase(1234.0, "count", "requests")
    ('412 ms', '$0.42', '1,234 requests')
    """
    shown = show(number, kind)
    if shown.value is None:
        return "an unknown number" if kind != "usd" else "unknown"
    if kind == "usd":
        return f"${shown.text}"
    if kind == "share":
        return f"{shown.text}{NARROW_SPACE}%"
    return f"{shown.text} {unit}".strip()


def _percent(value: float) -> str:
    """One decimal; near 0 and 100 two, and no rounding to them: 99.997 is more than 99.99.

    >>> _percent(99.94), _percent(99.996), _percent(0.0004), _percent(12.34), _percent(1e-5)
    ('99.94', '>99.99', '<0.01', '12.3', '<0.01')
    """
    distance = min(abs(value), abs(100 - value))
    if distance == 0:
        return f"{value:.0f}"
    if distance < LEAST / 2:
        return f"<{LEAST}" if value < 50 else f">{100 - LEAST}"
    text = f"{value:,.{2 if distance < 0.1 else 1}f}"
    return text.rstrip("0").rstrip(".")
