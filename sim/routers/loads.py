"""Keeps the unfinished requests of many replicas in order, as they change.

A router that looks at every replica takes longer than the rest of a request from some hundred
replicas on. ``Loads`` knows which has the fewest: each replica is ``Counted`` and reports changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sim.routers.base import Target

MANY = 128
"""Replicas from which on their order is kept: with fewer, looking at all of them is as fast."""


class Counted:
    """Something that requests are sent to, and that counts them."""

    outstanding: int = 0
    """Requests sent there and not finished."""

    loads: Loads | None = None
    """What has to know when that number changes."""

    @property
    def kv_least(self) -> float:
        """A share of the KV cache that is taken at least, found in less time than what is taken."""
        return 0.0

    def count(self, change: int) -> None:
        """There are ``change`` requests more, or fewer if it is negative."""
        self.outstanding += change
        if self.loads is not None:
            self.loads.changed(self, self.outstanding - change)


class Loads:
    """The order of ``targets`` by unfinished requests: of each number, a bit for every target that
    has so many. It holds until a target is in another order, or fails.

    >>> targets = [Counted() for _ in range(3)]
    >>> loads = Loads(targets)
    >>> for place in (0, 0, 1, 2, 2):
    ...     targets[place].count(1)
    >>> loads.idlest(), loads.most()
    (1, 2)
    """

    def __init__(self, targets: Sequence[Counted]) -> None:
        self._targets: object = targets
        self._size = len(targets)
        self._bits = {target: 1 << place for place, target in enumerate(targets)}
        self._having: defaultdict[int, int] = defaultdict(int)
        for target, bit in self._bits.items():
            if target.loads is not None:
                target.loads.end()
            self._having[target.outstanding] |= bit
        for target in targets:
            target.loads = self
        self._fewest, self._most = min(self._having), max(self._having)

    @classmethod
    def of(cls, targets: Sequence[Target]) -> Loads | None:
        """The order of ``targets``; None where there are too few to keep it, or they do not say
        when they change."""
        if len(targets) < MANY:
            return None
        first = targets[0]
        if not isinstance(first, Counted):
            return None
        loads = first.loads
        if loads is None or loads._targets is not targets or loads._size != len(targets):
            loads = cls(targets)  # type: ignore[arg-type]
        return loads

    def end(self) -> None:
        """The order holds no longer: its targets report nothing more."""
        for target in self._bits:
            if target.loads is self:
                target.loads = None

    def changed(self, target: Counted, before: int) -> None:
        """``target`` had so many requests ``before``."""
        now, bit, having = target.outstanding, self._bits[target], self._having
        having[before] ^= bit
        having[now] ^= bit
        if now < self._fewest:
            self._fewest = now
        elif now > self._most:
            self._most = now

    def idlest(self) -> int:
        """The place of the first target with the fewest requests."""
        while not (bits := self._having[self._fewest]):
            self._fewest += 1
        return (bits & -bits).bit_length() - 1

    def most(self) -> int:
        """The most requests that a target has."""
        while not self._having[self._most]:
            self._most -= 1
        return self._most
