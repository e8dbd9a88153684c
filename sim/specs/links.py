"""Puts GPUs on another link than their own, and under another power limit. Bytes/s, s, watts.

Over PCIe it decides whether cards reach each other directly (peer to peer). Where they do not,
every byte is written to the memory of the host and read from there: it crosses a host link twice,
one crossing after the other. Transfers then have half the rate and twice the latency.
"""

from __future__ import annotations

from dataclasses import replace

from sim.specs.gpu import GpuSpec, Link
from sim.specs.profile import COLLECTIVES

PEER_SHARE = 28 / 64
"""Share of its slot's rate that an all-reduce reaches over PCIe between cards that reach each other
directly: 28 of 64 GB/s on four RTX PRO 6000 (aiconfigurator-core tables; two reach 0.58 of it,
eight 0.37)."""

PEER_LATENCY = 13e-6
"""Floor of such an all-reduce, on the same cards."""

CROSSINGS = 2
"""Times that a byte crosses a host link on its way through the memory of the host."""

PCIE_SHARE = 128 / 130 * 256 / (256 + 26)
"""Share of a slot's raw rate that data have: of 130 bits 128 carry bytes (PCIe from Gen3 on), and a
packet of 256 bytes of data, the usual maximum, has 26 more (PCI Express base specification: header
16, sequence number 2, checksum 4, framing 4). 57 of the 64 GB/s of Gen5 x16."""


def host_rate(link: Link) -> float:
    """Bytes/s, each way, at which a GPU moves blocks over its link to the host: less than the rate
    of a PCIe slot by what packets add, all of another link's."""
    return link.bandwidth * (PCIE_SHARE if link.kind == "pcie" else 1.0)


def on_link(gpu: GpuSpec, link: Link, *, frameworks: bool = True) -> GpuSpec:
    """``gpu`` joined to others by ``link``.

    Collectives of its profile stay only over the link that they were measured on, and only where
    the kernels of the ``frameworks`` run, for which GPUs must reach each other.
    """
    profile = gpu.profile
    if profile is not None and not (frameworks and link == gpu.link):
        profile = profile.without(*COLLECTIVES)
    return replace(gpu, link=link, profile=profile)


def pcie(gpu: GpuSpec, peer_to_peer: bool | None) -> Link:
    """PCIe between such GPUs, which reach each other directly or do not (None: not stated).

    The figures of a GPU whose own link is that one stand; others follow from its slot. Raises
    ValueError for a GPU that is in no slot.
    """
    own = gpu.link
    if own.kind == "pcie" and peer_to_peer in (None, own.peer_to_peer):
        return own
    if gpu.host_link.kind != "pcie":
        raise ValueError(
            f"link: {gpu.name} is not in a PCIe slot (its host link is {gpu.host_link.kind}); give "
            "a bandwidth and a latency, such as {bandwidth: 50GB/s, latency: 5us}"
        )
    direct = Link("pcie", PEER_SHARE * gpu.host_link.bandwidth, PEER_LATENCY, True)
    if own.kind == "pcie" and own.peer_to_peer:
        direct = own
    if peer_to_peer is not False:
        return replace(direct, peer_to_peer=peer_to_peer)
    return Link("pcie", direct.bandwidth / CROSSINGS, direct.latency * CROSSINGS, False)


def nvlink(gpu: GpuSpec) -> Link:
    """The NVLink of ``gpu``; ValueError if it has none."""
    if gpu.link.kind != "nvlink":
        raise ValueError(
            f"link: nothing says how fast NVLink between {gpu.name} is, whose link is "
            f"{gpu.link.kind}; give what collectives reach over it, such as "
            "{bandwidth: 200GB/s, latency: 5us}"
        )
    return gpu.link


def limited(gpu: GpuSpec, power: float) -> GpuSpec:
    """``gpu`` at no more than that many watts: its clocks, and with them all arithmetic, follow the
    power, its memory does not.

    A limit of 300 W on a GPU of 400 W is 0.75 of its peak. What a pass draws stays what it was, up
    to the limit. Raises ValueError for more than the GPU draws, or no more than it draws idle.
    """
    if power > gpu.power:
        raise ValueError(
            f"power_limit: {power:g} W is more than the {gpu.power:g} W of {gpu.name}; give at "
            "most that, or null for its own limit"
        )
    if power <= gpu.power_draw.idle:
        raise ValueError(
            f"power_limit: {gpu.name} draws {gpu.power_draw.idle:g} W with nothing to do; give "
            f"more than that, at most {gpu.power:g} W"
        )
    if power == gpu.power:
        return gpu
    share = power / gpu.power
    peaks = {name: peak * share for name, peak in gpu.peak_flops.items()}
    return replace(
        gpu, power=power, peak_flops=peaks, clocks=gpu.clocks * share, draw=gpu.power_draw
    )
