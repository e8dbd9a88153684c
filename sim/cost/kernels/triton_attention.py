"""Predicts decode attention by SGLang's Triton kernel for one layer, in seconds.

FlashAttention splits a context until the GPU is full. This kernel splits it into ``SPLITS`` parts,
or one for each ``KEYS`` tokens where that is fewer, whatever the batch (sgl-project/sglang,
layers/attention/triton_ops/decode_attention.py, with the server's default of
``triton_attention_num_kv_splits``). A block of threads has up to ``ROWS`` query heads of one KV
head, and walks its part ``KEYS`` tokens at a time. ``w`` is the head size over 128, padded to a
power of two before. With ``units`` of sequences, KV heads and blocks of query heads:

- ``steps``   = context / (KEYS x parts), at least one
- ``alone``   = steps x (step + step_width x w + far) x skew, which a block takes with an SM of its
                own: each step waits for where its keys are, and for what it finds there. ``far`` is
                what that takes from memory, and falls away where a benchmark has them in its cache
- ``busy``    = units x parts x steps x busy x w^power / SMs, where many blocks share an SM
- ``memory``  = (KV cache + queries + results) / (bandwidth x share), quicker from that cache
- seconds     = floor + p-norm(alone, busy, memory; blend)

At some hundred tokens it is quicker than FlashAttention 3, whose call takes longer to begin.
Several query heads share a KV head here; with one each the kernel is another one.
"""

from __future__ import annotations

import numpy as np

from sim.cost.kernels.decode_attention import SHARPNESS, coordinates, read_bytes, regime
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

PARAMETERS = (
    Parameter("floor", 1e-7, 8e-6, 1e-3, "s", "both kernels, however little they read"),
    Parameter("step", 1e-8, 1e-6, 1e-4, "s", "32 keys, however wide, found in the cache"),
    Parameter("step_width", 1e-9, 5e-7, 1e-4, "s", "what each 128 of the width add to that"),
    Parameter("far", 1e-9, 1e-6, 1e-4, "s", "what reading from memory adds to that"),
    Parameter("busy", 1e-8, 5e-7, 1e-4, "s", "an SM's time for 32 keys of 128-wide heads"),
    Parameter("power", 0.0, 1.0, 3.0, "1", "exponent of the width in busy", log=False),
    Parameter("share", 0.05, 0.6, 1.0, "1", "share of the memory bandwidth"),
    Parameter("blend", 1.0, 2.0, 8.0, "1", "exponent of the p-norm"),
    Parameter("cache_share", 0.3, 0.8, 1.5, "1", "share of the cache that a repeated call refills"),
    Parameter("cache_speed", 1.0, 2.0, 10.0, "1", "bandwidth of the cache over the memory's"),
)

KEYS, ROWS, SPLITS = 32, 16, 8
"""Tokens of a step, query heads of a block, and parts of a context."""

WIDTH = 128
"""Head size that ``step_width`` and ``busy`` refer to."""


def form(precision: str) -> Form:
    """The form for a KV cache in ``precision``; ceilings are those of 16-bit arithmetic.

    Raises ValueError for a precision that sim.specs.model does not know.
    """
    kv_bytes = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        width = padded(shape["head_dim"]) / WIDTH
        group = shape["q_heads"] / shape["kv_heads"]
        units = shape["batch"] * shape["kv_heads"] * np.ceil(group / ROWS)
        parts = np.clip(shape["context"] / KEYS, 1, SPLITS)
        steps = np.maximum(shape["context"] / (KEYS * parts), 1)
        moved = read_bytes(shape, kv_bytes)
        missing: Floats = np.ones(())
        if ceilings.cache:
            missing = 1 / (1 + (moved / (ceilings.cache * p["cache_share"])) ** -SHARPNESS)
        rate = ceilings.bandwidth * p["share"]
        memory = moved / rate * (missing + (1 - missing) / p["cache_speed"])
        step = p["step"] + p["step_width"] * width + p["far"] * missing
        alone = steps * step * shape["skew"]
        busy = units * parts * steps * p["busy"] * width ** p["power"] / ceilings.sms
        raised = alone ** p["blend"] + busy ** p["blend"] + memory ** p["blend"]
        total: Floats = p["floor"] + raised ** (1 / p["blend"])
        return total

    return Form(
        "decode_attention_triton",
        ("batch", "context", "skew", "q_heads", "kv_heads", "head_dim"),
        ("q_heads", "kv_heads", "head_dim"),
        PARAMETERS,
        seconds,
        coordinates,
        regime,
    )


def padded(head_dim: Floats) -> Floats:
    """The power of two that a head's numbers are padded to.

    >>> padded(np.array([64.0, 96.0, 192.0])).tolist()
    [64.0, 128.0, 256.0]
    """
    found: Floats = 2.0 ** np.ceil(np.log2(head_dim))
    return found
