"""Predicts decoding over latent vectors by kernels that have narrow tiles of heads, in seconds.

TensorRT-LLM's kernels for Blackwell, which FlashInfer runs for vLLM and SGLang: heads are cut into
tiles of ``NARROW``, each of which reads the latent vectors again, or of ``ROWS``. Narrow ones take
up to ``TWO`` heads, and more where there are as many SMs as tiles and each walks ``SHORT`` tokens
at most. Idle SMs share a context among them, in ``parts`` of at least ``PART`` tokens. For both

- ``waves``   = tiles x parts / SMs, rounded up
- ``walk``    = waves x (tokens of a part beyond ``tile``) x an SM's time for a token
- ``memory``  = latent vectors of the contexts, once / (bandwidth x share)
- seconds     = floor + p-norm(walk, memory; blend) + wave x waves + combine x log2(parts)
                + query x (queries and results) / bandwidth, and ``apart`` with wide tiles, whose
                parts are added up by a kernel of their own

An SM's time for a token is that of reading it at its share of bandwidth x ``reader`` with a narrow
tile, and that of its products with one of 64 heads, which tensor memory pads to ``PADDED`` rows
unless two tiles run as a pair. In the context seconds never fall: where the wide kernel takes over
it takes no less than the narrow one at its longest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.cost.kernels import latent_attention
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.cost.kernels.latent_attention import ROWS, query_bytes
from sim.specs.precision import precision_bytes

NAME = "narrow"
"""The form's name in a fit."""

NARROW, TWO, SHORT = 16, 32, 1024
"""Heads of a narrow tile, heads up to which there is no other, and tokens up to which there is
(NVIDIA/TensorRT-LLM, trtllmGenKernels/fmha/fmhaKernels.h, ``selectMlaGenerationKernel``)."""

PART = 512
"""Tokens of a part: two of the steps of 256 that the same file reckons with. Assumed, not read."""

PADDED = 128
"""Rows of Blackwell's tensor memory."""

PARAMETERS = (
    Parameter("floor", 1e-7, 1e-5, 1e-3, "s", "a call, however little it reads"),
    Parameter("share", 0.05, 0.8, 1.0, "1", "share of the memory bandwidth that long reads see"),
    Parameter("compute", 0.02, 0.7, 2.0, "1", "share of an SM's peak FLOP/s on a wide tile"),
    Parameter("reader", 0.1, 1.0, 4.0, "1", "bandwidth at which all SMs read, over the memory's"),
    Parameter("blend", 1.0, 3.0, 12.0, "1", "exponent of the p-norm of walk and memory"),
    Parameter("wave", 1e-9, 3e-6, 1e-4, "s", "an SM's start and end of one tile"),
    Parameter("query", 0.1, 2.0, 30.0, "1", "queries and results, in times of moving them once"),
    Parameter("combine", 1e-9, 2e-7, 1e-5, "s", "each doubling of the parts of a context"),
    Parameter("apart", 1e-8, 1e-6, 1e-4, "s", "adding up parts of wide tiles"),
    Parameter("tile", 8.0, 128.0, 1024.0, "tokens", "tokens of a part covered by ``wave``"),
)


def decode(precision: str) -> Form:
    """The form for a cache in ``precision``; ceilings are those of 16-bit arithmetic.

    Raises ValueError for a precision that sim.specs.precision does not know.
    """
    kv_bytes = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        heads, context = shape["q_heads"], shape["context"]
        slim, wide = np.ceil(heads / NARROW), np.ceil(heads / ROWS)
        width = (shape["latent"] + shape["rope"]) * kv_bytes
        reading = width * ceilings.sms / (ceilings.bandwidth * p["reader"])
        flops = 2 * PADDED * (2 * shape["latent"] + shape["rope"])
        computing = flops * ceilings.sms / (ceilings.peak * p["compute"])
        computing = computing / np.minimum(wide, 2)
        spare = np.floor(ceilings.sms / (shape["batch"] * slim))
        most = np.where(heads <= TWO, np.inf, SHORT * spare)
        least = np.minimum(context, most)
        narrow, _ = _kernel(p, shape, ceilings, np.maximum(least, 1.0), slim, reading, width)
        narrow = np.where(most > 0, narrow, 0.0)
        other, parts = _kernel(p, shape, ceilings, context, wide, computing, width)
        other = other + p["apart"] * np.minimum(parts - 1, 1)
        chosen = np.where(context <= most, narrow, np.maximum(narrow, other))
        queries = p["query"] * query_bytes(shape) / ceilings.bandwidth
        total: Floats = p["floor"] + chosen + queries
        return total

    return replace(latent_attention.decode(precision), parameters=PARAMETERS, seconds=seconds)


def _kernel(
    p: Parameters,
    shape: Shape,
    ceilings: Ceilings,
    context: Floats,
    tiles: Floats,
    token: Floats,
    width: Floats,
) -> tuple[Floats, Floats]:
    """Seconds above the floor with ``tiles`` of heads and an SM's time for a ``token``; parts."""
    units = shape["batch"] * tiles
    idle = np.maximum(np.floor(ceilings.sms / units), 1.0)
    parts = np.clip(context / PART, 1.0, idle)
    waves = np.ceil(units * parts / ceilings.sms)
    walk = waves * np.maximum(context / parts - p["tile"], 0.0) * token
    memory = shape["batch"] * context * width / (ceilings.bandwidth * p["share"])
    longer, shorter = np.maximum(walk, memory), np.minimum(walk, memory)
    both = longer * (1 + (shorter / longer) ** p["blend"]) ** (1 / p["blend"])
    total: Floats = both + p["wave"] * waves + p["combine"] * np.log2(parts)
    return total, parts
