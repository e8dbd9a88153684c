"""Drives vLLM's scheduler without a model, over blocks that hold nothing, to record its batches."""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrate.dense import dense_layer
from calibrate.lazy_torch import torch
from calibrate.observers import lazy_vllm
from calibrate.observers.hf_config import write
from calibrate.observers.vllm_engine import (
    Arriving,
    Driver,
    VllmSettings,
    answer_of,
    engine_args,
)
from sim.specs.model import ModelSpec

STATE = "state"
"""Names a group of layers that keep a state."""

RETENTION = "prefix_cache_retention_interval"
"""Names what of windows and states is kept in the prefix cache."""


@dataclass(frozen=True, slots=True)
class AloneSettings(VllmSettings):
    """The settings of vLLM, and of a scheduler alone what it would learn from the model."""

    kv_groups: tuple[tuple[int | Literal["state"] | None, bool], ...] = ((None, False),)
    """(window, whether it is chunked) of each group of layers, or ("state", whether a chunk exports
    states from inside)."""
    drafts: int = 0
    """Tokens that EAGLE drafts for each sequence and step."""

    def engine_arguments(self) -> dict[str, Any]:
        """The settings as keywords of vLLM's ``EngineArgs``."""
        named = VllmSettings.engine_arguments(self)
        for name in ("kv_groups", "drafts"):
            del named[name]
        return named


def _layer(
    spec: ModelSpec, settings: AloneSettings, window: int | Literal["state"] | None, chunked: bool
) -> Any:
    """vLLM's view of a layer that sees everything, or through a window, or keeps a state."""
    kinds = lazy_vllm.module("vllm.v1.kv_cache_interface")
    if window == STATE:
        return kinds.MambaSpec(
            block_size=settings.block_size,
            shapes=((1,),),
            dtypes=(torch.float32,),
            mamba_cache_mode="align",
            num_prefill_checkpoint_blocks=int(chunked),
            prefill_checkpoint_alignment=settings.block_size if chunked else None,
        )
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
    """vLLM's scheduler without a model: it generates the given tokens, or else one token always.

    With ``async_scheduling`` a step is scheduled before the results of the one before are handed
    in, as ``EngineCore.step_with_batch_queue`` does.
    """

    TOKEN = 1

    def __init__(self, spec: ModelSpec, settings: AloneSettings) -> None:
        super().__init__()
        self._asked: dict[str, Arriving] = {}
        self._decoded: dict[str, int] = {}  # steps with drafts so far
        self._drafts = settings.drafts
        self._most_in_flight = 2 if settings.async_scheduling else 1
        self._in_flight: deque[Any] = deque()
        assert settings.num_gpu_blocks is not None, "nothing here knows how much memory there is"
        with tempfile.TemporaryDirectory(prefix="infersim-") as folder:
            further: dict[str, Any] = {"dtype": "float32"}
            if settings.drafts:
                (Path(folder) / "drafter").mkdir()
                further["speculative_config"] = {
                    "method": "eagle",
                    "model": str(write(spec, Path(folder) / "drafter")),
                    "num_speculative_tokens": settings.drafts,
                }
            args = engine_args(spec, settings, Path(folder), **further)
            config = args.create_engine_config()
        config.cache_config.num_gpu_blocks = settings.num_gpu_blocks
        config.scheduler_config.async_scheduling = settings.async_scheduling  # off on a CPU
        kinds = lazy_vllm.module("vllm.v1.kv_cache_interface")
        further = {}
        if STATE in dict(settings.kv_groups):
            config.cache_config.mamba_cache_mode = "align"
        retention = getattr(config.cache_config, RETENTION, NotImplemented)
        if retention is not NotImplemented:  # older releases do not have it
            further[RETENTION] = retention
        cache = kinds.KVCacheConfig(
            num_blocks=settings.num_gpu_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                kinds.KVCacheGroupSpec([f"layer {number}"], _layer(spec, settings, *windowed))
                for number, windowed in enumerate(settings.kv_groups)
            ],
            **further,
        )
        self._hasher = _hasher(config, settings)
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
        self._asked[theirs.request_id] = request
        self.scheduler.add_request(theirs)

    def busy(self) -> bool:
        """Whether any request is unfinished, or a step in flight."""
        return bool(self._in_flight) or super().busy()

    def step(self) -> None:
        """Schedule, and pretend that what is in flight longest was computed."""
        output = self.scheduler.schedule()
        if output.num_scheduled_tokens:
            sampling = [
                name
                for name in output.num_scheduled_tokens
                if not self.scheduler.requests[name].is_prefill_chunk
            ]
            self._in_flight.append((output, set(sampling)))
            if len(self._in_flight) < self._most_in_flight:
                return
        if self._in_flight:
            self._hand_in(*self._in_flight.popleft())

    def _hand_in(self, output: Any, sampling: set[str]) -> None:
        """The results of a step: a request with all tokens computed gets another."""
        outputs = lazy_vllm.module("vllm.v1.outputs")
        names = list(output.num_scheduled_tokens)
        drafted = output.scheduled_spec_decode_tokens
        # rows of who enters are padding: no token was drafted for it yet
        enters = {request.req_id for request in output.scheduled_new_reqs}
        enters |= output.scheduled_cached_reqs.resumed_req_ids
        sampled = [
            self._next(name, 0 if name in enters else len(drafted.get(name, ())))
            if name in sampling
            else []
            for name in names
        ]
        result = outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        self.scheduler.update_from_output(output, result)
        if self._drafts and self._most_in_flight == 1:
            tokens = [[self.TOKEN] * self._drafts for _ in names]
            self.scheduler.update_draft_token_ids(outputs.DraftTokenIds(names, tokens))

    def _next(self, name: str, drafts: int) -> list[int]:
        """The tokens that a request gets now, of whose ``drafts`` some are right."""
        request, asked = self.scheduler.requests.get(name), self._asked[name]
        if request is None:  # it has ended since
            return [self.TOKEN]
        right = 0
        if drafts:
            done = self._decoded.get(name, 0)
            self._decoded[name] = done + 1
            right = min(asked.right[done], drafts)
        given = request.num_output_tokens
        return [
            asked.answer[place] if place < len(asked.answer) else self.TOKEN
            for place in range(given, given + 1 + right)
        ]


def _hasher(config: Any, settings: AloneSettings) -> Any:
    """What hashes the blocks of requests; None without a prefix cache."""
    hashing = lazy_vllm.module("vllm.utils.hashing")
    utils = lazy_vllm.module("vllm.v1.core.kv_cache_utils")
    utils.init_none_hash(hashing.sha256)
    if not settings.enable_prefix_caching:
        return None
    ahead = getattr(config, "num_hash_lookahead_tokens", 0)  # since 0.33
    more = (ahead,) if ahead else ()
    return utils.get_request_block_hasher(settings.block_size, hashing.sha256, *more)
