"""How is a setting, a name that users chose, written in a figure? Plotly reads markup in texts."""

from __future__ import annotations

from html import escape


def plain(text: str) -> str:
    """``text`` so that Plotly shows it as it is.

    >>> plain("a<b>c & d")
    'a&lt;b&gt;c &amp; d'
    """
    return escape(text, quote=False)
