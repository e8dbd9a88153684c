"""Predicts the exchange of tokens between GPUs that hold whole experts, in seconds.

``dispatch`` brings each token to the experts that it chose, ``combine`` their results back. Every
GPU has ``tokens`` of its own; experts are taken to be spread evenly over ``gpus`` on ``nodes``.

DeepEP's kernels:

- low latency ("ll"): a message for each chosen expert, ``tokens * chosen * hidden * width`` bytes,
  of which a share stays on the GPU, one goes over the link, and one over the network
- high throughput ("ht"): a token goes once to each other node that has one of its experts, and
  there once to each GPU: of ``n`` places that ``chosen`` experts may be in, ``n (1 - (1 - 1/n) **
  chosen)`` are met

    wait     = floor + step * log2 nodes
    transfer = p-norm, by ``overlap``, of bytes over the link / (link * link_share)
               and bytes over the network / (network * network_share)
    seconds  = (wait ** blend + transfer ** blend) ** (1 / blend)

TensorRT-LLM's kernels over NVLink, which FlashInfer brings to vLLM, reach the GPUs that one NVLink
switch joins and no others. A token goes once to each GPU that has one of its experts, as above;
"one_sided" writes into the other GPU's memory, "two_sided" counts and sorts the tokens before (its
dispatch contains that) and passes them through buffers of both:

    wait     = floor + step * log2 gpus
    seconds  = (wait ** blend + transfer ** blend) ** (1 / blend) + token * tokens

A shape may have ``met``, the GPUs that a token goes to, where a benchmark sets them.
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

NVLINK_PARAMETERS = (
    Parameter("floor", 1e-6, 1.2e-5, 1e-3, "s", "however few the tokens"),
    Parameter("step", 1e-9, 1e-6, 1e-4, "s", "each doubling of the GPUs"),
    Parameter("link_share", 0.02, 0.6, 2.0, "1", "share of the link that is reached"),
    Parameter("token", 1e-12, 1e-8, 1e-6, "s", "counting and sorting one token"),
    Parameter("blend", 1.0, 1.5, 8.0, "1", "exponent of the p-norm of wait and transfer"),
)
"""Of kernels that only go over NVLink."""

VARIABLES = ("tokens", "hidden", "width", "chosen", "gpus", "nodes", "network")
"""``width`` is the bytes of a number, scales included; ``network`` the bytes/s of each GPU to those
of other nodes."""

PHASES = ("dispatch", "combine")
BACKENDS = {
    "deepep_low_latency": "ll",
    "deepep_high_throughput": "ht",
    "flashinfer_nvlink_one_sided": "one_sided",
    "flashinfer_nvlink_two_sided": "two_sided",
}
"""vLLM's names of the backends, and the first half of the operators' names."""

OVER_NVLINK = ("one_sided", "two_sided")
"""Kinds that reach no GPU beyond the NVLink switch."""

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
    "one_sided_dispatch": {
        "floor": 1.17e-05, "step": 1.84e-06, "link_share": 0.784, "token": 3.89e-09, "blend": 1.04,
    },
    "one_sided_combine": {
        "floor": 1.21e-05, "step": 3.94e-06, "link_share": 0.712, "token": 1e-12, "blend": 1.2,
    },
    "two_sided_dispatch": {
        "floor": 2.06e-05, "step": 1.48e-06, "link_share": 0.790, "token": 3.22e-08, "blend": 1.0,
    },
    "two_sided_combine": {
        "floor": 9.74e-06, "step": 1.47e-06, "link_share": 0.768, "token": 5.98e-08, "blend": 1.16,
    },
}  # fmt: skip
"""Parameters where a profile has none: fitted to SGLang's DeepEP on H100, on one to eight nodes
(aiconfigurator-core 0.12, ``wideep_deepep_ll_perf`` and ``wideep_deepep_normal_perf``), and to
TensorRT-LLM's kernels on GB200 (``trtllm_alltoall_perf``)."""


def met(places: Floats, chosen: Floats) -> Floats:
    """Places, of that many, in which at least one of ``chosen`` experts is.

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
    places = shape["met"] if "met" in shape else met(gpus, chosen)
    if kind in OVER_NVLINK:
        return token * places * (1 - 1 / gpus), np.zeros_like(token)
    return token * places * (1 - nodes / gpus), token * met(nodes, chosen) * away


def form(operator: str) -> Form:
    """The form of one of ``OPERATORS``; the ceilings' ``bandwidth`` is the link's."""
    kind = kind_of(operator)
    group = ("tokens", "hidden", "chosen")
    if kind in OVER_NVLINK:
        seconds = partial(_over_nvlink, kind)
        return Form(operator, VARIABLES, group, NVLINK_PARAMETERS, seconds, coordinates, regime)
    seconds = partial(_seconds, kind)
    return Form(operator, VARIABLES, group, PARAMETERS, seconds, coordinates, regime)


def kind_of(operator: str) -> str:
    """The first half of the name of one of ``OPERATORS``.

    >>> kind_of("ll_combine"), kind_of("two_sided_dispatch")
    ('ll', 'two_sided')
    """
    return operator.rsplit("_", maxsplit=1)[0]


FORMS: Mapping[str, Callable[[str], Form]] = {
    name: partial(lambda operator, precision: form(operator), name) for name in OPERATORS
}


def _seconds(kind: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    wait = p["floor"] + p["step"] * np.log2(shape["nodes"])
    link, network = moved_bytes(kind, shape)
    near = link / (ceilings.bandwidth * p["link_share"])
    far = network / (shape["network"] * p["network_share"])
    return _norm(wait, _norm(near, far, p["overlap"]), p["blend"])


def _over_nvlink(kind: str, p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
    wait = p["floor"] + p["step"] * np.log2(shape["gpus"])
    link, _ = moved_bytes(kind, shape)
    transfer = link / (ceilings.bandwidth * p["link_share"])
    return _norm(wait, transfer, p["blend"]) + p["token"] * shape["tokens"]


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
