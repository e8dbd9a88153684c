"""SGLang's ``--max-prefill-tokens`` where prompts are cut, by its release."""

from __future__ import annotations

from typing import Any

import pytest

from sim.pools import make_replica_scheduler
from sim.scenario import load_scenario
from sim.schedulers import Scheduler
from sim.setup import prepare
from tests.conformance.batches import Asked
from tests.conformance.replay import play_steps


def made(release: str, *, radix: bool = True, **knobs: Any) -> Scheduler:
    one = {"kind": "fixed", "value": 1}
    scenario = load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": f"sglang@{release}",
            "scheduler": {"max_prefill_tokens": 150, "max_num_batched_tokens": 250, **knobs},
            "kv_cache": {"num_gpu_blocks": 4096, "enable_prefix_caching": radix},
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": one,
                "output_tokens": one,
            },
        }
    )
    return make_replica_scheduler(prepare(scenario).only)


def steps(scheduler: Scheduler, *prompts: int) -> list[dict[int, int]]:
    return [step.tokens for step in play_steps(scheduler, [Asked(n, 1) for n in prompts])]


@pytest.mark.parametrize("ahead", [True, False])
def test_a_prompt_waits_that_is_not_shorter_than_what_others_leave(ahead: bool) -> None:
    """Of 150 tokens the first leaves 50: one of 50 waits, and one of 49 comes along."""
    older = made("0.5.12", async_scheduling=ahead)
    assert steps(older, 100, 50, 49) == [{0: 100}, {1: 50, 2: 49}]


def test_a_single_prompt_may_be_longer_and_is_cut_by_its_chunk() -> None:
    assert steps(made("0.5.12"), 300, 10) == [{0: 250}, {0: 50, 1: 10}]


def test_newer_releases_and_known_lengths_go_by_the_chunk_alone() -> None:
    """Without the radix cache an iteration ends when its tokens are used up."""
    assert steps(made("0.5.13"), 100, 50, 49) == [{0: 100, 1: 50}, {2: 49}]
    assert steps(made("0.5.12", radix=False), 100, 50, 49) == [{0: 100, 1: 50}, {2: 49}]
