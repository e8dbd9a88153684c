"""The same requests through this project's rule of SGLang, in a recording's words."""

from __future__ import annotations

from collections.abc import Sequence

from sim.pools import make_replica_scheduler
from sim.scenario import load_scenario
from sim.schedulers import Scheduler
from sim.setup import prepare
from tests.conformance.batches import Asked, BatchStep
from tests.conformance.replay import play_steps
from tests.conformance.sglang_engine import SglangSettings


def make_scheduler(settings: SglangSettings) -> Scheduler:
    """What a scenario with these settings is served by."""
    one = {"kind": "fixed", "value": 1}
    cut = settings.chunked_prefill_size > 0
    scenario = load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": "sglang",
            "scheduler": {
                "policy": "sglang",
                "order": settings.schedule_policy,
                "async_scheduling": not settings.disable_overlap_schedule,
                "max_num_seqs": settings.max_running_requests,
                "max_num_batched_tokens": settings.chunked_prefill_size if cut else 8192,
                "chunked_prefill": cut,
                "max_prefill_tokens": settings.max_prefill_tokens,
                "enable_mixed_chunk": settings.enable_mixed_chunk,
                "schedule_conservativeness": settings.schedule_conservativeness,
                "max_tokens": None if settings.ignore_eos else max(settings.max_new_tokens, 1),
            },
            "kv_cache": {
                "block_size": settings.page_size,
                "num_gpu_blocks": settings.max_total_num_tokens // settings.page_size,
                "enable_prefix_caching": not settings.disable_radix_cache,
            },
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": one,
                "output_tokens": one,
            },
        }
    )
    return make_replica_scheduler(prepare(scenario).only)


def replay_sglang(settings: SglangSettings, asked: Sequence[Asked]) -> list[BatchStep]:
    """The steps that our scheduler runs for what SGLang was ``asked``."""
    return play_steps(make_scheduler(settings), asked)
