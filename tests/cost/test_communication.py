"""Collectives on one node and on several, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.cost.communication import all_gather_across, all_reduce_across, send_time
from sim.cost.rooflines import Rooflines
from sim.specs.deployment import Deployment
from sim.specs.gpu import GpuSpec, Link, Node
from sim.specs.layout import Layout
from tests.gpus import data_sheet

NETWORK = Link("network", 50e9, 10e-6)
PLAIN = replace(data_sheet("h100-sxm"), node=Node(8, NETWORK))


def kernels(layout: Layout, gpu: GpuSpec = PLAIN) -> Rooflines:
    model = catalog.model("qwen3-235b-a22b")
    return Rooflines(Deployment(model, gpu, catalog.engine("ideal"), layout=layout))


def reduced(layout: Layout, gpu: GpuSpec = PLAIN, size: float = 16e6) -> float:
    return float(kernels(layout, gpu).all_reduce(1, size).seconds)


def test_an_all_reduce_over_two_nodes() -> None:
    """16 MB: 5 us and 2 x 7/8 x 16 MB at 315 GB/s within a node; then each of eight GPUs reduces
    its 2 MB with one other, there and back, 2 MB at 50 GB/s after two messages of 10 us."""
    within = 5e-6 + 2 * 7 / 8 * 16e6 / 315e9
    assert reduced(Layout(8)) == pytest.approx(within)
    assert reduced(Layout(16)) == pytest.approx(within + 20e-6 + 2e6 / 50e9)


def test_an_all_reduce_over_four_nodes_of_one() -> None:
    """Nothing within a node; two doublings there and back, 2 x 3/4 of all bytes."""
    alone = replace(PLAIN, node=Node(1, NETWORK))
    assert reduced(Layout(4), alone) == pytest.approx(40e-6 + 1.5 * 16e6 / 50e9)


def test_a_message_takes_the_latency_of_the_link_and_its_bytes() -> None:
    link = Link("pcie", 10e9, 5e-6)
    assert send_time(0.0, link) == 5e-6
    assert send_time(1e6, link) == pytest.approx(5e-6 + 1e-4)


@pytest.mark.parametrize(("nodes", "steps"), [(2, 2), (3, 4), (4, 4), (5, 6)])
def test_nodes_join_in_pairs_there_and_back(nodes: int, steps: int) -> None:
    assert all_reduce_across(0.0, 8, nodes, Link("network", 50e9, 1e-5)) == steps * 1e-5


def test_a_profile_times_what_is_within_a_node() -> None:
    measured = catalog.gpu("h100-sxm")
    inside = kernels(Layout(8), measured).all_reduce(1, 16e6)
    across = kernels(Layout(16), replace(measured, node=Node(8, NETWORK))).all_reduce(1, 16e6)
    assert float(across.seconds - inside.seconds) == pytest.approx(20e-6 + 2e6 / 50e9)
    assert (float(inside.measured), float(across.measured)) == (1.0, 0.0)


def test_an_all_gather_goes_over_the_network_once() -> None:
    assert all_gather_across(8e6, 8, 4, NETWORK) == pytest.approx(20e-6 + 3 / 4 * 1e6 / 50e9)
    assert all_gather_across(8e6, 8, 1, NETWORK) == all_reduce_across(8e6, 8, 1, NETWORK) == 0


@pytest.mark.parametrize(
    ("gpus", "stride", "within", "nodes"), [(16, 1, 8, 2), (4, 4, 2, 2), (4, 8, 1, 4), (8, 1, 8, 1)]
)
def test_ranks_that_stand_apart_are_on_more_nodes(
    gpus: int, stride: int, within: int, nodes: int
) -> None:
    """Of data ranks with four tensor ranks each, every node of eight GPUs has two."""
    found = kernels(Layout(1)).all_gather("gather", 1, 8e6, gpus, stride)
    inside = 5e-6 + (within - 1) / within * 8e6 / 315e9 if within > 1 else 0.0
    expected = inside + float(all_gather_across(8e6, within, nodes, NETWORK))
    assert float(found.seconds) == pytest.approx(expected)


def test_a_faster_network_shortens_replicas_on_several_nodes_only() -> None:
    twice = PLAIN.scaled(1, 1, 1, 2)
    assert twice.node.network.bandwidth == 100e9
    slow = replace(PLAIN, node=Node(8, Link("network", 5e9, 10e-6)))
    assert reduced(Layout(8), slow) == reduced(Layout(8))
    assert reduced(Layout(16), slow) > 2 * reduced(Layout(16))
