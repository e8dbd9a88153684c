"""Defines what the parts of a layer have to predict, for all layers of a group. Seconds, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills
from sim.iteration import Part
from sim.specs.window import Window


class LayerPart(Protocol):
    """The attention or the MLP of a group of layers on one GPU of a deployment.

    ``per_token`` leaves the deployment's ``kernel_time`` out.
    """

    @property
    def inputs(self) -> Sequence[float]:
        """Widths of what its products multiply in one layer, quantised where the deployment does
        so."""

    @property
    def all_reduces(self) -> int:
        """Sums over GPUs at the end of it."""

    def per_token(self, m: Amount) -> list[Operator]:
        """Operators that depend only on the number of tokens in the pass."""


class MlpPart(LayerPart, Protocol):
    """The MLP of a group of layers on one GPU of a deployment."""

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        """Operators that depend on the tokens of all data ranks in the pass, ``m`` in sum,
        communication included; without the deployment's ``kernel_time``."""


class AttentionPart(LayerPart, Protocol):
    """The attention of a group of layers on one GPU of a deployment.

    All but ``per_token`` have the deployment's ``kernel_time`` in them.
    """

    @property
    def window(self) -> Window | None:
        """Through what its layers see a context."""

    @property
    def pair_flops(self) -> float:
        """FLOP of all its layers for a query token and a token that it sees."""

    def decode_lines(self, sequences: int) -> list[Line]:
        """Decode attention of ``sequences`` as lines in the tokens that they see in sum.

        Returns (limit, intercept, slope) in ascending order: ``intercept + slope * context``
        seconds for ``context < limit``. The token that each sequence adds is counted on top of
        ``context``.
        """

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """Decode attention of ``sequences`` that see ``context`` tokens in sum."""

    def decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        """FLOP and bytes of the same."""

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds, query-key pairs of one layer) of the prefill attention of ``parts`` of prompts,
        in a pass with decoding ``sequences``."""

    def prefill_operator(self, prefills: Prefills) -> Operator:
        """The operator of ``prefills``, of which all but the floor counts as arithmetic."""
