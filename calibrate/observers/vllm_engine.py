"""Builds a vLLM engine: a model of the given shape with random weights, and its settings.

``WholeEngine`` is a V1 engine in this process. A ``Driver`` is any engine that is driven alike.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
    async_scheduling: bool = False
    prefill_schedule_interval: int = 1
    watermark: float = 0.0

    def engine_arguments(self) -> dict[str, Any]:
        """The settings as keywords of vLLM's ``EngineArgs``."""
        named = asdict(self)
        named["num_gpu_blocks_override"] = named.pop("num_gpu_blocks")
        for name, off in (("prefill_schedule_interval", 1), ("watermark", 0.0)):
            if named[name] == off:  # older releases do not have it
                del named[name]
        return named


def engine_args(spec: ModelSpec, settings: VllmSettings, folder: Path, **further: Any) -> Any:
    """vLLM's ``EngineArgs`` of a model of that shape, whose configuration is put into
    ``folder``."""
    named: dict[str, Any] = {
        "model": str(write(spec, folder)),
        "skip_tokenizer_init": True,
        "load_format": "dummy",  # random weights
        "enable_chunked_prefill": True,
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
    lower number. ``answer`` is what a driver without a model is to generate, and ``right`` how many
    drafts in a row it accepts in each step of the decoding."""

    number: int
    prompt: Sequence[int]
    output: int
    priority: int = 0
    answer: Sequence[int] = ()
    right: Sequence[int] = ()


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
