"""The same requests through this project's scheduler, without a clock, in a recording's words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from sim.growth.courses import DraftCourse, DraftCourses
from sim.growth.sampled import Sampled
from sim.memory.groups import KvGroup
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.state_caching import StateCachingAllocator
from sim.memory.windowed import WindowedAllocator
from sim.pools import make_replica_scheduler
from sim.request import Request, TrafficClass
from sim.scenario import load_scenario
from sim.schedulers import Plan, Scheduler
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.continuous import ChunkedPrefill
from sim.setup import prepare
from sim.specs.window import Window
from tests.conformance.batches import Asked, BatchRecording, BatchStep, right
from tests.conformance.vllm_alone import STATE, AloneSettings


class Given(DraftCourses):
    """Courses on which the drafts are right that ``right`` says."""

    def begin(self, request: Request, drafts: int | None = None) -> DraftCourse:
        """The course of ``request``."""
        past, most = self._past.get(request, 0), self.speculation.num_tokens
        lacks = request.output_tokens - request.generated
        accepted = np.array(right(request.id, past + lacks, most)[past:])
        course = self._now[request] = DraftCourse(accepted, lacks, most, most)
        return course


def make_scheduler(settings: AloneSettings, release: str) -> Scheduler:
    """What a scenario with these settings is served by under that ``release`` of vLLM."""
    one = {"kind": "fixed", "value": 1}
    scenario = load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": f"vllm@{release}",
            "max_model_len": settings.max_model_len,
            "scheduler": {
                "max_num_seqs": settings.max_num_seqs,
                "max_num_batched_tokens": settings.max_num_batched_tokens,
                "long_prefill_token_threshold": settings.long_prefill_token_threshold,
                "scheduler_reserve_full_isl": settings.scheduler_reserve_full_isl,
                "order": settings.scheduling_policy,
                "async_scheduling": settings.async_scheduling,
                "prefill_schedule_interval": settings.prefill_schedule_interval,
                "watermark": settings.watermark or None,
            },
            "kv_cache": {
                "block_size": settings.block_size,
                "num_gpu_blocks": settings.num_gpu_blocks,
                "enable_prefix_caching": settings.enable_prefix_caching,
            },
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": one,
                "output_tokens": one,
            },
            **_drafts(settings),
        }
    )
    pool = prepare(scenario).only
    if len(settings.kv_groups) == 1:
        return _with_given(make_replica_scheduler(pool))
    memory, kinds = pool.capacity, dict(settings.kv_groups)
    if STATE in kinds:
        states = StateCachingAllocator(
            memory.usable_blocks,
            memory.block_size,
            len(settings.kv_groups) - 1,
            checkpoints=kinds[STATE],
            ahead=settings.async_scheduling,
            states_first=settings.kv_groups[0][0] == STATE,
        )
        return (AsyncChunkedPrefill if settings.async_scheduling else ChunkedPrefill)(
            pool.limits, states
        )
    groups = [
        KvGroup(len(list(alike)), None if size is None else Window(size, cut), settings.block_size)
        for (size, cut), alike in groupby(settings.kv_groups)
        if size != STATE
    ]
    most = [group.most(settings.max_model_len, memory.in_flight) for group in groups]
    blocks, size = memory.usable_blocks, memory.block_size
    if not settings.enable_prefix_caching:
        return ChunkedPrefill(pool.limits, WindowedAllocator(blocks, size, groups, most))
    ends_only = pool.deployment.engine.keeps_window_ends
    windows = HybridCachingAllocator(blocks, size, groups, most, ends_only=ends_only)
    return ChunkedPrefill(pool.limits, windows)


def _drafts(settings: AloneSettings) -> dict[str, Any]:
    """The part of a scenario that says what drafts, if anything does."""
    if not settings.drafts:
        return {}
    drafted = {"method": "eagle", "num_tokens": settings.drafts, "acceptance_rate": 0.5}
    return {"speculative": drafted}


def _with_given(scheduler: Scheduler) -> Scheduler:
    """``scheduler``, whose drafts are right as ``right`` says."""
    batch = scheduler.decoding
    if isinstance(batch, Sampled):
        batch.courses.__class__ = Given
    return scheduler


def tokens_of(plan: Plan, scheduler: Scheduler) -> dict[int, int]:
    """What each request gets of ``plan``, which is about to run."""
    decoding = [r for r in scheduler.members() if r.joined >= 0] if plan.decode else []
    width = scheduler.decoding.width
    return dict.fromkeys((r.id for r in decoding), width) | {
        chunk.request.id: chunk.tokens for chunk in plan.chunks
    }


def release_of(recording: BatchRecording) -> str:
    """The release of vLLM that was recorded, as an engine is named."""
    return ".".join(recording.version.split(".")[:2])


def replay(settings: AloneSettings, asked: Sequence[Asked], release: str) -> list[BatchStep]:
    """The steps that our scheduler runs for what that ``release`` of vLLM was ``asked``."""
    return play_steps(make_scheduler(settings, release), asked)


def play_steps(scheduler: Scheduler, asked: Sequence[Asked]) -> list[BatchStep]:
    """The steps that ``scheduler`` runs for what was ``asked`` of an engine."""
    requests = [
        Request(n, float(n), a.prompt, a.output, TrafficClass(0, "", a.priority, 0.0), a.prefix)
        for n, a in enumerate(asked)
    ]
    coming = list(zip(requests, asked, strict=True))
    steps: list[BatchStep] = []
    outstanding = 0
    while True:
        idle = not (outstanding or _unforeseen(scheduler))
        while coming and (coming[0][1].before <= len(steps) or idle):
            idle = False
            request, _ = coming.pop(0)
            assert scheduler.refusal(request) is None, request
            scheduler.submit(request)
            outstanding += 1
        lost = [request.preemptions for request in requests]
        again = _unforeseen(scheduler)
        plan = scheduler.schedule(float(len(steps)))
        if plan is None:
            assert not outstanding
            if coming:
                continue
            break
        preempted = [
            r.id for r, before in zip(requests, lost, strict=True) if r.preemptions > before
        ]
        assert plan.preempted == len(preempted)
        tokens = tokens_of(plan, scheduler)
        for request in again[: plan.sequences - plan.decode]:
            tokens[request.id] = scheduler.decoding.width
        finished = scheduler.complete(plan, 1, float(len(steps) + 1))
        scheduler.check_integrity()
        outstanding -= len(finished)
        steps.append(BatchStep(tokens, preempted, [request.id for request in finished]))
    assert scheduler.kv.reserved == 0
    return steps


def _unforeseen(scheduler: Scheduler) -> list[Request]:
    """Requests that have ended and are planned once more, if memory lasts."""
    batch = scheduler.decoding
    return [request for request, _ in batch.unforeseen] if isinstance(batch, Sampled) else []


def sorted_step(step: BatchStep) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """``step`` without the order of requests within it."""
    return sorted(step.tokens.items()), sorted(step.preempted), sorted(step.finished)


def assert_same_steps(ours: Sequence[BatchStep], theirs: Sequence[BatchStep]) -> None:
    """Step by step, whatever the order within one."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        assert sorted_step(mine) == sorted_step(other), f"step {number}"
    assert len(ours) == len(theirs)


def computed_in(recording: BatchRecording) -> dict[int, int]:
    """The tokens computed of each request since it was last preempted, all of which finished: so
    that an empty or broken recording is not taken for agreement."""
    finished = [number for step in recording.steps for number in step.finished]
    assert sorted(finished) == list(range(len(recording.requests)))
    computed = dict.fromkeys(finished, 0)
    for step in recording.steps:
        for number in step.preempted:
            computed[number] = 0
        for number, tokens in step.tokens.items():
            computed[number] += tokens
    return computed
