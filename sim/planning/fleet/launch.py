"""Writes the commands with which engines start one replica of a fleet, in each one's options.

Option names as in the engines' own command-line references (vLLM ``vllm serve``, SGLang
``sglang.launch_server``, TensorRT-LLM ``trtllm-serve``, llama.cpp ``llama-server``), 2026. Engines
count memory differently; the shares are worked out so that the KV cache is as large as the
simulated one.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog.published import counted_as_published, wider_than_published
from sim.memory import ALLOCATORS
from sim.memory.capacity import Capacity
from sim.pools import PreparedPool
from sim.routers import router_class
from sim.scenario import Scenario
from sim.scenario.pools import only
from sim.scenario.sections.speculation import Speculative
from sim.schedulers import (
    ORDERS,
    MaxUtilizationRule,
    NoEvictRule,
    SglangRule,
    VllmRule,
    VllmV0Rule,
    follows_rule,
)
from sim.schedulers.orders import FirstCome
from sim.setup import prepare
from sim.specs.deployment import Deployment
from sim.specs.layout import DEFAULT_BACKEND
from sim.specs.lora import Targets
from sim.specs.precision import GGUF, INT4

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ON_THE_FLY = {"fp8": "fp8"}
"""Precisions to which vLLM and SGLang convert a 16-bit checkpoint as they load it."""

ADAPTED: Mapping[Targets, Sequence[str]] = {
    "attention": ("qkv_proj", "o_proj"),
    "all": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
}
"""The modules that adapters change, by vLLM's names."""

ADAPTED_BY_SGLANG: Mapping[Targets, Sequence[str]] = {
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "all": ("all",),
}
"""The same modules by SGLang's names."""


def launch_commands(scenario: Scenario) -> dict[str, Any]:
    """Engine -> the command of one replica of ``scenario``, first the one that was simulated, and
    ``notes`` on what it cannot say."""
    pool = only(prepare(scenario).pools)
    if pool.deployment.engine.gguf is not None:  # whose files and formats the others do not load
        return {"llama.cpp": _joined(_llama_cpp(scenario, pool)), "notes": _notes(scenario, pool)}
    model = _checkpoint(scenario, scenario.model.path)
    commands = {
        "vllm": _joined(_vllm(scenario, pool, model)),
        "sglang": _joined(_sglang(scenario, pool, model)),
        "tensorrt-llm": _joined(_tensorrt_llm(pool, model)),
    }
    if pool.deployment.gpu.is_amd:
        del commands["tensorrt-llm"]
    simulated = _family(pool)
    first = {name: commands[name] for name in commands if name == simulated}
    return first | commands | {"notes": _notes(scenario, pool)}


TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
}
"""Engines that commands are written for."""

SIMULATED, EACH = "The first is of the engine simulated", "One command for each of the"
"""Beginnings of the notes that are on several commands."""


def _family(pool: PreparedPool) -> str:
    """Which of them a preset belongs to; empty for any other."""
    engine = pool.settings.engine
    return next((name for name in TITLES if engine.startswith(name)), "")


def _checkpoint(scenario: Scenario, model: str) -> str:
    """The name under which engines load a model of ``scenario``: its repository, or the folder of
    its file."""
    found = catalog.checkpoint(model, scenario.base)
    if found is not None:
        return found
    path = scenario.path(Path(model))
    folder = path if path.is_dir() else path.parent
    return str(folder) if _has_weights(folder) else UNNAMED


UNNAMED = "CHECKPOINT"
"""The stand-in for a checkpoint of unknown name: a config.json may lie anywhere."""


def _has_weights(folder: Path) -> bool:
    """Whether a folder is a checkpoint that engines load: config.json and weights."""
    weights = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
    return (folder / "config.json").is_file() and bool(weights)


def _joined(words: list[object]) -> str:
    return shlex.join(str(word) for word in words)


def _share(value: float) -> float:
    """Rounded down to three digits: with more memory than there is no engine starts."""
    return math.floor(max(0.001, min(0.999, value)) * 1000) / 1000


def _given(*options: Sequence[object] | bool) -> list[object]:
    """The words of those options that are not False."""
    return [word for option in options if not isinstance(option, bool) for word in option]


def _vllm(scenario: Scenario, pool: PreparedPool, model: str) -> list[object]:
    settings, d, limits = pool.settings, pool.deployment, pool.limits
    every, state = limits.prefill_schedule_interval, scenario.precision.state
    order = ORDERS.find(settings.scheduler.order, pool.folders).vllm
    kv, guesses = settings.kv_cache, settings.speculative
    host = kv.host_memory if kv.enable_prefix_caching else None
    return _given(
        d.weights in INT4 and d.arithmetic == "int8" and ("VLLM_MARLIN_INPUT_DTYPE=int8",),
        ("vllm", "serve", model, "--tensor-parallel-size", d.layout.tensor),
        d.layout.pipeline > 1 and ("--pipeline-parallel-size", d.layout.pipeline),
        d.layout.data > 1 and ("--data-parallel-size", d.layout.data),
        d.layout.expert > 1 and ("--enable-expert-parallel",),
        d.all2all != DEFAULT_BACKEND and ("--all2all-backend", d.all2all),
        _quantisation(d, "--dtype"),
        d.engine.marlin and ("--moe-backend", "marlin"),
        d.kv_cache in ("fp8", "int8") and ("--kv-cache-dtype", "fp8"),
        state is not None and ("--mamba-ssm-cache-dtype", DTYPES[state]),
        ("--max-model-len", limits.max_model_len, "--max-num-seqs", limits.max_num_seqs),
        ("--max-num-batched-tokens", limits.max_num_batched_tokens),
        every > 1 and ("--prefill-schedule-interval", every),
        ("--gpu-memory-utilization", kv.gpu_memory_utilization),
        _vllm_own(pool),
        order not in ("", FirstCome.vllm) and ("--scheduling-policy", order),
        not settings.scheduler.chunked_prefill and ("--no-enable-chunked-prefill",),
        not kv.enable_prefix_caching and ("--no-enable-prefix-caching",),
        host is not None and ("--kv-offloading-size", f"{host / 2**30:g}"),
        guesses is not None and ("--speculative-config", _speculative(scenario, guesses, d)),
    )


def _speculative(scenario: Scenario, guesses: Speculative, d: Deployment) -> str:
    """vLLM's ``speculative_config``; the checkpoint of an EAGLE head is for the user to name."""
    found: dict[str, object] = {
        "method": guesses.method,
        "num_speculative_tokens": guesses.num_tokens,
    }
    if guesses.draft_model is not None:
        found["model"] = _checkpoint(scenario, guesses.draft_model)
    elif guesses.method == "eagle":
        found |= {"method": "eagle3", "model": "EAGLE3_HEAD"}
    if d.speculation is not None and d.speculation.by_batch:
        found["num_speculative_tokens_per_batch_size"] = _ranges(d.speculation.by_batch)
    return json.dumps(found)


def _ranges(by_batch: Sequence[int]) -> list[list[int]]:
    """vLLM's ranges [first, last, tokens] of drafts for batches of 1, 2, ... requests.

    >>> _ranges((3, 3, 1, 0))
    [[1, 2, 3], [3, 3, 1], [4, 4, 0]]
    """
    found: list[list[int]] = []
    for requests, drafts in enumerate(by_batch, 1):
        if found and found[-1][2] == drafts:
            found[-1][1] = requests
        else:
            found.append([requests, requests, drafts])
    return found


def _sglang(scenario: Scenario, pool: PreparedPool, model: str) -> list[object]:
    settings, d, limits = pool.settings, pool.deployment, pool.limits
    ranks = d.layout.data  # SGLang shares both limits out among them
    chunk = limits.max_num_batched_tokens * ranks if settings.scheduler.chunked_prefill else -1
    memory, share = pool.capacity, settings.kv_cache.gpu_memory_utilization
    if not d.engine.fraction_of_static or memory.given or memory.kv_bytes is not None:
        taken = memory.weights + memory.states + memory.adapters
        share = _share((taken + _kv(memory)) / memory.memory)
    state, lora = scenario.precision.state, d.lora
    return _given(
        ("python", "-m", "sglang.launch_server", "--model-path", model),
        ("--tp-size", d.layout.ranks),
        d.layout.pipeline > 1 and ("--pp-size", d.layout.pipeline),
        d.layout.data > 1 and ("--dp-size", d.layout.data, "--enable-dp-attention"),
        d.layout.expert > 1 and ("--ep-size", d.layout.expert),
        _quantisation(d, "--dtype"),
        d.kv_cache in ("fp8", "int8") and ("--kv-cache-dtype", "fp8_e4m3"),
        state is not None and ("--mamba-ssm-dtype", DTYPES[state]),
        d.engine.triton_attention and ("--attention-backend", "triton"),
        ("--context-length", limits.max_model_len),
        ("--max-running-requests", limits.max_num_seqs * ranks),
        ("--chunked-prefill-size", chunk, "--mem-fraction-static", share),
        lora is not None and ("--enable-lora", "--max-loras-per-batch", lora.max_loras),
        lora is not None and ("--max-lora-rank", lora.rank, "--lora-target-modules"),
        lora is not None and ADAPTED_BY_SGLANG[lora.targets],
        not settings.kv_cache.enable_prefix_caching and ("--disable-radix-cache",),
        settings.scheduler.rule == SglangRule.name and _sglang_rule(pool),
    )


def _vllm_own(pool: PreparedPool) -> list[object]:
    """Keys of vLLM that are seldom set: graphs, chunks of prompts, adapters, the KV cache where it
    is no share."""
    knobs, kv, usual = pool.settings.scheduler, pool.settings.kv_cache, _usual("vllm", pool)
    eager, whole, ahead = (
        knobs.enforce_eager,
        knobs.scheduler_reserve_full_isl,
        knobs.async_scheduling,
    )
    graphs, long = (
        '{"cudagraph_mode": "FULL_DECODE_ONLY"}',
        pool.limits.long_prefill_token_threshold,
    )
    switched = knobs.rule == VllmRule.name and ahead not in (None, usual[AHEAD])
    lora, blocks = pool.deployment.lora, pool.capacity.num_gpu_blocks
    return _given(
        eager and ("--enforce-eager",),
        knobs.prompt_graphs is False and not eager and ("--compilation-config", graphs),
        bool(long) and ("--long-prefill-token-threshold", long),
        knobs.watermark is not None and ("--watermark", knobs.watermark),
        kv.block_size != usual.get("kv_cache.block_size") and ("--block-size", kv.block_size),
        whole != usual.get("scheduler.scheduler_reserve_full_isl")
        and (_switch("scheduler-reserve-full-isl", whole),),
        switched and (_switch("async-scheduling", ahead),),
        kv.memory is not None and ("--kv-cache-memory-bytes", round(kv.memory)),
        lora is not None and ("--enable-lora", "--max-loras", lora.max_loras),
        lora is not None and ("--max-lora-rank", lora.rank),
        lora is not None and ("--max-cpu-loras", max(lora.adapters, lora.max_loras)),
        lora is not None and ("--lora-target-modules", *ADAPTED[lora.targets]),
        pool.capacity.given and ("--num-gpu-blocks-override", blocks),
    )


AHEAD = "scheduler.async_scheduling"


def _usual(engine: str, pool: PreparedPool) -> dict[str, object]:
    """The choices of ``engine`` on the GPU of ``pool`` by dotted keys, which commands leave out:
    those of the release that is simulated, of other engines those of the newest. vLLM does not
    plan ahead with n-gram drafts."""
    d, drafts = pool.deployment, pool.settings.speculative
    preset = d.engine if d.engine.name == engine else catalog.engine(engine)
    ahead = preset.plans_ahead and (drafts is None or drafts.method != "ngram")
    return {**preset.defaults_on(d.gpu.title, d.gpu.memory), AHEAD: ahead}


def _switch(name: str, on: bool | None) -> str:
    return f"--{name}" if on else f"--no-{name}"


def _sglang_rule(pool: PreparedPool) -> list[object]:
    """Flags for the simulated part of SGLang's own scheduler."""
    knobs, size = pool.settings.scheduler, pool.settings.kv_cache.block_size
    order = ORDERS.find(knobs.order, pool.folders).sglang
    slack, every = knobs.schedule_conservativeness, knobs.scheduler_recv_interval
    binds = not knobs.chunked_prefill or knobs.max_prefill_tokens < knobs.max_num_batched_tokens
    return _given(
        size != _usual("sglang", pool)["kv_cache.block_size"] and ("--page-size", size),
        order not in ("", FirstCome.sglang) and ("--schedule-policy", order),
        binds and ("--max-prefill-tokens", knobs.max_prefill_tokens),
        knobs.enable_mixed_chunk and ("--enable-mixed-chunk",),
        slack != 1.0 and ("--schedule-conservativeness", slack),
        knobs.enforce_eager and ("--disable-cuda-graph",),
        every != 1 and ("--scheduler-recv-interval", every),
        not knobs.plans_ahead and ("--disable-overlap-schedule",),
    )


def _tensorrt_llm(pool: PreparedPool, model: str) -> list[object]:
    limits, memory, layout = pool.limits, pool.capacity, pool.deployment.layout
    free = memory.memory - memory.taken
    share = pool.settings.kv_cache.gpu_memory_utilization
    if not pool.deployment.engine.fraction_of_free or memory.given or memory.kv_bytes is not None:
        share = _share(_kv(memory) / free if free > 0 else 0)
    knobs = pool.settings.scheduler
    own = knobs.rule in (NoEvictRule.name, MaxUtilizationRule.name)
    chunked = own and knobs.chunked_prefill  # off by default there
    return _given(
        ("trtllm-serve", model, "--tp_size", layout.ranks),
        layout.pipeline > 1 and ("--pp_size", layout.pipeline),
        layout.expert > 1 and ("--ep_size", layout.expert),
        ("--max_batch_size", limits.max_num_seqs),
        ("--max_num_tokens", limits.max_num_batched_tokens, "--max_seq_len", limits.max_model_len),
        ("--kv_cache_free_gpu_memory_fraction", share),
        chunked and ("--enable_chunked_prefill",),
    )


def _llama_cpp(scenario: Scenario, pool: PreparedPool) -> list[object]:
    """llama-server's command: its context is that of all slots, which share it or have a part."""
    limits, d = pool.limits, pool.deployment
    shared = not ALLOCATORS[pool.settings.kv_cache.allocator].reserves_longest
    context = pool.capacity.tokens if shared else limits.max_model_len * limits.max_num_seqs
    path = scenario.model.path
    tokens = limits.max_num_batched_tokens
    return _given(
        ("llama-server", "-m", path if path.endswith(".gguf") else "MODEL.gguf"),
        ("-c", context, "-np", limits.max_num_seqs),
        shared and ("--kv-unified",),
        d.layout.split > 1 and ("--tensor-split", ",".join(["1"] * d.layout.split)),
        ("-b", tokens, "-ub", min(d.engine.micro_batch, tokens), "-fa", "on"),
        d.kv_cache in GGUF and ("--cache-type-k", d.kv_cache, "--cache-type-v", d.kv_cache),
        not pool.settings.kv_cache.enable_prefix_caching and ("--no-cache-prompt",),
    )


def _kv(memory: Capacity) -> float:
    """Bytes of the KV cache of one GPU."""
    return memory.num_gpu_blocks * memory.block_size * memory.kv_bytes_per_token


def _quantisation(d: Deployment, dtype: str) -> list[object]:
    if d.weights in ON_THE_FLY:
        return [] if counted_as_published(d) else ["--quantization", ON_THE_FLY[d.weights]]
    return [dtype, DTYPES[d.weights]] if d.weights in DTYPES else []


def _of_checkpoint(scenario: Scenario, d: Deployment) -> list[str]:
    """Notes on the checkpoint of the commands, where they do not name it, or name another."""
    notes: list[str] = []
    if d.engine.gguf is not None:
        return [f"The command wants a GGUF file of {d.model.name} in {d.weights}."]
    if _checkpoint(scenario, scenario.model.path) == UNNAMED:
        notes.append(
            f"{UNNAMED} stands for the checkpoint of {d.model.name}, whose file has no weights "
            "next to it."
        )
    if d.lora is not None:
        notes.append(
            "Name the adapters with --lora-modules (vLLM) or --lora-paths (SGLang). TensorRT-LLM "
            f"wants lora_config: {{max_lora_rank: {d.lora.rank}, max_loras: {d.lora.max_loras}}} "
            "in its --config file."
        )
    if (wide := wider_than_published(d)) is not None:
        notes.append(f"{wide}. The commands need a checkpoint in {d.formats['experts']}.")
    if d.weights not in DTYPES and not counted_as_published(d):
        engines = "TensorRT-LLM loads" if d.weights in ON_THE_FLY else "all three load"
        notes.append(
            f"{engines} a checkpoint that is already in {d.weights}: put its name for the model."
        )
    return notes


def _notes(scenario: Scenario, pool: PreparedPool) -> list[str]:
    """The choices that the commands leave to the reader."""
    d, settings = pool.deployment, pool.settings
    simulated = TITLES.get(_family(pool))
    notes = [] if simulated is None else [f"{SIMULATED}, {simulated}."]
    if d.format_note is not None:
        notes.append(
            f"{d.format_note} With {d.weights} on such a card engines quantise the weights alone."
        )
    if simulated == TITLES["tensorrt-llm"] and not d.engine.front_end:
        notes.append("What is simulated has no server in front, as with trtllm-bench throughput.")
    if simulated == TITLES["tensorrt-llm"] and d.engine.graph_sizes:
        notes.append(
            "TensorRT-LLM also wants cuda_graph_config: {enable_padding: true, batch_sizes: "
            f"{list(d.engine.graph_sizes)}}} in its --config file."
        )
    if settings.scheduler.rule == VllmV0Rule.name:
        notes.append(
            "`policy: vllm-v0` was simulated: prompts stop decodes. vLLM V1 lets whole "
            "prompts share iterations with decodes; `policy: vllm` simulates that."
        )
    if 1 < d.layout.expert < d.layout.ranks:
        notes.append(
            f"vLLM spreads experts over all {d.layout.ranks} GPUs or none, not over groups of "
            f"{d.layout.expert_width}; its command has all."
        )
    if d.layout.data > 1:
        notes.append("TensorRT-LLM also wants enable_attention_dp: true in its --config file.")
    if timeout := pool.limits.attention_dp_timeout_iters:
        more = pool.limits.attention_dp_batching_wait_iters
        notes.append(
            "And attention_dp_config: {enable_balance: true, timeout_iters: "
            f"{timeout}, batching_wait_iters: {more}}} there."
        )
    if pool.limits.batch_wait_timeout_iters:
        notes.append(
            "TensorRT-LLM also wants batch_wait_timeout_iters: "
            f"{pool.limits.batch_wait_timeout_iters} and batch_wait_max_tokens_ratio: "
            f"{pool.limits.batch_wait_max_tokens_ratio:g} in its --config file."
        )
    notes += _of_checkpoint(scenario, d)
    if not follows_rule(settings.scheduler.batching):
        notes.append(
            f"The engines batch continuously; {settings.scheduler.batching} batching was simulated."
        )
    if pool.replicas > 1:
        about = router_class(scenario.router, scenario.folders).about
        notes.append(
            f"{EACH} {pool.replicas:,} replicas, behind a router with the "
            f"policy {scenario.router}{f' ({about})' if about else ''}."
        )
    if not settings.kv_cache.enable_prefix_caching:
        notes.append("Prefix caching is off in the simulation, and so in the commands.")
    guesses = settings.speculative
    if guesses is not None:
        notes.append("Only the command of vLLM drafts tokens, whose rules were simulated.")
        if guesses.method == "eagle":
            notes.append("Put the checkpoint of an EAGLE-3 head in the place of EAGLE3_HEAD.")
    return notes
