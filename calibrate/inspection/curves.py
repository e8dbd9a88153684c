"""Computes how an operator's time grows with one variable, the others fixed: lines in seconds.

Where measurements exist the lines pass through the shapes measured most often, and come with the
measurements on them; else they are of usual layers within the measured ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.inspection import experts, grid
from calibrate.inspection.measured import Points
from sim.cost.kernels.choice import DECODES, EXPERTS, OVER_GPUS, Choice, work
from sim.cost.kernels.form import Floats
from sim.specs.gpu import GpuSpec
from sim.specs.profile import KernelFit

PLAIN = ("gemm", *DECODES, "prefill_attention")

SWEPT: Mapping[str, str] = {
    "gemm": "m",
    **dict.fromkeys(DECODES, "context"),
    "prefill_attention": "tokens",
    **dict.fromkeys(("mla_decode", "dsa_decode", "window_decode"), "context"),
    **dict.fromkeys(("mla_prefill", "dsa_prefill", "window_prefill"), "tokens"),
    **dict.fromkeys(EXPERTS, "tokens"),
}
"""The variable along which an operator is drawn; ``bytes`` for all others."""

SPREAD = tuple(name for name in SWEPT if name not in PLAIN)
"""Operators whose curves are of shapes all over the grid."""

MOST_CURVES = 4
LEAST_ALONG = 3
"""Fewer measurements do not make a line worth drawing."""


class KernelCurve(NamedTuple):
    """One line: ``seconds``, FLOP and bytes ``at`` values of ``variable``, and what was measured on
    it. ``label`` names the held variables."""

    label: str
    variable: str
    at: Floats
    seconds: Floats
    flop: Floats
    bytes: Floats
    measured_at: Floats
    measured: Floats


def curves(
    operator: str,
    precision: str,
    gpu: GpuSpec,
    choice: Choice,
    fit: KernelFit,
    points: Points | None,
) -> list[KernelCurve]:
    """Up to ``MOST_CURVES`` lines of one fit."""
    variable = SWEPT.get(operator, "bytes")
    if variable not in fit.ranges:
        return []
    routed = operator in EXPERTS
    names = experts.COLUMNS if routed else choice.form.variables
    held = [name for name in names if name != variable]
    chosen = _measured(points, variable, held) if points is not None else []
    chosen = chosen or _usual(operator, held, fit.ranges)
    at = grid.along(*fit.ranges[variable])
    found = []
    for values in chosen[:MOST_CURVES]:
        fixed = dict(zip(held, values, strict=True))
        shape = {name: np.full(len(at), value) for name, value in fixed.items()}
        shape[variable] = at
        if routed:
            seconds, flop, moved = experts.times(operator, precision, gpu, fit, shape)
        else:
            seconds = choice.form.predict(fit, shape, choice.ceilings)
            flop, moved = work(operator, precision, shape)
        measured_at = measured = np.zeros(0)
        if points is not None:
            on = _on(points, fixed)
            measured_at, measured = points.shape[variable][on], points.seconds[on]
        label = describe(fixed)
        found.append(KernelCurve(label, variable, at, seconds, flop, moved, measured_at, measured))
    return found


def _measured(points: Points, variable: str, held: list[str]) -> list[tuple[float, ...]]:
    """The shapes with most measurements along the variable, most first."""
    if not held:
        return [()]
    columns = np.column_stack([points.shape[name] for name in held])
    along: dict[tuple[float, ...], set[float]] = {}
    for values, place in zip(columns.tolist(), points.shape[variable].tolist(), strict=True):
        along.setdefault(tuple(values), set()).add(place)
    enough = [values for values, places in along.items() if len(places) >= LEAST_ALONG]
    return sorted(enough, key=lambda values: (-len(along[values]), values))


def _usual(operator: str, held: list[str], ranges: grid.Ranges) -> list[tuple[float, ...]]:
    """Usual layers: products by projection, decode by batch, prompts by what is cached before; of
    other layers whatever differs, spread over the grid."""
    if not held:
        return [()]
    if operator in SPREAD:
        table = grid.shapes(operator, ranges)
        found = sorted(set(zip(*(table[name].tolist() for name in held), strict=True)))
        return found[:: max(1, -(-len(found) // MOST_CURVES))]
    if operator == "gemm":
        return grid.usual(operator, ("n", "k"), ranges)
    if operator in OVER_GPUS:
        return grid.usual(operator, ("gpus",), ranges)
    heads = grid.usual(operator, ("q_heads", "kv_heads", "head_dim"), ranges)
    if operator in DECODES:
        batches = grid.usual(operator, ("batch",), ranges)
        return [(*batch, 1.0, *heads[0]) for batch in batches if heads]
    contexts = grid.usual(operator, ("context",), ranges)
    batches = grid.usual(operator, ("batch",), ranges)
    if len(contexts) > 1:
        batches = batches[:1]
    pairs = product(batches, contexts)
    return [(*batch, *context, *heads[0]) for batch, context in pairs if heads]


def _on(points: Points, fixed: Mapping[str, float]) -> NDArray[np.bool_]:
    """Which points have these values."""
    chosen = np.ones(len(points), dtype=bool)
    for name, value in fixed.items():
        chosen &= points.shape[name] == value
    return chosen


def describe(shape: Mapping[str, float]) -> str:
    """A shape in a few words, what is usual left out.

    >>> describe({"m": 16, "n": 4096, "k": 14336})
    'm 16, n 4,096, k 14,336'
    >>> describe({"batch": 8, "context": 512, "skew": 1, "q_heads": 32, "kv_heads": 8,
    ...           "head_dim": 128})
    'batch 8, context 512, heads 32/8 of 128'
    """
    parts = [
        f"{value:,.0f} GPUs"
        if name == "gpus"
        else f"{name} {value:,.0f}"
        if value == round(value)
        else f"{name} {value:,.6g}"
        for name, value in shape.items()
        if name not in ("q_heads", "kv_heads", "head_dim")
        and not (name == "skew" and value == 1)
        and not (name == "context" and value == 0)
        and not (name in ("gpus", "ranks") and value == 1)
    ]
    if "head_dim" in shape:
        heads = (shape[name] for name in ("q_heads", "kv_heads", "head_dim"))
        parts.append("heads {:g}/{:g} of {:g}".format(*heads))
    return ", ".join(parts)
