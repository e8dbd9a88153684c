"""Reads the conditions under which a vLLM server was logged, from its ``meta.json``.

What the engine was started with (``engine_kwargs``), what it made of that (``resolved_config``),
the KV cache it found room for (``kv_cache``) and the machine (``hardware``). Each part may be
missing; a value that is there must be of the right kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.recordings.recording import Stated
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import shown

ENGINE = "vllm"

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
"""Our names of vLLM's number formats."""
KV_DTYPES = DTYPES | {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
QUANTISED = {"fp8": "fp8"}
"""Precision of weights and activations under quantisations whose names determine it."""

SCHEDULER = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enable_chunked_prefill": "chunked_prefill",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "scheduler_reserve_full_isl": "scheduler_reserve_full_isl",
    "policy": "order",
}
CACHE = {
    "num_gpu_blocks": "num_gpu_blocks",
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
}
PARALLEL = {"tensor_parallel_size": "tensor_parallel", "data_parallel_size": "replicas"}
"""vLLM's names of settings -> ours."""


def read(path: Path) -> Stated:
    """What ``path`` states; TraceError for a part of it that is no mapping, or a wrong value."""
    meta = document(path)
    started = _part(path, meta, "engine_kwargs")
    resolved = _part(path, meta, "resolved_config")
    cache = _part(path, meta, "kv_cache") | _part(path, resolved, "cache_config")
    scheduler = started | _part(path, resolved, "scheduler_config")
    model = started | _part(path, resolved, "model_config")
    precisions, unclear = _precisions(path, model, cache, started)
    settings = {
        **precisions,
        **_settings("scheduler", SCHEDULER, scheduler),
        **_settings("kv_cache", CACHE, started | cache),
        **_settings("fleet.0", PARALLEL, started | _part(path, resolved, "parallel_config")),
        **_settings("", {"max_model_len": "max_model_len"}, model),
    }
    hardware = _part(path, meta, "hardware")
    conditions = {
        name: meta[name]
        for name in ("started_at", "finished_at", "dataset_path", "dataset_hash", "num_requests")
        if name in meta
    }
    return Stated(
        model=_text(path, meta | {"model": _model(meta, started)}, "model"),
        gpu=_text(path, hardware, "device_name"),
        engine=ENGINE,
        version=_text(path, meta, "vllm_version"),
        settings=settings,
        unclear=unclear,
        hardware=hardware or None,
        conditions=conditions
        | {"engine_kwargs": started}
        | _chosen(cache, ["enable_prefix_caching"])
        | _chosen(scheduler, ["async_scheduling"]),
    )


def _settings(
    section: str, names: Mapping[str, str], found: Mapping[str, Any]
) -> dict[str, object]:
    """The values of ``found`` by our dotted keys; null means that nothing is stated."""
    prefix = f"{section}." if section else ""
    return {
        f"{prefix}{ours}": found[theirs]
        for theirs, ours in names.items()
        if theirs in found and found[theirs] is not None
    }


def _precisions(
    path: Path, model: Mapping[str, Any], cache: Mapping[str, Any], started: Mapping[str, Any]
) -> tuple[dict[str, object], dict[str, str]]:
    """Precisions of weights, activations and KV cache, and the notes where they are not stated."""
    own = _number_format(path, model, "dtype", DTYPES)
    key = "cache_dtype" if "cache_dtype" in cache else "kv_cache_dtype"
    told = {
        "precision.weights": own,
        "precision.activations": own,
        "precision.kv_cache": _number_format(path, {**started, **cache}, key, KV_DTYPES) or own,
    }
    unclear = {}
    quantised = _text(path, model, "quantization")
    if quantised in QUANTISED:
        told["precision.weights"] = told["precision.activations"] = QUANTISED[quantised]
    elif quantised is not None:
        unclear["precision.weights"] = f"quantization is {shown(quantised)}"
        del told["precision.weights"]
    return {name: value for name, value in told.items() if value is not None}, unclear


def _number_format(
    path: Path, found: Mapping[str, Any], key: str, names: Mapping[str, str]
) -> str | None:
    """Our name of the format at ``key``; None where it is left to the model."""
    told = _text(path, found, key)
    if told is None or told == "auto":
        return None
    plain = told.removeprefix("torch.")
    if plain not in names:
        raise TraceError(f"{path}: {key} is {shown(told)}; known: auto, {', '.join(names)}")
    return names[plain]


def _part(path: Path, found: Mapping[str, object], name: str) -> dict[str, Any]:
    """The mapping called ``name``, empty if there is none."""
    part = found.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise TraceError(f"{path}: {name} is {shown(part)}; allowed: a mapping")
    return part


def _model(meta: Mapping[str, object], started: Mapping[str, object]) -> object:
    return meta["model"] if meta.get("model") is not None else started.get("model")


def _text(path: Path, found: Mapping[str, object], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise TraceError(f"{path}: {name} is {shown(value)}; allowed: a text")
    return value or None


def _chosen(found: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}
