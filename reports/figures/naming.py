"""Names what planning figures show: metrics, and what users chose, without markup for Plotly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from textwrap import wrap

from sim.errors import shorten
from sim.metrics.terms.definitions import METRIC, STUDIED

TITLES: Mapping[str, str] = {key: METRIC[key].head for key in STUDIED}
"""Metric -> its name above a figure."""

LINE = 28
"""Characters of a line of a label next to an axis."""


SETTING = re.compile(r"(?<![\w.])([a-z][a-z_0-9]*)=([^\s,:;]+)")
"""A setting as it is written in commands."""

MEASURED: Mapping[str, str] = {"rate": "requests/s", "concurrency": "users"}
"""Setting -> what its value counts."""

SPEAKING = ("gpu", "model", "engine", "batching", "router", "order", "precision")
"""Settings whose values say by themselves what they are."""


def spoken(text: str) -> str:
    """``text`` with its settings as people say them.

    >>> spoken("rate=18, gpu=h100-sxm: SLO met"), spoken("max_num_seqs=8")
    ('18 requests/s, h100-sxm: SLO met', 'max_num_seqs 8')
    """

    def said(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name in MEASURED:
            return f"{value} {MEASURED[name]}"
        return value if name in SPEAKING else f"{name} {value}"

    return SETTING.sub(said, text)


def axis_name(name: str) -> str:
    """A setting along an axis, with what its values count.

    >>> axis_name("rate"), axis_name("max_num_seqs")
    ('rate (requests/s)', 'max_num_seqs')
    """
    return f"{name} ({MEASURED[name]})" if name in MEASURED else name


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
