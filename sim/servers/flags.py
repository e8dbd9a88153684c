"""Defines what the options of each engine's server mean in a scenario.

Names as in the engines' own references: vLLM 0.6 to 0.33 (``vllm serve --help``), SGLang 0.5
(``sglang.launch_server --help``), TensorRT-LLM 1.x (``trtllm-serve --help`` and its YAML of
``--config`` or ``--extra_llm_api_options``), llama.cpp (``tools/server/README.md``), 2026. An
option is written with dashes or underscores, with ``=`` or a word of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from sim.servers.draft import Draft, flat, number_format, truth, whole

Meaning = Callable[[Draft, str, str], None]
"""What an option's value does to a draft; called with the option's spelling and the value, ""
where there is none. ValueError for a value that the engine would refuse."""


def _count(key: str) -> Meaning:
    return lambda draft, flag, text: draft.put(key, whole(text), flag)


def _share(key: str) -> Meaning:
    return lambda draft, flag, text: draft.put(key, float(text), flag)


def _text(key: str) -> Meaning:
    return lambda draft, flag, text: draft.put(key, text, flag)


def _switch(key: str, *, on: bool = True) -> Meaning:
    def mean(draft: Draft, flag: str, text: str) -> None:
        draft.put(key, (truth(text) if text else True) is on, flag)

    return mean


def _held(name: str, read: Callable[[str], Any] = whole) -> Meaning:
    return lambda draft, flag, text: draft.hold(name, read(text), flag)


def _held_switch(name: str) -> Meaning:
    return lambda draft, flag, text: draft.hold(name, truth(text) if text else True, flag)


def _size(key: str, unit: int = 1) -> Meaning:
    def mean(draft: Draft, flag: str, text: str) -> None:
        value = float(text) * unit if unit > 1 else float(whole(text))
        if value:
            draft.put(key, f"{value / 2**30:g}GiB", flag)

    return mean


def _format(key: str) -> Meaning:
    def mean(draft: Draft, flag: str, text: str) -> None:
        found = number_format(text)
        if found is not None:
            draft.put(key, found, f"{flag} {text}")

    return mean


def _model(draft: Draft, flag: str, text: str) -> None:
    draft.hold("model", text, flag)


def _quantization(draft: Draft, flag: str, text: str) -> None:
    draft.hold("quantization", text.lower(), f"{flag} {text}")


def _dtype(draft: Draft, flag: str, text: str) -> None:
    found = number_format(text)
    if found is not None:
        draft.hold("dtype", found, f"{flag} {text}")


def _order(draft: Draft, flag: str, text: str) -> None:
    if text not in ("fcfs", ""):
        draft.put("scheduler.order", text, flag)


METHODS = {
    **{"eagle": "eagle", "eagle3": "eagle", "ngram": "ngram", "draft_model": "draft_model"},
    **{"mtp": "mtp", "nextn": "mtp", "standalone": "draft_model"},
}
"""Ways to draft by the engines' names; vLLM has one that ends in _mtp for each model."""


def _speculative(draft: Draft, flag: str, text: str) -> None:
    given = json.loads(text) if text.strip().startswith("{") else None
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a JSON object, got {text!r}")
    named = str(given.get("method") or ("draft_model" if given.get("model") else "")).lower()
    method = "mtp" if named.endswith("_mtp") else METHODS.get(named)
    if method is None:
        draft.left_out[f"{flag} {named}"] = "drafting by this method is not simulated"
        return
    draft.put("speculative.method", method, flag)
    if given.get("num_speculative_tokens") is not None:
        draft.put("speculative.num_tokens", int(given["num_speculative_tokens"]), flag)
    if method == "draft_model" and given.get("model"):
        draft.put("speculative.draft_model", str(given["model"]), flag)


GRAPHS = ("FULL_DECODE_ONLY", "NONE", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE")


def _compilation(draft: Draft, flag: str, text: str) -> None:
    given = json.loads(text) if text.strip().startswith("{") else {}
    mode = str(given.get("cudagraph_mode", "")).upper()
    if mode == "FULL_DECODE_ONLY":
        draft.put("scheduler.prompt_graphs", False, f"{flag} cudagraph_mode {mode}")
    elif mode == "NONE":
        draft.put("scheduler.enforce_eager", True, f"{flag} cudagraph_mode {mode}")
    rest = {key for key in given if key != "cudagraph_mode"}
    if rest or not given:
        draft.left_out[f"{flag} {text[:60]}"] = "how passes are compiled is the engine's default"


def _moe(draft: Draft, flag: str, text: str) -> None:
    if text == "marlin":
        draft.put("moe_backend", text, flag)
    elif text != "auto":
        draft.left_out[f"{flag} {text}"] = "kernels are those that the engine chooses by itself"


def _attention(draft: Draft, flag: str, text: str) -> None:
    if text.lower() == "triton":
        draft.put("attention_backend", "triton", flag)
    elif text:
        draft.left_out[f"{flag} {text}"] = "kernels are those that the engine chooses by itself"


def _log_backends(draft: Draft, flag: str, text: str) -> None:
    if text and text.lower() not in ("auto", "none"):
        _attention(draft, flag, text)


def _config(draft: Draft, flag: str, text: str) -> None:
    draft.hold("config", Path(text), flag)


def _chunk(draft: Draft, flag: str, text: str) -> None:
    size = whole(text)
    if size > 0:
        draft.hold("chunk", size, flag)
    else:
        draft.put("scheduler.chunked_prefill", False, flag)


def _conservativeness(draft: Draft, flag: str, text: str) -> None:
    draft.put("scheduler.schedule_conservativeness", float(text), flag)


def _split(draft: Draft, flag: str, text: str) -> None:
    if text in ("row", "tensor"):
        draft.left_out[f"{flag} {text}"] = "GPUs take layers in turn (split-mode layer)"


PARALLEL: dict[str, Meaning] = {
    "tensor-parallel-size": _count("fleet.0.tensor_parallel"),
    "tp": _count("fleet.0.tensor_parallel"),
    "pipeline-parallel-size": _count("fleet.0.pipeline_parallel"),
    "pp": _count("fleet.0.pipeline_parallel"),
    "data-parallel-size": _held("data"),
    "dp": _held("data"),
}

VLLM: dict[str, Meaning] = {
    **PARALLEL,
    "model": _model,
    "config": _config,
    "enable-expert-parallel": _switch("fleet.0.expert_parallel"),
    "ep": _switch("fleet.0.expert_parallel"),
    "all2all-backend": _text("fleet.0.all2all_backend"),
    "max-model-len": _count("max_model_len"),
    "max-num-seqs": _count("scheduler.max_num_seqs"),
    "max-num-batched-tokens": _count("scheduler.max_num_batched_tokens"),
    "long-prefill-token-threshold": _count("scheduler.long_prefill_token_threshold"),
    "prefill-schedule-interval": _count("scheduler.prefill_schedule_interval"),
    "scheduler-reserve-full-isl": _switch("scheduler.scheduler_reserve_full_isl"),
    "enable-chunked-prefill": _switch("scheduler.chunked_prefill"),
    "async-scheduling": _switch("scheduler.async_scheduling"),
    "enforce-eager": _switch("scheduler.enforce_eager"),
    "scheduling-policy": _order,
    "compilation-config": _compilation,
    "gpu-memory-utilization": _share("kv_cache.gpu_memory_utilization"),
    "kv-cache-memory-bytes": _size("kv_cache.memory"),
    "kv-cache-memory": _size("kv_cache.memory"),
    "num-gpu-blocks-override": _count("kv_cache.num_gpu_blocks"),
    "block-size": _count("kv_cache.block_size"),
    "enable-prefix-caching": _switch("kv_cache.enable_prefix_caching"),
    "kv-offloading-size": _size("kv_cache.host_memory", 2**30),
    "kv-cache-dtype": _format("precision.kv_cache"),
    "dtype": _dtype,
    "quantization": _quantization,
    "q": _quantization,
    "mamba-ssm-cache-dtype": _format("precision.state"),
    "moe-backend": _moe,
    "speculative-config": _speculative,
    "enable-lora": _held_switch("adapters"),
    "max-loras": _held("slots"),
    "max-lora-rank": _held("rank"),
    "lora-modules": _held("modules", str),
    "attention-backend": _log_backends,
}

SGLANG: dict[str, Meaning] = {
    "model-path": _model,
    "model": _model,
    "config": _config,
    "tensor-parallel-size": _held("ranks"),
    "tp-size": _held("ranks"),
    "tp": _held("ranks"),
    "pipeline-parallel-size": _count("fleet.0.pipeline_parallel"),
    "pp-size": _count("fleet.0.pipeline_parallel"),
    "data-parallel-size": _held("data"),
    "dp-size": _held("data"),
    "dp": _held("data"),
    "enable-dp-attention": _held_switch("attention on ranks"),
    "expert-parallel-size": _held("experts"),
    "ep-size": _held("experts"),
    "ep": _held("experts"),
    "context-length": _count("max_model_len"),
    "context-len": _count("max_model_len"),
    "max-running-requests": _held("running"),
    "chunked-prefill-size": _chunk,
    "max-prefill-tokens": _held("prefill tokens"),
    "mem-fraction-static": _share("kv_cache.gpu_memory_utilization"),
    "page-size": _count("kv_cache.block_size"),
    "disable-radix-cache": _switch("kv_cache.enable_prefix_caching", on=False),
    "mamba-full-memory-ratio": _share("kv_cache.state_ratio"),
    "mamba-ssm-dtype": _format("precision.state"),
    "schedule-policy": _order,
    "schedule-conservativeness": _conservativeness,
    "scheduler-recv-interval": _count("scheduler.scheduler_recv_interval"),
    "enable-mixed-chunk": _switch("scheduler.enable_mixed_chunk"),
    "disable-cuda-graph": _switch("scheduler.enforce_eager"),
    "disable-overlap-schedule": _switch("scheduler.async_scheduling", on=False),
    "kv-cache-dtype": _format("precision.kv_cache"),
    "dtype": _dtype,
    "quantization": _quantization,
    "attention-backend": _attention,
    "prefill-attention-backend": _attention,
    "decode-attention-backend": _attention,
    "speculative-algorithm": _held("algorithm", str),
    "speculative-algo": _held("algorithm", str),
    "speculative-num-steps": _held("steps"),
    "speculative-num-draft-tokens": _held("drafts"),
    "speculative-draft-model-path": _held("draft model", str),
}

TENSORRT_LLM: dict[str, Meaning] = {
    "model": _model,
    "tp-size": _held("ranks"),
    "tensor-parallel-size": _held("ranks"),
    "pp-size": _count("fleet.0.pipeline_parallel"),
    "pipeline-parallel-size": _count("fleet.0.pipeline_parallel"),
    "ep-size": _held("experts"),
    "moe-expert-parallel-size": _held("experts"),
    "max-batch-size": _count("scheduler.max_num_seqs"),
    "max-num-tokens": _count("scheduler.max_num_batched_tokens"),
    "max-seq-len": _count("max_model_len"),
    "kv-cache-free-gpu-memory-fraction": _share("kv_cache.gpu_memory_utilization"),
    "free-gpu-memory-fraction": _share("kv_cache.gpu_memory_utilization"),
    "kv-cache-config.free-gpu-memory-fraction": _share("kv_cache.gpu_memory_utilization"),
    "kv-cache-config.dtype": _format("precision.kv_cache"),
    "kv-cache-config.tokens-per-block": _count("kv_cache.block_size"),
    "kv-cache-config.enable-block-reuse": _held_switch("reuse"),
    "enable-chunked-prefill": _switch("scheduler.chunked_prefill"),
    "enable-attention-dp": _held_switch("attention on ranks"),
    "attention-dp-config.timeout-iters": _count("scheduler.attention_dp_timeout_iters"),
    "attention-dp-config.batching-wait-iters": _count("scheduler.attention_dp_batching_wait_iters"),
    "batch-wait-timeout-iters": _count("scheduler.batch_wait_timeout_iters"),
    "batch-wait-max-tokens-ratio": _share("scheduler.batch_wait_max_tokens_ratio"),
    "dtype": _dtype,
    "config": _config,
    "extra-llm-api-options": _config,
    "speculative-config.decoding-type": _held("algorithm", str),
    "speculative-config.num-nextn-predict-layers": _held("steps"),
    "speculative-config.max-draft-len": _held("steps"),
}

LLAMA_CPP: dict[str, Meaning] = {
    "m": _model,
    "model": _model,
    "hf": _model,
    "hf-repo": _model,
    "c": _held("context"),
    "ctx-size": _held("context"),
    "np": _held("slots"),
    "parallel": _held("slots"),
    "kv-unified": _held_switch("unified"),
    "kvu": _held_switch("unified"),
    "cache-prompt": _switch("kv_cache.enable_prefix_caching"),
    "b": _count("scheduler.max_num_batched_tokens"),
    "batch-size": _count("scheduler.max_num_batched_tokens"),
    "ctk": _format("precision.kv_cache"),
    "cache-type-k": _format("precision.kv_cache"),
    "sm": _split,
    "split-mode": _split,
}

OPTIONS: Mapping[str, Mapping[str, Meaning]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TENSORRT_LLM,
    "llama.cpp": LLAMA_CPP,
}

SWITCHES = frozenset(
    {
        *("enable-expert-parallel", "scheduler-reserve-full-isl", "enable-chunked-prefill"),
        *("async-scheduling", "enforce-eager", "enable-prefix-caching", "enable-dp-attention"),
        *("disable-radix-cache", "enable-mixed-chunk", "disable-cuda-graph", "trust-remote-code"),
        *("disable-overlap-schedule", "enable-attention-dp", "enable-auto-tool-choice"),
        *("disable-log-requests", "disable-log-stats", "enable-log-requests", "enable-metrics"),
        *("enable-lora", "headless", "enable-p2p-check", "flash-attn", "fa", "cont-batching", "cb"),
        *("kv-unified", "kvu", "cache-prompt", "metrics", "jinja", "skip-tokenizer-init"),
        *("log-requests", "enable-cache-report"),
    }
)
"""Options that are true without a word after them; ``true`` or ``false`` may follow."""

NO_EFFECT = frozenset(
    {
        *("host", "port", "api-key", "served-model-name", "trust-remote-code", "chat-template"),
        *("tokenizer", "tokenizer-mode", "tokenizer-path", "revision", "tokenizer-revision"),
        *(
            "download-dir",
            "load-format",
            "seed",
            "random-seed",
            "disable-log-requests",
            "root-path",
        ),
        *(
            "disable-log-stats",
            "enable-log-requests",
            "uvicorn-log-level",
            "log-level",
            "ssl-keyfile",
        ),
        *("ssl-certfile", "tool-call-parser", "enable-auto-tool-choice", "reasoning-parser"),
        *("generation-config", "override-generation-config", "chat-template-content-format"),
        *("max-logprobs", "disable-fastapi-docs", "enable-metrics", "log-requests", "tool-parser"),
        *("collect-detailed-traces", "otlp-traces-endpoint", "kv-events-config", "allowed-origins"),
        *("return-tokens-as-token-ids", "structured-outputs-config", "guided-decoding-backend"),
        *("response-role", "enable-request-id-headers", "enable-server-load-tracking", "watchdog"),
        *(
            "distributed-executor-backend",
            "worker-use-ray",
            "nnodes",
            "node-rank",
            "dist-init-addr",
        ),
        *(
            "master-addr",
            "master-port",
            "headless",
            "data-parallel-size-local",
            "device",
            "backend",
        ),
        *("data-parallel-start-rank", "data-parallel-address", "data-parallel-rpc-port", "alias"),
        *("log-requests-level", "decode-log-interval", "show-time-cost", "enable-cache-report"),
        *("warmups", "skip-server-warmup", "model-loader-extra-config", "grammar-backend", "a"),
        *(
            "enable-log-outputs",
            "middleware",
            "safetensors-load-strategy",
            "gpus-per-node",
            "jinja",
        ),
        *("enable-prompt-tokens-details", "enable-force-include-usage", "is-embedding", "webui"),
        *("moe-cluster-parallel-size", "server-role", "metadata-server-config-file", "metrics"),
        *(
            "ngl",
            "n-gpu-layers",
            "gpu-layers",
            "fa",
            "flash-attn",
            "cb",
            "cont-batching",
            "no-mmap",
        ),
        *("model-id", "model-name", "name", "watch-dog-timeout", "dist-timeout", "sleep-on-idle"),
        *("allow-auto-truncate", "enable-sleep-mode", "api-server-count", "fail-fast", "tags"),
        *(
            "allowed-local-media-path",
            "ssl-ca-certs",
            "allowed-methods",
            "allowed-headers",
            "threads",
        ),
        *("t", "temp", "top-p", "top-k", "min-p", "repeat-penalty", "prio", "mlock", "no-webui"),
    }
)
"""Options that change no prediction."""

NOT_SIMULATED = {
    "max-cpu-loras": "the host holds all adapters",
    "cpu-offload-gb": "weights in the memory of the host are not simulated",
    "swap-space": "vLLM V1 does not swap; V0 is `policy: vllm-v0` with kv_cache.swap_space",
    "kv-transfer-config": "one server is read; pools apart are `fleet` with roles",
    "disaggregation-mode": "one server is read; pools apart are `fleet` with roles",
    "enable-dbo": "overlapped halves of a batch are not simulated",
    "enable-two-batch-overlap": "overlapped halves of a batch are not simulated",
    "decode-context-parallel-size": "context parallelism is not simulated",
    "dcp": "context parallelism is not simulated",
    "prefill-context-parallel-size": "context parallelism is not simulated",
    "disable-custom-all-reduce": "all-reduces are timed as the engine does them by default",
    "enable-eplb": "experts are not moved between GPUs",
    "hf-overrides": "the shape is that of the catalogue or of the config.json",
    "rope-scaling": "a longer context is allowed by allow_long_max_model_len: true",
    "limit-mm-per-prompt": "time of an encoder of images is not simulated",
    "lora-paths": "adapters are simulated by vLLM's rule alone (`infersim explain scenario lora`)",
    "max-loras-per-batch": "adapters are simulated by vLLM's rule alone",
    "num-scheduler-steps": "multi-step scheduling of V0 is not simulated",
    "preemption-mode": "a preempted request is computed again",
    "enable-hierarchical-cache": "SGLang's memory in the host is not simulated",
    "hicache-ratio": "SGLang's memory in the host is not simulated",
    "hicache-size": "SGLang's memory in the host is not simulated",
    "cuda-graph-max-bs": "graphs go up to the limit of requests",
    "cuda-graph-bs": "graphs go up to the limit of requests",
    "moe-a2a-backend": "experts change places as the engine does by default",
    "moe-runner-backend": "kernels are those that the engine chooses by itself",
    "speculative-eagle-topk": "drafts are chains",
    "enable-torch-compile": "how passes are compiled is the engine's default",
    "max-total-tokens": "see kv_cache.num_gpu_blocks",
    "stream-interval": "each token is sent as it comes",
    "runner": "models that embed or classify are not simulated",
    "task": "models that embed or classify are not simulated",
    "ub": "passes have at most 512 tokens, llama.cpp's default",
    "ubatch-size": "passes have at most 512 tokens, llama.cpp's default",
    "n-cpu-moe": "weights in the memory of the host are not simulated",
    "cpu-moe": "weights in the memory of the host are not simulated",
    "cuda-graph-config": "graphs are those that the engine captures by default",
}
"""Options that matter and that nothing here simulates, and why or what there is instead."""


def of_file(path: Path) -> dict[str, Any]:
    """The options that a YAML file of an engine holds; ValueError where it cannot be read."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be read ({reason})") from None
    if not isinstance(document, Mapping):
        raise ValueError(f"{path} holds no mapping of options")
    return flat(document)
