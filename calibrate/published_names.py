"""Finds the catalogue's names of models, GPUs and formats that publishers name in their own way.

Names are compared without upper case, organisation, and the words that do not change the shape of a
model (instruct, chat, the format of its weights).
"""

from __future__ import annotations

import re

from sim import catalog
from sim.catalog import ids
from sim.catalog.gpu_names import named_by_publisher
from sim.catalog.ids import NO_SHAPE, spelt


class Unrepresentable(Exception):  # noqa: N818 - a reason, not a failure
    """Why a row cannot be predicted; the message is the reason."""


_NO_SHAPE = (*NO_SHAPE, "v0.1", "v0.2", "v0.3", "99", "99.9")

SAME_SHAPE = {
    **ids.SAME_SHAPE,
    "llama-7b": "llama-2-7b",
    "llama-13b": "llama-2-13b",
    "llama-70b": "llama-2-70b",
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "kimi-k2-thinking": "kimi-k2",
    "deepseek-r1-0528": "deepseek-r1",
}
"""Models that differ from one of the catalogue in their training, their longest context or the
format of their weights only, which tables state. Publishers write LLaMA 70B for Llama 2 70B: the
first generation had 65B."""


def model_name(published: str) -> str:
    """The catalogue's name of a model.

    >>> model_name("meta-llama/Llama-3.1-8B-Instruct"), model_name("LLaMA-v3.1-70B")
    ('llama-3.1-8b', 'llama-3.1-70b')
    >>> model_name("LLaMA 7B"), model_name("llama2-70b-99.9"), model_name("Llama-3.3-70B-FP8")
    ('llama-2-7b', 'llama-2-70b', 'llama-3.3-70b')

    Raises Unrepresentable for a model that the catalogue does not have.
    """
    found = spelt(published, SAME_SHAPE, _NO_SHAPE)
    if found is None:
        raise Unrepresentable(f"the model {published} is not in the catalogue")
    return found[0]


def has_experts(published: str) -> bool:
    """Whether the model is a mixture of experts; a model that the catalogue lacks is none."""
    try:
        return catalog.model(model_name(published)).has_experts
    except Unrepresentable:
        return False


def gpu_name(published: str) -> str:
    """The catalogue's name of a GPU; without a word on its form, that of the SXM board.

    >>> gpu_name("NVIDIA H100-SXM-80GB"), gpu_name("A100-80GB (330W power limit)")
    ('h100-sxm', 'a100-sxm-80gb')

    Raises Unrepresentable for a GPU that the catalogue does not have.
    """
    found = named_by_publisher(published)
    if found is None:
        raise Unrepresentable(f"the GPU {published} is not in the catalogue")
    return found


_FORMATS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "auto": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_block": "fp8-block",
    "int8": "int8",
    "int4": "int4",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
}


def precision_name(published: str, *, unstated: str) -> str:
    """The format meant by a cell such as ``fp8``, ``int4-g32`` or ``gemm=fp8 moe=fp8``; a cell that
    says nothing means ``unstated``.

    >>> precision_name("gemm=fp8 moe=fp8", unstated="bf16"), precision_name("", unstated="bf16")
    ('fp8', 'bf16')

    Raises Unrepresentable for a format that is not modelled.
    """
    text = published.lower().strip()
    if found := re.match(r"gemm=(\S*)", text):
        text = found[1]
    word = re.split(r"[\s(]|-g\d", text)[0]
    if word in ("", "not", "see", "nan", "unknown"):
        return unstated
    if word not in _FORMATS:
        raise Unrepresentable(f"the format {published} is not modelled")
    return _FORMATS[word]


def expert_precision_name(published: str) -> str | None:
    """The format of experts where a cell states it apart; None where it does not.

    >>> expert_precision_name("gemm=fp8 moe=fp8_block"), expert_precision_name("fp8")
    ('fp8-block', None)
    """
    found = re.search(r"moe=(\S+)", published.lower())
    return precision_name(found[1], unstated="bf16") if found else None
