"""Finds the catalogue's part for a GPU that a driver, a publisher or a table names in its own way.

Each GPU file of the catalogue has these ``names``: ``driver`` in full, ``published`` as a pattern,
and ``aiconfigurator``, the system in whose tables its kernels are timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from sim import catalog


def named_by_driver(name: str) -> str | None:
    """The part that its driver calls ``name``; None for one that the catalogue does not have.

    >>> named_by_driver("NVIDIA H100 80GB HBM3"), named_by_driver("Voodoo 2")
    ('h100-sxm', None)
    """
    return names("driver").get(name)


def named_by_publisher(text: str) -> str | None:
    """The part that ``text`` names; without a word on its form, that of the SXM board.

    >>> named_by_publisher("NVIDIA H100-SXM-80GB"), named_by_publisher("A100-80GB (330W)")
    ('h100-sxm', 'a100-sxm-80gb')
    """
    patterns = names("published")
    found = [p for p in patterns if re.search(rf"(?<![a-z0-9])(?:{p})(?![0-9])", text.lower())]
    return patterns[max(found, key=len)] if found else None  # the longest says the most


@cache
def names(by: str) -> Mapping[str, str]:
    """The catalogue's parts for the names that they have ``by`` a driver, publishers or tables."""
    found = {}
    for part in catalog.names("gpus"):
        own: Any = catalog.raw("gpus", part)["names"]
        if by in own:
            found[str(own[by])] = part
    return found
