"""Chooses the shapes at which kernels are shown along a curve, or compared in two profiles.

Only shapes within the measured ranges, and of those only what a GPU's memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from calibrate.inspection import experts
from sim.cost.kernels.all_to_all import OPERATORS
from sim.cost.kernels.choice import DECODES, EXPERTS, OVER_GPUS
from sim.cost.kernels.form import Floats

Ranges = Mapping[str, tuple[float, float]]

HEADS = (
    *((32, 8, 128), (64, 8, 128), (16, 4, 128), (8, 1, 128), (28, 4, 128), (14, 2, 128)),
    *((32, 32, 128), (8, 8, 128), (32, 8, 64), (8, 2, 64), (16, 8, 256), (4, 1, 128)),
)
"""Query heads, KV heads and head size of current models on one to eight GPUs."""

LAYERS = (
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (1280, 8192), (8192, 8192)),
    *((7168, 8192), (8192, 3584), (2560, 2048), (2048, 2048), (16384, 2048), (2048, 8192)),
)
"""Columns and depth of products in current models: projections of 8 B, 70 B and 1 B parameters."""

POWERS: Mapping[str, tuple[float, ...]] = {
    "m": tuple(4.0**e for e in range(8)),
    "batch": (1, 8, 32, 128, 512),
    "tokens": (32, 128, 512, 2048, 8192),
    "bytes": tuple(4.0**e for e in range(5, 16)),
    "gpus": (2, 4, 8),
    "q_heads": (8, 16, 64, 128),
    "window": (128, 512, 1024, 4096),
}
CONTEXTS: Mapping[str, tuple[float, ...]] = {
    **dict.fromkeys(DECODES, (128, 512, 2048, 8192, 32768, 131072)),
    "prefill_attention": (0, 1024, 4096, 32768),
    "mla_decode": (128, 512, 2048, 8192, 32768, 131072),
    "dsa_decode": (128, 512, 2048, 8192, 32768, 131072),
    "window_decode": (64, 128, 1024, 8192, 32768),
    "window_prefill": (0, 1024, 4096, 16384),
}
_LATENT = {"latent": 512.0, "rope": 64.0}
_INDEXED = {**_LATENT, "index_heads": 64.0, "index_dim": 128.0, "topk": 2048.0}
_NODE = {"hidden": 7168.0, "width": 2.0, "chosen": 8.0, "gpus": 8.0, "nodes": 1.0}
_NODE["network"] = 50e9
CONSTANT: Mapping[str, Mapping[str, float]] = {
    **{name: {"skew": 1.0} for name in DECODES},
    "mla_decode": _LATENT,
    "mla_prefill": {"context": 0.0, "head_dim": 160.0},
    "dsa_decode": _INDEXED,
    "dsa_prefill": {**_INDEXED, "context": 0.0},
    **dict.fromkeys(OPERATORS, _NODE),
}
"""Variables that have one value in every usual shape: those of DeepSeek's latent attention, and of
its experts on a node of eight GPUs."""

FIXED = {"context": (0.0, 0.0), "skew": (1.0, 1.0)}
"""The value of a variable that the ranges do not name: it was not varied then."""

CACHE = 4e10
"""Bytes of a layer's KV cache, at 16 bits, beyond what a GPU holds."""

MOST_PROMPT = 262_144
"""New tokens in one call that no engine would batch."""

CURVE_POINTS = 48


def shapes(operator: str, ranges: Ranges) -> dict[str, Floats]:
    """A grid of usual shapes within ``ranges`` as columns, with all variables of the operator.

    The columns are empty where no usual shape lies within.
    """
    if operator in EXPERTS:
        return experts.shapes(operator, ranges)
    columns = [name for group in _groups(operator) for name in group]
    rows = [
        row for row in _rows(operator, ranges) if _plausible(dict(zip(columns, row, strict=True)))
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(columns))
    found = {name: table[:, index] for index, name in enumerate(columns)}
    if operator == "mla_prefill":  # each head has a key and a value of its own
        found["kv_heads"] = found["q_heads"]
    constant = CONSTANT.get(operator, {})
    return {**found, **{name: np.full(len(table), value) for name, value in constant.items()}}


def variables(operator: str) -> set[str]:
    """The columns of ``shapes`` of an operator."""
    nothing: Ranges = {}
    return set(shapes(operator, nothing))


def _groups(operator: str) -> tuple[tuple[str, ...], ...]:
    """The variables of an operator's shape; those that make sense only together are one group."""
    heads = ("q_heads", "kv_heads", "head_dim")
    known: Mapping[str, tuple[tuple[str, ...], ...]] = {
        "gemm": (("m",), ("n", "k")),
        **dict.fromkeys(DECODES, (("batch",), ("context",), heads)),
        "prefill_attention": (("batch",), ("tokens",), ("context",), heads),
        "mla_decode": (("batch",), ("context",), ("q_heads",)),
        "mla_prefill": (("batch",), ("tokens",), ("q_heads",)),
        "dsa_decode": (("batch",), ("context",), ("q_heads",)),
        "dsa_prefill": (("batch",), ("tokens",), ("q_heads",)),
        "window_decode": (("batch",), ("context",), ("window",), heads),
        "window_prefill": (("batch",), ("tokens",), ("context",), ("window",), heads),
        **dict.fromkeys(OVER_GPUS, (("bytes",), ("gpus",))),
        **dict.fromkeys(OPERATORS, (("tokens",),)),
    }
    return known.get(operator, (("bytes",),))


def _rows(operator: str, ranges: Ranges) -> Iterator[tuple[float, ...]]:
    choices = [usual(operator, group, ranges) for group in _groups(operator)]
    for parts in product(*choices):
        yield tuple(value for part in parts for value in part)


def usual(operator: str, group: tuple[str, ...], ranges: Ranges) -> list[tuple[float, ...]]:
    """Usual values of variables that belong together, within ``ranges``; where none lies within,
    both ends of them; none at all where the ranges are empty."""
    candidates: Sequence[tuple[float, ...]]
    if group == ("n", "k"):
        candidates = LAYERS
    elif len(group) == 3:
        grouped = operator != DECODES[1]
        candidates = [heads for heads in HEADS if grouped or heads[0] == heads[1]]
    else:
        (name,) = group
        candidates = [(v,) for v in (CONTEXTS[operator] if name == "context" else POWERS[name])]
    within = [values for values in candidates if _inside(group, values, ranges)]
    return within or _corners(group, ranges)


def _inside(group: tuple[str, ...], values: Sequence[float], ranges: Ranges) -> bool:
    for name, value in zip(group, values, strict=True):
        low, high = ranges.get(name, FIXED.get(name, (-np.inf, np.inf)))
        if not low <= value <= high:
            return False
    return True


def _corners(group: tuple[str, ...], ranges: Ranges) -> list[tuple[float, ...]]:
    """The ends of the ranges, where no usual value lies between them; none if they do not meet."""
    if any(name not in ranges or ranges[name][0] > ranges[name][1] for name in group):
        return []
    return sorted({tuple(float(ranges[name][end]) for name in group) for end in (0, 1)})


def _plausible(shape: Mapping[str, float]) -> bool:
    if "head_dim" not in shape:
        return shape.get("batch", 1) * shape.get("tokens", 0) <= MOST_PROMPT
    if shape["q_heads"] % shape["kv_heads"]:
        return False
    held = shape["context"] + shape.get("tokens", 0)
    if "tokens" in shape and held <= shape.get("window", 0):
        return False  # the window hides nothing
    cache = 4 * shape["batch"] * held * shape["kv_heads"] * shape["head_dim"]
    return cache <= CACHE and shape["batch"] * shape.get("tokens", 0) <= MOST_PROMPT


def meet(one: Ranges, other: Ranges) -> dict[str, tuple[float, float]]:
    """The ranges that both have; a lower end above the upper one where they do not meet."""
    everything = (-np.inf, np.inf)
    met = {}
    for name in {**one, **other}:
        absent = FIXED.get(name, everything)
        (low, high), (lowest, highest) = one.get(name, absent), other.get(name, absent)
        met[name] = max(low, lowest), min(high, highest)
    return met


def along(low: float, high: float, most: int = CURVE_POINTS) -> Floats:
    """Whole numbers from ``low`` to ``high`` in equal ratios; twice as dense as powers of two."""
    low = max(low, 1.0)
    points: Floats = np.unique(np.round(np.geomspace(low, max(high, low), most)))
    return points
