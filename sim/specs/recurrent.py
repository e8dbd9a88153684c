"""Describes layers with a constant state for each sequence, in place of keys and values of tokens.

The gated delta rule (``gated_delta``), Mamba-2 (``mamba2``) and lightning attention (``lightning``)
have for each head a matrix that every token updates; the first two also a short convolution over
the last tokens, whose inputs they keep at 16 bits. However long a sequence is, it keeps as much and
a decoded token reads and writes as much; a prompt goes through in chunks.
"""

from __future__ import annotations

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
    """The common part of these kinds; sizes of one layer.

    They have the fields ``conv_kernel`` (tokens that the convolution sees, the last one
    included; 1 for no convolution) and ``state_precision``, and say how wide they are.
    """

    __slots__ = ()

    chunk: ClassVar[int]
    """Tokens of a prompt that one step of its kernel takes."""
    serial: ClassVar[bool]
    """Whether one SM goes through all chunks of a head, one after the other."""

    scans: ClassVar[int]
    """Kernels over the chunks of a prompt, except for a serial one, whose start is known apart."""

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
    def behind_gates(self) -> tuple[int, int]:
        """Width in and out of a second product, which makes gates of some of the numbers of
        ``gates``; 0 without."""
        return 0, 0

    @property
    def small(self) -> int:
        """Parameters of norm, decay and bias, and of the second product of gates."""
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
        """No window: the state has what a layer sees of a context."""
        return None

    def into(self, layout: Layout) -> float:
        """Width of its projection in on one GPU: what the convolution goes over, and the gate of
        the results. Those of ``gates`` are apart."""
        return self.channels_of(layout.tensor) + self.inner_size / layout.tensor

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The projections in and out; those of the gates, the convolution, and the norm."""
        projections = hidden_size * (self.into(layout) + self.inner_size / layout.tensor)
        gates = hidden_size * self.gates / layout.tensor
        small = self.conv_parameters(layout) + self.small / layout.tensor
        return (
            Weights("recurrent layers", projections, "projections"),
            Weights("recurrent layers' gates, convolutions and norms", gates + small, "kept"),
        )

    def conv_parameters(self, layout: Layout = ONE_GPU) -> float:
        """Weights of the convolution on one GPU."""
        if self.conv_kernel == 1:
            return 0.0
        return self.channels_of(layout.tensor) * self.conv_kernel

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """No bytes: a token leaves only the state."""
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
        """No read that grows with a context."""
        return ()

    def flops_per_pair(self) -> float:
        """No FLOP: no query meets the key of another token."""
        return 0.0

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections."""
        return 2.0 * hidden_size * (self.into(ONE_GPU) + self.inner_size + self.gates)

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """The input and output of the convolution, gates and results."""
        return 2 * self.channels_of(layout.tensor) + 2 * self.inner_size / layout.tensor

    def copies(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def workspace(self, layout: Layout) -> float:
        """No numbers."""
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
        """No text: see ``state_arithmetic``."""
        return ""

    def state_arithmetic(self, layers: int, layout: Layout) -> str:
        """The bytes that one sequence keeps in that many layers on one GPU as a product."""
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
        """No parts are left out."""
        return None

    def _check(self) -> None:
        require_positive(self, "conv_kernel")
        if self.state_precision not in STATES:
            raise ValueError(
                f"state_precision: got {self.state_precision}, expected {' or '.join(STATES)}"
            )
