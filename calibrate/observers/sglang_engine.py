"""Drives SGLang's own scheduler on any machine, with memory that is only counted and no model.

What decides is SGLang's: ``Scheduler.get_next_batch_to_run`` and all that it calls, among it
``PrefillAdder``, ``ScheduleBatch.retract_decode`` and ``NewTokenRatioTracker``. Replaced are what
computes and what holds: tensors, the model, the KV pool and the prefix tree, in which nothing is
ever found. Its modules are imported as they are, which needs SGLang's requirements and no GPU.
"""

from __future__ import annotations

import importlib
from array import array
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sim.errors import UsageError


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


def module(name: str) -> Any:
    """The module ``name`` of SGLang; UsageError if it cannot be imported here."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"recording SGLang needs the package sglang, which cannot be imported here ({error})"
        ) from None


def version() -> str:
    """Of what is installed."""
    return str(module("sglang").__version__)


class CountedPool:
    """SGLang's KV pool, of which only the pages that requests hold are known."""

    def __init__(self, settings: SglangSettings) -> None:
        self.page_size = settings.page_size
        self._pages = settings.max_total_num_tokens // settings.page_size
        self._held: dict[str, int] = {}

    def available_size(self) -> int:
        """Tokens of free pages."""
        taken = sum(-(-tokens // self.page_size) for tokens in self._held.values())
        return (self._pages - taken) * self.page_size

    def hold(self, request: Any, tokens: int) -> None:
        """``request`` has ``tokens`` from now on."""
        self._held[request.rid] = tokens
        assert self.available_size() >= 0, "SGLang took more memory than there is"

    def release(self, request: Any) -> None:
        """``request`` has none."""
        del self._held[request.rid]

    def create_prefill_budget(self, tree: Any, *, num_mixed_decode_tokens: int = 0) -> Any:
        """SGLang's own."""
        budgets = module("sglang.srt.mem_cache.prefill_budget")
        return budgets.PrefillBudget(self, tree, num_mixed_decode_tokens=num_mixed_decode_tokens)

    def request_slot_reserve(self, **_: Any) -> int:
        """No pool but this one."""
        return 0

    def check_decode_capacity(self, *, num_tokens: int, **_: Any) -> bool:
        """Whether so many tokens are free."""
        return self.available_size() >= num_tokens


class _EmptyTree:
    """A prefix cache without anything in it; ``disable`` is what SGLang asks of it."""

    buffer_pipeline = storage_prefetch_retries = None

    def __init__(self, settings: SglangSettings) -> None:
        self.disable = settings.disable_radix_cache

    def __getattr__(self, name: str) -> Any:
        if name.startswith("supports_"):
            return lambda: False
        if name.endswith("evictable_size"):
            return lambda: 0
        return lambda *_, **__: None


class _Rows:
    """The rows that running requests take: ``max_running_requests`` of them."""

    device = "cpu"

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.taken: set[str] = set()

    def available_size(self) -> int:
        return self._rows - len(self.taken)


def _configure(settings: SglangSettings, modules: list[Any]) -> None:
    """Let SGLang's ``modules`` read ``settings``, and its defaults where they have nothing."""
    given = {
        "get_schedule": SimpleNamespace(
            schedule_policy="fcfs",
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
        "get_spec": SimpleNamespace(speculative_algorithm=None),
    }
    for each in modules:
        for name, value in given.items():
            if hasattr(each, name):
                setattr(each, name, lambda value=value: value)


def _no_match(request: Any, tree: Any, *_: Any, **__: Any) -> Any:
    """SGLang's ``match_kv_cache`` where nothing is found."""
    request.prefix_len = request.host_hit_length = request.num_matched_prefix_tokens = 0
    request.last_node = None
    return SimpleNamespace(mamba_branching_seqlen=None, cache_protected_len=0)


def _batch_class(batches: Any, modes: Any) -> Any:
    """SGLang's batch without its tensors; ``tokens`` is what each request computes in it."""

    class TensorlessBatch(batches.ScheduleBatch):  # type: ignore[misc]
        reqs: list[Any]
        tokens: dict[str, int]

        def prepare_for_extend(self) -> None:
            self.forward_mode = modes.EXTEND
            for request in self.reqs:
                self.req_to_token_pool.taken.add(request.rid)
                request.kv.req_pool_idx = 0
                self.token_to_kv_pool_allocator.hold(request, request.extend_end)
                request.kv.kv_committed_len = request.extend_end
            self.tokens = {request.rid: request.extend_len for request in self.reqs}

        def prepare_for_decode(self) -> None:
            self.forward_mode = modes.DECODE
            for request in self.reqs:
                request.kv.kv_committed_len += 1
                self.token_to_kv_pool_allocator.hold(request, request.kv.kv_committed_len)
            self.tokens = {request.rid: 1 for request in self.reqs}

        def mix_with_running(self, running: Any) -> None:
            self.forward_mode = modes.MIXED
            self.tokens |= running.tokens
            self.reqs.extend(running.reqs)

        def filter_batch(self, reqs_to_exclude: Any = None, keep_indices: Any = None) -> None:
            if keep_indices is not None:
                self.reqs = [self.reqs[index] for index in keep_indices]
                return
            out = reqs_to_exclude or []
            self.reqs = [r for r in self.reqs if not r.finished() and r not in out]

        def merge_batch(self, other: Any) -> None:
            self.reqs.extend(other.reqs)

        def release_req(self, index: int, remaining: int, offload_kv: bool = True) -> bool:
            request = self.reqs[index]
            self.token_to_kv_pool_allocator.release(request)
            self.req_to_token_pool.taken.discard(request.rid)
            request.kv.req_pool_idx = None
            request.reset_for_retract()
            return True

        def copy(self) -> Any:
            return SimpleNamespace(reqs=list(self.reqs), tokens=self.tokens)

    return TensorlessBatch


def _scheduler_class(schedulers: Any) -> Any:
    """SGLang's scheduler with nothing around it."""

    class LoneScheduler(schedulers.Scheduler):  # type: ignore[misc]
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)

        def __getattr__(self, name: str) -> Any:
            """Whatever else an engine may have, this one has not."""
            return None

        def stash_chunked_request(self, request: Any) -> None:
            request.prefix_len = request.extend_end

        def process_pending_chunked_abort(self) -> None:
            """None is aborted."""

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
    _configure(settings, [schedulers, batches, policies, ratios])
    batches.match_kv_cache = policies.match_kv_cache = _no_match
    batches.beam_retraction_order = lambda order, _: order
    batches.num_beam_member_rows = lambda _: 0
    schedulers.ScheduleBatch = batch = _batch_class(batches, modes)
    schedulers.PrefillStats = SimpleNamespace(from_adder=lambda *_, **__: None)
    schedulers.set_schedule_time_batch = schedulers.set_time_batch = lambda *_: None
    tree, overlap = _EmptyTree(settings), not settings.disable_overlap_schedule
    cut = settings.chunked_prefill_size > 0
    runner = SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
    same = SimpleNamespace(
        maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch,
        maybe_convert_decode_to_extend=lambda batch: batch,
        prepare_for_forward=lambda batch, chunked_req=None: batch,
    )
    return _scheduler_class(schedulers)(
        retracted=[],
        waiting_queue=[],
        running_batch=batch(reqs=[], batch_is_full=False),
        result_queue=deque(),
        enable_overlap=overlap,
        enable_skip_finishing_decode=overlap,
        chunked_prefill_size=settings.chunked_prefill_size if cut else None,
        is_mixed_chunk=cut and settings.enable_mixed_chunk,
        max_prefill_tokens=settings.max_prefill_tokens,
        max_running_requests=settings.max_running_requests,
        page_size=settings.page_size,
        tree_cache=tree,
        token_to_kv_pool_allocator=CountedPool(settings),
        req_to_token_pool=_Rows(settings.max_running_requests),
        spec_algorithm=module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm.NONE,
        policy=policies.SchedulePolicy("fcfs", tree, False, False, False),
        new_token_ratio_tracker=ratios.NewTokenRatioTracker.from_config(),
        model_config=SimpleNamespace(vocab_size=128),
        dp_attn_adapter=same,
        ngram_embedding_manager=same,
        grammar_manager=SimpleNamespace(has_waiting_grammars=lambda: False),
        beam_coordinator=SimpleNamespace(pending_member_rows=lambda _: 0),
        load_inquirer=SimpleNamespace(_get_num_pending_tokens=lambda chunk_deduct=0: 0),
        metrics_reporter=SimpleNamespace(enable_metrics=False),
        tp_worker=SimpleNamespace(model_runner=runner),
        prefill_decode_interval=0,
        _prefill_decode_interval_remaining=0,
        max_prefill_bs=0,
        processed_tokens_counter=0,
        forward_ct=0,
    )


class SglangAlone:
    """SGLang's scheduler with a model that always generates the same token; its loops
    ``event_loop_normal`` and ``event_loop_overlap``, a turn at a time."""

    TOKEN = 1

    def __init__(self, settings: SglangSettings) -> None:
        self._settings = settings
        self._scheduler = make_scheduler(settings)
        self._requests = module("sglang.srt.managers.schedule_batch")
        self._answers: dict[str, int] = {}
        self._lost: set[str] = set()  # retracted while a token was on its way
        self.unfinished = 0

    @property
    def in_flight(self) -> bool:
        """Whether an iteration runs while the next turn plans."""
        return self._scheduler.enable_overlap and self._scheduler.last_batch is not None

    def add(self, number: int, prompt: int, output: int) -> None:
        """A request arrives, to be answered with ``output`` tokens. What it asks for is clipped to
        the memory, as ``max_new_tokens_for_memory`` does."""
        settings, page = self._settings, self._settings.page_size
        room = settings.max_total_num_tokens - -(-prompt // page) * page - page - 1
        sampling = module("sglang.srt.sampling.sampling_params").SamplingParams(
            max_new_tokens=max(min(settings.max_new_tokens, room), output),
            ignore_eos=settings.ignore_eos,
        )
        prompt_ids = array("q", [self.TOKEN] * prompt)
        request = self._requests.Req(str(number), "", prompt_ids, sampling, vocab_size=128)
        self._answers[request.rid] = output
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
            self._lost = set(retracted)
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
        finished, scheduler = [], self._scheduler
        for request in batch.reqs:
            if request.finished() or request.rid in self._lost:
                continue
            if request.inflight_middle_chunks > 0:
                request.inflight_middle_chunks -= 1
                continue
            request.output_ids.append(self.TOKEN)
            answer = self._answers[request.rid]
            if len(request.output_ids) == answer:
                request.finished_reason = self._requests.FINISH_LENGTH(length=answer)
                scheduler.token_to_kv_pool_allocator.release(request)
                scheduler.req_to_token_pool.taken.discard(request.rid)
                finished.append(int(request.rid))
                self.unfinished -= 1
        return finished
