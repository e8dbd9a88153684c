"""Predicts attention over latent vectors sequence by sequence, as on a CPU. Seconds.

Decoding copies a sequence's latent vectors out of their blocks, and multiplies all query heads by
them: scores, a softmax in 32 bits, and weighted values. Each product has as many rows as there are
heads, of which few are slow (``half``). Prompts, whose keys and values were projected up, are the
``serial`` form of prefill attention with heads of the mean width of both
(``latent_attention.prefill_heads``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.cost.kernels import latent_attention, serial
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.specs.precision import precision_bytes

PARAMETERS = (
    *serial.ATTENTION,
    Parameter("half", 1e-3, 4.0, 512.0, "heads", "query heads that run at half the rate of many"),
    Parameter("softmax", 0.1, 100.0, 4096.0, "elements", "exponentials, as wider vectors"),
)


def decode(precision: str) -> Form:
    """Decoding over latent vectors in ``precision``."""
    kept = precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        vectors = shape["context"] * (shape["latent"] + shape["rope"]) * kept
        copied = vectors / (ceilings.bandwidth * p["share"]) * serial.slowed(p, vectors)
        widths = 2 * shape["latent"] + shape["rope"] + p["softmax"]
        pairs = shape["context"] * (shape["q_heads"] + p["half"])
        multiplied = 2 * pairs * widths / (ceilings.peak * p["compute"])
        total: Floats = p["floor"] + shape["batch"] * (p["sequence"] + copied + multiplied)
        return total

    return replace(
        latent_attention.decode(precision),
        parameters=PARAMETERS,
        seconds=seconds,
        coordinates=_coordinates,
    )


def _coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of contexts and heads; batches are sums of sequences."""
    return {name: np.log2(shape[name]) for name in ("context", "q_heads")}


PREFILL_SAME = {"mask": 0.0, "pack": 0.0}
"""Parameters of ``serial.prefill`` that say nothing here: each head has keys and values of its own,
written for it, so that what is read at all (``share``) is copied and packed, too, and a mask is
read for many heads."""


def prefill(precision: str) -> Form:
    """Prompts over keys and values of each head; heads by ``latent_attention.prefill_heads``."""
    return replace(serial.prefill(precision), operator="mla_prefill").given(**PREFILL_SAME)
