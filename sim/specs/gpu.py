"""Describes what a GPU can do: memory, arithmetic and links, as one frozen record per part.

SI units throughout: bytes, bytes/s, FLOP/s (OP/s for integer precisions), seconds, watts. Peak
arithmetic is always the dense value; data sheets often print the one with 2:4 structured sparsity,
which is twice as large and which no dense model reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sim.specs.power import PowerDraw, draw_by_shares
from sim.specs.profile import Profile

FALLBACKS: Mapping[str, tuple[str, ...]] = {
    "fp32": (),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "fp4": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "int4": ("int8", "bf16", "fp16", "fp32"),
}
"""For each precision, what computes its numbers, best first, on a part without units for it."""

UNITS: Mapping[str, str] = {"fp8-block": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
"""The peak that formats with scales by group share: what their numbers are without the scales."""


@dataclass(frozen=True, slots=True)
class Link:
    """One hop between two devices.

    ``kind`` names it ("nvlink", "pcie", "infinity-fabric"); ``bandwidth`` is bytes/s in one
    direction per GPU; ``latency`` is the floor, in seconds, of one small transfer or collective
    over it. ``peer_to_peer`` is whether cards on PCIe reach each other directly, None where that is
    not said; links of the same figures are equal, whatever it is. ``mesh`` is how many GPUs are
    joined in pairs, of which all together have that bandwidth; None where a switch joins them.
    """

    kind: str
    bandwidth: float
    latency: float
    peer_to_peer: bool | None = field(default=None, compare=False)
    mesh: int | None = None

    def __post_init__(self) -> None:
        _require(self.bandwidth > 0, "bandwidth", self.bandwidth, "above 0")
        _require(self.latency >= 0, "latency", self.latency, "0 or more")
        _require(self.mesh is None or self.mesh >= 2, "mesh", self.mesh, "2 or more")

    def among(self, gpus: int) -> float:
        """Bytes/s in one direction that each of so many GPUs has to the others together: in a mesh
        of 8, each GPU has seven links, and a group of 4 uses three of them.

        >>> Link("infinity-fabric", 7e9, 0.0, mesh=8).among(4) / 1e9
        3.0
        """
        if self.mesh is None or gpus >= self.mesh:
            return self.bandwidth
        return self.bandwidth * (gpus - 1) / (self.mesh - 1)


@dataclass(frozen=True, slots=True)
class Node:
    """How GPUs stand in machines: ``gpus`` of them are joined by their link, and ``network`` joins
    each to those of other machines. With ``gpus`` of None the link joins however many there are.
    """

    gpus: int | None
    network: Link

    def __post_init__(self) -> None:
        _require(self.gpus is None or self.gpus >= 1, "node.gpus", self.gpus, "1 or more")

    def split(self, gpus: int) -> tuple[int, int]:
        """So many GPUs as (GPUs on each node, nodes), as few nodes as hold them.

        >>> dgx = Node(8, Link("network", 50e9, 10e-6))
        >>> dgx.split(4), dgx.split(16), dgx.split(12)
        ((4, 1), (8, 2), (6, 2))
        """
        if self.gpus is None or gpus <= self.gpus:
            return gpus, 1
        nodes = -(-gpus // self.gpus)
        return -(-gpus // nodes), nodes


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The shares of the data sheet that real kernels reach.

    ``compute`` is the share of the peak FLOP/s that a large GEMM reaches, ``bandwidth`` the share
    of the peak bytes/s that streaming weights reaches, ``operator_latency`` the fixed cost in
    seconds of one operator inside a running graph, ``source`` what was measured.
    """

    compute: float
    bandwidth: float
    operator_latency: float
    source: str

    def __post_init__(self) -> None:
        _require(0 < self.compute <= 1, "compute", self.compute, "above 0 and at most 1")
        _require(0 < self.bandwidth <= 1, "bandwidth", self.bandwidth, "above 0 and at most 1")
        _require(self.operator_latency >= 0, "operator_latency", self.operator_latency, ">= 0")


@dataclass(frozen=True, slots=True)
class AttentionEfficiency:
    """How attention kernels behave on this part.

    ``bandwidth`` is the share of the peak bytes/s at which decode attention reads a long KV cache;
    ``floor`` the seconds that the kernel takes however little it has to do; ``unit`` the seconds an
    SM is busy with one sequence's KV head, however short its context.
    """

    bandwidth: float
    floor: float
    unit: float
    source: str

    def __post_init__(self) -> None:
        _require(0 < self.bandwidth <= 1, "bandwidth", self.bandwidth, "above 0 and at most 1")
        _require(self.floor >= 0, "floor", self.floor, "0 or more")
        _require(self.unit >= 0, "unit", self.unit, "0 or more")


@dataclass(frozen=True, slots=True)
class ListPrice:
    """The price of one GPU in US dollars per hour, and whose offer that is.

    ``provider`` and ``date`` (``2025``, ``2026-11`` or ``2026-11-15``) are those of the offer, None
    where nothing is said; ``low`` and ``high`` are the least and the greatest price of the part
    that its source names, from any provider, None where it names none below or above ``usd``.
    """

    usd: float
    provider: str | None = None
    date: str | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _require(self.usd >= 0, "price_per_hour", self.usd, "0 or more")
        low, high = self.low, self.high
        allowed = f"0 to usd, which is {self.usd:g}"
        _require(low is None or 0 <= low <= self.usd, "price_per_hour.low", low, allowed)
        allowed = f"usd, which is {self.usd:g}, or more"
        _require(high is None or high >= self.usd, "price_per_hour.high", high, allowed)


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU model.

    ``memory`` is the bytes a program sees, less than the number on the box; ``bandwidth`` the peak
    bytes/s of that memory; ``peak_flops`` the dense peak by precision; ``sms`` the streaming
    multiprocessors, which AMD calls compute units; ``link`` joins GPUs inside a node, ``node`` says
    how many and what joins nodes, ``host_link`` joins a GPU to its host; ``power`` is the board
    limit in watts;
    ``price`` is what an hour costs, None when unknown; ``sources`` says, key by key of the GPU's
    file, where each value comes from. ``profile`` has the kernels that were measured; times of what
    it lacks follow from ``efficiency`` and ``attention``. ``relative`` is a part of the same design
    in the catalogue, whose profile stands in where this one has none. ``clocks``
    is the share of its own peaks that a power limit leaves, which ``peak_flops`` already have.
    ``draw`` is what it draws at its own clocks, None where nothing was measured (``power_draw``).
    ``part`` is the entry that this one is, except for its name and price; "" if none.
    ``own`` says that a user's file describes it, whose silence about a peak is not the part's lack.
    """

    name: str
    title: str
    memory: float
    bandwidth: float
    peak_flops: Mapping[str, float]
    sms: int
    link: Link
    host_link: Link
    node: Node
    power: float
    price: ListPrice | None
    efficiency: Efficiency
    attention: AttentionEfficiency
    sources: Mapping[str, str]
    profile: Profile | None = None
    relative: str | None = None
    clocks: float = 1.0
    draw: PowerDraw | None = None
    own: bool = field(default=False, compare=False)
    part: str = field(default="", compare=False)

    @property
    def compared_as(self) -> str:
        """The name under which runs on it were compared: that of the entry that it is. A GPU of
        the user's own has one that is no entry's, however its file is called."""
        return self.part or f"your {self.name}"

    @property
    def is_amd(self) -> bool:
        """Whether it is a part of AMD, on which engines of NVIDIA alone do not run."""
        return self.title.startswith("AMD")

    def __post_init__(self) -> None:
        for name in ("memory", "bandwidth", "sms", "power"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        _require("bf16" in self.peak_flops or "fp16" in self.peak_flops, "peak_flops",
                 sorted(self.peak_flops), "a mapping with bf16 or fp16")  # fmt: skip
        for precision, peak in self.peak_flops.items():
            _require(precision in FALLBACKS, "peak_flops", precision, f"one of {_KNOWN}")
            _require(peak > 0, f"peak_flops.{precision}", peak, "above 0")

    def flops(self, precision: str) -> float:
        """Dense peak, in FLOP/s, of a GEMM with both operands in ``precision``.

        Weights in int4 with bf16 activations are therefore bf16 here. A part without units for
        that precision converts the operands and computes in the next wider format that it has (fp8
        on an A100 runs at its bf16 rate). Raises ValueError for a precision not in ``FALLBACKS``.
        """
        return self.peak_flops[self.unit(precision)]

    def unit(self, precision: str) -> str:
        """The format in which this part computes what is given in ``precision``: that one, or the
        next wider one that it has. ValueError for none, or an unknown precision."""
        precision = UNITS.get(precision, precision)
        if precision not in FALLBACKS:
            raise ValueError(f"unknown precision {precision!r}; known: {_KNOWN}")
        for candidate in (precision, *FALLBACKS[precision]):
            if candidate in self.peak_flops:
                return candidate
        raise ValueError(f"{self.name} has no unit that computes {precision}")

    def computes(self, precision: str) -> bool:
        """Whether this part has units for ``precision``."""
        return UNITS.get(precision, precision) in self.peak_flops

    def scaled(self, memory: float, bandwidth: float, compute: float, link: float) -> GpuSpec:
        """The GPU with that many times the memory, its bandwidth, all arithmetic and the
        bandwidth between GPUs; latencies and what a profile says of its kernels stay."""
        if memory == bandwidth == compute == link == 1.0:
            return self
        network = self.node.network
        return replace(
            self,
            memory=self.memory * memory,
            bandwidth=self.bandwidth * bandwidth,
            peak_flops={name: peak * compute for name, peak in self.peak_flops.items()},
            link=replace(self.link, bandwidth=self.link.bandwidth * link),
            node=replace(self.node, network=replace(network, bandwidth=network.bandwidth * link)),
        )

    @property
    def power_draw(self) -> PowerDraw:
        """The power draw: as measured, or by the shares of another part."""
        if self.draw is not None:
            return self.draw
        return draw_by_shares(self.power, self.bandwidth, self.flops("bf16"))

    @property
    def price_per_hour(self) -> float | None:
        """US dollars for one GPU and hour; None when unknown."""
        return None if self.price is None else self.price.usd

    @property
    def ridge_point(self) -> float:
        """FLOPs per byte above which a bf16 GEMM is bound by compute rather than by memory."""
        return self.flops("bf16") / self.bandwidth


_KNOWN = ", ".join(FALLBACKS)


def _require(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{field}: got {value!r}, expected {allowed}")
