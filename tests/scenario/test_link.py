"""What may be said of the link and the power limit of a pool, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.deployments import deployment_of
from sim.errors import UsageError
from sim.scenario import Scenario, load_scenario
from sim.scenario.sections.link import read_link

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "l40s", "tensor_parallel": 2},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "fixed", "value": 8},
    },
}


def asked(**pool: Any) -> Scenario:
    return load_scenario({**BASE, "fleet": {**BASE["fleet"], **pool}})


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"kind": "pci"}, "one of nvlink, pcie, null, got 'pci' .did you mean 'pcie'"),
        ({"kind": "pcie", "bandwidth": "5GB/s"}, "leave out the kind, or bandwidth"),
        ({"kind": "pcie", "bandwidth": "5GB/s", "latency": "5us"}, "or bandwidth and latency"),
        ({"bandwidth": "5GB/s"}, "a kind .nvlink or pcie., or a bandwidth and a latency"),
        ({"latency": "5us"}, "a kind .nvlink or pcie., or a bandwidth and a latency"),
        ({"kind": "nvlink", "peer_to_peer": True}, "peer_to_peer applies to kind: pcie only"),
        ({"peer_to_peer": True}, "peer_to_peer applies to kind: pcie only"),
        ({"kind": "pcie", "p2p": True}, "unknown key 'p2p'.*peer_to_peer"),
        ({"bandwidth": 50, "latency": 0}, "write the unit, as in 50GB/s"),
        ({"bandwidth": "50GiB", "latency": 0}, "unknown unit 'GiB'"),
        ("pcie", "expected a mapping with the keys kind, peer_to_peer, bandwidth, latency"),
    ],
)
def test_a_link_that_cannot_be(link: object, words: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)fleet.*link.*{words}"):
        asked(link=link)


@pytest.mark.parametrize("watts", ["0W", 0, "-5W"])
def test_a_power_limit_is_above_0(watts: object) -> None:
    with pytest.raises(UsageError, match=r"fleet.*power_limit.*expected a power of more than 0"):
        asked(power_limit=watts)


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ({"power_limit": "400W"}, "power_limit: 400 W is more than the 350 W of l40s"),
        ({"link": {"kind": "nvlink"}}, "link: nothing says how fast NVLink between l40s is"),
    ],
)
def test_what_the_gpu_does_not_have(pool: dict[str, Any], words: str) -> None:
    scenario = asked(**pool)
    with pytest.raises(UsageError, match=words):
        deployment_of(scenario, scenario.only_pool)


@pytest.mark.parametrize("link", [None, {}, {"kind": None, "latency": None}])
def test_a_link_of_nothing_is_the_gpus_own(link: object) -> None:
    assert asked(link=link) == asked()


def test_single_keys_override() -> None:
    found = asked().override({"fleet.0.link.kind": "pcie", "fleet.0.link.peer_to_peer": "yes"})
    link = found.only_pool.link
    assert link is not None
    assert (link.kind, link.peer_to_peer) == ("pcie", True)


@pytest.mark.parametrize(
    ("child", "found"),
    [
        ("{kind: nvlink}", ("nvlink", None, None)),
        ("{peer_to_peer: false}", ("pcie", False, None)),
        ("{bandwidth: 50GB/s, latency: 5us}", (None, None, 50e9)),
        ("null", None),
    ],
)
def test_a_child_states_its_own_link(tmp_path: Path, child: str, found: object) -> None:
    """A kind and its case are gone with a bandwidth and a latency, and the other way about."""
    parent = {**BASE, "fleet": {"gpu": "l40s", "link": {"kind": "pcie", "peer_to_peer": True}}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(parent))
    own = tmp_path / "own.yaml"
    own.write_text(f"extends: base.yaml\nfleet: {{link: {child}}}\n")
    link = load_scenario(own).only_pool.link
    got = link and (link.kind, link.peer_to_peer, link.bandwidth)
    assert got == found


def test_the_choices_of_a_key_that_may_be_null_are_named() -> None:
    with pytest.raises(UsageError, match=r"one of 28 names, such as fp8, .*, null, got 'fp9'"):
        asked().override({"precision.experts": "fp9"})


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"gpus": 0}, "expected a whole number of at least 1, got 0"),
        ({"bandwidth": "50GiB"}, "unknown unit 'GiB'"),
        ({"size": 8}, "unknown key 'size'"),
        (8, "a mapping with the keys gpus, bandwidth, latency"),
    ],
)
def test_a_node_that_cannot_be(node: object, words: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)fleet.*node.*{words}"):
        asked(node=node)


def test_a_node_says_what_the_gpus_file_does_not() -> None:
    assert asked(node={}) == asked()
    scenario = asked(node={"bandwidth": "100GB/s"})
    node = deployment_of(scenario, scenario.only_pool).gpu.node
    assert (node.gpus, node.network.bandwidth) == (8, 100e9)
    assert node.network.latency == pytest.approx(10e-6)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvlink", ("nvlink", None, None)),
        ("pcie", ("pcie", None, None)),
        ("{kind: pcie, peer_to_peer: false}", ("pcie", False, None)),
        ("{bandwidth: 50GB/s, latency: 5us}", (None, None, 50e9)),
    ],
)
def test_a_link_in_one_text(text: str, found: tuple[object, ...]) -> None:
    link = read_link(text)
    assert (link.kind, link.peer_to_peer, link.bandwidth) == found


@pytest.mark.parametrize("text", ["foo", "{bandwidth: 5GB/s}", "5", "[", "{kind: nvlink, x: 1}"])
def test_a_text_that_is_no_link(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--link: "):
        read_link(text)
