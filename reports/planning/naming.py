"""How is a setting, a name that users chose, written in a figure? Plotly reads markup in texts."""

from __future__ import annotations

from html import escape

from sim.errors import shorten


def plain(text: str) -> str:
    """``text`` on one line, its middle left out if it is long, so that Plotly shows it as it is.

    >>> plain("a<b>c & d"), plain("one\\n two")
    ('a&lt;b&gt;c &amp; d', 'one two')
    """
    return escape(shorten(" ".join(text.split())), quote=False)
