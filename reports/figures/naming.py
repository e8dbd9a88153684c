"""Names what planning figures show: metrics, and what users chose, without markup for Plotly."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from textwrap import wrap

from sim.errors import shorten
from sim.metrics.terms.definitions import METRIC, STUDIED
from sim.planning.points.wording import spoken

TITLES: Mapping[str, str] = {key: METRIC[key].head for key in STUDIED}
"""Metric -> its name above a figure."""

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
