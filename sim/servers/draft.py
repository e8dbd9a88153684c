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


ASSUMED = "assumed, put your own here"
"""The origin of a value that nothing states."""

UNSET = "nothing sets this variable"
"""Why an option with a variable is left out."""


class Draft:
    """What is known of one server.

    ``values`` by dotted key; ``without_effect`` are options that change no
    prediction, ``left_out`` those that do and that nothing here simulates, each with a reason;
    ``unknown`` those that no engine here has. ``held`` are values that mean something only
    together (``sim.servers.flags``).
    """

    def __init__(self) -> None:
        self.values: dict[str, Known] = {}
        self.without_effect: list[str] = []
        self.left_out: dict[str, str] = {}
        self.unknown: list[str] = []
        self.notes: list[str] = []
        self.held: dict[str, Known] = {}

    def shortcomings(self) -> list[str]:
        """What the scenario does not say, one sentence each."""
        unset = [flag for flag, reason in self.left_out.items() if reason == UNSET]
        found = []
        if unset:
            found.append(
                f"Nothing sets the variable in {', '.join(unset)}: the engine's default counts, or "
                "what --set says."
            )
        found += [
            f"Not simulated: {flag} ({reason})."
            for flag, reason in self.left_out.items()
            if reason != UNSET
        ]
        if self.unknown:
            found.append(f"Not known here, left out: {', '.join(self.unknown)}.")
        return found

    def put(self, key: str, value: Any, origin: str) -> None:
        """Take ``value`` for ``key``; the last one counts, as for engines."""
        self.values[key] = Known(value, origin)

    def hold(self, name: str, value: Any, origin: str) -> None:
        """Keep ``value`` until all that belongs to it is known."""
        self.held[name] = Known(value, origin)


def plain(key: str) -> str:
    """The key of a scenario without the number of its only pool.

    >>> plain("fleet.0.gpu"), plain("fleet.gpu")
    ('fleet.gpu', 'fleet.gpu')
    """
    return re.sub(r"^fleet\.\d+\.", "fleet.", key)


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


MACHINES = {
    r"p5\.\d*xlarge": "h100-sxm",
    r"p5en?\.": "h200-sxm",
    r"p6-b200\.": "b200-sxm",
    r"p6-b300\.": "b300-sxm",
    r"p6e-gb200\.": "gb200",
    r"p4de\.": "a100-sxm-80gb",
    r"p4d\.": "a100-sxm-40gb",
    r"g7e\.": "rtx-pro-6000",
    r"g6e\.": "l40s",
    r"(g6|gr6)\.": "l4",
    r"g5\.": "a10g",
    r"g4dn\.": "t4",
    r"a2-ultragpu-": "a100-sxm-80gb",
    r"a2-(high|mega)gpu-": "a100-sxm-40gb",
    r"a3-(high|mega|edge)gpu-": "h100-sxm",
    r"a3-ultragpu-": "h200-sxm",
    r"a4-highgpu-": "b200-sxm",
    r"a4x-highgpu-": "gb200",
    r"a4x-maxgpu-": "gb300",
    r"g2-standard-": "l4",
    r"g4-standard-": "rtx-pro-6000",
    r"standard_nd\w*_h100_v5": "h100-sxm",
    r"standard_nd\w*_h200_v5": "h200-sxm",
    r"standard_nd\w*_mi300x_v5": "mi300x",
    r"standard_nd\w*_gb200_v6": "gb200",
    r"standard_nd\w*_gb300_v6": "gb300",
    r"standard_nc\w*_h100_v5": "h100-nvl",
    r"standard_nc\w*_a100_v4": "a100-pcie",
    r"standard_nd96am\w*_a100_v4": "a100-sxm-80gb",
    r"standard_nd96as\w*_v4": "a100-sxm-40gb",
    r"standard_nc\w*_t4_v3": "t4",
    r"nvidia-tesla-a100$": "a100-sxm-40gb",
    r"tpu-v5|ct5": "",
}
"""GPUs of the machines of clouds, 2026: docs.aws.amazon.com/ec2 instance types,
cloud.google.com/compute/docs/gpus, learn.microsoft.com/azure/virtual-machines sizes; and the labels
of GKE that say less than a name (cloud.google.com/kubernetes-engine/docs/concepts/gpus)."""


def gpu_named(label: str) -> str | None:
    """The catalogue's GPU for the label of a node or the name of a driver; None for one unknown.

    >>> gpu_named("NVIDIA-H100-80GB-HBM3"), gpu_named("p5.48xlarge"), gpu_named("Tesla-V100")
    ('h100-sxm', 'h100-sxm', None)
    >>> gpu_named("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
    'a100-mig-1g'
    """
    hyphened = {name.replace(" ", "-"): part for name, part in names("driver").items()}
    if label in hyphened:
        return hyphened[label]
    plain = re.sub(r"-SHARED$|-MIG-.*$", "", label)
    for pattern, part in MACHINES.items():
        if re.match(pattern, plain.lower()):
            return part or None
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
