"""Describes layers with a constant state for each sequence, in place of keys and values of tokens.

Two kinds: the gated delta rule (Qwen3-Next, Qwen3.5) and Mamba-2 (Nemotron-H). Both have a short
convolution over the last tokens, whose inputs they keep at 16 bits, and for each head a matrix that
every token updates. However long a sequence is, it keeps as much and a decoded token reads and
writes as much; a prompt goes through in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.specs.layers import Kept, Read, Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes
from sim.specs.window import Window

CONV_BYTES = 2.0
"""Bytes of one number of the convolution's inputs."""

STATES = ("fp32", "bf16")
"""Formats of a state."""


class Recurrent:
    """What both kinds have in common; sizes of one layer.

    They have the fields ``conv_kernel`` (tokens that the convolution sees, the last one
    included) and ``state_precision``, and say how wide they are.
    """

    __slots__ = ()

    chunk: ClassVar[int]
    """Tokens of a prompt that one step of its kernel takes."""
    serial: ClassVar[bool]
    """Whether one SM goes through all chunks of a head, one after the other."""

    conv_kernel: int
    state_precision: str

    @property
    def heads(self) -> int:
        """Heads with a state each."""
        raise NotImplementedError

    @property
    def inner_size(self) -> int:
        """Width of the results of all heads."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Width of what the convolution goes over."""
        raise NotImplementedError

    @property
    def head_state(self) -> int:
        """Numbers of one head's state."""
        raise NotImplementedError

    @property
    def gates(self) -> int:
        """Numbers for each token that steer how a state decays and is written, where a product of
        their own makes them."""
        raise NotImplementedError

    @property
    def small(self) -> int:
        """Parameters of norm, decay and bias."""
        raise NotImplementedError

    def chunk_flops(self) -> float:
        """FLOP of one token of a prompt in one head."""
        raise NotImplementedError

    def chunk_moved(self) -> float:
        """Numbers of 16 bits that a token of a prompt moves in all heads, convolution left out."""
        raise NotImplementedError

    def channels_of(self, gpus: int) -> float:
        """The channels that one of ``gpus`` has."""
        raise NotImplementedError

    # -- the protocol of attention ---------------------------------------------------------------

    @property
    def window(self) -> Window | None:
        """None: what it sees of a context is in its state."""
        return None

    def into(self, layout: Layout) -> float:
        """Width of its projection in on one GPU: what the convolution goes over, and the gate of
        the results. Those of ``gates`` are apart."""
        return self.channels_of(layout.tensor) + self.inner_size / layout.tensor

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The projections in and out; those of the gates, the convolution, and the norm."""
        projections = hidden_size * (self.into(layout) + self.inner_size / layout.tensor)
        gates = hidden_size * self.gates / layout.tensor
        small = self.channels_of(layout.tensor) * self.conv_kernel + self.small / layout.tensor
        return (
            Weights("recurrent layers", projections, "projections"),
            Weights("recurrent layers' gates, convolutions and norms", gates + small, "kept"),
        )

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """None: a token leaves nothing but the state."""
        return 0.0

    def state_bytes(self, layout: Layout = ONE_GPU) -> float:
        """Bytes of the states of one sequence on one GPU."""
        numbers = self.heads / layout.tensor * self.head_state
        return numbers * precision_bytes(self.state_precision)

    def conv_bytes(self, layout: Layout = ONE_GPU) -> float:
        """Bytes of the convolution's inputs that one sequence keeps on one GPU."""
        return self.channels_of(layout.tensor) * (self.conv_kernel - 1) * CONV_BYTES

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """The states, and the inputs of the convolution."""
        return Kept(0.0, state=self.state_bytes(layout) + self.conv_bytes(layout))

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """Nothing that grows with a context."""
        return ()

    def flops_per_pair(self) -> float:
        """None: no query meets the key of another token."""
        return 0.0

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections."""
        return 2.0 * hidden_size * (self.into(ONE_GPU) + self.inner_size + self.gates)

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """What goes into and comes out of the convolution, gates and results."""
        return 2 * self.channels_of(layout.tensor) + 2 * self.inner_size / layout.tensor

    def copies(self, layout: Layout) -> float:
        """None."""
        return 0.0

    def workspace(self, layout: Layout) -> float:
        """None."""
        return 0.0

    def not_shared(self, layout: Layout) -> str | None:
        """Heads are shared out."""
        if self.heads % layout.tensor:
            return (
                f"tensor_parallel: {layout.tensor} GPUs cannot share the {self.heads} heads with a "
                "state"
            )
        return None

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """Nothing: see ``state_arithmetic``."""
        return ""

    def state_arithmetic(self, layers: int, layout: Layout) -> str:
        """The bytes that one sequence keeps in so many layers on one GPU as a product."""
        heads, kept = self.heads // layout.tensor, precision_bytes(self.state_precision)
        return (
            f"{layers} layers x ({heads} heads x {self.head_state:,} x {kept:g} B + "
            f"{self.channels_of(layout.tensor):,.0f} x {self.conv_kernel - 1} x {CONV_BYTES:g} B)"
        )

    @property
    def operators(self) -> tuple[str, str]:
        """Names of what no profile has yet."""
        return "state_update", "state_prefill"

    @property
    def left_out(self) -> str | None:
        """Nothing."""
        return None

    def _check(self) -> None:
        require_positive(self, "conv_kernel")
        if self.state_precision not in STATES:
            raise ValueError(
                f"state_precision: got {self.state_precision}, expected {' or '.join(STATES)}"
            )


@dataclass(frozen=True, slots=True)
class GatedDelta(Recurrent):
    """The gated delta rule: a token decays each head's state, corrects what it holds under the
    token's key, and reads it by the token's query.

    Groups of the ``linear_value_heads`` share a query and a key of ``linear_key_dim`` each, of
    ``linear_key_heads``; a state is ``linear_key_dim`` x ``linear_value_dim``. The convolution goes
    over queries, keys and values. (Gated Delta Networks, arXiv 2412.06464.) Raises ValueError for
    an impossible shape.
    """

    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int = 4
    state_precision: str = "fp32"

    chunk: ClassVar[int] = 64
    serial: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, "linear_key_heads", "linear_value_heads")
        require_positive(self, "linear_key_dim", "linear_value_dim")
        if self.linear_value_heads % self.linear_key_heads:
            raise ValueError(
                f"linear_key_heads: got {self.linear_key_heads}, expected a divisor of the "
                f"{self.linear_value_heads} value heads"
            )
        self._check()

    @property
    def heads(self) -> int:
        """Value heads."""
        return self.linear_value_heads

    @property
    def key_size(self) -> int:
        """Width of all keys; the queries are as wide again."""
        return self.linear_key_heads * self.linear_key_dim

    @property
    def inner_size(self) -> int:
        """Width of all values."""
        return self.linear_value_heads * self.linear_value_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values."""
        return 2 * self.key_size + self.inner_size

    @property
    def head_state(self) -> int:
        """A value for each element of the key."""
        return self.linear_key_dim * self.linear_value_dim

    @property
    def gates(self) -> int:
        """How much each head decays, and how much it writes."""
        return 2 * self.linear_value_heads

    @property
    def small(self) -> int:
        """Decay and its bias of each head, and the norm of a head's result."""
        return 2 * self.linear_value_heads + self.linear_value_dim

    def chunk_flops(self) -> float:
        """Within a chunk: keys by keys, the two products with the inverse of that, queries by keys
        and their product with values, all as wide as the chunk is long. With the state: what it
        holds under the keys, the update, and what queries read. (The chunkwise form of Yang et al.,
        arXiv 2406.06484, section 3, and 2412.06464, section 3.3; the inversion itself is left out.)

        >>> GatedDelta(16, 32, 128, 128).chunk_flops()
        180224.0
        """
        keys, values = self.linear_key_dim, self.linear_value_dim
        inside = 2.0 * self.chunk * (3 * keys + 2 * values)
        return inside + 3 * 2.0 * keys * values

    def chunk_moved(self) -> float:
        """Queries, keys and values in, results out."""
        return self.channels + self.inner_size

    def channels_of(self, gpus: int) -> float:
        """An equal share."""
        return self.channels / gpus

    def not_shared(self, layout: Layout) -> str | None:
        """Key heads and value heads are shared out."""
        for heads, kind in ((self.linear_key_heads, "key"), (self.linear_value_heads, "value")):
            if heads % layout.tensor:
                return (
                    f"tensor_parallel: {layout.tensor} GPUs cannot share the {heads} {kind} heads "
                    "of linear attention"
                )
        return None


@dataclass(frozen=True, slots=True)
class Mamba2(Recurrent):
    """Mamba-2: a token decays each head's state by one factor and adds the outer product of its
    input and of what its group of heads writes (B); the result reads the state by C.

    ``mamba_heads`` of ``mamba_head_dim``; ``mamba_groups`` have a B and a C of ``state_size`` each.
    The convolution goes over inputs, B and C, and has a bias with ``conv_bias``. (Dao and Gu, arXiv
    2405.21060.) Raises ValueError for an impossible shape.
    """

    mamba_heads: int
    mamba_head_dim: int
    state_size: int
    mamba_groups: int = 8
    conv_kernel: int = 4
    conv_bias: bool = True
    state_precision: str = "fp32"

    chunk: ClassVar[int] = 128
    serial: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(self, "mamba_heads", "mamba_head_dim", "state_size", "mamba_groups")
        if self.mamba_heads % self.mamba_groups:
            raise ValueError(
                f"mamba_groups: got {self.mamba_groups}, expected a divisor of the "
                f"{self.mamba_heads} heads"
            )
        self._check()

    @property
    def heads(self) -> int:
        """All of them."""
        return self.mamba_heads

    @property
    def inner_size(self) -> int:
        """Width of the inputs of all heads."""
        return self.mamba_heads * self.mamba_head_dim

    @property
    def channels(self) -> int:
        """Inputs, and B and C of each group."""
        return self.inner_size + 2 * self.mamba_groups * self.state_size

    @property
    def head_state(self) -> int:
        """``state_size`` numbers for each element of a head's input."""
        return self.mamba_head_dim * self.state_size

    @property
    def gates(self) -> int:
        """None apart: the step of each head comes with the rest."""
        return 0

    def into(self, layout: Layout) -> float:
        """With the step of each head."""
        rest = self.inner_size + self.mamba_heads
        return self.channels_of(layout.tensor) + rest / layout.tensor

    @property
    def small(self) -> int:
        """Decay, bias of the step and passed-on input of each head, the norm of the results, and
        the convolution's bias."""
        bias = self.channels if self.conv_bias else 0
        return 3 * self.mamba_heads + self.inner_size + bias

    def chunk_flops(self) -> float:
        """Within a chunk: C by B, once for a group, and the product of that with the inputs, as
        wide as the chunk is long. With the state: the update, and what C reads. (Dao and Gu,
        section 6.)

        >>> Mamba2(64, 64, 128).chunk_flops()
        53248.0
        """
        grouped = 2.0 * self.chunk * self.state_size * self.mamba_groups / self.mamba_heads
        return grouped + 2.0 * self.chunk * self.mamba_head_dim + 2 * 2.0 * self.head_state

    def chunk_moved(self) -> float:
        """What its five kernels read and write: inputs twice, B and C twice, results once, C by B
        in 32 bits written and read, and the states of each chunk, in 32 bits, four times (written
        by the first kernel, read and written as they are passed on, read by the last)."""
        groups = self.mamba_groups
        states = 4 * 2 * self.mamba_heads * self.head_state / self.chunk
        inside = 2 * 2 * groups * self.chunk
        return 3 * self.inner_size + 4 * groups * self.state_size + inside + states

    def channels_of(self, gpus: int) -> float:
        """Heads are shared out; so are groups, or copied where there are more GPUs."""
        groups = max(1.0, self.mamba_groups / gpus)
        return self.inner_size / gpus + 2 * groups * self.state_size
