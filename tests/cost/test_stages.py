"""The times of the stages of a pipeline."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.communication import all_gather_time, send_time
from sim.iteration import Batch, Part
from sim.specs.gpu import Link
from sim.specs.layout import Layout
from tests.gpus import data_sheet

BATCHES = [Batch(32, 32_000), Batch(0, 0, (Part(700, 0),), 1), Batch(5, 900, (Part(300, 64),))]


def cost_of(name: str, layout: Layout, *, engine: str = "ideal") -> CostModel:
    gpu = data_sheet("h100-sxm")
    return CostModel(Deployment(catalog.model(name), gpu, catalog.engine(engine), layout=layout))


def test_a_message_is_hidden_state_and_residual() -> None:
    """100 tokens x 8,192 x 2 bytes, twice: 3,276,800 bytes over 100 GB/s, and 10 us."""
    assert send_time(3_276_800, Link("given", 100e9, 1e-5)) == pytest.approx(1e-5 + 32.768e-6)
    cost = cost_of("llama-3.1-70b", Layout(pipeline=2))
    link = cost.deployment.gpu.link
    assert cost.passage(Batch(100, 6400)).messages == pytest.approx([send_time(3_276_800, link)])


def test_tensor_ranks_send_a_share_each_and_bring_them_together() -> None:
    cost = cost_of("llama-3.1-70b", Layout(tensor=4, pipeline=2))
    link = cost.deployment.gpu.link
    expected = send_time(819_200, link) + all_gather_time(3_276_800, 4, link)
    assert cost.passage(Batch(100, 6400)).messages == pytest.approx([expected])


def test_messages_go_over_the_network_between_nodes() -> None:
    """Two stages of four GPUs in each node of eight."""
    cost = cost_of("llama-3.1-70b", Layout(tensor=4, pipeline=4))
    within, across, again = cost.passage(Batch(64, 6400)).messages
    gpu = cost.deployment.gpu
    share = 2 * 64 * 8192 * 2 / 4
    longer = send_time(share, gpu.node.network) - send_time(share, gpu.link)
    assert across - within == pytest.approx(longer)
    assert again == within


@pytest.mark.parametrize("engine", ["ideal", "vllm"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "qwen3-next-80b-a3b"])
def test_host_stages_and_messages_are_the_whole_pass(name: str, batch: Batch, engine: str) -> None:
    """What a batch takes that is alone, however it is cut."""
    cost = cost_of(name, Layout(tensor=2, pipeline=4), engine=engine)
    passage = cost.passage(batch)
    parts = passage.host + sum(passage.stages) + sum(passage.messages)
    assert parts == pytest.approx(cost.seconds(batch), rel=1e-9)
    assert len(passage.stages) == 4
    operators = {each.name: each.seconds for each in cost.pass_operators(batch)}
    assert operators["pipeline send"] == pytest.approx(sum(passage.messages))


def test_the_head_makes_the_last_stage_the_slowest() -> None:
    first, *middle, last = cost_of("llama-3.1-8b", Layout(pipeline=4)).passage(BATCHES[0]).stages
    assert middle[0] == pytest.approx(middle[1], rel=1e-12)
    assert middle[0] < first < last


def test_a_stage_is_timed_as_a_model_of_its_layers() -> None:
    """Half of the layers of a dense model, without embedding and head: half of what is between."""
    whole = cost_of("llama-3.1-8b", Layout())
    inner = cost_of("llama-3.1-8b", Layout(pipeline=4)).passage(BATCHES[0]).stages[1]
    around = sum(
        float(each.seconds)
        for each in whole.pass_operators(BATCHES[0])
        if each.name in ("embedding", "LM head", "sampling")
    )
    assert inner == pytest.approx((whole.seconds(BATCHES[0]) - around) / 4)


def test_a_host_that_works_ahead_only_sets_the_pace() -> None:
    engine = replace(catalog.engine("vllm"), overlapped=True)
    d = replace(cost_of("llama-3.1-8b", Layout(pipeline=2)).deployment, engine=engine)
    passage = CostModel(d).passage(Batch(32, 32_000))
    assert (passage.host, passage.pace) == (0.0, engine.host_time(32, 0))


def test_the_cycle_of_equal_batches_is_that_of_the_slowest_stage() -> None:
    cost = cost_of("llama-3.1-8b", Layout(pipeline=2))
    passage = cost.passage(BATCHES[0])
    assert cost.cycle(BATCHES[0]) == 2 * max(passage.stages)
    one = cost_of("llama-3.1-8b", Layout())
    assert one.cycle(BATCHES[0]) == one.seconds(BATCHES[0])


@pytest.mark.parametrize("sequences", [1, 7, 64])
def test_legs_are_the_passage_of_decodes_below_their_limit(sequences: int) -> None:
    layout = Layout(pipeline=4)
    gpu, engine = catalog.gpu("h100-sxm"), catalog.engine("vllm")
    cost = CostModel(Deployment(catalog.model("llama-3.1-8b"), gpu, engine, layout=layout))
    limits = set()
    for context in (900 * sequences, 100 * sequences, 2000 * sequences, 150 * sequences):
        limit, legs = cost.legs(sequences, context)
        assert limit > context
        for held in (context, math.ceil(min(limit, 1e6)) - 1):
            passage = cost.passage(Batch(sequences, held))
            assert [sent for sent, _, _ in legs] == [0.0, *passage.messages]
            assert [base + slope * held for _, base, slope in legs] == passage.stages
        limits.add(limit)
    assert len(limits) > 1
