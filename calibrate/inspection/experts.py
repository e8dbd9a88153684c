"""Predicts experts of usual layers for curves and comparisons, as the simulator does.

That is: tokens that choose at random, and what the form leaves over at layers that were timed.
``Shape`` columns name a layer, its share of a device (``gpus``, ``ranks``) and ``tokens``; what
falls to the experts follows from these. Seconds, FLOP, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calibrate.bench.experts import SHAPES
from sim.cost.kernels.form import Floats
from sim.cost.measured_experts import ExpertsFit, MeasuredExperts
from sim.specs.experts import MixtureOfExperts
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from sim.specs.profile import KernelFit

LAYER = ("hidden", "width", "chosen", "experts", "matrices", "gpus", "ranks")
COLUMNS = (*LAYER, "tokens")

USUAL = tuple(dict.fromkeys(shape for shapes in SHAPES.values() for shape in shapes))
TOKENS = (1, 8, 32, 128, 1024, 8192)
SHARES = {"moe": ((1, 1), (8, 1)), "moe_ranks": ((1, 8),), "moe_older": ((1, 1), (8, 1))}
"""GPUs that share the width of each expert, and ranks that share the experts, by operator."""


class ExpertTimes(NamedTuple):
    """By point: seconds, FLOP, and bytes that have to move."""

    seconds: Floats
    flop: Floats
    bytes: Floats


def shapes(operator: str, ranges: Mapping[str, tuple[float, float]]) -> dict[str, Floats]:
    """Usual layers and numbers of tokens within ``ranges``, as columns."""
    rows = [
        (*layer, *share, tokens)
        for layer in USUAL
        for share in SHARES[operator]
        for tokens in TOKENS
        if layer.width % share[0] == 0 and layer.experts >= share[1]
    ]
    within = [row for row in rows if _inside(row, ranges)]
    table = np.array(within, dtype=np.float64).reshape(-1, len(COLUMNS))
    return {name: table[:, at] for at, name in enumerate(COLUMNS)}


def _inside(row: Sequence[float], ranges: Mapping[str, tuple[float, float]]) -> bool:
    everything = (-np.inf, np.inf)
    spans = (ranges.get(name, everything) for name in COLUMNS)
    return all(low <= value <= high for value, (low, high) in zip(row, spans, strict=True))


def times(
    operator: str, precision: str, gpu: GpuSpec, fit: KernelFit, shape: Mapping[str, Floats]
) -> ExpertTimes:
    """The times of every point of ``shape``; UsageError where ``fit`` is not of its form."""
    layers = np.column_stack([shape[name] for name in LAYER])
    found = ExpertTimes(*(np.zeros(len(layers)) for _ in ExpertTimes._fields))
    for values in np.unique(layers, axis=0):
        own = (layers == values).all(axis=1)
        hidden, width, chosen, experts, matrices, gpus, ranks = (int(value) for value in values)
        mlp = MixtureOfExperts(experts, chosen, width, mlp_matrices=matrices)
        layout = Layout(tensor=gpus * ranks, expert=ranks)
        kernel = ExpertsFit(operator, precision, fit)
        one, tokens = MeasuredExperts(kernel, gpu, hidden, mlp, layout), shape["tokens"][own]
        found.seconds[own] = one.timing(tokens).seconds
        found.flop[own], found.bytes[own] = one.work(tokens)
    return found
