"""Drives SGLang's own scheduler and memory on any machine, without a model.

What decides is SGLang's: ``Scheduler.get_next_batch_to_run`` and all that it calls, among it
``PrefillAdder``, ``ScheduleBatch.retract_decode`` and ``NewTokenRatioTracker``; and what holds KV:
its page allocators, its table of rows and ``UnifiedRadixCache`` (``sglang_memory``). Replaced are
the model, the tensors of a batch and the KV itself. Its modules are imported as they are, which
needs SGLang's requirements and no GPU.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.conformance.sglang_memory import SglangMemory
from tests.conformance.sglang_package import module

VOCABULARY = 2**31
"""More tokens than ``tests.conformance.batches`` names."""


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """The settings of SGLang, under its own names.

    ``max_new_tokens`` is what each request asks for, or more if its answer is longer; 0: exactly
    its answer. ``ignore_eos`` as in the requests of a benchmark.
    """

    max_running_requests: int
    max_total_num_tokens: int
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    page_size: int = 1
    schedule_conservativeness: float = 1.0
    enable_mixed_chunk: bool = False
    disable_radix_cache: bool = True
    disable_overlap_schedule: bool = False
    ignore_eos: bool = True
    max_new_tokens: int = 0
    schedule_policy: str = "fcfs"


def _configure(settings: SglangSettings, modules: list[Any]) -> None:
    """Let SGLang's ``modules`` read ``settings``, and its defaults where they have nothing."""
    given = {
        "get_schedule": SimpleNamespace(
            schedule_policy=settings.schedule_policy,
            prefill_max_requests=None,
            retraction_policy="length",
            schedule_conservativeness=settings.schedule_conservativeness,
        ),
        "get_disagg": SimpleNamespace(disaggregation_mode="null"),
        "get_parallel": SimpleNamespace(
            pp_max_micro_batch_size=settings.max_running_requests, dcp_enabled=False, pp_size=1
        ),
        "get_exec": SimpleNamespace(
            features=SimpleNamespace(enable_encoder_swa_bounded_replay=False)
        ),
        "get_memory": SimpleNamespace(radix_eviction_policy="lru"),
        "get_serving": SimpleNamespace(strip_thinking_cache=False),
        "attention_backends": ("torch_native", "torch_native"),
        "get_spec": SimpleNamespace(speculative_algorithm=None),
    }
    for each in modules:
        for name, value in given.items():
            if hasattr(each, name):
                setattr(each, name, lambda value=value: value)


def _batch_class(batches: Any, modes: Any, memory: SglangMemory) -> Any:
    """SGLang's batch without its tensors; ``tokens`` is what each request computes in it."""

    class TensorlessBatch(batches.ScheduleBatch):  # type: ignore[misc]
        reqs: list[Any]
        tokens: dict[str, int]
        decoding: frozenset[str]  # who gets a token that is no prompt's first

        def prepare_for_extend(self) -> None:
            self.forward_mode = modes.EXTEND
            self.decoding = frozenset()
            self.tokens = {request.rid: request.extend_len for request in self.reqs}
            memory.extend(self)
            for request in self.reqs:
                request.is_retracted = False

        def prepare_for_decode(self) -> None:
            self.forward_mode = modes.DECODE
            self.decoding = frozenset(request.rid for request in self.reqs)
            self.tokens = {request.rid: 1 for request in self.reqs}
            memory.decode(self)

        def mix_with_running(self, running: Any) -> None:
            self.forward_mode = modes.MIXED
            self.tokens |= running.tokens
            self.decoding = running.decoding
            self.reqs.extend(running.reqs)

        def filter_batch(self, reqs_to_exclude: Any = None, keep_indices: Any = None) -> None:
            if keep_indices is not None:
                self.reqs = [self.reqs[index] for index in keep_indices]
                return
            out = reqs_to_exclude or []
            self.reqs = [r for r in self.reqs if not r.finished() and r not in out]

        def merge_batch(self, other: Any) -> None:
            self.reqs.extend(other.reqs)

        def copy(self) -> Any:
            return SimpleNamespace(reqs=list(self.reqs), tokens=self.tokens, decoding=self.decoding)

    return TensorlessBatch


def _scheduler_class(schedulers: Any) -> Any:
    """SGLang's scheduler with nothing around it."""

    class LoneScheduler(schedulers.Scheduler):  # type: ignore[misc]
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)

        def __getattr__(self, name: str) -> Any:
            """Whatever else an engine may have, this one has not."""
            return None

        def process_pending_chunked_abort(self) -> None:
            """Do nothing: no prompt is aborted."""

        def _process_hicache_events(self) -> None:
            """There is no host cache."""

        def _add_request_to_queue(self, request: Any, is_retracted: bool = False) -> None:
            self.retracted.append(request)
            self.waiting_queue.append(request)

    return LoneScheduler


def make_scheduler(settings: SglangSettings) -> Any:
    """SGLang's scheduler with ``settings``, driven by ``SglangAlone``."""
    schedulers = module("sglang.srt.managers.scheduler")
    batches = module("sglang.srt.managers.schedule_batch")
    policies = module("sglang.srt.managers.schedule_policy")
    ratios = module("sglang.srt.managers.scheduler_components.new_token_ratio_tracker")
    modes = module("sglang.srt.model_executor.forward_batch_info").ForwardMode
    holders = [module(f"sglang.srt.mem_cache.{name}") for name in ("allocation", "common")]
    _configure(settings, [schedulers, batches, policies, ratios, *holders])
    memory = SglangMemory(
        pages=settings.max_total_num_tokens // settings.page_size,
        page=settings.page_size,
        rows=settings.max_running_requests,
        caching=not settings.disable_radix_cache,
    )
    batches.beam_retraction_order = lambda order, _: order
    batches.num_beam_member_rows = lambda _: 0
    schedulers.ScheduleBatch = batch = _batch_class(batches, modes, memory)
    schedulers.PrefillStats = SimpleNamespace(from_adder=lambda *_, **__: None)
    schedulers.set_schedule_time_batch = schedulers.set_time_batch = lambda *_: None
    overlap = not settings.disable_overlap_schedule
    cut = settings.chunked_prefill_size > 0
    return _scheduler_class(schedulers)(
        retracted=[],
        waiting_queue=[],
        memory=memory,
        running_batch=batch(reqs=[], batch_is_full=False),
        result_queue=deque(),
        enable_overlap=overlap,
        enable_skip_finishing_decode=overlap,
        chunked_prefill_size=settings.chunked_prefill_size if cut else None,
        is_mixed_chunk=cut and settings.enable_mixed_chunk,
        max_prefill_tokens=settings.max_prefill_tokens,
        max_running_requests=settings.max_running_requests,
        page_size=settings.page_size,
        tree_cache=memory.tree,
        token_to_kv_pool_allocator=memory.pool,
        req_to_token_pool=memory.rows,
        spec_algorithm=module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm.NONE,
        policy=policies.SchedulePolicy(settings.schedule_policy, memory.tree, False, False, False),
        new_token_ratio_tracker=ratios.NewTokenRatioTracker.from_config(),
        model_config=SimpleNamespace(vocab_size=VOCABULARY, is_encoder_decoder=False),
        **_bare_parts(),
    )


def _bare_parts() -> dict[str, Any]:
    """The parts of SGLang's scheduler that do nothing when it is alone."""
    runner = SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
    same = SimpleNamespace(
        maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch,
        maybe_convert_decode_to_extend=lambda batch: batch,
        prepare_for_forward=lambda batch, chunked_req=None: batch,
    )
    return {
        "dp_attn_adapter": same,
        "ngram_embedding_manager": same,
        "grammar_manager": SimpleNamespace(has_waiting_grammars=lambda: False),
        "beam_coordinator": SimpleNamespace(pending_member_rows=lambda _: 0),
        "load_inquirer": SimpleNamespace(_get_num_pending_tokens=lambda chunk_deduct=0: 0),
        "metrics_reporter": SimpleNamespace(enable_metrics=False),
        "tp_worker": SimpleNamespace(model_runner=runner),
        "prefill_decode_interval": 0,
        "_prefill_decode_interval_remaining": 0,
        "max_prefill_bs": 0,
        "processed_tokens_counter": 0,
        "forward_ct": 0,
    }


class SglangAlone:
    """SGLang's scheduler whose model generates the answers that are given; its loops
    ``event_loop_normal`` and ``event_loop_overlap``, a turn at a time."""

    def __init__(self, settings: SglangSettings) -> None:
        self._settings = settings
        self._scheduler = make_scheduler(settings)
        self._requests = module("sglang.srt.managers.schedule_batch")
        self._answers: dict[str, list[int]] = {}
        self.unfinished = 0

    @property
    def in_flight(self) -> bool:
        """Whether an iteration runs while the next turn plans."""
        return self._scheduler.enable_overlap and self._scheduler.last_batch is not None

    def add(self, number: int, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """A request arrives, to be answered with the tokens of ``answer``. How many it asks for is
        clipped to the memory, as ``max_new_tokens_for_memory`` does."""
        settings, page = self._settings, self._settings.page_size
        room = settings.max_total_num_tokens - -(-len(prompt) // page) * page - page - 1
        sampling = module("sglang.srt.sampling.sampling_params").SamplingParams(
            max_new_tokens=max(min(settings.max_new_tokens, room), len(answer)),
            ignore_eos=settings.ignore_eos,
        )
        request = self._requests.Req(
            str(number), "", array("q", prompt), sampling, vocab_size=VOCABULARY
        )
        self._answers[request.rid] = list(answer)
        self._scheduler.waiting_queue.append(request)
        self.unfinished += 1

    def turn(self) -> tuple[dict[int, int], list[int], list[int]]:
        """Plan an iteration and take the result of it, with overlap of the one before; returns the
        tokens of each request in it (empty if there is none), who was retracted, who finished."""
        scheduler = self._scheduler
        planned = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch, batch = planned.running_batch, planned.batch_to_run
        retracted = [request.rid for request in scheduler.retracted]
        scheduler.retracted.clear()
        finished: list[int] = []
        if scheduler.enable_overlap:
            if batch is not None:
                scheduler.result_queue.append((batch.copy(), None))
            if scheduler.last_batch is not None:
                finished = self._take(scheduler.result_queue.popleft()[0])
        elif batch is not None:
            finished = self._take(batch)
        if batch is None and scheduler.last_batch is None:
            scheduler.new_token_ratio_tracker.reset()  # as ``on_idle``
        scheduler.last_batch = batch
        tokens = {} if batch is None else {int(rid): n for rid, n in batch.tokens.items()}
        return tokens, [int(rid) for rid in retracted], finished

    def _take(self, batch: Any) -> list[int]:
        """The results of ``batch``: a token for each request whose prompt is complete; who
        finished."""
        finished, memory = [], self._scheduler.memory
        for request in batch.reqs:
            if request.finished() or request.is_retracted:
                continue
            if request.inflight_middle_chunks > 0:
                request.inflight_middle_chunks -= 1
                continue
            answer = self._answers[request.rid]
            request.output_ids.append(answer[len(request.output_ids)])
            if len(request.output_ids) == len(answer):
                request.finished_reason = self._requests.FINISH_LENGTH(length=len(answer))
                request.finished_len = len(answer)
                memory.release(request)
                finished.append(int(request.rid))
                self.unfinished -= 1
            elif request.rid not in batch.decoding:
                memory.publish(request)
        return finished
