"""Defines a point to measure, the work that it becomes, and the family that knows both.

Seconds, bytes and FLOP; a multiply-add counts as two. A point is a plain description, cheap to make
by the thousand and made without torch; a family turns it into calls on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from sim.specs.model import ModelSpec
from sim.specs.precision import precision_bytes

if TYPE_CHECKING:
    from calibrate.bench.arena import Arena

Mode = Literal["device", "eager", "host", "reported"]
"""How a call is timed: ``device`` the device's own time, launches hidden (on CUDA a replayed
graph); ``eager`` as it runs with each launch from Python; ``host`` wall time until the device
is done; ``reported`` the call returns its seconds itself."""

Kernels = Literal["torch", "vllm"]
"""Whose kernels are timed."""

Key = tuple[str, str, str, tuple[tuple[str, float], ...]]
"""The identity of a point: operator, precision, variant, shape."""

WORKSPACE = 64 * 2**20
"""Bytes allowed for what libraries allocate in addition to the operands."""

CPU_FLOPS = 3e9
"""FLOP of one call at most where a CPU measures layers that few models have: some 50 ms on a core,
so that there is time for many shapes."""


class UnsupportedError(Exception):
    """This device or this build of PyTorch has no kernel for the point; the message says which."""


@dataclass(frozen=True, slots=True)
class BenchPoint:
    """One operator in one precision at one shape.

    ``variant`` tells apart what shares an operator (the norm among ``stream``). ``bytes`` and
    ``flops`` are what must at least be moved and computed, ``memory`` the bytes the device must
    have free to set it up. ``weight`` is how much the point matters: 1 is normal.
    """

    operator: str
    precision: str
    shape: Mapping[str, float]
    bytes: float
    flops: float = 0.0
    memory: float = 0.0
    weight: float = 1.0
    variant: str = ""

    @property
    def key(self) -> Key:
        """The identity of the point when measurements are resumed."""
        shape = tuple(sorted((name, float(value)) for name, value in self.shape.items()))
        return (self.operator, self.precision, self.variant, shape)

    def size(self, variable: str) -> int:
        """A variable of the shape that counts something."""
        return int(self.shape[variable])

    @property
    def rows(self) -> int:
        """Rows of the products in a pass that has this operator: its tokens."""
        shape = self.shape
        return int(shape.get("m", shape.get("batch", 1) * shape.get("tokens", 1)))


@dataclass(frozen=True, slots=True)
class BenchWork:
    """A point made ready: calls that do the same on different memory, to be made in turn.

    ``kernel`` names the implementation that runs. ``release`` frees what outlives the calls.
    ``before`` is what a pass calls right before this, where that is no product: on a CPU its code
    is found in the cache then, which a matrix would have swept out. ``rows`` are those of the
    pass's products.
    """

    calls: Sequence[Callable[[], object]]
    kernel: str
    mode: Mode = "device"
    release: Callable[[], None] | None = None
    before: Callable[[], object] | None = None
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of measuring: the kernels and models, and how much of a machine.

    ``memory`` is what points may take of the device, ``devices`` how many of the kind there are,
    ``scratch`` a directory on the disk that weights would be loaded from. ``kernels`` says whose
    products, attention and norms are timed: PyTorch's, or those of an engine, and then at the
    shapes of ``models`` on one device only, no longer than they can serve.
    """

    kind: Literal["cpu", "cuda"]
    memory: float
    devices: int
    models: Sequence[ModelSpec]
    precisions: Sequence[str]
    scratch: str = "."
    tensor_parallel: Sequence[int] = (1, 2, 4, 8)
    kernels: Kernels = "torch"

    def quick(self, point: BenchPoint) -> bool:
        """Whether a point of layers that few models have may take its time."""
        return self.kind != "cpu" or point.flops <= CPU_FLOPS

    def most(self, on_cpu: float) -> float:
        """Bytes that a point may take, and no more than ``on_cpu`` on a CPU, where filling and
        reading them takes seconds."""
        return min(self.memory, on_cpu) if self.kind == "cpu" else self.memory

    def affordable(self, points: Iterable[BenchPoint], on_cpu: float) -> Iterator[BenchPoint]:
        """The points, of layers that few models have, that fit and are quick."""
        most = self.most(on_cpu)
        return (made for made in points if made.memory <= most and self.quick(made))

    @property
    def longest(self) -> float:
        """Tokens of a sequence at most."""
        most = max((model.max_position_embeddings for model in self.models), default=0)
        return most if self.kernels != "torch" else math.inf

    @property
    def turnover(self) -> float:
        """Bytes of matrices that an engine comes across before it meets the same one again."""
        widest = self.activations()
        return max((model.weight_bytes(widest) for model in self.models), default=0.0)

    def sixteen_bit(self) -> list[str]:
        """The wanted precisions that activations and norms are kept in."""
        return [p for p in self.precisions if p in ("fp32", "bf16", "fp16")]

    def activations(self) -> str:
        """The precision in which whole layers run: the first wanted one that is not quantised."""
        return (self.sixteen_bit() or ["bf16"])[0]


class Family(Protocol):
    """One file of benchmarks: which points there are, and how each is run.

    ``shares`` names the operators it prepares, each with how much of the time it deserves relative
    to others.
    """

    shares: Mapping[str, float]

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Everything that might be measured, far more than there is time for.

        Points of other families' operators may be among them (the parts of a layer).
        """
        ...

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Operands and calls for a point; UnsupportedError where no kernel exists."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of rows (tokens of a pass) worth measuring, decode sizes denser than prefill."""

    values: tuple[int, ...] = field(
        default=(
            *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768),
            *(1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
        )
    )


FEW = (*range(1, 17), 20, 28, 40, 56, 80, 112)
"""Further rows worth measuring on a CPU: there the library changes its kernel from
one small number to the next, and more rows may take less time."""


def rows_for(kind: str) -> tuple[int, ...]:
    """Numbers of rows worth measuring on a device of that kind, ascending."""
    usual = Rows().values
    return tuple(sorted({*usual, *FEW})) if kind == "cpu" else usual


def element(precision: str) -> float:
    """Bytes of one stored number; of weights for ``int8-weights`` and ``int4-weights``."""
    return precision_bytes(precision.removesuffix("-weights"))
