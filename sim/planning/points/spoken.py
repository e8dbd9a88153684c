"""Writes settings and values in sentences as people say them."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
