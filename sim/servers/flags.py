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


def name_model(draft: Draft, flag: str, text: str) -> None:
    """Keep the model that a command names, by an id or a path."""
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


def config_file(draft: Draft, flag: str, text: str) -> None:
    """Keep the file of options that a command names, to be read after its other words."""
    draft.hold("config", Path(text), flag)


def _chunk(draft: Draft, flag: str, text: str) -> None:
    size = whole(text)
    if size > 0:
        draft.hold("chunk", size, flag)
    else:
        draft.put("scheduler.chunked_prefill", False, flag)


def _conservativeness(draft: Draft, flag: str, text: str) -> None:
    draft.put("scheduler.schedule_conservativeness", float(text), flag)


def _on_gpu(draft: Draft, flag: str, text: str) -> None:
    if text.isdecimal() and int(text) < ALL_LAYERS:
        draft.left_out[f"{flag} {text}"] = (
            "all layers are in the memory of the GPU; wrong where the model has more of them"
        )


ALL_LAYERS = 99
"""A number of layers from which on llama.cpp's users mean all of them."""


def _task(draft: Draft, flag: str, text: str) -> None:
    if text.lower() not in ("auto", "generate", "none", "draft", "false"):
        raise ValueError(f"{text or 'embeddings'}: only models that generate text are simulated")


def _kernels(draft: Draft, flag: str, text: str) -> None:
    if text.lower() not in ("auto", "none", ""):
        draft.left_out[f"{flag} {text}"] = "kernels are those that the engine chooses by itself"


def _split(draft: Draft, flag: str, text: str) -> None:
    if text in ("row", "tensor"):
        draft.left_out[f"{flag} {text}"] = "GPUs take layers in turn (split-mode layer)"


def _shares(draft: Draft, flag: str, text: str) -> None:
    shares = text.split(",")
    draft.put("fleet.layer_split", len(shares), f"{flag} {text}")
    if len(set(shares)) > 1:
        draft.left_out[f"{flag} {text}"] = "GPUs hold equal parts of the model"


PARALLEL: dict[str, Meaning] = {
    "tensor-parallel-size": _count("fleet.tensor_parallel"),
    "tp": _count("fleet.tensor_parallel"),
    "pipeline-parallel-size": _count("fleet.pipeline_parallel"),
    "pp": _count("fleet.pipeline_parallel"),
    "data-parallel-size": _held("data"),
    "dp": _held("data"),
}

VLLM: dict[str, Meaning] = {
    **PARALLEL,
    "model": name_model,
    "config": config_file,
    "enable-expert-parallel": _switch("fleet.expert_parallel"),
    "ep": _switch("fleet.expert_parallel"),
    "all2all-backend": _text("fleet.all2all_backend"),
    "max-model-len": _count("max_model_len"),
    "max-num-seqs": _count("scheduler.max_num_seqs"),
    "max-num-batched-tokens": _count("scheduler.max_num_batched_tokens"),
    "long-prefill-token-threshold": _count("scheduler.long_prefill_token_threshold"),
    "watermark": _share("scheduler.watermark"),
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
    "speculative-model": _held("draft model", str),
    "num-speculative-tokens": _held("steps"),
    "enable-lora": _held_switch("adapters"),
    "max-loras": _held("slots"),
    "max-lora-rank": _held("rank"),
    "lora-modules": _held("modules", str),
    "attention-backend": _log_backends,
    "task": _task,
    "runner": _task,
    "served-model-name": _held("served", str),
    "convert": _task,
}

SGLANG: dict[str, Meaning] = {
    "model-path": name_model,
    "model": name_model,
    "config": config_file,
    "tensor-parallel-size": _held("ranks"),
    "tp-size": _held("ranks"),
    "tp": _held("ranks"),
    "pipeline-parallel-size": _count("fleet.pipeline_parallel"),
    "pp-size": _count("fleet.pipeline_parallel"),
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
    "speculative-draft-model": _held("draft model", str),
    "max-total-tokens": _held("kv_tokens"),
    "is-embedding": _task,
    "moe-runner-backend": _kernels,
    "sampling-backend": _kernels,
    "fp8-gemm-backend": _kernels,
    "served-model-name": _held("served", str),
}

TENSORRT_LLM: dict[str, Meaning] = {
    "model": name_model,
    "model-path": name_model,
    "tp-size": _held("ranks"),
    "tensor-parallel-size": _held("ranks"),
    "pp-size": _count("fleet.pipeline_parallel"),
    "pipeline-parallel-size": _count("fleet.pipeline_parallel"),
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
    "disable-overlap-scheduler": _switch("scheduler.async_scheduling", on=False),
    "build-config.max-batch-size": _count("scheduler.max_num_seqs"),
    "build-config.max-num-tokens": _count("scheduler.max_num_batched_tokens"),
    "build-config.max-seq-len": _count("max_model_len"),
    "enable-attention-dp": _held_switch("attention on ranks"),
    "attention-dp-config.timeout-iters": _count("scheduler.attention_dp_timeout_iters"),
    "attention-dp-config.batching-wait-iters": _count("scheduler.attention_dp_batching_wait_iters"),
    "batch-wait-timeout-iters": _count("scheduler.batch_wait_timeout_iters"),
    "batch-wait-max-tokens-ratio": _share("scheduler.batch_wait_max_tokens_ratio"),
    "dtype": _dtype,
    "config": config_file,
    "extra-llm-api-options": config_file,
    "extra-engine-args": config_file,
    "served-model-name": _held("served", str),
    "speculative-config.decoding-type": _held("algorithm", str),
    "speculative-config.num-nextn-predict-layers": _held("steps"),
    "speculative-config.max-draft-len": _held("steps"),
}

LLAMA_CPP: dict[str, Meaning] = {
    "m": name_model,
    "model": name_model,
    "hf": name_model,
    "hfr": name_model,
    "hf-repo": name_model,
    "ngl": _on_gpu,
    "gpu-layers": _on_gpu,
    "n-gpu-layers": _on_gpu,
    "embedding": _task,
    "embeddings": _task,
    "reranking": _task,
    "rerank": _task,
    "alias": _held("served", str),
    "a": _held("served", str),
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
    "ts": _shares,
    "tensor-split": _shares,
}

OPTIONS: Mapping[str, Mapping[str, Meaning]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TENSORRT_LLM,
    "llama.cpp": LLAMA_CPP,
}

SWITCHES = frozenset(
    """
    enable-expert-parallel scheduler-reserve-full-isl enable-chunked-prefill async-scheduling
    enforce-eager enable-prefix-caching enable-dp-attention disable-radix-cache enable-mixed-chunk
    disable-cuda-graph trust-remote-code disable-overlap-schedule enable-attention-dp
    enable-auto-tool-choice disable-log-requests disable-log-stats enable-log-requests
    enable-metrics enable-lora headless enable-p2p-check flash-attn fa cont-batching cb kv-unified
    kvu cache-prompt metrics jinja skip-tokenizer-init log-requests enable-cache-report
    is-embedding embedding embeddings reranking rerank enable-ep-moe disable-overlap-scheduler
    """.split()  # noqa: SIM905 - one word each
)
"""Options that are true without a word after them; ``true`` or ``false`` may follow."""

NO_EFFECT = frozenset(
    """
    host port api-key trust-remote-code chat-template tokenizer tokenizer-mode tokenizer-path
    revision code-revision tokenizer-revision download-dir load-format seed random-seed root-path
    disable-log-requests disable-log-stats enable-log-requests uvicorn-log-level log-level
    ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs enable-ssl-refresh tool-call-parser
    enable-auto-tool-choice reasoning-parser enable-reasoning generation-config
    override-generation-config chat-template-content-format default-chat-template-kwargs
    trust-request-chat-template max-logprobs logprobs-mode disable-fastapi-docs enable-metrics
    log-requests tool-parser tool-parser-plugin reasoning-parser-plugin tool-server
    collect-detailed-traces otlp-traces-endpoint kv-events-config allowed-origins
    allowed-methods allowed-headers allow-credentials return-tokens-as-token-ids
    structured-outputs-config guided-decoding-backend guided-decoding-disable-fallback
    response-role enable-request-id-headers enable-server-load-tracking watchdog
    distributed-executor-backend worker-use-ray engine-use-ray nnodes node-rank dist-init-addr
    master-addr master-port headless data-parallel-size-local data-parallel-start-rank
    data-parallel-rank data-parallel-address data-parallel-rpc-port data-parallel-backend
    data-parallel-hybrid-lb data-parallel-external-lb device backend log-requests-level
    decode-log-interval show-time-cost enable-cache-report warmups skip-server-warmup
    model-loader-extra-config grammar-backend enable-log-outputs middleware
    safetensors-load-strategy gpus-per-node jinja enable-prompt-tokens-details
    enable-force-include-usage webui moe-cluster-parallel-size server-role
    metadata-server-config-file metrics fa flash-attn cb cont-batching no-mmap model-id model-name
    name watch-dog-timeout watchdog-timeout soft-watchdog-timeout dist-timeout
    distributed-timeout-seconds sleep-on-idle allow-auto-truncate enable-sleep-mode
    api-server-count fail-fast tags allowed-local-media-path threads t tb threads-batch temp top-p
    top-k min-p repeat-penalty presence-penalty frequency-penalty prio mlock no-webui
    config-format hf-config-path hf-token logits-processors logits-processor-pattern
    io-processor-plugin disable-uvicorn-access-log disable-access-log-for-endpoints uds
    log-config-file max-log-len enable-log-deltas enable-tokenizer-info-endpoint
    disable-frontend-multiprocessing exclude-tools-when-tool-choice-none lora-extra-vocab-size
    prefix-caching-hash-algo show-hidden-metrics-for-version use-tqdm-on-load ignore-patterns
    ray-workers-use-nsight worker-cls worker-extension-cls max-parallel-loading-workers
    use-v2-block-manager kv-offloading-backend enable-flashinfer-autotune additional-config
    skip-tokenizer-init tokenizer-worker-num fastapi-root-path grpc-mode nccl-port log-level-http
    log-requests-format log-requests-target crash-dump-folder enable-trace base-gpu-id gpu-id-step
    hf-chat-template-name completion-template file-storage-path storage-path sampling-defaults
    preferred-sampling-params admin-api-key stream-output incremental-streaming-output
    constrained-json-whitespace-pattern delete-ckpt-after-loading enable-memory-saver
    weight-loader-disable-mmap enable-nan-detection enable-p2p-check numa-node
    enable-custom-logit-processor disable-outlines-disk-cache enable-return-hidden-states
    load-balance-method prefill-round-robin-balance checkpoint-engine-wait-weights-before-ready
    collect-tokens-histogram enable-metrics-for-all-schedulers enable-dp-lm-head
    abort-on-priority-when-disabled print-iter-log enable-iter-perf-stats custom-tokenizer
    postprocess-tokenizer-dir num-postprocess-workers return-perf-metrics n predict n-predict keep
    numa load-mode lm no-warmup warmup verbose v log-disable log-file log-colors log-prefix
    log-timestamps verbosity lv offline hft dt defrag-thold perf no-perf chat-template-file
    chat-template-kwargs reasoning-format reasoning-budget slots props no-slots timeout to
    threads-http path api-prefix slot-save-path sps cpu-mask check-tensors fit fitt fitc repack
    samplers typical xtc-probability xtc-threshold dry-multiplier ignore-eos shutdown-timeout
    numa-bind enable-ep-weight-filter disable-flashinfer-autotune
    """.split()  # noqa: SIM905 - one word each
)
"""Options that change no prediction."""

_APART = "one server is read; pools apart are `fleet` with roles"
_HALVES = "overlapped halves of a batch are not simulated"
_CONTEXT = "context parallelism is not simulated"
_LONGER = "a longer context is allowed by allow_long_max_model_len: true"
_SHAPE = "the shape is that of the catalogue or of the config.json"
_IMAGES = "time of an encoder of images is not simulated"
_LORA = "adapters are to be stated as a scenario has them (`infersim explain scenario lora`)"
_GRAPHS = "graphs are those that the engine captures by default"
_KERNELS = "kernels are those that the engine chooses by itself"
_COMPILED = "how passes are compiled is the engine's default"
_EXPERTS = "experts change places and GPUs as the engine does by default"
_HOST = "SGLang's memory in the host is not simulated"
_IN_HOST = "weights and KV cache in the memory of the host are not simulated"
_DRAFTS = "drafts are chains of one model, accepted alike"

NOT_SIMULATED = {
    "max-cpu-loras": "the host holds all adapters",
    "fully-sharded-loras": "adapters are held as vLLM does by default",
    "cpu-offload-gb": _IN_HOST,
    "swap-space": "vLLM V1 does not swap; V0 is `policy: vllm-v0` with kv_cache.swap_space",
    "kv-transfer-config": _APART,
    "ec-transfer-config": _APART,
    "enable-dbo": _HALVES,
    "enable-two-batch-overlap": _HALVES,
    "enable-single-batch-overlap": _HALVES,
    "decode-context-parallel-size": _CONTEXT,
    "dcp": _CONTEXT,
    "prefill-context-parallel-size": _CONTEXT,
    "attention-context-parallel-size": _CONTEXT,
    "disable-custom-all-reduce": "all-reduces are timed as the engine does them by default",
    "enable-nccl-nvls": "all-reduces are timed as the engine does them by default",
    "enable-symm-mem": "all-reduces are timed as the engine does them by default",
    "enable-flashinfer-allreduce-fusion": "all-reduces are timed as the engine does by default",
    "hf-overrides": _SHAPE,
    "json-model-override-args": _SHAPE,
    "override-kv": _SHAPE,
    "disable-sliding-window": _SHAPE,
    "disable-hybrid-kv-cache-manager": "layers with windows keep what their windows need",
    "disable-hybrid-swa-memory": "layers with windows keep what their windows need",
    "swa-full-tokens-ratio": "layers with windows keep what their windows need",
    "swa-full": "layers with windows keep what their windows need",
    "limit-mm-per-prompt": _IMAGES,
    "media-io-kwargs": _IMAGES,
    "enable-multimodal": _IMAGES,
    "language-model-only": _IMAGES,
    "interleave-mm-strings": _IMAGES,
    "keep-mm-feature-on-device": _IMAGES,
    "mmproj": _IMAGES,
    "enable-lora": _LORA,
    "num-scheduler-steps": "multi-step scheduling of V0 is not simulated",
    "max-num-partial-prefills": "prompts run one after another, by vLLM's default",
    "max-long-partial-prefills": "prompts run one after another, by vLLM's default",
    "preemption-mode": "a preempted request is computed again",
    "max-queued-requests": "requests wait without limit",
    "enable-priority-scheduling": "see scheduler.order: priority",
    "enable-hierarchical-cache": _HOST,
    "enable-lmcache": _HOST,
    "compilation-config": _COMPILED,
    "optimization-level": _COMPILED,
    "enable-torch-compile": _COMPILED,
    "performance-mode": "limits and kernels are the engine's defaults",
    "max-seq-len-to-capture": _GRAPHS,
    "max-cudagraph-capture-size": _GRAPHS,
    "disable-cuda-graph-padding": _GRAPHS,
    "use-cuda-graph": _GRAPHS,
    "calculate-kv-scales": "scales of the KV cache cost nothing",
    "torchao-config": "the format of this checkpoint is not known: --set precision.weights=...",
    "model-impl": "layers are timed as the engine's own",
    "attention-config": _KERNELS,
    "disable-cascade-attn": _KERNELS,
    "disable-shared-experts-fusion": _KERNELS,
    "disable-chunked-prefix-cache": _KERNELS,
    "flashinfer-mla-disable-ragged": _KERNELS,
    "prefix-cache-retention-interval": "a cached prefix lasts until its blocks are needed",
    "enable-eplb": _EXPERTS,
    "num-redundant-experts": _EXPERTS,
    "moe-a2a-backend": _EXPERTS,
    "moe-dense-tp-size": "dense layers of a model with experts have the ranks of the others",
    "enable-ep-moe": "see --expert-parallel-size, which newer releases have",
    "stream-interval": "each token is sent as it comes",
    "num-continuous-decode-steps": "one step runs at a time",
    "max-beam-width": "beam search is not simulated",
    "ub": "passes have at most 512 tokens, llama.cpp's default",
    "ubatch-size": "passes have at most 512 tokens, llama.cpp's default",
    "cmoe": _IN_HOST,
    "ncmoe": _IN_HOST,
    "n-cpu-moe": _IN_HOST,
    "cpu-moe": _IN_HOST,
    "n-cpu-ffn": _IN_HOST,
    "nkvo": _IN_HOST,
    "kv-offload": _IN_HOST,
    "ot": _IN_HOST,
    "override-tensor": _IN_HOST,
    "rpc": "one machine is simulated",
    "cache-reuse": "a cached prefix is used up to the first token that differs",
    "ctv": "values are kept in the format of the keys (--cache-type-k)",
    "cache-type-v": "values are kept in the format of the keys (--cache-type-k)",
    "attention-dp-config": "of TensorRT-LLM's balance, the two waits are simulated",
    "lora": _LORA,
    "md": _DRAFTS,
    "model-draft": _DRAFTS,
}
"""Options that matter and that nothing here simulates, and why or what there is instead."""

FAMILIES = {
    "disaggregation-": _APART,
    "hicache-": _HOST,
    "mm-": _IMAGES,
    "lora-": _LORA,
    "max-lora": _LORA,
    "rope-": _LONGER,
    "yarn-": _LONGER,
    "cuda-graph-": _GRAPHS,
    "cudagraph-": _GRAPHS,
    "piecewise-cuda-graph": _GRAPHS,
    "disable-piecewise-cuda-graph": _GRAPHS,
    "torch-compile-": _COMPILED,
    "deepep-": _EXPERTS,
    "eplb-": _EXPERTS,
    "ep-": _EXPERTS,
    "expert-": _EXPERTS,
    "init-expert-": _EXPERTS,
    "moe-": _KERNELS,
    "nsa-": _KERNELS,
    "triton-attention-": _KERNELS,
    "speculative-": _DRAFTS,
    "spec-": _DRAFTS,
    "draft": _DRAFTS,
    "tbo-": _HALVES,
}
"""What is not simulated by how the names of options begin."""

LLAMA_ARG = {"batch": "batch-size", "ubatch": "ubatch-size", "n-parallel": "parallel"}
"""Options of llama.cpp whose variable, ``LLAMA_ARG_...``, is not called as they are."""


def not_simulated(name: str) -> str | None:
    """Why nothing here simulates an option; None for one that is simulated or not known."""
    whole = name.partition(".")[0]
    families = (reason for begin, reason in FAMILIES.items() if name.startswith(begin))
    return NOT_SIMULATED.get(whole) or next(families, None)


def of_text(text: str, name: str) -> dict[str, Any]:
    """The options that the YAML ``text`` of the file ``name`` holds; ValueError for other text."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{name} cannot be read ({str(error).splitlines()[0]})") from None
    if not isinstance(document, Mapping):
        raise ValueError(f"{name} holds no mapping of options")
    return flat(document)
