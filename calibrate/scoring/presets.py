"""Finds the engine preset that stands for a published engine, release and way to run it.

Presets of current engines are the catalogue's. Those of old releases, and of a publisher's own way
to run an engine, are files of this folder.
"""

from __future__ import annotations

from pathlib import Path

from calibrate.published_names import Unrepresentable
from calibrate.scoring.table import Row
from sim.catalog.engine_release import preset_of
from sim.catalog.releases import number, spelled

FOLDER = Path(__file__).with_name("engines")

OF_PYTORCH = (0, 18)
"""The first release of TensorRT-LLM whose published tables are of the PyTorch backend."""


def engine_file(name: str) -> str:
    """The path of an engine file of this folder."""
    return str(FOLDER / f"{name}.yaml")


def engine_name(engine: str) -> str:
    """The name of a preset that is given by name or path, without its release.

    >>> engine_name(engine_file("tensorrt-llm-0.14")), engine_name("vllm@0.13")
    ('tensorrt-llm-0.14', 'vllm')
    """
    return Path(engine).stem if engine.endswith(".yaml") else spelled(engine).name


def preset(row: Row, driver: str, *, apart: bool) -> str:
    """The preset of a row, by name or path; ``apart`` where prefill and decode have workers of
    their own. Raises Unrepresentable for an engine without one."""
    name = row["engine"].lower()
    if "vllm" in name:
        return _released("vllm", row["engine_version"])
    if "sglang" in name:
        return "sglang" if apart else _released("sglang", row["engine_version"])
    if "gpt-fast" in name:
        return engine_file("gpt-fast")
    if "tensorrt" in name or "trtllm" in name or "trt-llm" in name:
        return _tensorrt(row, driver, name, apart=apart)
    if "transformers" in name or "hugging" in name:
        return "transformers"
    raise Unrepresentable(f"the engine {row['engine']} has no preset")


def _released(engine: str, version: str) -> str:
    found = preset_of(engine, version)
    assert found is not None
    return found.preset


def _tensorrt(row: Row, driver: str, name: str, *, apart: bool) -> str:
    if apart:  # the version is that of Dynamo, which joins the workers
        return "tensorrt-llm"
    version, old = number(row["engine_version"]), "tensorrt-llm-bench"
    if "mlperf" in name:  # the version is that of TensorRT; only its server streams
        old = "tensorrt-llm-0.14" if driver == "offline" else "tensorrt-llm-executor"
    elif version and version < (0, 10):
        old = "tensorrt-llm-0.9"
    elif "triton" in name:
        old = "tensorrt-llm-triton"
    elif driver != "offline":
        return _released("tensorrt-llm", row["engine_version"])
    elif version and version >= OF_PYTORCH:
        return "tensorrt-llm-pytorch"
    elif version and version < (0, 15):
        old = "tensorrt-llm-0.14"
    return engine_file(old)


def uncovered(engine: str, version: str, *, apart: bool) -> str | None:
    """The note on a release that no preset covers and the nearest stands in for; None where one
    does, or where the preset follows from something else than the release."""
    if apart or engine.endswith(".yaml"):
        return None
    found = preset_of(engine_name(engine), version)
    if found is None or found.covers:
        return None
    return found.note[0].lower() + found.note[1:].rstrip(".")
