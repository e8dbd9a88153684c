"""Turns the conditions of a measurement into a scenario that repeats it in the simulator.

Requests of fixed lengths under TensorRT-LLM, which admits a request only with memory for its whole
answer, are given contiguous memory of exactly their length: the same arithmetic. The engine
is the preset that stands for the published engine, release and way to run it.
"""

from __future__ import annotations

from typing import Any

from calibrate.scoring.conditions import Conditions
from calibrate.scoring.lengths import Lengths
from calibrate.scoring.names import Unrepresentable
from sim import catalog
from sim.catalog.releases import preset_of, release
from sim.specs.layout import Layout


def preset(known: Conditions) -> str:
    """The name of the preset. Raises Unrepresentable for an engine without one."""
    name = known.engine.lower()
    if "vllm" in name:
        return _vllm(known)
    if "sglang" in name:
        return "sglang-triton" if known.triton else "sglang"
    if "gpt-fast" in name:
        return "gpt-fast"
    if "tensorrt" in name or "trtllm" in name or "trt-llm" in name:
        return _tensorrt(known, name)
    if "transformers" in name or "hugging" in name:
        return "transformers"
    raise Unrepresentable(f"the engine {known.engine} has no preset")


def _vllm(known: Conditions) -> str:
    """The preset of the release; runs that state none are of 2025."""
    found = preset_of("vllm", known.version)
    assert found is not None
    name = found.preset
    if name == SYNCHRONOUS:
        if not known.asynchronous:
            return name
        name = "vllm"
    return f"{name}-marlin" if known.marlin else name


def uncovered(known: Conditions) -> str | None:
    """The note on a release that no preset covers and the nearest stands in for; None where one
    does, or where the preset follows from something else than the release."""
    chosen = preset(known)
    covers = catalog.engine(chosen).releases
    if covers is None or known.apart is not None:
        return None
    found = preset_of(covers.engine, known.version)
    if found is None or found.covers or found.preset != chosen:
        return None
    return found.note[0].lower() + found.note[1:].rstrip(".")


def _tensorrt(known: Conditions, name: str) -> str:
    if known.apart is not None:  # the version is that of Dynamo, which joins the workers
        return "tensorrt-llm"
    if "mlperf" in name:  # the version is that of TensorRT; only its server streams
        return "tensorrt-llm-0.14" if known.driver == "offline" else "tensorrt-llm-executor"
    return _of_release(known, name, release(known.version))


def _of_release(known: Conditions, name: str, version: tuple[int, int] | None) -> str:
    if version and version < (0, 10):
        return "tensorrt-llm-0.7" if version < (0, 8) else "tensorrt-llm-0.9"
    if "triton" in name:
        return "tensorrt-llm-triton"
    if known.driver != "offline":
        return "tensorrt-llm"
    if version is not None and version >= OF_PYTORCH:
        return "tensorrt-llm-pytorch"
    return "tensorrt-llm-0.14" if version and version < (0, 15) else "tensorrt-llm-bench"


OF_PYTORCH = (0, 18)
"""The first release of TensorRT-LLM whose published tables are of the PyTorch backend."""

SYNCHRONOUS = "vllm-0.13"
"""The preset of the releases of vLLM that schedule asynchronously only where they are set to."""

MOST_AT_ONCE = 2048
"""Requests that run at once at most in an engine that was to take as many as it can: the default of
TensorRT-LLM. Buffers grow with the slots, so no more are given than memory has room for."""

MOST_MEANS = 4
"""Where a law of lengths of which only the mean is known is cut off, in means."""

BLOCK = 16
"""Tokens of a KV block where the number of blocks is given."""

RANDOM_SKEW = 0.01
"""Of experts that random tokens choose: hardly more than 0, with which the popularity of experts is
spread evenly between its least and its largest value, a Gini index of 1/3."""

PASS = 8192
"""Tokens of one iteration where nothing is said: the default of both engines' benchmarks."""


def document(known: Conditions) -> dict[str, Any]:
    """The scenario that repeats ``known``, as a mapping."""
    longest = _longest(known.prompt) + _longest(known.output)
    whole_answers = preset(known).startswith("tensorrt-llm")
    kv_cache: dict[str, Any] = {}
    if known.memory_fraction is not None:
        kv_cache["gpu_memory_utilization"] = known.memory_fraction
    if known.driver in ("static", "single"):  # it did run, so its memory did suffice
        kv_cache["num_gpu_blocks"] = 1 + (known.size or 1) * -(-longest // BLOCK)
        kv_cache["block_size"] = BLOCK
    elif whole_answers and _fixed(known) and known.driver == "offline" and not known.policy:
        kv_cache["allocator"] = "contiguous"
    together = known.driver in ("offline", "online", "closed")
    drafts = known.apart.split.drafts if known.apart is not None else 0
    replicas = known.gpus // _gpus(known) if together else 1
    return {
        "version": 1,
        "name": f"{known.driver}",
        "model": {"path": known.model, "expert_skew": RANDOM_SKEW}
        if known.random_tokens
        else known.model,
        "precision": {
            "weights": known.weights,
            "activations": ACTIVATIONS.get(known.weights) or _sixteen_bits(known.weights),
            "kv_cache": known.kv_cache,
            "quantisation": "static" if known.static else "dynamic",
        }
        | ({"experts": known.experts} if known.experts else {}),
        "fleet": _fleet(known, max(1, replicas)),
        "engine": preset(known),
        "max_model_len": longest,
        "allow_long_max_model_len": True,
        "scheduler": _scheduler(known, not known.whole) | (VERIFIES if drafts else {}),
        "kv_cache": kv_cache,
        "workload": {
            "arrivals": _arrivals(known),
            "prompt_tokens": _law(known.prompt),
            "output_tokens": _law(known.output),
        },
        "sampling": "sorted" if known.sorts else "greedy",
        "run": {"requests": _requests(known), "warmup": (known.size or 0) if known.warm else 0},
    } | ({"speculative": _speculative(known, drafts)} if drafts else {})


VERIFIES = {"policy": "vllm", "async_scheduling": False}
"""The rule of batching where tokens are drafted; no other one is modelled with drafts."""

ACCEPTANCE = {"deepseek-r1": "deepseek-r1-mtp", "deepseek-v3": "deepseek-r1-mtp"}
"""Tables of published acceptance by model; the second differs from the first in training alone."""


def _speculative(known: Conditions, drafts: int) -> dict[str, Any]:
    """So many tokens drafted by the layer that the model is published with."""
    if known.model not in ACCEPTANCE:
        raise Unrepresentable(f"what is accepted of drafts for {known.model} is not published")
    accepted = {"table": ACCEPTANCE[known.model]}
    return {"method": "mtp", "num_tokens": drafts, "acceptance": accepted}


def _fleet(known: Conditions, replicas: int) -> dict[str, Any] | list[dict[str, Any]]:
    """One pool of that many ``replicas``, or one for each phase."""
    if known.apart is not None:
        split = known.apart.split
        prefill, decode = known.apart.layouts
        return [
            {"name": "prefill", "role": "prefill"}
            | _pool(known, prefill, split.prefill)
            | _prompts(known, split.drafts),
            {"name": "decode", "role": "decode"}
            | _pool(known, decode, split.decode)
            | _answers(known, split.drafts),
        ]
    layout = Layout(
        known.tensor_parallel, known.pipeline_parallel, known.data_parallel, known.expert_parallel
    )
    peers = {"link": {"kind": "pcie", "peer_to_peer": known.peers}}
    return _pool(known, layout, replicas) | ({} if known.peers is None else peers)


def _prompts(known: Conditions, drafts: int) -> dict[str, Any]:
    """The passes of workers that prefill, where they are published: the next one is planned when
    the last has ended."""
    assert known.apart is not None
    if (passes := known.apart.passes) is None:
        return {}
    own = _scheduler(known, chunked=True) | (VERIFIES if drafts else {})
    tokens = max(passes.tokens, known.prompt.high)
    limits = {"max_num_seqs": passes.prompts, "max_num_batched_tokens": tokens}
    return {"scheduler": own | limits}


def _answers(known: Conditions, drafts: int) -> dict[str, Any]:
    """The slots of workers that decode, where each is to run one request at a time: clients above
    one for each worker (``OVER``) wait for theirs."""
    assert known.apart is not None
    if known.apart.split.batch != 1:
        return {}
    own = _scheduler(known, not known.whole) | (VERIFIES if drafts else {})
    return {"scheduler": own | {"max_num_seqs": 1}}


def _pool(known: Conditions, layout: Layout, replicas: int) -> dict[str, Any]:
    return {
        "gpu": known.gpu,
        "tensor_parallel": layout.tensor,
        "data_parallel": layout.data,
        "pipeline_parallel": layout.pipeline,
        "expert_parallel": layout.expert,
        "replicas": replicas,
    }


ACTIVATIONS = {"fp8": "fp8", "fp8-block": "fp8", "nvfp4": "nvfp4"}
"""The format that activations are quantised to, by that of the weights; else 16 bits."""


def _gpus(known: Conditions) -> int:
    """GPUs of one replica."""
    return known.tensor_parallel * known.data_parallel * known.pipeline_parallel


def _fixed(known: Conditions) -> bool:
    return all(each.low == each.high and not each.varied for each in (known.prompt, known.output))


def _longest(lengths: Lengths) -> int:
    return lengths.high * (MOST_MEANS if lengths.varied else 1)


def _sixteen_bits(weights: str) -> str:
    return "fp16" if weights == "fp16" else "bf16"


def _scheduler(known: Conditions, chunked: bool) -> dict[str, Any]:
    tokens = known.max_num_batched_tokens or PASS
    if known.driver in ("static", "single"):
        size = known.size or 1
        together = max(tokens, size * known.prompt.high)
        return {"batching": "static", "max_num_seqs": size, "max_num_batched_tokens": together}
    slots = known.at_once or _room(known)
    if known.driver == "closed":
        slots = known.at_once or known.size or MOST_AT_ONCE
    if not chunked:
        tokens = max(tokens, known.prompt.high)
    iterations, share = known.batch_wait or (0, 0.0)
    wait = {"batch_wait_timeout_iters": iterations, "batch_wait_max_tokens_ratio": share}
    return (
        {
            "batching": "continuous",
            "chunked_prefill": chunked,
            "max_num_seqs": slots,
            "max_num_batched_tokens": max(tokens, slots),
        }
        | ({"policy": known.policy} if known.policy else {})
        | ({"async_scheduling": True} if known.ahead and chunked else {})
        | (wait if known.batch_wait else {})
        | (_ranks_wait(known.ranks_wait) if known.ranks_wait else {})
    )


def _ranks_wait(iterations: tuple[int, int]) -> dict[str, int]:
    timeout, more = iterations
    return {"attention_dp_timeout_iters": timeout, "attention_dp_batching_wait_iters": more}


def _room(known: Conditions) -> int:
    """Whole requests that fit into memory with the weights, up to the engine's limit."""
    model = catalog.model(known.model)
    weights = model.weight_bytes(known.weights, experts=known.experts) / _gpus(known)
    free = catalog.gpu(known.gpu).memory - weights
    request = known.prompt.mean + known.output.mean
    per_token = model.kv_bytes_per_token(known.kv_cache) / known.tensor_parallel
    most = known.most_at_once or MOST_AT_ONCE
    return max(1, min(most, int(free / (request * per_token))))


def _arrivals(known: Conditions) -> dict[str, Any]:
    if known.driver == "closed" and not known.burst:
        return {"kind": "closed", "concurrency": (known.size or 1) + known.more}
    if known.driver == "online":
        return {"kind": "poisson", "rate": known.rate}
    return {"kind": "burst"}


def _law(lengths: Lengths) -> dict[str, Any]:
    if lengths.varied:
        p95 = lengths.tail * lengths.low
        return {"kind": "lognormal", "mean": lengths.low, "p95": p95, "max": _longest(lengths)}
    if lengths.low == lengths.high:
        return {"kind": "fixed", "value": lengths.low}
    return {"kind": "uniform", "low": lengths.low, "high": lengths.high}


def _requests(known: Conditions) -> int:
    if known.driver == "single":
        return 1
    if known.driver == "static":
        return known.size or 1
    assert known.requests is not None
    return known.requests
