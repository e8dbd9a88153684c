"""Reads options that mean something only together, or by the engine, the model or the release:
ranks, slots, formats, drafting, adapters, the size of the KV cache, and variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.catalog import releases
from sim.errors import UsageError
from sim.servers.draft import ASSUMED, Draft, Known
from sim.servers.flags import METHODS
from sim.servers.named import in_catalogue, overridden
from sim.servers.started import Started
from sim.specs.model import ModelSpec
from sim.specs.precision import INT4

QUANTISATIONS: Mapping[str, dict[str, str]] = {
    "fp8": {"weights": "fp8", "activations": "fp8"},
    "awq": {"weights": "int4-group"},
    "awq_marlin": {"weights": "int4-group"},
    "gptq": {"weights": "int4-group"},
    "gptq_marlin": {"weights": "int4-group"},
    "bitsandbytes": {"weights": "int4-group64"},
    "w8a8_int8": {"weights": "int8", "activations": "int8"},
    "w8a8_fp8": {"weights": "fp8", "activations": "fp8"},
    "modelopt": {"weights": "fp8", "activations": "fp8"},
    "modelopt_fp4": {"weights": "nvfp4", "activations": "nvfp4"},
    "mxfp4": {"weights": "mxfp4"},
}
"""Formats by the engines' names of a quantisation, where the checkpoint's own is not known."""

MARLIN_INPUTS = "VLLM_MARLIN_INPUT_DTYPE"
"""The variable that says to what vLLM's Marlin quantises the inputs of weights in int4."""

ACCEPTANCE = 0.6
"""The chance of a draft to be right where nothing says it; the file says that it is assumed."""


def join_options(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
    """Put what several options say together into keys of the layout and of the limits."""
    experts = spec is None or spec.has_experts
    if started.engine == "vllm":
        _ranks_of_vllm(draft, experts=experts)
    elif started.engine in ("sglang", "tensorrt-llm"):
        _ranks_of_others(draft, started.engine, experts=experts)
    elif started.engine == "llama.cpp":
        _slots(draft)
    order = draft.held.get("reuse")
    if order is not None and order.value is False:
        draft.put("kv_cache.enable_prefix_caching", False, order.origin)


def _ranks_of_vllm(draft: Draft, *, experts: bool) -> None:
    """Data ranks of a model without experts are engines of their own (vllm/v1/engine/core.py)."""
    data = draft.held.get("data")
    if not experts:
        draft.values.pop("fleet.expert_parallel", None)
    if data is None or data.value == 1:
        return
    if experts:
        draft.put("fleet.data_parallel", data.value, data.origin)
    else:
        _more_replicas(draft, data)


def _more_replicas(draft: Draft, data: Known) -> None:
    before = draft.values.get("fleet.replicas")
    times = data.value * (1 if before is None else before.value)
    origin = data.origin if before is None else f"{data.origin} and {before.origin}"
    draft.put("fleet.replicas", times, f"{origin}: engines that know nothing of each other")


def _ranks_of_others(draft: Draft, engine: str, *, experts: bool) -> None:
    """SGLang and TensorRT-LLM count all GPUs of an engine as tensor ranks; attention may be on data
    ranks among them: all of TensorRT-LLM's, as many as ``--dp`` says of SGLang's, which shares its
    limits out among those."""
    held = draft.held
    ranks = held.get("ranks", Known(1, ""))
    apart = held.get("attention on ranks")
    on_ranks = apart is not None and apart.value
    all_ranks = on_ranks and engine == "tensorrt-llm"
    data = held.get("data", Known(ranks.value if all_ranks else 1, ranks.origin))
    parts = data.value if on_ranks else 1
    if ranks.value % max(1, parts):
        raise UsageError(
            f"{data.origin}: {parts} data ranks do not divide the {ranks.value} tensor ranks"
        )
    if on_ranks and parts > 1:
        assert apart is not None
        draft.put("fleet.data_parallel", parts, f"{data.origin}, {apart.origin}")
    elif data.value > 1:
        _more_replicas(draft, data)
    if ranks.value // parts > 1:
        draft.put("fleet.tensor_parallel", ranks.value // parts, ranks.origin)
    spread = held.get("experts")
    if spread is not None and spread.value > 1 and experts:
        draft.put("fleet.expert_parallel", True, f"{spread.origin} {spread.value}")
        if spread.value != ranks.value:
            draft.left_out[f"{spread.origin} {spread.value}"] = "experts are spread over all GPUs"
    for name, key in (("running", "max_num_seqs"), ("chunk", "max_num_batched_tokens")):
        if name in held:
            shared = f"{held[name].origin}, over {parts} data ranks" if parts > 1 else ""
            value = max(1, held[name].value // parts)
            draft.put(f"scheduler.{key}", value, shared or held[name].origin)
    prompts = held.get("prefill tokens")
    if prompts is not None:
        chunked = draft.values.get("scheduler.chunked_prefill", Known(True, "")).value
        if chunked and "chunk" in held and held["chunk"].value <= prompts.value:
            draft.left_out[f"{prompts.origin} {prompts.value}"] = "chunks are smaller"
        else:
            draft.put("scheduler.max_prefill_tokens", prompts.value, prompts.origin)


def _slots(draft: Draft) -> None:
    """Slots of llama.cpp share one context, or have a part each where their number is given."""
    context, slots = draft.held.get("context"), draft.held.get("slots")
    apart = slots is not None and slots.value > 0 and "unified" not in draft.held
    each = 1
    if slots is not None and slots.value > 0:
        draft.put("scheduler.max_num_seqs", slots.value, slots.origin)
    if slots is not None and apart:
        each = slots.value
        draft.put("kv_cache.allocator", "contiguous", f"{slots.origin} without --kv-unified")
    if context is not None and context.value > 0:
        told = context.origin if each == 1 else f"{context.origin}, a part for each slot"
        draft.put("max_model_len", context.value // each, told)


def read_formats(draft: Draft, spec: ModelSpec | None) -> None:
    """Formats of weights and activations; a checkpoint that states its own keeps it."""
    asked, dtype = draft.held.get("quantization"), draft.held.get("dtype")
    stated = spec is not None and spec.published is not None
    if asked is not None and asked.value not in ("none", "null", "auto"):
        found = QUANTISATIONS.get(asked.value)
        if stated:
            draft.notes.append(f"{asked.origin}: the checkpoint states its format, which is taken.")
        elif found is None:
            draft.left_out[asked.origin] = (
                "the format of this checkpoint is not known: --set precision.weights=..."
            )
            return
        else:
            for key, value in found.items():
                draft.put(f"precision.{key}", value, asked.origin)
            return
    if dtype is not None and not stated:
        draft.put("precision.weights", dtype.value, dtype.origin)
        draft.put("precision.activations", dtype.value, dtype.origin)


KERNELS = re.compile(
    r"(VLLM|SGLANG|SGL)_(USE_(?!V1$|SIMPLE|RUNAI|MODELSCOPE|RAY)|ROCM_|MXFP4_|FLASHINFER_|MOE_|ENABLE_(JIT|DEEP)|"
    r"ATTENTION_BACKEND)"
)
"""Variables that choose kernels."""

FIRST_V1 = (0, 8, 0)
"""The release from which on V1 is vLLM's engine by default (its release notes)."""


def is_v0(started: Started) -> bool:
    """Whether vLLM runs the engine that it had before V1."""
    stated, release = started.env.get("VLLM_USE_V1"), releases.number(started.release)
    older = release is not None and release < FIRST_V1
    return started.engine == "vllm" and (stated == "0" or (stated is None and older))


def put_v0(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
    """The rule of vLLM's V0 and its defaults (vllm/engine/arg_utils.py of 0.6 and 0.7)."""
    draft.put("scheduler.policy", "vllm-v0", "V0 of vLLM")
    draft.values.pop("scheduler.chunked_prefill", None)
    longest = draft.values.get("max_model_len")
    if longest is None and spec is not None:
        longest = Known(spec.max_position_embeddings, "")
    defaults = {
        "scheduler.max_num_seqs": 256,
        "scheduler.max_num_batched_tokens": max(2048, longest.value if longest else 0),
        "kv_cache.enable_prefix_caching": False,
        "kv_cache.gpu_memory_utilization": 0.9,
    }
    for key, value in defaults.items():
        if key not in draft.values:
            draft.put(key, value, "default of V0")
    draft.notes.append("V0 of vLLM is its rule of scheduling with the host's times of V1.")


def read_environment(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
    """What variables of vLLM and SGLang say; ``read_formats`` comes before."""
    for name, value in started.env.items():
        if KERNELS.match(name) and value not in ("", "0", "false"):
            draft.left_out[f"{name}={value}"] = (
                "kernels are those that the engine chooses by itself"
            )
    if started.engine != "vllm":
        return
    if backend := started.env.get("VLLM_ALL2ALL_BACKEND"):
        draft.values.setdefault("fleet.all2all_backend", Known(backend, "VLLM_ALL2ALL_BACKEND"))
    if started.env.get(MARLIN_INPUTS) == "int8":
        stated = draft.values.get("precision.weights")
        published = spec.published.weights if spec is not None and spec.published else ""
        if (stated.value if stated is not None else published) in INT4:
            draft.put("precision.activations", "int8", MARLIN_INPUTS)
    if started.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true"):
        draft.put("allow_long_max_model_len", True, "VLLM_ALLOW_LONG_MAX_MODEL_LEN")


def read_drafting(draft: Draft, overrides: Sequence[str]) -> None:
    """How answers are drafted, by the options of several engines."""
    algorithm, model = draft.held.get("algorithm"), draft.held.get("draft model")
    if algorithm is None and model is not None and "speculative.method" not in draft.values:
        algorithm = Known(_method_of(str(model.value)), f"{model.origin} {model.value}:")
    if algorithm is not None and algorithm.value.lower() not in ("none", "null"):
        method = METHODS.get(algorithm.value.lower())
        if method is None:
            draft.left_out[f"{algorithm.origin} {algorithm.value}"] = (
                "drafting by this algorithm is not simulated"
            )
        else:
            draft.put("speculative.method", method, algorithm.origin)
            steps = draft.held.get("steps", draft.held.get("drafts"))
            if steps is not None:
                draft.put("speculative.num_tokens", max(1, steps.value), steps.origin)
            if method == "draft_model" and model is not None:
                draft.put("speculative.draft_model", *model)
    if "speculative.method" in draft.values:
        draft.values.setdefault("speculative.num_tokens", Known(3, ASSUMED))
        draft.put("speculative.acceptance_rate", ACCEPTANCE, ASSUMED)
    drafter = draft.values.get("speculative.draft_model")
    chosen = overridden(overrides, "speculative.draft_model")
    if drafter is not None and not chosen and not Path(drafter.value).exists():
        found = in_catalogue(str(drafter.value), drafter.origin)
        if found is None:
            raise UsageError(
                f"{drafter.origin}: the draft model {drafter.value!r} is not in the catalogue; "
                "add --set speculative.draft_model=NAME (`infersim list models`)"
            )
        draft.put("speculative.draft_model", *found)


def _method_of(drafter: str) -> str:
    """How a model drafts that vLLM's ``--speculative-model``, before 0.9, names alone."""
    for part in ("ngram", "eagle", "mtp", "medusa", "mlp_speculator"):
        if part in drafter.lower():
            return part
    return "draft_model"


def read_adapters(started: Started, draft: Draft) -> None:
    """Slots, rank and number of LoRA adapters, by vLLM's defaults where nothing states them."""
    asked = draft.held.get("adapters")
    if started.engine != "vllm" or asked is None or not asked.value:
        return
    slots = draft.held.get("slots", Known(1, "vLLM's default"))
    draft.put("lora.max_loras", *slots)
    draft.put("lora.rank", *draft.held.get("rank", Known(16, "vLLM's default")))
    modules = draft.held.get("modules")
    if modules is None:
        draft.put("lora.adapters", slots.value, ASSUMED)
    else:
        draft.put("lora.adapters", len(modules.value.split()), modules.origin)


def read_kv_tokens(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
    """The size of the KV cache as an engine printed it, in blocks."""
    tokens = draft.held.get("kv_tokens")
    if tokens is None or "kv_cache.num_gpu_blocks" in draft.values:
        return
    if spec is not None and (spec.windows or spec.keeps_state):
        draft.notes.append(
            f"{tokens.origin}: of a model with windows or a state that is not a number of blocks; "
            "compare it with what `infersim run` prints."
        )
        return
    size = draft.values.get(
        "kv_cache.block_size", Known(1 if started.engine == "sglang" else 16, "")
    )
    if size.value and int(tokens.value) >= size.value:
        blocks = int(tokens.value) // size.value
        draft.put("kv_cache.num_gpu_blocks", blocks, f"{tokens.origin}, in blocks of {size.value}")


def compare_gpus(started: Started, draft: Draft, card: Known) -> None:
    """Note where a container asks for other GPUs than its command uses; a chip of TPU7x is two
    devices of vLLM (docs.cloud.google.com/tpu/docs/tpu7x)."""
    keys = ("tensor_parallel", "pipeline_parallel", "data_parallel", "layer_split")
    used = 1
    for key in keys:
        used *= draft.values.get(f"fleet.{key}", Known(1, "")).value
    ranks = draft.values.get("fleet.tensor_parallel")
    if ranks and card.value == "tpu-v7x" and started.gpus and used == 2 * started.gpus:
        origin = f"{ranks.origin} {ranks.value}, two ranks a chip"
        draft.put("fleet.tensor_parallel", ranks.value // 2, origin)
    elif started.gpus and used == 1 and started.engine == "llama.cpp":
        draft.put("fleet.layer_split", started.gpus, f"the container's {started.gpus} GPUs")
    elif started.gpus and started.gpus != used:
        draft.notes.append(
            f"The container asks for {started.gpus} GPUs and its command uses {used}; it is read "
            "by its command."
        )
