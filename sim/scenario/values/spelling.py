"""Provides how single values are spelt in a scenario file, as parts of a JSON Schema."""

from __future__ import annotations

import re
from typing import Any

from sim import catalog, units
from sim.plugins import PATTERN

Schema = dict[str, Any]

NUMBER = r"\+?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
WHOLE = r"\+?[0-9]+(_[0-9]+)*"
SWITCH = "|".join(
    "".join(f"[{char.upper()}{char}]" for char in word)
    for word in ("true", "yes", "on", "false", "no", "off")
)
LINE: Schema = {"type": "string", "pattern": r"\S"}
OWN: Schema = {"type": "string", "pattern": f"^({PATTERN})$"}
"""A part of a user's own."""


def all_of(pattern: str) -> str:
    """The pattern of a text that is nothing but this, with space around it."""
    return rf"^\s*({pattern})\s*$"


def whole(low: int, high: int) -> Schema:
    """A whole number, or its text."""
    bounds = {"minimum": low, "maximum": high}
    return {"type": ["integer", "string"], **bounds, "pattern": all_of(WHOLE)}


def number(bounds: Schema, pattern: str = NUMBER) -> Schema:
    """A number within ``bounds``, or its text."""
    return {"type": ["number", "string"], "pattern": all_of(pattern), **bounds}


def with_unit(dimension: str) -> str:
    """The pattern of a number with a unit."""
    return f"{NUMBER}\\s*({_units(dimension)})"


def quantity(dimension: str, zero: bool) -> Schema:
    """A number in SI units, or a text with a unit."""
    least = "minimum" if zero else "exclusiveMinimum"
    return {"type": ["number", "string"], least: 0, "pattern": all_of(f"{with_unit(dimension)}?")}


def named(kind: catalog.Kind) -> Schema:
    """A name of the catalogue, which editors can list, or any path."""
    return {"anyOf": [{"enum": catalog.names(kind)}, LINE]}


def registered(names: list[str]) -> Schema:
    """One of these names, or a class of a user's own."""
    return {"anyOf": [{"enum": names}, OWN]}


def _units(dimension: str) -> str:
    return "|".join(re.escape(unit) for unit in units.UNITS[dimension] if unit)
