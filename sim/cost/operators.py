"""Defines an operator of a forward pass: its FLOPs, bytes and time on one GPU.

An operator is a roofline: the longer of arithmetic and memory traffic, plus a fixed latency, plus
what it waits for the links. All numbers are for the whole pass: an operator of each layer counts
once for every layer. FLOP and bytes are of one GPU; a multiply-add is two FLOP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.trust import PROJECTION_ERROR

Amount = float | NDArray[np.float64]
"""One pass, or an array of them: every formula works on both."""


class Operator(NamedTuple):
    """One operator of a forward pass, or of an array of passes. Times in seconds.

    ``per_batch`` says that its bytes are mostly weights, read once however many sequences share the
    pass: batching amortises it. Other operators cost per token or per sequence. ``error`` is the
    relative error to expect of ``seconds``, ``measured`` 1 where a profile covers the shape.
    """

    name: str
    flops: Amount
    bytes: Amount
    compute: Amount
    memory: Amount
    latency: Amount
    communication: Amount
    per_batch: bool
    error: Amount = PROJECTION_ERROR
    measured: Amount = 0.0

    @property
    def roof(self) -> Amount:
        """Arithmetic and traffic overlap: the longer of the two."""
        return np.maximum(self.compute, self.memory)

    @property
    def seconds(self) -> Amount:
        """Duration: the roof, and what does not overlap with it."""
        return self.roof + self.latency + self.communication

    def slowed(self, factor: Amount) -> Operator:
        """The operator, taking ``factor`` times as long."""
        if isinstance(factor, float) and factor == 1.0:
            return self
        return self._replace(
            compute=self.compute * factor,
            memory=self.memory * factor,
            latency=self.latency * factor,
            communication=self.communication * factor,
        )

    def often(self, times: Amount) -> Operator:
        """The operator that many ``times`` over in each pass; a share of the passes has it."""
        more = self.slowed(times)
        return more._replace(flops=self.flops * times, bytes=self.bytes * times)

    @property
    def bound(self) -> str:
        """The resource that takes most of a single pass's time."""
        parts = {
            "compute": self.compute,
            "memory": self.memory,
            "latency": self.latency,
            "communication": self.communication,
        }
        return max(parts, key=lambda name: float(parts[name]))


class Prefills(NamedTuple):
    """Prefill attention of each batch, or of all together: its ``seconds``, query-key ``pairs``,
    queries (``tokens``), ``keys``, in how many ``passes`` the floor of the kernel is paid, and the
    share of the time (``fresh``) that goes to prompts with nothing cached before them."""

    seconds: Amount
    pairs: Amount
    tokens: Amount
    keys: Amount
    passes: Amount
    fresh: Amount

    def together(self) -> Prefills:
        """The sum over the batches."""
        seconds, pairs, tokens, keys, passes = (float(np.sum(column)) for column in self[:5])
        alone = np.asarray(self.seconds)[np.asarray(self.fresh) > 0]
        fresh = float(alone.sum()) / seconds if seconds else 1.0
        return Prefills(seconds, pairs, tokens, keys, passes, fresh)


def merged(operators: Iterable[Operator]) -> list[Operator]:
    """The work with one operator of each name: groups of layers have operators in common.

    What one takes beyond the roof of the sum counts as latency.
    """
    found: dict[str, Operator] = {}
    for each in operators:
        known = found.get(each.name)
        found[each.name] = each if known is None else _sum(known, each)
    return list(found.values())


def mixed(one: Iterable[Operator], other: Iterable[Operator], share: Amount) -> list[Operator]:
    """The mean of passes, a ``share`` of which has the ``other`` operators of the same names."""
    return merged(
        [*(each.often(1.0 - share) for each in one), *(each.often(share) for each in other)]
    )


def either(chosen: NDArray[np.bool_], one: Operator, other: Operator) -> Operator:
    """``one`` where it is ``chosen``, else ``other``."""

    def of(mine: Amount, theirs: Amount) -> Amount:
        return np.where(chosen, mine, theirs)

    return one._replace(
        flops=of(one.flops, other.flops),
        bytes=of(one.bytes, other.bytes),
        compute=of(one.compute, other.compute),
        memory=of(one.memory, other.memory),
        latency=of(one.latency, other.latency),
        communication=of(one.communication, other.communication),
        error=of(one.error, other.error),
        measured=of(one.measured, other.measured),
    )


def _sum(one: Operator, other: Operator) -> Operator:
    """Two operators, one after the other: errors, and what was measured, weigh by the time."""
    seconds = one.seconds + other.seconds
    compute, memory = one.compute + other.compute, one.memory + other.memory
    communication = one.communication + other.communication
    share = one.seconds / np.maximum(seconds, 1e-30)
    return Operator(
        one.name,
        one.flops + other.flops,
        one.bytes + other.bytes,
        compute,
        memory,
        seconds - np.maximum(compute, memory) - communication,
        communication,
        one.per_batch,
        share * one.error + (1 - share) * other.error,
        share * one.measured + (1 - share) * other.measured,
    )
