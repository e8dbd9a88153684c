"""Reads the report of ``trtllm-bench --report_json``.

Milliseconds; the engine's release, model, formats, GPU and layout are in it
(tensorrt_llm/bench/dataclasses/reporting.py). The client is in the same process. How requests were
sent is not in it: a benchmark of throughput sends all at once, or keeps ``--concurrency`` of them
in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.recordings.clients import mapping, tokens
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, summed
from calibrate.recordings.stated import Stated, of_pool
from calibrate.recordings.summaries import Summary, distribution, length, rates
from calibrate.server_meta import DTYPES, KV_DTYPES
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import listed, shown

TTFT = "TTFT is the client's, in one process with the engine: from sending to the first token."

FORMATS = {
    "FP8": ("fp8", "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", "fp8"),
    "FP8_BLOCK_SCALES": ("fp8-block", "fp8"),
    "NVFP4": ("nvfp4", "nvfp4"),
    "W4A16_MXFP4": ("mxfp4", "bf16"),
    "W4A16_AWQ": ("int4-group", "bf16"),
    "W4A16_GPTQ": ("int4-group", "bf16"),
    "W8A8_SQ_PER_CHANNEL": ("int8", "int8"),
}
"""Formats of weights and activations by ``quantization`` (tensorrt_llm/quantization/mode.py)."""

PARTS = ("engine", "world_info", "request_info", "performance", "streaming_metrics", "machine")
RATES = {
    "request_throughput": "request_throughput_req_s",
    "output_throughput": "system_output_throughput_tok_s",
    "total_token_throughput": "system_total_throughput_tok_s",
}
SETTINGS = {
    "tp_size": of_pool("tensor_parallel"),
    "pp_size": of_pool("pipeline_parallel"),
    "max_batch_size": "scheduler.max_num_seqs",
    "max_num_tokens": "scheduler.max_num_batched_tokens",
    "kv_cache_percentage": "kv_cache.gpu_memory_utilization",
}


def _read(path: Path, choice: RecordingChoice) -> Recording:
    found, place = document(path), str(path)
    if not {"request_info", "performance"} <= found.keys():
        raise TraceError(
            f"{path}: neither 'request_info' nor 'performance': this is not a report of "
            f"trtllm-bench; it has {listed(found)}"
        )
    engine, world, requests, all_in_all, streamed, machine = (
        mapping(place, found, part) for part in PARTS
    )
    known = {
        **distribution(mapping(place, all_in_all, "request_latency_percentiles_ms"), "e2el"),
        **distribution(mapping(place, streamed, "ttft_percentiles"), "ttft"),
        **distribution(mapping(place, streamed, "tpot_percentiles"), "tpot"),
        **rates(streamed, {"mean_ttft_ms": "avg_ttft_ms", "mean_tpot_ms": "avg_tpot_ms"}),
        **rates(all_in_all, RATES | {"mean_e2el_ms": "avg_request_latency_ms"}),
        **rates(all_in_all, {"duration": "total_latency_ms"}, 1e-3),
    }
    at = f"{place}: request_info"
    summary = Summary(
        metrics=known,
        completed=tokens(at, requests, "num_requests"),
        failed=0,
        prompt_tokens=length(at, requests, "avg_input_length"),
        output_tokens=length(at, requests, "avg_output_length"),
        arrivals=None,
    )
    settings, unclear = _precision(engine)
    flying = requests.get("avg_num_concurrent_requests")
    unclear["workload.arrivals"] = f"avg_num_concurrent_requests is {shown(flying)}"
    settings |= {ours: world[name] for name, ours in SETTINGS.items() if world.get(name)}
    spread = world.get("ep_size")
    if isinstance(spread, int) and spread > 1:
        settings[of_pool("expert_parallel")] = True
    names = (engine.get("model"), machine.get("name"), engine.get("version"))
    model, gpu, version = (name if isinstance(name, str) else None for name in names)
    stated = Stated(
        model=model,
        gpu=gpu,
        engine="tensorrt-llm",
        version=version,
        settings=settings,
        unclear=unclear,
        hardware=machine or None,
        conditions={"client": "trtllm-bench", "engine": dict(engine), "world_info": dict(world)},
    )
    return summed(path, summary, stated, ttft=TTFT, front_end="none")


def _precision(engine: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
    """Formats by their keys, and the reason where those of the weights are not known."""
    own, cache = DTYPES.get(str(engine.get("dtype"))), str(engine.get("kv_cache_dtype")).lower()
    quantised = engine.get("quantization")
    weights, activations = (own, own)
    unclear = {}
    if quantised not in (None, "NO_QUANT"):
        weights, activations = FORMATS.get(str(quantised), (None, None))
        if weights is None:
            unclear["precision.weights"] = f"quantization is {shown(quantised)}"
    formats = {
        "precision.weights": weights,
        "precision.activations": activations,
        "precision.kv_cache": KV_DTYPES.get(cache, own),
    }
    return {key: value for key, value in formats.items() if value is not None}, unclear


FORMAT = RecordingFormat(
    name="trtllm-bench",
    layout="the JSON of `trtllm-bench ... --report_json`",
    read=_read,
    marks=("request_info performance",),
)
