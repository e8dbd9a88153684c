"""The link of a pool and its power limit, against times and rates worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim import catalog
from sim.catalog import names
from sim.cost.rooflines import Rooflines
from sim.deployments import deployment_of
from sim.scenario import load_scenario
from sim.scenario.sections.link import GpuLink
from sim.specs.deployment import Deployment
from sim.specs.gpu import GpuSpec, Link
from sim.specs.links import limited, on_link

MB = 1e6


def pool(gpu: str, **settings: Any) -> Deployment:
    """Two of these GPUs as one replica, under an engine that adds nothing."""
    scenario = load_scenario(
        {
            "model": "llama-3.1-8b",
            "engine": "ideal",
            "fleet": {"gpu": gpu, "tensor_parallel": 4, **settings},
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 64},
                "output_tokens": {"kind": "fixed", "value": 8},
            },
        }
    )
    return deployment_of(scenario, scenario.only_pool)


def reduced(d: Deployment, size: float) -> float:
    """Seconds of one all-reduce of ``size`` bytes."""
    return float(Rooflines(d).all_reduce(1, size).seconds)


@pytest.mark.parametrize(
    ("gpu", "direct", "microseconds"),
    [
        # a Gen4 slot of 32 GB/s, of which 28/64 are 14 GB/s: 13 + 3/2 x 2 MB / 14 GB/s
        ("l40s", True, 13 + 3000 / 14),
        ("a100-sxm-80gb", True, 13 + 3000 / 14),
        # through host memory each byte crosses two host links: twice the time
        ("a100-sxm-80gb", False, 26 + 3000 / 7),
        ("a100-pcie", False, 26 + 3000 / 7),
        # a Gen5 slot of 64 GB/s
        ("h100-sxm", True, 13 + 3000 / 28),
        ("h100-sxm", None, 13 + 3000 / 28),
        ("rtx-pro-6000", False, 26 + 3000 / 14),
        # the figures of its file are of cards that do not reach each other
        ("l40s", False, 20 + 3000 / 3.7),
    ],
)
def test_an_all_reduce_over_pcie(gpu: str, direct: bool | None, microseconds: float) -> None:
    link = {"kind": "pcie", "peer_to_peer": direct}
    assert reduced(pool(gpu, link=link), 2 * MB) == pytest.approx(microseconds * 1e-6)


def test_a_given_link_is_what_collectives_reach() -> None:
    d = pool("h100-sxm", link={"bandwidth": "50GB/s", "latency": "5us"})
    assert reduced(d, 2 * MB) == pytest.approx(5e-6 + 1.5 * 2 * MB / 50e9)


@pytest.mark.parametrize(
    ("gpu", "link"),
    [
        ("h100-sxm", {"kind": "nvlink"}),
        ("l40s", {"kind": "pcie"}),
        ("rtx-pro-6000", {"kind": "pcie", "peer_to_peer": True}),
        ("h100-sxm", {"bandwidth": "450GB/s", "latency": "5us"}),
    ],
)
def test_timings_stay_on_the_link_they_were_made_on(gpu: str, link: dict[str, Any]) -> None:
    own, stated = pool(gpu), pool(gpu, link=link)
    assert own.gpu.profile is not None
    same = "bandwidth" not in link
    assert (stated.gpu == own.gpu) is same
    assert (reduced(stated, 2 * MB) == reduced(own, 2 * MB)) is same


def test_the_frameworks_kernels_do_not_run_between_cards_apart() -> None:
    """L40S in pairs were measured with kernels that need cards which reach each other."""
    d = pool("l40s", link={"kind": "pcie", "peer_to_peer": False})
    assert d.gpu.link == catalog.gpu("l40s").link
    assert d.gpu.profile is not None
    assert d.gpu.profile.find("all_reduce", "bf16") is None
    assert d.gpu.profile.find("gemm", "bf16") is not None


def test_cards_of_the_catalogue_say_which_case_they_are() -> None:
    cards = {name: catalog.gpu(name).link for name in names("gpus")}
    slow = {"l40s", "l4", "a10g", "rtx-4090", "rtx-5090", "rtx-3090", "rtx-a6000", "a10", "t4"}
    slow |= {"l20", "l40"} | {name for name in cards if "-mig-" in name}
    fast = {"a100-pcie", "h100-pcie", "h100-nvl", "rtx-pro-6000", "rtx-pro-6000-workstation"}
    fast |= {"rtx-pro-4500", "rtx-pro-5000"}
    assert {name for name, link in cards.items() if link.peer_to_peer is False} == slow
    assert {name for name, link in cards.items() if link.peer_to_peer is True} == fast
    assert {name for name, link in cards.items() if link.kind == "pcie"} == slow | fast


def test_a_card_without_a_slot_has_no_pcie() -> None:
    with pytest.raises(ValueError, match=r"gh200 is not in a PCIe slot .*nvlink-c2c"):
        GpuLink(kind="pcie").on(catalog.gpu("gh200"))


def test_300_w_of_400_compute_three_quarters() -> None:
    own, slower = pool("a100-sxm-80gb").gpu, pool("a100-sxm-80gb", power_limit="300W").gpu
    assert (own.power, slower.power, slower.clocks) == (400, 300, 0.75)
    for precision, peak in own.peak_flops.items():
        assert slower.peak_flops[precision] == 0.75 * peak
    assert slower.bandwidth == own.bandwidth
    assert slower.ridge_point == 0.75 * own.ridge_point


def test_a_large_product_takes_a_third_longer_and_a_small_one_as_long() -> None:
    def seconds(rows: float, **settings: Any) -> float:
        d = pool("a100-sxm-80gb", **settings)
        plain = Rooflines(replace(d, gpu=replace(d.gpu, profile=None)))
        product = plain.projection("o", 1, rows, 4096, 4096)
        return float(max(product.compute, product.memory))

    assert seconds(8192, power_limit=300) == pytest.approx(seconds(8192) / 0.75)
    assert seconds(8, power_limit=300) == seconds(8)


def test_at_its_own_limit_a_gpu_is_as_it_is() -> None:
    own = catalog.gpu("a100-sxm-80gb")
    assert limited(own, 400) == own


def test_kernels_at_a_lower_limit_were_measured_on_another() -> None:
    profile = pool("a100-sxm-80gb", power_limit=300).gpu.profile
    assert profile is not None
    assert profile.source.startswith("Measured at the GPU's own power limit, not at the one stated")


def test_a_link_that_changes_nothing_keeps_everything() -> None:
    gpu: GpuSpec = catalog.gpu("h100-sxm")
    assert on_link(gpu, Link("nvlink", 450e9, gpu.link.latency)) == gpu
