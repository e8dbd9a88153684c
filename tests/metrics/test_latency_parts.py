"""Where latency went: parts that add up for every request and policy, and known answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.memory import PagedAllocator
from sim.metrics.latency.latency_parts import (
    AFTER_PARTS,
    PARTS,
    TTFT_PARTS,
    Parts,
    latency_parts,
    parts_of,
)
from sim.result import Result
from sim.schedulers import Limits, Scheduler, make_scheduler
from tests.harness import Arriving, LineTimer, Played, play
from tests.loop.test_leaps import closed_traffic, open_traffic, prices, schedulers


def attributed(played: Played, price: LineTimer) -> tuple[np.ndarray, Parts]:
    recorder = played.recorder
    rows = recorder.request_rows()
    plans = recorder.plan_rows()
    return rows, parts_of(rows, plans, *recorder.trail_rows(), price, 0.0)


def check(rows: np.ndarray, parts: Parts) -> None:
    done = rows["status"] == 0
    assert set(parts) == set(PARTS) == {*TTFT_PARTS, *AFTER_PARTS}
    values = np.array([parts[name][done] for name in PARTS])
    assert (values >= 0).all()
    ttft = sum(parts[name] for name in TTFT_PARTS)[done]
    e2el = sum(parts[name] for name in PARTS)[done]
    np.testing.assert_allclose(ttft, (rows["first_token"] - rows["arrival"])[done], atol=1e-12)
    np.testing.assert_allclose(e2el, (rows["finish"] - rows["arrival"])[done], atol=1e-12)
    assert all(np.isnan(parts[name][~done]).all() for name in PARTS)
    out = (parts["prefill_preempted"] + parts["decode_preempted"])[done]
    assert ((out > 0) == (rows["preemptions"][done] > 0)).all()


@given(open_traffic, schedulers(), prices, st.integers(1, 3))
def test_the_parts_add_up_whatever_the_policy(
    traffic: list[Arriving],
    make: Callable[[], Scheduler],
    price: LineTimer,
    replicas: int,
) -> None:
    leaping, stepping = (
        attributed(play(traffic, make, price, leap=leap, replicas=replicas), price)
        for leap in (True, False)
    )
    check(*leaping)
    for name in PARTS:
        np.testing.assert_allclose(leaping[1][name], stepping[1][name], atol=1e-12)


@given(closed_traffic, schedulers(), prices)
def test_and_in_a_closed_loop(
    traffic: Any, make: Callable[[], Scheduler], price: LineTimer
) -> None:
    check(*attributed(play(traffic, make, price, leap=True), price))


def served(
    traffic: list[Arriving], *, blocks: int = 1000, chunked: bool = True, budget: int = 1000
) -> Parts:
    """A pass costs 1 s and 0.1 s for each prompt token."""
    price = LineTimer(fixed=1.0, sequence=0.0, context=0.0, token=0.1)

    def make() -> Scheduler:
        limits = Limits(10, budget, 500)
        kv = PagedAllocator(blocks, 1)
        return make_scheduler(
            "continuous", limits, kv, rule="vllm" if chunked else "vllm-v0", order="fcfs"
        )

    return attributed(play(traffic, make, price, leap=True), price)[1]


def of(parts: Parts, request: int) -> dict[str, float]:
    return {name: round(float(parts[name][request]), 9) for name in PARTS if parts[name][request]}


def test_the_front_end_is_no_queue() -> None:
    """8 ms of vLLM's server are a part of their own; nobody waits behind one request a second."""
    result = sim.simulate(
        {
            "model": "llama-3.2-1b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {
                "arrivals": {"kind": "constant", "rate": 1},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 5},
            },
            "run": {"requests": 3, "warmup": 0},
        }
    )
    parts = latency_parts(result.record)
    assert parts["front_end"] == pytest.approx(8e-3 + 100 * 2e-6)
    assert parts["queue"].max() < 1e-9


def test_alone_nothing_is_lost() -> None:
    assert of(served([(0.0, 20, 5)]), 0) == {"prefill": 3.0, "decode": 4.0}


def test_two_prompts_in_one_iteration_delay_each_other_by_what_the_other_takes() -> None:
    parts = served([(0.0, 20, 1), (0.0, 40, 1)])
    assert of(parts, 0) == {"prefill": 3.0, "prefill_delay": 4.0}
    assert of(parts, 1) == {"prefill": 5.0, "prefill_delay": 2.0}


def test_a_prompt_beside_decodes_delays_them_and_not_itself() -> None:
    parts = served([(0.0, 10, 4), (3.5, 20, 1)])
    # the first decodes once alone (2 to 3), once more to 4, and once beside the prompt (4 to 7)
    assert of(parts, 0) == {"prefill": 2.0, "decode": 3.0, "decode_delay": 2.0}
    assert of(parts, 1) == {"queue": 0.5, "prefill": 3.0}


def test_without_chunks_decodes_wait_for_the_whole_prompt() -> None:
    parts = served([(0.0, 10, 4), (3.5, 20, 1)], chunked=False)
    assert of(parts, 0) == {"prefill": 2.0, "decode": 3.0, "decode_delay": 3.0}


def test_a_long_prompt_in_chunks_is_its_own_doing() -> None:
    parts = served([(0.0, 45, 1)], budget=20)
    assert of(parts, 0) == {"prefill": 2 * 3.0 + 1.5}


def test_who_is_thrown_out_waits_and_computes_again() -> None:
    parts = served([(0.0, 4, 6), (0.0, 4, 6)], blocks=13)
    # 1.8 for both prompts; they hold 8 tokens, 10 after one decode, 12 after two; then one must go
    # until the other is done (three more decodes, at 6.8); its 7 tokens are computed again in 1.7
    assert of(parts, 0) == {"prefill": 1.4, "prefill_delay": 0.4, "decode": 5.0}
    assert of(parts, 1) == {
        **{"prefill": 1.4, "prefill_delay": 0.4},
        **{"decode": 4.0, "decode_preempted": 3.0 + 1.7},
    }


CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "max_model_len": 4096,
    "kv_cache": {"num_gpu_blocks": 700},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 40},
        "prompt_tokens": {"kind": "lognormal", "mean": 400, "cv": 1, "max": 2000},
        "output_tokens": {"kind": "lognormal", "mean": 200, "cv": 1, "max": 1000},
    },
    "run": {"requests": 300, "warmup": 0},
}


@pytest.fixture(scope="module")
def result() -> Result:
    return sim.simulate(sim.load_scenario(CHAT))


def test_a_run_has_the_parts_in_its_table(result: Result) -> None:
    rows = result.requests
    parts = rows[[f"{name}_s" for name in PARTS]]
    assert result.summary["infersim"]["preemptions"] > 20
    assert (parts.sum(axis=1) - rows["e2el_s"]).abs().max() < 1e-11
    before = rows[[f"{name}_s" for name in TTFT_PARTS]].sum(axis=1)
    assert (before - rows["ttft_s"]).abs().max() < 1e-11
    read = 2e-6 * rows["prompt_tokens"]
    assert (rows["front_end_s"] == 0.008 + read).all()
    assert ((parts["decode_preempted_s"] > 0) <= (rows["preemptions"] > 0)).all()
    assert parts.min().min() >= 0


def test_the_parts_are_on_disk(result: Result, tmp_path: Any) -> None:
    pd = pytest.importorskip("pandas")
    result.save(tmp_path / "run")
    saved = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    assert saved["decode_s"].equals(result.requests["decode_s"])


def test_requests_that_were_not_served_have_none() -> None:
    cut = sim.simulate(sim.load_scenario({**CHAT, "run": {**CHAT["run"], "horizon": 4}}))
    rows = cut.requests
    unfinished = rows["status"] == "unfinished"
    assert unfinished.any()
    assert rows.loc[unfinished, "decode_s"].isna().all()
    assert rows.loc[~unfinished, "decode_s"].notna().all()


@pytest.mark.parametrize("order", ["sjf", "priority", "edf"])
def test_under_every_order_and_with_chunks_of_several(order: str) -> None:
    classes = [
        {"name": "a", "share": 0.5, "priority": 0, "deadline": "1s"},
        {"name": "b", "share": 0.5, "priority": 1, "deadline": "9s"},
    ]
    scenario = sim.load_scenario(CHAT).override(
        {
            "scheduler.order": order,
            "workload.classes": classes,
            "scheduler.long_prefill_token_threshold": 128,
            "scheduler.scheduler_reserve_full_isl": False,
        }
    )
    rows = sim.simulate(scenario).requests
    parts = rows[[f"{name}_s" for name in PARTS]]
    assert (parts.sum(axis=1) - rows["e2el_s"]).abs().max() < 1e-11
    assert parts.min().min() >= 0
