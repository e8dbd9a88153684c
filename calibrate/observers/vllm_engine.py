"""Builds a vLLM engine: a model of the given shape with random weights, and its settings.

``WholeEngine`` is a V1 engine in this process, ``SchedulerAlone`` only its scheduler, over blocks
that hold nothing and without a model. Both are driven alike.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.dense import dense_layer
from calibrate.lazy_torch import torch
from calibrate.observers import lazy_vllm
from calibrate.observers.hf_config import write
from sim.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The settings of vLLM, under its own names; ``num_gpu_blocks`` None leaves it to the
    engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_gpu_blocks: int | None
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    scheduling_policy: str = "fcfs"
    enable_prefix_caching: bool = False
    kv_groups: tuple[tuple[int | None, bool], ...] = ((None, False),)
    """(window, whether it is chunked) of each group of layers; only for a scheduler alone."""

    def engine_arguments(self) -> dict[str, Any]:
        """The settings as keywords of vLLM's ``EngineArgs``."""
        named = asdict(self)
        named["num_gpu_blocks_override"] = named.pop("num_gpu_blocks")
        del named["kv_groups"]
        return named


def engine_args(spec: ModelSpec, settings: VllmSettings, folder: Path, **further: Any) -> Any:
    """vLLM's ``EngineArgs`` of a model of that shape, whose configuration is put into
    ``folder``."""
    named: dict[str, Any] = {
        "model": str(write(spec, folder)),
        "skip_tokenizer_init": True,
        "load_format": "dummy",  # random weights
        "enable_chunked_prefill": True,
        "async_scheduling": False,
        "disable_log_stats": True,
        **settings.engine_arguments(),
    }
    return lazy_vllm.module("vllm.engine.arg_utils").EngineArgs(**named | further)


def answer_of(output_tokens: int, **further: Any) -> Any:
    """vLLM's ``SamplingParams`` of an answer of exactly that many tokens."""
    return lazy_vllm.module("vllm").SamplingParams(
        max_tokens=output_tokens, ignore_eos=True, detokenize=False, **further
    )


class Arriving(NamedTuple):
    """A request, to be answered with ``output`` tokens; lower ``priority`` first, of equals the
    lower number. ``answer`` is what a driver without a model is to generate."""

    number: int
    prompt: Sequence[int]
    output: int
    priority: int = 0
    answer: Sequence[int] = ()


class Driver(ABC):
    """An engine that takes requests by number and runs one step when called.

    ``scheduler`` is vLLM's, ``numbers`` our numbers by the names it has for requests.
    """

    scheduler: Any

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    @abstractmethod
    def add(self, request: Arriving) -> None:
        """``request`` arrives."""

    @abstractmethod
    def step(self) -> None:
        """Schedule, compute and deliver once."""

    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.scheduler.has_unfinished_requests())


class WholeEngine(Driver):
    """vLLM's V1 engine; ``further`` are further arguments of it.

    ``num_gpu_blocks`` and ``max_model_len`` are the values that it ended up with.
    """

    def __init__(
        self,
        spec: ModelSpec,
        settings: VllmSettings,
        *,
        sampling: str = "greedy",
        **further: Any,
    ) -> None:
        super().__init__()
        with tempfile.TemporaryDirectory(prefix="infersim-") as folder:
            args = engine_args(spec, settings, Path(folder), **further)
            engines = lazy_vllm.module("vllm.v1.engine.llm_engine")
            self._engine = engines.LLMEngine.from_engine_args(args)
        self._core = self._engine.engine_core.engine_core
        self.scheduler = self._core.scheduler
        config = self._engine.vllm_config
        self.num_gpu_blocks = int(config.cache_config.num_gpu_blocks)
        self.max_model_len = int(config.model_config.max_model_len)
        self._temperature = 0.0 if sampling == "greedy" else 1.0

    def add(self, request: Arriving) -> None:
        """``request`` arrives."""
        name = self._engine.add_request(
            str(request.number),
            lazy_vllm.module("vllm").TokensPrompt(prompt_token_ids=list(request.prompt)),
            answer_of(request.output, temperature=self._temperature),
            arrival_time=float(request.number),
            priority=request.priority,
        )
        self.numbers[name] = request.number

    def step(self) -> None:
        """One iteration of the engine, its model included."""
        self._engine.step()

    def attention(self) -> str:
        """The names of the attention backends, as far as the engine tells."""
        try:
            runner = self._core.model_executor.driver_worker.worker.model_runner
            names = {group.backend.get_name() for groups in runner.attn_groups for group in groups}
        except AttributeError:  # not every runner keeps them there
            names = set()
        return ", ".join(sorted(names)) or "as vLLM chose"

    def close(self) -> None:
        """Give back what the engine holds; it cannot be used any more."""
        self._engine.engine_core.shutdown()


def _layer(spec: ModelSpec, settings: VllmSettings, window: int | None, chunked: bool) -> Any:
    """vLLM's view of a layer that sees everything, or through a window."""
    kinds = lazy_vllm.module("vllm.v1.kv_cache_interface")
    heads = dense_layer(spec).attention
    named: dict[str, Any] = {
        "block_size": settings.block_size,
        "num_kv_heads": heads.num_kv_heads,
        "head_size": heads.head_dim,
        "dtype": torch.float32,
    }
    if window is None:
        return kinds.FullAttentionSpec(**named)
    if chunked:
        return kinds.ChunkedLocalAttentionSpec(**named, attention_chunk_size=window)
    return kinds.SlidingWindowSpec(**named, sliding_window=window)


class SchedulerAlone(Driver):
    """vLLM's scheduler without a model: it generates the given tokens, or else one token always."""

    TOKEN = 1

    def __init__(self, spec: ModelSpec, settings: VllmSettings) -> None:
        super().__init__()
        self._answers: dict[str, Sequence[int]] = {}
        assert settings.num_gpu_blocks is not None, "nothing here knows how much memory there is"
        with tempfile.TemporaryDirectory(prefix="infersim-") as folder:
            args = engine_args(spec, settings, Path(folder), dtype="float32")
            config = args.create_engine_config()
        config.cache_config.num_gpu_blocks = settings.num_gpu_blocks
        kinds = lazy_vllm.module("vllm.v1.kv_cache_interface")
        cache = kinds.KVCacheConfig(
            num_blocks=settings.num_gpu_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                kinds.KVCacheGroupSpec([f"layer {number}"], _layer(spec, settings, *windowed))
                for number, windowed in enumerate(settings.kv_groups)
            ],
        )
        hashing = lazy_vllm.module("vllm.utils.hashing")
        utils = lazy_vllm.module("vllm.v1.core.kv_cache_utils")
        utils.init_none_hash(hashing.sha256)
        self._hasher = (
            utils.get_request_block_hasher(settings.block_size, hashing.sha256)
            if settings.enable_prefix_caching
            else None
        )
        structured = lazy_vllm.module("vllm.v1.structured_output")
        self.scheduler = config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=structured.StructuredOutputManager(config),
            block_size=settings.block_size,
            log_stats=False,
        )

    def add(self, request: Arriving) -> None:
        """``request`` arrives."""
        theirs = lazy_vllm.module("vllm.v1.request").Request(
            request_id=str(request.number),
            prompt_token_ids=list(request.prompt),
            sampling_params=answer_of(request.output),
            pooling_params=None,
            arrival_time=float(request.number),
            priority=request.priority,
            block_hasher=self._hasher,
        )
        self.numbers[theirs.request_id] = request.number
        self._answers[theirs.request_id] = request.answer
        self.scheduler.add_request(theirs)

    def step(self) -> None:
        """Schedule, and pretend that it was computed: a request with all tokens computed gets
        another."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        sampled = [
            [self._next(request)] if request.num_computed_tokens >= request.num_tokens else []
            for request in requests
        ]
        outputs = lazy_vllm.module("vllm.v1.outputs")
        result = outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        self.scheduler.update_from_output(output, result)

    def _next(self, request: Any) -> int:
        """The token that ``request`` gets now."""
        answer, given = self._answers[request.request_id], request.num_output_tokens
        return answer[given] if given < len(answer) else self.TOKEN
