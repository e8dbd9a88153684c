"""Reads the conditions of a logged vLLM server: its ``meta.json``, and what is given by hand.

Current logs state the engine's settings (``engine_kwargs``, ``resolved_config``), its KV cache
(``kv_cache``) and the machine (``hardware``). Older ones lack parts, or the file: model and GPU
must then be given; what else is missing is assumed, and every assumption is stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import TraceError
from sim.scoring.names import Unrepresentable, gpu_name, model_name
from sim.workload.traces.head import document
from sim.workload.traces.rows import MAX_TOKENS, shown

SEQUENCES, BATCHED, BLOCK = 256, 8192, 16
"""vLLM's own defaults of ``max_num_seqs``, ``max_num_batched_tokens`` on a large GPU (both since
0.8), and ``block_size``."""

FORMATS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "auto": "bf16"}
KV_FORMATS = {**FORMATS, "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}


class Given(NamedTuple):
    """What is given by hand; it goes before what a log states. ``model`` and ``gpu`` are names of
    the catalogue, or paths of files."""

    model: str | None = None
    gpu: str | None = None
    num_gpu_blocks: int | None = None


@dataclass(frozen=True)
class LogMeta:
    """What a log states, by the names of its fields; None for what is not stated."""

    path: Path
    published_model: str | None
    published_gpu: str | None
    version: str
    gpus: int
    tensor_parallel: int
    weights: str
    kv_cache: str
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    num_gpu_blocks: int | None
    block_size: int
    assumed: tuple[str, ...]

    def model(self, given: Given) -> str:
        """The model by the catalogue's name; TraceError if it is not stated, Unrepresentable for
        one that the catalogue has not.
        """
        if given.model is not None:
            return _absolute(given.model)
        return model_name(self._stated(self.published_model, "model", "which model it served"))

    def gpu(self, given: Given) -> str:
        """The GPU by the catalogue's name; errors as of ``model``."""
        if given.gpu is not None:
            return _absolute(given.gpu)
        what = "on which GPU it ran (hardware.device_name)"
        return gpu_name(self._stated(self.published_gpu, "gpu", what))

    def _stated(self, value: str | None, option: str, what: str) -> str:
        if value is None:
            raise TraceError(
                f"{self.path}: does not say {what}; add --{option} NAME (`infersim list` has the "
                "names) or the path of a file"
            )
        return value


def read_meta(path: Path, given: Given) -> LogMeta:
    """What ``path`` states, which may be missing; TraceError, with the field, for a damaged one."""
    found = document(path) if path.is_file() else {}
    started, resolved = _part(path, found, "engine_kwargs"), _part(path, found, "resolved_config")
    kv = {**_part(path, resolved, "cache_config"), **_part(path, found, "kv_cache")}
    scheduler = {**started, **_part(path, resolved, "scheduler_config")}
    model = {**started, **_part(path, resolved, "model_config")}
    parallel = {**started, **_part(path, resolved, "parallel_config")}
    hardware = _part(path, found, "hardware")
    assumed: list[str] = []

    def default(mapping: Mapping[str, object], name: str, value: int) -> int:
        stated = _whole(path, mapping, name)
        if stated is None:
            assumed.append(f"{name} is not stated: {value:,}, vLLM's own default")
        return value if stated is None else stated

    sequences = default(scheduler, "max_num_seqs", SEQUENCES)
    batched = default(scheduler, "max_num_batched_tokens", BATCHED)
    block = default(kv, "block_size", BLOCK)
    blocks = given.num_gpu_blocks or _whole(path, kv, "num_gpu_blocks")
    if blocks is None:
        assumed.append(
            "the KV blocks are not stated: computed from the GPU's memory (--num-gpu-blocks gives "
            "those that the engine printed)"
        )
    if kv.get("enable_prefix_caching"):
        assumed.append("its prefix cache is left out")
    tensor = _whole(path, parallel, "tensor_parallel_size") or 1
    weights, cache = _formats(path, model, kv, started)
    return LogMeta(
        path=path,
        published_model=_text(path, found, "model") or _text(path, started, "model"),
        published_gpu=_text(path, hardware, "device_name"),
        version=_text(path, found, "vllm_version") or "unknown",
        gpus=_whole(path, hardware, "device_count") or tensor,
        tensor_parallel=tensor,
        weights=weights,
        kv_cache=cache,
        max_model_len=_whole(path, model, "max_model_len"),
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        num_gpu_blocks=blocks,
        block_size=block,
        assumed=tuple(assumed),
    )


def _formats(
    path: Path, model: Mapping[str, Any], kv: Mapping[str, Any], started: Mapping[str, Any]
) -> tuple[str, str]:
    """The formats of weights and KV cache; TraceError for an unknown one."""
    weights = _format(path, model, "dtype", FORMATS)
    key = "cache_dtype" if "cache_dtype" in kv else "kv_cache_dtype"
    cache = _format(path, {**started, **kv}, key, {**KV_FORMATS, "auto": weights})
    quantised = _text(path, model, "quantization")
    if quantised is None:
        return weights, cache
    return quantised, cache


def _format(path: Path, found: Mapping[str, Any], key: str, known: Mapping[str, str]) -> str:
    stated = (_text(path, found, key) or "auto").removeprefix("torch.")
    if stated not in known:
        raise TraceError(f"{path}: {key} is {shown(stated)}; known: {', '.join(known)}")
    return known[stated]


def representable(weights: str) -> str:
    """``weights`` if the simulator has that format; Unrepresentable otherwise."""
    if weights not in ("bf16", "fp16", "fp8"):
        raise Unrepresentable(f"the quantization {weights} does not tell the format of the weights")
    return weights


def _part(path: Path, found: Mapping[str, object], name: str) -> dict[str, Any]:
    part = found.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise TraceError(f"{path}: {name} is {shown(part)}; allowed: a mapping")
    return part


def _text(path: Path, found: Mapping[str, object], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise TraceError(f"{path}: {name} is {shown(value)}; allowed: a text")
    return value or None


def _whole(path: Path, found: Mapping[str, object], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MAX_TOKENS:
        raise TraceError(
            f"{path}: {name} is {shown(value)}; allowed: a whole number from 1 to {MAX_TOKENS:,}"
        )
    return value


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if Path(name).exists() else name
