"""Requests that go from replicas that prefill to replicas that decode: times worked out by hand,
and nothing that gets lost on the way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import simpy

import sim
from sim.assembly import costs_of
from sim.errors import InfersimError
from sim.export.source import read
from sim.loop.clock import Stop, run
from sim.loop.fleet import OpenFleet
from sim.loop.handover import HandoverCosts, HandOvers, PrefillReplica
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.memory import PagedAllocator
from sim.routers import make_router
from sim.scenario import load_scenario
from sim.scenario.sections.transfer import Transfer
from sim.schedulers import Limits
from sim.schedulers.roles import DecodeRole, HandedOver, PrefillRole, Prompt
from sim.setup import prepare
from sim.workload.traffic import OpenTraffic, TrafficChunk
from tests.harness import LineTimer

TIMER = LineTimer(fixed=1.0, sequence=0.0, context=0.0, token=0.125)
"""An iteration takes a second, and an eighth more for each token of a prompt."""

PULL = HandoverCosts(token=0.0625, block=0.5, latency=0.25, block_size=4, exposed=None, shortest=0)
"""A prompt of 8 tokens has two blocks: 1.5 s of the link, and a quarter more until it is used."""


def play(
    rows: list[tuple[float, int, int]],
    costs: HandoverCosts = PULL,
    *,
    blocks: tuple[int, int] = (100, 100),
    prefills: int = 1,
    slots: int = 4,
    leap: bool = True,
) -> tuple[Recorder, list[Replica]]:
    """What becomes of (arrival, prompt, output); the last of the replicas decodes."""
    env, recorder = simpy.Environment(), Recorder()
    limits = Limits(max_num_seqs=slots, max_num_batched_tokens=64)
    routers = (make_router("round-robin"), make_router("round-robin"))
    handovers = HandOvers(env, recorder, {prefills: costs}, routers)
    fleet = OpenFleet(env, make_router("round-robin"), recorder, front_end=0.0)
    fleet.handovers = handovers
    replicas: list[Replica] = [
        PrefillReplica(env, i, PrefillRole(limits, PagedAllocator(blocks[0], 4)), TIMER, recorder)
        for i in range(prefills)
    ]
    decode = DecodeRole(limits, PagedAllocator(blocks[1], 4))
    replicas.append(Replica(env, prefills, decode, TIMER, recorder, leap=leap))
    for replica in replicas:
        handovers.add(replica)
    fleet.replicas = [*replicas]
    columns = [list(column) for column in zip(*rows, strict=True)]
    fleet.start(OpenTraffic(len(rows), iter([TrafficChunk(*columns)])))
    run(env, math.inf, Stop())
    for replica in replicas:
        replica.check_integrity()
        assert replica.outstanding == 0
        assert replica.scheduler.kv.reserved == 0
    assert not list(handovers.unfinished())
    return recorder, replicas


def times(recorder: Recorder) -> list[tuple[float, ...]]:
    """Of each request: prefilled, taken, sent, arrived, first token, finish."""
    handed = recorder.handed_rows()
    handed = handed[np.argsort(handed["request"])]
    rows = recorder.request_rows()
    names = ("prefilled", "taken", "sent", "arrived")
    columns = [handed[name].tolist() for name in names]
    columns += [rows[name].tolist() for name in ("first_token", "finish")]
    return list(zip(*columns, strict=True))


class TestPull:
    def test_a_request_alone(self) -> None:
        """Prefill 1 + 8/8 = 2 s. The link: 8/16 + 2 x 1/2 = 1.5 s, and 0.25 until it is used. Then
        an iteration with one prompt token (1.125 s) gives the first token, two more the others."""
        recorder, _ = play([(0.0, 8, 3)])
        assert times(recorder) == [(2.0, 2.0, 2.0, 3.75, 4.875, 6.875)]

    def test_links_serve_one_transfer_at_a_time(self) -> None:
        """Both prompts are complete at 1 + 16/8 = 3 s; the second transfer waits for the first, and
        its first token for the iteration in flight, which ends at 5.875 + 1."""
        recorder, _ = play([(0.0, 8, 3), (0.0, 8, 1)])
        assert times(recorder) == [
            (3.0, 3.0, 3.0, 4.75, 5.875, 8.0),
            (3.0, 3.0, 4.5, 6.25, 8.0, 8.0),
        ]

    def test_the_link_of_the_decode_side_is_shared_by_all_prefill_replicas(self) -> None:
        recorder, _ = play([(0.0, 8, 1), (0.0, 8, 1)], prefills=2)
        handed = recorder.handed_rows()
        assert handed["source"].tolist() == [0, 1]
        assert handed["prefilled"].tolist() == [2.0, 2.0]
        assert handed["sent"].tolist() == [2.0, 3.5]

    def test_the_kv_stays_where_it_was_computed_until_there_is_memory(self) -> None:
        """The decode side has 3 blocks. The first request holds its 2 until its last token at
        4.875; only then the second one gets any, and the third waits for that."""
        recorder, _ = play([(0.0, 8, 1)] * 2, blocks=(100, 3))
        first, second = times(recorder)
        assert first == (3.0, 3.0, 3.0, 4.75, 5.875, 5.875)
        assert second == (3.0, 5.875, 5.875, 7.625, 8.75, 8.75)

    def test_prompts_wait_while_the_prefill_side_keeps_others(self) -> None:
        """It has 2 blocks: the second prompt enters when the KV of the first has arrived."""
        recorder, _ = play([(0.0, 8, 1)] * 2, blocks=(2, 100))
        rows = recorder.request_rows()
        assert rows["scheduled"].tolist() == [0.0, 3.75]
        assert times(recorder)[1] == (5.75, 5.75, 5.75, 7.5, 8.625, 8.625)

    def test_one_whose_kv_has_come_waits_for_a_slot(self) -> None:
        """One slot: the second has memory as soon as no request runs, and its KV at 6.25, but the
        first decodes until 4.75 + 1.125 + 3."""
        recorder, _ = play([(0.0, 8, 4), (0.0, 8, 1)], slots=1)
        first, second = times(recorder)
        assert first[-1] == pytest.approx(first[3] + 1.125 + 3)
        assert second[-2] == pytest.approx(max(first[-1], second[3]) + 1.125)

    def test_leaps_change_nothing(self) -> None:
        rows = [(0.25 * i, 3 + 5 * i % 11, 1 + 7 * i % 13) for i in range(40)]
        for blocks in ((8, 8), (100, 7), (100, 100)):
            one, two = (play(rows, blocks=blocks, leap=leap)[0] for leap in (True, False))
            assert one.request_rows().tobytes() == two.request_rows().tobytes()
            assert one.handed_rows().tobytes() == two.handed_rows().tobytes()


class TestPush:
    def test_only_the_last_layer_is_waited_for(self) -> None:
        """The link is held for 1.5 s from 0 on, while the prompt is computed (2 s); of 4 layers the
        last takes 0.375 s after it."""
        recorder, _ = play([(0.0, 8, 1)], PULL._replace(exposed=0.25))
        assert times(recorder) == [(2.0, 0.0, 0.0, 2.625, 3.75, 3.75)]

    def test_a_slow_link_ends_after_the_prompt(self) -> None:
        """4 + 1 = 5 s of the link, of which 2 pass while the prompt is computed."""
        recorder, _ = play([(0.0, 8, 1)], PULL._replace(token=0.5, exposed=0.25))
        assert times(recorder)[0][:4] == (2.0, 0.0, 0.0, 5.25)

    def test_what_has_no_memory_yet_goes_when_it_has(self) -> None:
        recorder, _ = play([(0.0, 8, 1)] * 2, PULL._replace(exposed=0.25), blocks=(100, 3))
        _, second = times(recorder)
        assert second[1] == second[2] > second[0]
        assert second[3] == second[2] + 1.5 + 0.25


def test_short_prompts_stay_where_they_decode() -> None:
    recorder, replicas = play([(0.0, 8, 1), (0.0, 3, 2)], PULL._replace(shortest=4))
    rows, handed = recorder.request_rows(), recorder.handed_rows()
    assert handed["request"].tolist() == [0]
    assert rows["replica"].tolist() == [1, 1]
    assert rows["first_token"][1] == 1.375
    assert isinstance(replicas[1].scheduler, DecodeRole)


def test_a_short_prompt_delays_only_who_decodes_with_it() -> None:
    """From 8 tokens on prompts are handed over. The one of 7 enters at once where it decodes: first
    token after 1 + 7/8 s, two more by 3.875. The one of 8 is complete at 2 s, but the scheduler
    that reserves its memory plans only when the iteration in flight ends, at 2.875: its KV is
    there 1.75 s later, and its first token after another 1.125 s. One of 8 that comes alone later
    meets nothing, and takes 2 + 1.75 + 1.125 s."""
    recorder, replicas = play([(0.0, 8, 3), (0.0, 7, 3), (20.0, 8, 1)], PULL._replace(shortest=8))
    rows, handed = recorder.request_rows(), recorder.handed_rows()
    assert sorted(handed["request"].tolist()) == [0, 2]
    assert times_of(rows, 1) == (0.0, 1.875, 3.875)
    assert times_of(rows, 0) == (0.0, 5.75, 7.75)
    assert times_of(rows, 2) == (20.0, 24.875, 24.875)
    first, later = handed[np.argsort(handed["request"])]
    names = ("prefilled", "taken", "sent", "arrived")
    assert [first[name] for name in names] == [2.0, 2.875, 2.875, 4.625]
    assert [later[name] for name in ("prefilled", "arrived")] == [22, 23.75]
    plans = recorder.plan_rows()
    computed = {
        number: int(plans["prefill_tokens"][plans["replica"] == number].sum()) for number in (0, 1)
    }
    assert computed == {0: 16, 1: 7 + 2}  # one prompt token of each request that was handed over
    assert len(replicas) == 2


def times_of(rows: np.ndarray, number: int) -> tuple[float, ...]:
    """Arrival, first token and finish of a request."""
    (row,) = rows[rows["id"] == number]
    return tuple(float(row[name]) for name in ("arrival", "first_token", "finish"))


@pytest.mark.parametrize("shortest", [1, 300, 10_000])
def test_every_prompt_is_computed_in_one_place(shortest: int) -> None:
    """With all, some and no prompts handed over nothing is lost, and no token computed twice."""
    result = sim.simulate(load_scenario(SCENARIO, {"transfer.min_prompt": shortest}))
    record, own = result.record, result.summary["infersim"]
    long = record.requests["prompt_tokens"] >= shortest
    assert record.handed is not None
    assert len(record.handed) == long.sum()
    assert result.summary["completed"] == len(record.requests)
    prompts = record.requests["prompt_tokens"]
    source, target = (part.plans["prefill_tokens"].sum() for part in record.parts)
    assert source == prompts[long].sum()
    assert target == prompts[~long].sum() + long.sum()
    assert (own.get("handover") or {"requests": 0})["requests"] == long.sum()


def test_a_preempted_request_is_prefilled_where_it_decodes() -> None:
    """5 blocks of 4: two requests of 8 tokens grow to 11, and the second gives way."""
    recorder, _ = play([(0.0, 8, 8)] * 2, blocks=(100, 5))
    rows = recorder.request_rows()
    assert rows["preemptions"].tolist() == [0, 1]
    assert (rows["generated"] == 8).all()
    assert len(recorder.handed_rows()) == 2


def test_requests_know_each_other() -> None:
    handed = HandedOver(sim.request.Request(7, 1.0, 8, 3))
    prompt = Prompt(handed)
    assert (prompt.id, prompt.prompt_tokens, prompt.output_tokens) == (7, 8, 1)
    assert math.isnan(handed.prefilled)


SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": [
        {"name": "prompts", "role": "prefill", "gpu": "h100-sxm", "replicas": 2},
        {"name": "answers", "role": "decode", "gpu": "h100-sxm"},
    ],
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "prompt_tokens": {"kind": "lognormal", "mean": 700, "cv": 1, "max": 4000},
        "output_tokens": {"kind": "lognormal", "mean": 100, "cv": 0.7, "max": 900},
    },
    "run": {"requests": 200},
}


def test_bytes_are_those_of_the_model() -> None:
    """Llama-3.1-8B keeps 2 x 8 heads x 128 x 2 bytes in each of 32 layers: 131,072 bytes a token,
    so 1.31 us at 100 GB/s, and 240 us a block."""
    pool = prepare(load_scenario(SCENARIO)).pools[1]
    costs = costs_of(pool, Transfer())
    assert costs.token == pytest.approx(131_072 / 100e9)
    assert costs.link(5_000) == pytest.approx(5_000 * 131_072 / 100e9 + 313 * 240e-6)
    assert costs_of(pool, Transfer(mode="push-layerwise")).exposed == 1 / 32


def test_a_run_adds_up() -> None:
    """Every request is prefilled once and handed over once; the parts of its latency are its
    latency; each pool counts its own."""
    result = sim.simulate(SCENARIO)
    summary, own = result.summary, result.summary["infersim"]
    prompts, answers = own["pools"]
    assert own["handover"]["requests"] == summary["completed"] == 200
    assert prompts["role"] == "prefill"
    assert prompts["output_throughput"] == 0
    assert answers["output_throughput"] == pytest.approx(summary["output_throughput"])
    assert prompts["prefill_throughput"] * summary["duration"] == pytest.approx(
        summary["total_input_tokens"]
    )
    rows = result.requests
    ttft = ("front_end", "queue", "prefill", "prefill_delay", "prefill_preempted", "transfer")
    np.testing.assert_allclose(sum(rows[f"{name}_s"] for name in ttft), rows["ttft_s"])
    assert (rows["transfer_s"] > 0).all()
    loads = dict(zip(("prompts", "answers"), own["verdict"]["by_pool"], strict=True))
    assert own["verdict"]["utilisation"] == max(loads.values())


def test_tokens_come_without_prompts_between_them() -> None:
    """What decodes alone is slowed down by no prompt: its longest gap is shorter by far."""
    alone = {"gpu": "h100-sxm", "replicas": 3}
    apart, together = sim.simulate(SCENARIO), sim.simulate({**SCENARIO, "fleet": alone})
    assert apart.summary["p99_itl_ms"] < 0.7 * together.summary["p99_itl_ms"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fleet.1.role": "both"}, "has the role both next to pools of one phase"),
        ({"fleet.0.role": "decode"}, "every pool has the role decode, and none the role prefill"),
        ({"fleet.1.kv_cache": {"block_size": 32}}, "all pools need the same block_size"),
        ({"scheduler.batching": "static"}, "static batching is not modelled for pools of one"),
        ({"scheduler.policy": "sglang"}, "the rule of sglang is not modelled"),
        ({"scheduler.policy": "vllm-v0"}, "the rule of vllm-v0 is not modelled"),
        ({"fleet.0.pipeline_parallel": 2}, "several batches in flight are not modelled"),
        ({"kv_cache.enable_prefix_caching": True}, "enable it in the prefill pools alone"),
        ({"kv_cache.allocator": "contiguous"}, "contiguous allocation is not modelled"),
        ({"model": "gpt-oss-20b"}, "not modelled for models with windows"),
    ],
)
def test_what_is_not_modelled_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InfersimError, match=why):
        prepare(load_scenario(SCENARIO, changes))


def test_a_transfer_without_roles_is_refused() -> None:
    with pytest.raises(InfersimError, match="nothing is handed over"):
        load_scenario({**SCENARIO, "fleet": {"gpu": "h100-sxm"}, "transfer": {"latency": "1ms"}})


def test_a_run_directory_has_a_table_of_them(tmp_path: Path) -> None:
    """The page reads it back; exports of token times say that they cannot yet."""
    sim.simulate({**SCENARIO, "run": {"requests": 40}}).save(tmp_path / "run")
    rows = pd.read_parquet(tmp_path / "run" / "handovers.parquet")
    assert len(rows) == 40
    assert (rows["prefilled_s"] <= rows["taken_s"]).all()
    assert (rows["sent_s"] < rows["arrived_s"]).all()
    source = read(tmp_path / "run")
    assert source.trail is not None
    with pytest.raises(InfersimError, match="not exported yet of pools that prefill"):
        _ = source.courses
