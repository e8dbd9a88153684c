"""Gives each line of a figure its colour and dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.frame import theme

MOST_LINES = 8
"""Lines that can be distinguished in one figure."""

BATCHING = "scheduler.batching"
"""The setting whose values have colours of their own."""

_DASHES = ("solid", "dash")


class Style(NamedTuple):
    """How a variant is drawn."""

    color: str
    dash: str


def styles(variants: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Colour and dash of variants by their settings. Batching policies have the colours that they
    have everywhere, variants of one number a ramp from its least value to the most; others take
    all colours first, then again with dashes.

    >>> [each.dash for each in styles([{"gpu": gpu} for gpu in "abcde"])]
    ['solid', 'solid', 'solid', 'solid', 'dash']
    >>> few, many, most = (each.color for each in styles([{"slots": n} for n in (8, 32, 128)]))
    >>> (few, most) == (theme.RAMP[0].light, theme.RAMP[-1].light)
    True
    """
    if variants and all(BATCHING in settings for settings in variants):
        tones = [theme.policy(str(settings[BATCHING])).light for settings in variants]
        before = [tones[:index].count(tone) for index, tone in enumerate(tones)]
        return [Style(tone, _dash(seen)) for tone, seen in zip(tones, before, strict=True)]
    order = _ranks(variants)
    if order is not None:
        last = len(theme.RAMP) - 1
        places = [round(last * rank / (len(order) - 1)) for rank in order]
        return [Style(theme.RAMP[place].light, "solid") for place in places]
    count = len(theme.SERIES)
    return [Style(theme.SERIES[i % count].light, _dash(i // count)) for i in range(len(variants))]


def _ranks(variants: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """The rank of each variant by the one number in which they differ; None where it is not one,
    or where there are too few or too many to see an order."""
    keys = variants[0] if 2 < len(variants) <= len(theme.RAMP) else {}
    varied = [key for key in keys if len({str(each.get(key)) for each in variants}) > 1]
    if len(varied) != 1:
        return None
    values: list[Any] = [each[varied[0]] for each in variants]
    numbers = all(isinstance(value, int | float) for value in values)
    if not numbers or len(set(values)) < len(values):
        return None
    return [sorted(values).index(value) for value in values]


def _dash(turn: int) -> str:
    return _DASHES[turn % len(_DASHES)]
