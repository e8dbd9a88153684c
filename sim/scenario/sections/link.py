"""Describes the links of a pool's GPUs where they are not the GPU's own. Bytes/s, seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from sim.errors import UsageError
from sim.scenario.sections.support import Section
from sim.scenario.text.parsing import BrokenYamlError, parse
from sim.scenario.values.fields import Bandwidth, Count, Switch, Wait, trouble
from sim.specs.gpu import GpuSpec, Link, Node
from sim.specs.links import nvlink, on_link, pcie


class GpuLink(Section):
    """How the GPUs of a replica are joined: {kind: pcie}, or {bandwidth: 50GB/s, latency: 5us}."""

    kind: Literal["nvlink", "pcie"] | None = Field(
        default=None,
        description="nvlink: the GPU's own. pcie: through its slot, whose rate its file has. null: "
        "bandwidth and latency are given.",
    )
    peer_to_peer: Switch | None = Field(
        default=None,
        description="Of kind pcie: whether the cards reach each other directly, as `nvidia-smi "
        "topo -p2p r` shows. Without, each byte goes through host memory, at half the rate and "
        "twice the latency. null: as the GPU's file has it, else directly.",
    )
    bandwidth: Bandwidth | None = Field(
        default=None,
        description="What collectives reach, one way per GPU, bytes/s. null: that of the kind.",
        examples=["50GB/s"],
    )
    latency: Wait | None = Field(
        default=None,
        description="Floor of one small collective, s. null: that of the kind.",
        examples=["5us"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> GpuLink:
        given = [key for key in ("bandwidth", "latency") if getattr(self, key) is not None]
        if self.kind is not None and given:
            raise trouble(
                f"a kind ({self.kind}) has a bandwidth and a latency of its own; leave out the "
                f"kind, or {' and '.join(given)}",
                *given,
            )
        if self.peer_to_peer is not None and self.kind != "pcie":
            raise trouble("peer_to_peer applies to kind: pcie only", "peer_to_peer")
        if len(given) == 1:
            raise trouble(
                "expected a kind (nvlink or pcie), or a bandwidth and a latency such as "
                "{bandwidth: 50GB/s, latency: 5us}",
                *given,
            )
        return self

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return any(value is not None for _, value in self)

    def on(self, gpu: GpuSpec) -> GpuSpec:
        """``gpu`` with this link; ValueError where it cannot have it."""
        if self.bandwidth is not None and self.latency is not None:
            joined = replace(gpu, node=replace(gpu.node, gpus=None))  # it is stated of all of them
            return on_link(joined, Link("given", self.bandwidth, self.latency))
        if self.kind == "nvlink":
            return on_link(gpu, nvlink(gpu))
        link = pcie(gpu, self.peer_to_peer)
        return on_link(gpu, link, frameworks=self.peer_to_peer is not False)


class GpuNode(Section):
    """How the GPUs stand in machines: how many in one, and the network between them."""

    gpus: Count | None = Field(
        default=None,
        description="GPUs that the link joins; a replica of more is on several nodes. null: as the "
        "GPU's file has it; all, where fleet.link is a bandwidth and a latency.",
        examples=[8],
    )
    bandwidth: Bandwidth | None = Field(
        default=None,
        description="What each GPU reaches to those of other nodes, one way, bytes/s. null: as the "
        "GPU's file has it.",
        examples=["50GB/s"],
    )
    latency: Wait | None = Field(
        default=None,
        description="From a GPU to one of another node, s. null: as the GPU's file has it.",
        examples=["10us"],
    )

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return any(value is not None for _, value in self)

    def of(self, gpu: GpuSpec) -> GpuSpec:
        """``gpu`` in such nodes."""
        own = gpu.node.network
        bandwidth = own.bandwidth if self.bandwidth is None else self.bandwidth
        latency = own.latency if self.latency is None else self.latency
        network = Link("network", bandwidth, latency)
        return replace(gpu, node=Node(self.gpus or gpu.node.gpus, network))


def read_link(text: str) -> GpuLink:
    """The link in a text: a kind, or a mapping as in a scenario; UsageError for anything else.

    >>> read_link("nvlink").kind, read_link("{bandwidth: 50GB/s, latency: 5us}").bandwidth
    ('nvlink', 50000000000.0)
    """
    try:
        data = parse(text, "").data
    except BrokenYamlError as error:
        raise UsageError(f"--link: {error.problem.message}") from None
    try:
        return GpuLink.model_validate({"kind": data} if isinstance(data, str) else data)
    except ValidationError as error:
        known = (each.get("ctx", {}) for each in error.errors(include_url=False))
        told = [str(each.get("message", each.get("error", ""))) for each in known]
        wanted = (
            "nvlink, pcie, {kind: pcie, peer_to_peer: true} or {bandwidth: 50GB/s, latency: 5us}"
        )
        why = next((each for each in told if each), "") or f"got {text!r}"
        raise UsageError(f"--link: {why}; give {wanted}") from None
