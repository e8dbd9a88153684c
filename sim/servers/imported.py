"""Writes the scenario of a server: every key with where it comes from, and what was assumed.

What neither the command nor its surroundings state is what the engine's release chooses, and stays
out of the file; traffic is never stated by a server, and an assumption to be replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog import releases
from sim.catalog.engine_release import preset_of
from sim.catalog.ids import named
from sim.errors import InfersimError, UsageError, did_you_mean
from sim.scenario import Scenario
from sim.scenario.reading.overrides import applied
from sim.scenario.text.document import Document, Problem
from sim.scenario.text.writing import write_yaml
from sim.servers.draft import Draft, Known, gpu_named
from sim.servers.flags import METHODS
from sim.servers.started import Started
from sim.servers.words import read_words
from sim.specs.model import ModelSpec
from sim.specs.precision import GGUF

TITLES = {
    **{"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"},
    "llama.cpp": "llama.cpp",
}

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

CHOSEN = (
    *("scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "max_model_len"),
    *("kv_cache.gpu_memory_utilization", "kv_cache.enable_prefix_caching", "kv_cache.block_size"),
)
"""Choices of an engine that decide what a server can do."""

ASSUMED = "assumed, put your own here"
ACCEPTANCE = 0.6
"""The chance of a draft to be right where nothing says it; the file says that it is assumed."""

PROMPT, ANSWER = 1000, 250
"""Mean tokens of the traffic that stands in for the user's own."""


@dataclass(frozen=True)
class Imported:
    """The scenario of a server: its ``text`` with comments, as read, and what it could not say."""

    started: Started
    text: str
    scenario: Scenario
    draft: Draft
    chosen: Mapping[str, Any]
    """What the engine chooses for the keys of ``CHOSEN`` that nothing states."""

    def document(self) -> dict[str, Any]:
        """The answer for programs."""
        return {
            "command": "import",
            "where": self.started.where,
            "engine": self.started.engine,
            "release": self.started.release or None,
            "stated": {key: each._asdict() for key, each in self.draft.values.items()},
            "chosen": dict(self.chosen),
            "left_out": dict(self.draft.left_out),
            "unknown": list(self.draft.unknown),
            "without_effect": list(self.draft.without_effect),
            "notes": list(self.draft.notes),
            "scenario": self.text,
        }


def imported(
    started: Started,
    base: Path,
    *,
    model: str | None = None,
    gpu: str | None = None,
    overrides: Sequence[str] = (),
) -> Imported:
    """The scenario of ``started``, to stand in the folder ``base``.

    ``model`` and ``gpu`` go before what the server says. UsageError where neither says which they
    are, and for an option that the engine would refuse; ScenarioError for what no scenario has.
    """
    draft = read_words(started)
    for key, (value, origin) in started.settings.items():
        if key == "kv_tokens":
            draft.hold(key, value, origin)
        elif key != "fleet.replicas" or value > 1:
            draft.put(key, value, origin)
    named_model, card = _named(started, draft, model, gpu, overrides)
    spec = _spec(named_model.value, base, overrides)
    engine = _engine(started, draft)
    _joined(started, draft, spec)
    _precision(draft, spec)
    _environment(started, draft)
    if _is_v0(started):
        _of_v0(started, draft, spec)
    _drafting(draft, overrides)
    _adapters(started, draft)
    _kv_tokens(started, draft, spec)
    _gpus(started, draft, card)
    stem = Path(re.split(r" [(#]", started.where)[0]).stem
    name = "server" if stem in ("the command", "stdin") else stem
    lead = {
        "version": Known(1, ""),
        "name": Known(name, ""),
        "model": named_model,
        "fleet.gpu": card,
        "engine": engine,
    }
    document, refused = _document({**lead, **draft.values}, base, overrides)
    resolved = Scenario.from_document(document, refused).resolved()
    if _whole_prompts(started, draft, resolved, spec):
        document, refused = _document({**lead, **draft.values}, base, overrides)
        resolved = Scenario.from_document(document, refused).resolved()
    values = {**lead, **draft.values}
    values = {key: each for key, each in values.items() if each.value is not None}
    found = {key: _at(resolved, key) for key in CHOSEN if key not in draft.values}
    chosen = {key: value for key, value in found.items() if value is not None}
    origins = {key: each.origin for key, each in values.items()}
    text = _written(started, document.data, origins, draft, chosen, overrides)
    scenario = Scenario.from_document(Document(document.data, base, text=text), refused)
    draft.values = values
    return Imported(started, text, scenario, draft, chosen)


def _document(
    values: Mapping[str, Known], base: Path, overrides: Sequence[str]
) -> tuple[Document, list[Problem]]:
    """The scenario of ``values`` with assumed traffic, and what ``overrides`` have wrong."""
    data = _nested({key: each.value for key, each in values.items() if each.value is not None})
    data |= _traffic(data.get("max_model_len"))
    return applied(Document(data, base), overrides)


def _whole_prompts(
    started: Started, draft: Draft, resolved: Mapping[str, Any], spec: ModelSpec | None
) -> bool:
    """Whether vLLM, without chunks, raises the tokens of a batch that nothing states to those of
    the longest prompt (vllm/engine/arg_utils.py), which ``draft`` then says."""
    key = "scheduler.max_num_batched_tokens"
    chunked = draft.values.get("scheduler.chunked_prefill", Known(True, ""))
    longest = _at(resolved, "max_model_len") or (spec and spec.max_position_embeddings) or 0
    chosen = _at(resolved, key)
    if started.engine != "vllm" or chunked.value or key in draft.values or longest <= chosen:
        return False
    draft.put(key, longest, f"{chunked.origin}: as long as prompts")
    return True


def _named(
    started: Started, draft: Draft, model: str | None, gpu: str | None, overrides: Sequence[str]
) -> tuple[Known, Known]:
    """The model and the GPU; one error for both where neither is known."""
    try:
        found = _model(started, draft, model, overrides)
    except UsageError as error:
        try:
            _gpu(started, gpu, overrides)
        except UsageError as other:
            rest = str(other).removeprefix(f"{started.where}: ")
            raise UsageError(f"{error}; and {rest}") from None
        raise
    return found, _gpu(started, gpu, overrides)


FIRST = f"fleet.{0}."
"""How the keys of the only pool begin where it is one of a list."""


def _overridden(overrides: Sequence[str], *keys: str) -> bool:
    given = {text.partition("=")[0].strip().replace(FIRST, "fleet.") for text in overrides}
    return bool(given & set(keys))


def _model(started: Started, draft: Draft, given: str | None, overrides: Sequence[str]) -> Known:
    """The model as a scenario names it; the format in the name of a GGUF file goes to ``draft``."""
    held = draft.held.get("model")
    written = "" if held is None else str(held.value)
    if held is not None and started.engine == "llama.cpp":
        written = _gguf(draft, held, written)
    if given is not None:
        return Known(_absolute(given, "models"), "--model of this import")
    if held is None:
        if _overridden(overrides, "model", "model.path"):
            return Known("", "--set")
        unset = draft.held.get("unset model")
        says = f"nothing sets {unset.value}, its model" if unset else "names no model"
        raise UsageError(
            f"{started.where}: {says}; add --model NAME (`infersim list models`), the id of one "
            "on Hugging Face, or the path of a config.json"
        )
    text = written
    local = started.folder / str(held.value)
    if local.exists():
        return Known(str(local.absolute()), held.origin)
    served = str(draft.held.get("served", Known("", "")).value)
    found = _in_catalogue(text, held.origin)
    if found is not None:
        return found
    local_only = re.match(r"[./]|\w+://", text) and "models--" not in text
    for spelling in (served, _last(served)) if local_only else ():
        if spelling in catalog.names("models") or named(spelling) is not None:
            draft.notes.append(
                f"{text} is read as {spelling}, which it is served as; --model NAME says another."
            )
            return Known(spelling, f"{held.origin} {text}, served as {served}")
    raise UsageError(
        f"{started.where}: the model {text!r} is not in the catalogue"
        f"{did_you_mean(_last(text).lower(), catalog.names('models'))}; add --model NAME, or the "
        "path of its config.json"
    )


def _in_catalogue(text: str, origin: str) -> Known | None:
    """The model that an id or a path names; None where the catalogue does not have it."""
    for spelling, where in _spellings(text, origin):
        if spelling in catalog.names("models") or named(spelling) is not None:
            return Known(spelling, where)
    return None


def _spellings(text: str, origin: str) -> Iterator[tuple[str, str]]:
    """The names that a model may go by, as written and those in its path, and where each stands."""
    yield text, origin
    cached = re.search(r"models--([^/]+?)--([^/]+)", text)
    if cached is not None:
        yield f"{cached[1]}/{cached[2]}", f"{origin} {text}, of the cache of Hugging Face"
    yield _last(text), f"{origin} {text}, by its name"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


_GGUF = re.compile(
    r"[-.:_](?:UD-)?(" + "|".join(sorted(GGUF, key=len, reverse=True)) + r"|f16|bf16)$"
)


def _gguf(draft: Draft, held: Known, text: str) -> str:
    """The model's name in that of a GGUF file or repository; the format in it goes to ``draft``."""
    plain = text.removesuffix(".gguf")
    found = _GGUF.search(plain.lower())
    if found is not None:
        weights = {"f16": "fp16"}.get(found[1], found[1])
        draft.put("precision.weights", weights, f"{held.origin} {held.value}")
        plain = plain[: found.start()]
    return re.sub(r"[-_]gguf$", "", plain, flags=re.IGNORECASE)


def _absolute(name: str, kind: catalog.Kind) -> str:
    """``name``, made absolute if it is the path of a file here and not in the catalogue."""
    if name in catalog.names(kind) or not Path(name).exists():
        return name
    return os.path.abspath(name)  # noqa: PTH100 - links stay


def _spec(name: str, base: Path, overrides: Sequence[str]) -> ModelSpec | None:
    """The model, to read options by; None for one that the scenario will complain of."""
    given = [text.partition("=")[2].strip() for text in overrides if text.startswith("model=")]
    try:
        return catalog.model(given[-1] if given else name, base)
    except InfersimError:
        return None


def _gpu(started: Started, given: str | None, overrides: Sequence[str]) -> Known:
    if given is not None:
        return Known(_absolute(given, "gpus"), "--gpu of this import")
    found = gpu_named(started.gpu_label) if started.gpu_label else None
    if found is not None:
        return Known(found, f"label {started.gpu_label}")
    if _overridden(overrides, "fleet.gpu"):
        return Known("", "--set")
    says = (
        f"the GPU {started.gpu_label!r} is not in the catalogue"
        if started.gpu_label
        else "does not say on which GPU"
    )
    raise UsageError(
        f"{started.where}: {says}; add --gpu NAME (`infersim list gpus`) or the path of a GPU file"
    )


def _engine(started: Started, draft: Draft) -> Known:
    """The preset of the engine's release."""
    if _is_v0(started):
        return Known("vllm", "V0, whose rule is `policy: vllm-v0`")
    found = preset_of(started.engine, started.release or None)
    if found is None:
        return Known(started.engine, "its program")
    if not found.covers:
        draft.notes.append(found.note)
    if started.version:
        return Known(found.preset, f"release {started.version} in the log")
    if started.release:
        return Known(found.preset, f"image {started.image}")
    draft.notes.append(f"{found.note} Say another by --set engine={started.engine}@RELEASE.")
    return Known(found.preset, "release not stated: the newest known")


def _joined(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
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
        if chunked:
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


def _precision(draft: Draft, spec: ModelSpec | None) -> None:
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


def _is_v0(started: Started) -> bool:
    """Whether vLLM runs the engine that it had before V1."""
    stated, release = started.env.get("VLLM_USE_V1"), releases.number(started.release)
    older = release is not None and release < FIRST_V1
    return started.engine == "vllm" and (stated == "0" or (stated is None and older))


def _of_v0(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
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


def _environment(started: Started, draft: Draft) -> None:
    """What variables of vLLM and SGLang say."""
    for name, value in started.env.items():
        if KERNELS.match(name) and value not in ("", "0", "false"):
            draft.left_out[f"{name}={value}"] = (
                "kernels are those that the engine chooses by itself"
            )
    if started.engine != "vllm":
        return
    if backend := started.env.get("VLLM_ALL2ALL_BACKEND"):
        draft.values.setdefault("fleet.all2all_backend", Known(backend, "VLLM_ALL2ALL_BACKEND"))
    if started.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true"):
        draft.put("allow_long_max_model_len", True, "VLLM_ALLOW_LONG_MAX_MODEL_LEN")


def _drafting(draft: Draft, overrides: Sequence[str]) -> None:
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
    chosen = _overridden(overrides, "speculative.draft_model")
    if drafter is not None and not chosen and not Path(drafter.value).exists():
        found = _in_catalogue(str(drafter.value), drafter.origin)
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


def _adapters(started: Started, draft: Draft) -> None:
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


def _kv_tokens(started: Started, draft: Draft, spec: ModelSpec | None) -> None:
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


def _gpus(started: Started, draft: Draft, card: Known) -> None:
    """Note where a container asks for other GPUs than its command uses; a chip of TPU7x is two
    devices of vLLM (docs.cloud.google.com/tpu/docs/tpu7x)."""
    keys = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    used = 1
    for key in keys:
        used *= draft.values.get(f"fleet.{key}", Known(1, "")).value
    ranks = draft.values.get("fleet.tensor_parallel")
    if ranks and card.value == "tpu-v7x" and started.gpus and used == 2 * started.gpus:
        origin = f"{ranks.origin} {ranks.value}, two ranks a chip"
        draft.put("fleet.tensor_parallel", ranks.value // 2, origin)
    elif started.gpus and started.gpus != used:
        draft.notes.append(
            f"The container asks for {started.gpus} GPUs and its command uses {used}; it is read "
            "by its command."
        )


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings; the first pool of the fleet stands for all of it."""
    data: dict[str, Any] = {}
    for key, value in values.items():
        *steps, last = key.split(".")
        inside = data
        for step in steps:
            inside = inside.setdefault(step, {})
        inside[last] = value
    return data


def _traffic(longest: Any) -> dict[str, Any]:
    """Traffic that stands in for the user's own, with requests of no more than ``longest``."""
    most = longest if isinstance(longest, int) else 8192
    prompt = max(1, min(PROMPT, most // 8))
    answer = max(1, min(ANSWER, most // 16))
    return {
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1.0},
            "prompt_tokens": _lengths(prompt, most // 2),
            "output_tokens": _lengths(answer, most // 4),
        },
        "run": {"requests": 1000},
    }


def _lengths(mean: int, most: int) -> dict[str, Any]:
    if mean < 16:
        return {"kind": "fixed", "value": mean}
    return {"kind": "lognormal", "mean": mean, "p95": 3 * mean, "max": max(3 * mean, most)}


def _written(
    started: Started,
    data: Mapping[str, Any],
    origins: Mapping[str, str],
    draft: Draft,
    chosen: Mapping[str, Any],
    overrides: Sequence[str],
) -> str:
    """The text of the scenario, each key with its origin."""
    own = {text.partition("=")[0].strip() for text in overrides}
    known = dict(origins) | {key.replace(FIRST, "fleet."): "--set of this import" for key in own}
    head = [f"{TITLES[started.engine]} as started by {started.where}."]
    head += _remarks(started, draft, chosen)
    lines = [f"# {printable}" for printable in map(_printable, head)]
    lines += _lines({key: value for key, value in data.items() if key not in TRAFFIC}, known)
    lines.append("# A server does not say its traffic: this is assumed, put your own here.")
    lines += write_yaml({key: data[key] for key in TRAFFIC if key in data}).splitlines()
    return "\n".join(lines) + "\n"


TRAFFIC = ("workload", "slo", "run")


def _remarks(started: Started, draft: Draft, chosen: Mapping[str, Any]) -> list[str]:
    told = list(draft.notes)
    if chosen:
        listed = ", ".join(f"{key} {shown(value)}" for key, value in chosen.items())
        told.append(f"Not stated, so what {TITLES[started.engine]} chooses: {listed}.")
    return told + draft.shortcomings()


def _lines(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> Iterator[str]:
    pad = "  " * prefix.count(".")
    for key, value in data.items():
        if key == "fleet" and isinstance(value, list) and len(value) == 1:
            value = value[0]  # noqa: PLW2901 - a fleet of one pool is written without a list
        if isinstance(value, Mapping) and value and f"{prefix}{key}" not in origins:
            yield f"{pad}{key}:"
            yield from _lines(value, origins, f"{prefix}{key}.")
            continue
        text = write_yaml({key: value}).rstrip("\n").replace("\n", f"\n{pad}")
        origin = origins.get(f"{prefix}{key}", "")
        yield f"{pad}{text}  # {_printable(origin)}" if origin else f"{pad}{text}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def shown(value: object) -> str:
    """A value for a line of text."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _at(resolved: Mapping[str, Any], key: str) -> Any:
    """The value of a key in a resolved scenario, the pool's own before that of all."""
    fleet = resolved.get("fleet")
    pools = fleet if isinstance(fleet, list) else []
    for place in (*pools, resolved):
        found: Any = place
        for step in key.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None
