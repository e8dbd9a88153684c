"""Finds the catalogue's name of a model or GPU that a record names in its own way."""

from __future__ import annotations

import re
from pathlib import Path

from sim import catalog
from sim.scoring.names import Unrepresentable, gpu_name, model_name

_QUANTISED = re.compile(
    r"(?<![a-z0-9])(fp8|fp4|nvfp4|mxfp4|int8|int4|w8a8|w4a16|awq|gptq|quantized)(?![a-z0-9])"
)


def known_model(named: str) -> str | None:
    """The catalogue's name of the model that is published as ``named``, or None.

    >>> known_model("meta-llama/Meta-Llama-3.1-8B-Instruct"), known_model("someone/other-7b")
    ('llama-3.1-8b', None)
    """
    try:
        return model_name(named)
    except Unrepresentable:
        return None


def known_gpu(named: str) -> str | None:
    """The catalogue's name of the GPU that its driver calls ``named``, or None.

    >>> known_gpu("NVIDIA H100 80GB HBM3"), known_gpu("NVIDIA A100 80GB PCIe")
    ('h100-sxm', 'a100-pcie')
    """
    try:
        return gpu_name(named)
    except Unrepresentable:
        return None


def quantised(named: str) -> str | None:
    """The number format of its weights that stands in the name of a model, if one does.

    >>> quantised("RedHatAI/Qwen3-8B-FP8-dynamic"), quantised("Qwen/Qwen3-8B")
    ('fp8', None)
    """
    found = _QUANTISED.search(named.lower())
    return found[1] if found else None


def absolute(name: str, kind: catalog.Kind) -> str:
    """``name``, made absolute if it is the path of a file here and not in the catalogue."""
    if name in catalog.names(kind) or not Path(name).exists():
        return name
    return str(Path(name).absolute())
