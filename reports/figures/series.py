"""Gives each line of a figure its name, colour and dash, each group of points its colour and shape.

Names of metrics, and of what users chose, are without markup for Plotly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

from reports.frame import theme
from sim.errors import shorten
from sim.planning.answers.drawings import BATCHING
from sim.planning.points.wording import spoken

MOST_LINES = 8
"""Lines that can be distinguished in one figure."""

GPU, FORMAT = "gpu", "precision"
"""Settings of fleets: the GPU decides colour and shape, the number format the filling."""

_DASHES = ("solid", "dash")
_OF_POLICY = dict(zip(theme.POLICIES, ("dot", "dashdot", "solid"), strict=False))
"""Batching policy -> the dash of its line, for readers who do not see its colour."""

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star")
_FILLINGS = ("", "-open", "-dot", "-open-dot")


class Style(NamedTuple):
    """How a variant is drawn."""

    color: str
    dash: str
    symbol: str = "circle"


def styles(variants: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Colour and dash of variants by their settings. Batching policies have the colours that they
    have everywhere and a dash each, variants of one number a ramp from its least value to the
    most, fleets those of their GPUs; others take all colours first, then again with dashes.

    >>> [each.dash for each in styles([{"name": name} for name in "abcde"])]
    ['solid', 'solid', 'solid', 'solid', 'dash']
    >>> fleets = [{"gpu": gpu, "precision": form} for gpu in "ab" for form in ("fp8", "bf16")]
    >>> [each.symbol for each in styles(fleets)]
    ['circle', 'circle-open', 'square', 'square-open']
    >>> few, many, most = (each.color for each in styles([{"slots": n} for n in (8, 32, 128)]))
    >>> (few, most) == (theme.RAMP[0].light, theme.RAMP[-1].light)
    True
    """
    if variants and all(BATCHING in settings for settings in variants):
        names = [str(settings[BATCHING]) for settings in variants]
        seen = [names[:index].count(name) for index, name in enumerate(names)]
        return [
            _style(theme.policy(name).light, turn, _OF_POLICY.get(name, _DASHES[0]))
            for name, turn in zip(names, seen, strict=True)
        ]
    if variants and all(GPU in settings for settings in variants):
        return _fleets(variants)
    order = _ranks(variants)
    if order is not None:
        last = len(theme.RAMP) - 1
        places = [round(last * rank / (len(order) - 1)) for rank in order]
        return [_style(theme.RAMP[place].light, 0) for place in places]
    count = len(theme.SERIES)
    return [_style(theme.SERIES[i % count].light, i // count) for i in range(len(variants))]


def _fleets(variants: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Colour and shape by the GPU, in the order in which they come, filled by the format."""
    gpus, forms = (list(dict.fromkeys(each[key] for each in variants)) for key in (GPU, FORMAT))
    found = []
    for each in variants:
        gpu, form = gpus.index(each[GPU]), forms.index(each[FORMAT])
        symbol = _SHAPES[gpu % len(_SHAPES)] + _FILLINGS[form % len(_FILLINGS)]
        found.append(Style(theme.GPUS[gpu % len(theme.GPUS)].light, "solid", symbol))
    return found


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


def _style(color: str, turn: int, first: str = _DASHES[0]) -> Style:
    """The look of the variant that has this colour after so many others; the ``first`` one has that
    dash."""
    again, filling = turn % len(_DASHES), _FILLINGS[turn % 2]
    shape = _SHAPES[turn // 2 % len(_SHAPES)] + filling
    return Style(color, _DASHES[again] if again else first, shape)


LINE = 28
"""Characters of a line of a label next to an axis."""


def plain(text: str) -> str:
    """``text`` on one line, its middle left out if it is long, so that Plotly shows it as it is.

    >>> plain("a<b>c & d"), plain("one\\n two")
    ('a&lt;b&gt;c &amp; d', 'one two')
    """
    return escape(shorten(" ".join(spoken(text).split())), quote=False)


def label(text: str) -> str:
    """The text on two or three lines where it is long, for a label next to an axis.

    >>> label("at most 1,024 tokens of one prompt"), label("a" * 30) == "a" * 30
    ('at most 1,024 tokens of one<br>prompt', True)
    """
    lines = wrap(shorten(" ".join(spoken(text).split())), LINE, break_long_words=False)
    return "<br>".join(escape(line, quote=False) for line in lines)
