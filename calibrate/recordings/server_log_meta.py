"""Reads the conditions under which a vLLM server was logged, from its ``meta.json``.

What the engine was started with (``engine_kwargs``), what it made of that (``resolved_config``),
the KV cache it found room for (``kv_cache``) and the machine (``hardware``). Each part may be
missing; a value that is there must be of the right kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.recordings.stated import Stated
from calibrate.server_meta import DTYPES, KV_DTYPES, ServerMeta
from sim.workload.traces.rows import shown

ENGINE = "vllm"

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
PARALLEL = {
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
}
"""vLLM's names of settings -> ours. What data ranks of it are depends on the model
(``scenario.of_ranks``)."""


def read(path: Path) -> Stated:
    """Statements of ``path``; TraceError for a part that is no mapping, or a wrong value."""
    meta = ServerMeta(path)
    precisions, unclear = _precisions(meta)
    settings = {
        **precisions,
        **_settings("scheduler", SCHEDULER, meta.scheduler),
        **_settings("kv_cache", CACHE, meta.started | meta.cache),
        **_settings("fleet.0", PARALLEL, meta.parallel),
        **_settings("", {"max_model_len": "max_model_len"}, meta.model),
    }
    named = ["started_at", "finished_at", "dataset_path", "dataset_hash", "num_requests"]
    return Stated(
        model=meta.served_model,
        gpu=meta.text(meta.hardware, "device_name"),
        engine=ENGINE,
        version=meta.text(meta.document, "vllm_version"),
        settings=settings,
        unclear=unclear,
        hardware=meta.hardware or None,
        conditions=_chosen(meta.document, named)
        | {"engine_kwargs": meta.started}
        | _chosen(meta.cache, ["enable_prefix_caching"])
        | _chosen(meta.scheduler, ["async_scheduling"]),
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


def _precisions(meta: ServerMeta) -> tuple[dict[str, object], dict[str, str]]:
    """Precisions of weights, activations and KV cache, and the notes where they are not stated."""
    own = meta.number_format("dtype", DTYPES)
    found = {
        "precision.weights": own,
        "precision.activations": own,
        "precision.kv_cache": meta.number_format("cache_dtype", DTYPES | KV_DTYPES) or own,
    }
    unclear = {}
    quantised = meta.text(meta.model, "quantization")
    if quantised in QUANTISED:
        found["precision.weights"] = found["precision.activations"] = QUANTISED[quantised]
    elif quantised is not None:
        unclear["precision.weights"] = f"quantization is {shown(quantised)}"
        del found["precision.weights"]
    return {name: value for name, value in found.items() if value is not None}, unclear


def _chosen(found: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}
