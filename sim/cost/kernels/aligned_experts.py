"""Predicts the experts of a layer where each expert's rows are padded to blocks of ``ROWS``.

DeepGEMM multiplies rows that lie one expert after the other, each expert's beginning a new block.
vLLM calls it without having counted them on the host, so that it provides for the worst case,
``allocated`` rows: 127 more for each expert of the GPU, whatever is sent to it. Blocks without rows
are scheduled, loaded and stored like the others (``get_next_block`` and ``get_global_idx`` of
DeepGEMM's scheduler.cuh), and the kernels between the two products go through all of them (vLLM
0.12, fused_moe/deep_gemm_moe.py and deep_gemm_utils.py). A block without rows is not multiplied;
it is taken to hold up the pipeline of loads and products for as long as a full one, which is an
assumption: so a pass of four tokens takes nearly as long as one of a hundred. Seconds

    products    = p-norm(FLOP of the allocated rows / rate, weights of the experts touched)
    activations = gate and up written and read, halved, quantised, results written: bytes

The rate is the one that DeepGEMM publishes; latency, bandwidth and norm are those of the profile's
experts in fp8.
"""

from __future__ import annotations

import numpy as np

from sim.cost.kernels.form import Ceilings, Floats, Parameters, Shape
from sim.cost.kernels.moe import ExpertFormat, ExpertParts, weight_bytes

ROWS = 128
"""Rows of a block (DeepGEMM, ``get_m_alignment_for_contiguous_layout``)."""

COMPUTE = 0.62
"""Share of the peak FLOP/s in the products of a gated expert: 1,297 TFLOP/s into the inner width
and 1,099 out of it, in blocks that are full, on an H800 of 1,979 (DeepGEMM, README.md of February
2025, "Grouped GEMMs for MoE models (contiguous layout)")."""


def allocated(shape: Shape, held: float) -> Floats:
    """Rows of a GPU that has ``held`` experts.

    >>> one, many = np.array([1.0]), np.array([64.0])
    >>> chosen = np.array([8.0])
    >>> [float(allocated({"tokens": m, "chosen": chosen}, 128)[0]) for m in (one, many)]
    [16384.0, 16768.0]
    """
    rows = shape["tokens"] * shape["chosen"] + held * (ROWS - 1)
    total: Floats = np.ceil(rows / ROWS) * ROWS
    return total


def parts(
    p: Parameters, shape: Shape, ceilings: Ceilings, kind: ExpertFormat, held: float
) -> ExpertParts:
    """The parts of a call's time."""
    hidden, inner = shape["hidden"], shape["width"] / shape["gpus"]
    into = (shape["matrices"] - 1) * inner
    bandwidth, rows = ceilings.bandwidth * p["bandwidth"], allocated(shape, held)
    compute = 2 * rows * hidden * (into + inner) / (ceilings.peak * COMPUTE)
    memory = weight_bytes(shape, kind.weight) / bandwidth
    longest, norm = np.maximum(compute, memory), p["norm"]
    products = longest * sum((x / longest) ** norm for x in (compute, memory)) ** (1 / norm)
    # both written and read: what the first product gives, and half of it before it is quantised
    wide = kind.activation
    moved = rows * (2 * wide * into + 2 * wide * inner + 2 * inner + wide * hidden)
    sent = shape["tokens"] * shape["chosen"] * hidden * (1 + wide)
    rest = p["latency"] + p["several"] * (1 - 1 / np.maximum(shape["tokens"], 1.0))
    return ExpertParts(compute, memory, products + rest + (moved + sent) / bandwidth)
