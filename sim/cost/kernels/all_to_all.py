"""Predicts the exchange of tokens between GPUs that hold whole experts: DeepEP's kernels, seconds.

``dispatch`` brings each token to the experts that it chose, ``combine`` their results back. Every
GPU has ``tokens`` of its own; experts are taken to be spread evenly over ``gpus`` on ``nodes``.

- low latency ("ll"): a message for each chosen expert, ``tokens * chosen * hidden * width`` bytes,
  of which a share stays on the GPU, one goes over the link, and one over the network
- high throughput ("ht"): a token goes once to each other node that has one of its experts, and
  there once to each GPU: of ``n`` places that ``chosen`` experts may be in, ``n (1 - (1 - 1/n) **
  chosen)`` are met

    wait     = floor + step * log2 nodes
    transfer = p-norm, by ``overlap``, of bytes over the link / (link * link_share)
               and bytes over the network / (network * network_share)
    seconds  = (wait ** blend + transfer ** blend) ** (1 / blend)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape

PARAMETERS = (
    Parameter("floor", 1e-6, 3e-5, 1e-3, "s", "within a node, however few the tokens"),
    Parameter("step", 1e-8, 1e-5, 1e-3, "s", "each doubling of the nodes"),
    Parameter("link_share", 0.02, 0.5, 2.0, "1", "share of the link that is reached"),
    Parameter("network_share", 0.05, 0.8, 1.2, "1", "share of the network that is reached"),
    Parameter("overlap", 1.0, 2.0, 12.0, "1", "exponent that joins link and network"),
    Parameter("blend", 1.0, 1.5, 8.0, "1", "exponent of the p-norm of wait and transfer"),
)

VARIABLES = ("tokens", "hidden", "width", "chosen", "gpus", "nodes", "network")
"""``width`` is the bytes of a number, scales included; ``network`` the bytes/s of each GPU to those
of other nodes."""

PHASES = ("dispatch", "combine")
BACKENDS = {"deepep_low_latency": "ll", "deepep_high_throughput": "ht"}
"""vLLM's names of the backends, and the first half of the operators' names."""

WIDTHS: Mapping[str, float] = {"fp8": 1 + 4 / 128, "nvfp4": 0.5625}
"""Bytes of a number that is quantised before it is dispatched, with its share of the scales."""

OPERATORS = tuple(f"{kind}_{phase}" for kind in BACKENDS.values() for phase in PHASES)

USUAL: Mapping[str, Parameters] = {
    "ll_dispatch": {
        "floor": 1.20e-05, "step": 6.32e-06, "link_share": 0.543, "network_share": 1.005,
        "overlap": 1.13, "blend": 1.0,
    },
    "ll_combine": {
        "floor": 1.15e-05, "step": 6.94e-06, "link_share": 0.469, "network_share": 0.953,
        "overlap": 1.13, "blend": 1.04,
    },
    "ht_dispatch": {
        "floor": 2.65e-05, "step": 3.30e-05, "link_share": 0.582, "network_share": 0.921,
        "overlap": 6.19, "blend": 1.0,
    },
    "ht_combine": {
        "floor": 3.91e-05, "step": 4.45e-05, "link_share": 0.620, "network_share": 1.02,
        "overlap": 1.69, "blend": 1.0,
    },
}  # fmt: skip
"""Parameters where a profile has none: fitted to SGLang's DeepEP on H100, on one to eight nodes
(aiconfigurator-core 0.12, ``wideep_deepep_ll_perf`` and ``wideep_deepep_normal_perf``)."""


def met(places: Floats, chosen: Floats) -> Floats:
    """Places, of so many, in which at least one of ``chosen`` experts is.

    >>> met(np.array([1.0, 2.0, 8.0]), np.array(8.0)).round(2).tolist()
    [1.0, 1.99, 5.25]
    """
    return np.asarray(places * (1 - (1 - 1 / places) ** chosen))


def moved_bytes(kind: str, shape: Shape) -> tuple[Floats, Floats]:
    """Bytes that a GPU sends over its link, and over the network."""
    gpus, nodes, chosen = shape["gpus"], shape["nodes"], shape["chosen"]
    token = shape["tokens"] * shape["hidden"] * shape["width"]
    away = (nodes - 1) / nodes
    if kind == "ll":
        return token * chosen * (1 / nodes - 1 / gpus), token * chosen * away
    return token * met(gpus, chosen) * (1 - nodes / gpus), token * met(nodes, chosen) * away


def form(operator: str) -> Form:
    """The form of one of ``OPERATORS``; the ceilings' ``bandwidth`` is the link's."""
    kind = operator.split("_", maxsplit=1)[0]
    seconds = partial(_seconds, kind)
    group = ("tokens", "hidden", "chosen")
    return Form(operator, VARIABLES, group, PARAMETERS, seconds, coordinates, regime)


FORMS: Mapping[str, Callable[[str], Form]] = {
    name: partial(lambda operator, precision: form(operator), name) for name in OPERATORS
}


def _seconds(kind: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    wait = p["floor"] + p["step"] * np.log2(shape["nodes"])
    link, network = moved_bytes(kind, shape)
    near = link / (ceilings.bandwidth * p["link_share"])
    far = network / (shape["network"] * p["network_share"])
    return _norm(wait, _norm(near, far, p["overlap"]), p["blend"])


def _norm(one: Floats, other: Floats, power: float) -> Floats:
    longest = np.maximum(np.maximum(one, other), 1e-12)
    total: Floats = longest * ((one / longest) ** power + (other / longest) ** power) ** (1 / power)
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of the tokens and of the nodes."""
    return {"tokens": np.log2(np.maximum(shape["tokens"], 1.0)), "nodes": np.log2(shape["nodes"])}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By nodes, and few tokens or many."""
    names = np.array(["1 to 16 tokens", "17 to 256 tokens", "257 to 4096 tokens", "above"])
    sizes = names[np.searchsorted([17, 257, 4097], shape["tokens"], side="right")]
    nodes = np.where(np.broadcast_to(shape["nodes"], sizes.shape) > 1, "nodes, ", "one node, ")
    return np.char.add(nodes, sizes)
