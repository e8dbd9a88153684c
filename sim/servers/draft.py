"""Collects what is known of a server: values under dotted keys of a scenario, each with its origin,
and what cannot be said there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.catalog.gpu_names import named_by_driver, named_by_publisher, names
from sim.specs.precision import PRECISION_BYTES


class Known(NamedTuple):
    """A value of a scenario, and where it stands, in words."""

    value: Any
    origin: str


class Draft:
    """What is known of one server.

    ``values`` by dotted key; ``model`` as written; ``without_effect`` are options that change no
    prediction, ``left_out`` those that do and that nothing here simulates, each with a reason;
    ``unknown`` those that no engine here has. ``held`` are values that mean something only
    together (``sim.servers.flags``).
    """

    def __init__(self) -> None:
        self.values: dict[str, Known] = {}
        self.model: Known | None = None
        self.without_effect: list[str] = []
        self.left_out: dict[str, str] = {}
        self.unknown: list[str] = []
        self.notes: list[str] = []
        self.held: dict[str, Known] = {}

    def put(self, key: str, value: Any, origin: str) -> None:
        """Take ``value`` for ``key``; the last one counts, as for engines."""
        self.values[key] = Known(value, origin)

    def hold(self, name: str, value: Any, origin: str) -> None:
        """Keep ``value`` until all that belongs to it is known."""
        self.held[name] = Known(value, origin)


_FACTORS = {
    **{"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12},
    **{"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40},
}


def whole(text: str) -> int:
    """A whole number as vLLM reads it; ValueError for anything else.

    >>> whole("8192"), whole("32k"), whole("1K"), whole("25.6k")
    (8192, 32000, 1024, 25600)
    """
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kmgtKMGT]?)", text.strip().replace("_", ""))
    if found is None:
        raise ValueError(f"expected a whole number, got {text!r}")
    value = float(found[1]) * _FACTORS.get(found[2], 1)
    if value != int(value):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(value)


def truth(text: str) -> bool:
    """True or false as engines read it; ValueError for anything else."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise ValueError(f"expected true or false, got {text!r}")
    return known[text.lower()]


NUMBER_FORMATS = {
    **{"bfloat16": "bf16", "bf16": "bf16", "half": "fp16", "float16": "fp16", "fp16": "fp16"},
    **{"float32": "fp32", "float": "fp32", "fp32": "fp32"},
}
"""Formats of 16 and 32 bits by the names that engines have for them; ``auto`` is none."""


def number_format(text: str) -> str | None:
    """The format that an engine names; None for ``auto``; ValueError for one that is not known."""
    name = text.lower().removeprefix("torch.")
    if name in ("auto", ""):
        return None
    if name.startswith("fp8") or name.startswith("float8"):
        return "fp8"
    if name in NUMBER_FORMATS:
        return NUMBER_FORMATS[name]
    if name in PRECISION_BYTES:
        return name
    raise ValueError(f"no number format is called {text!r} here")


def gpu_named(label: str) -> str | None:
    """The catalogue's GPU for the label of a node or the name of a driver; None for one unknown.

    >>> gpu_named("NVIDIA-H100-80GB-HBM3"), gpu_named("nvidia-l4"), gpu_named("Tesla-V100")
    ('h100-sxm', 'l4', None)
    >>> gpu_named("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
    'a100-mig-1g'
    """
    hyphened = {name.replace(" ", "-"): part for name, part in names("driver").items()}
    if label in hyphened:
        return hyphened[label]
    plain = re.sub(r"-SHARED$|-MIG-.*$", "", label)
    return named_by_driver(plain.replace("-", " ")) or named_by_publisher(plain)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found
