"""How do the axes of a profile's figures look? Logarithmic, a line and a label at each decade."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, log10
from typing import Any

from reports import theme

FEW_DECADES = 1.3
"""A range of fewer decades has labels between them."""


def logarithmic(title: str | None, values: Iterable[float], unit: str = "") -> dict[str, Any]:
    """An axis for ``values``, all above 0, labelled with decimal prefixes and ``unit``."""
    low, high = log10(min(values)), log10(max(values))
    decades = high - low
    step = max(1, floor(decades / 6))
    dense: dict[str, Any] = {"dtick": "D2"} if decades < FEW_DECADES else {"dtick": step}
    return theme.axis(title) | {"type": "log", "tickformat": "~s", "ticksuffix": unit} | dense


def legend() -> dict[str, Any]:
    """A legend above the figure; a new dict each time."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"size": 12, "color": theme.PAGE["ink"].light},
    }
