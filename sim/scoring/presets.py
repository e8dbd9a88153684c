"""Chooses the engine preset that stands for a published engine, release and way to run it."""

from __future__ import annotations

import re

from sim.scoring.conditions import Conditions
from sim.scoring.names import Unrepresentable


def release(version: str) -> tuple[int, int] | None:
    """Major and minor number of a version, None if it states none.

    >>> release("0.14.0"), release("1.0.0rc3"), release("nightly 2023-24")
    ((0, 14), (1, 0), None)
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def preset(known: Conditions) -> str:
    """The name of the preset. Raises Unrepresentable for an engine without one."""
    name = known.engine.lower()
    if "vllm" in name:
        return "vllm"
    if "sglang" in name:
        return "sglang"
    if "gpt-fast" in name:
        return "gpt-fast"
    if "tensorrt" in name or "trtllm" in name or "trt-llm" in name:
        return _tensorrt(known, name)
    if "transformers" in name or "hugging" in name:
        return "transformers"
    raise Unrepresentable(f"the engine {known.engine} has no preset")


def _tensorrt(known: Conditions, name: str) -> str:
    version = release(known.version)
    if version and version < (0, 10):
        return "tensorrt-llm-0.7" if version < (0, 8) else "tensorrt-llm-0.9"
    if "triton" in name:
        return "tensorrt-llm-triton"
    if known.driver == "offline":
        return "tensorrt-llm-0.14" if version and version < (0, 15) else "tensorrt-llm-bench"
    return "tensorrt-llm"
