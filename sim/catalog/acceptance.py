"""Provides published acceptance lengths of drafts, by name: ``acceptance.yaml``.

An acceptance length is the mean number of tokens that a sequence gets of an iteration, the one that
the target adds included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml

FILE = Path(__file__).with_name("acceptance.yaml")


class AcceptanceTable(NamedTuple):
    """One table: of which ``model``, what drafted (``sim.specs.speculation.METHODS``), the
    acceptance lengths with 1, 2, ... drafts, and where they were published."""

    model: str
    method: str
    lengths: tuple[float, ...]
    source: str

    def rates(self, drafts: int) -> tuple[float, ...]:
        """The chance of each position that all drafts up to it are accepted; ValueError for more
        drafts than were published.

        One more draft adds its own chance to the length. Where samples say that a later position
        is more likely than an earlier one, both get their mean, so that the sum stays.

        >>> table = AcceptanceTable("a model", "mtp", (1.5, 2.25, 2.375), "made up")
        >>> table.rates(1), table.rates(3)
        ((0.5,), (0.625, 0.625, 0.125))
        """
        if drafts > len(self.lengths):
            raise ValueError(f"it has lengths of up to {len(self.lengths)} drafts, not of {drafts}")
        known = (1.0, *self.lengths[:drafts])
        return _falling([after - before for before, after in pairwise(known)])


def _falling(values: Sequence[float]) -> tuple[float, ...]:
    """The nearest values with the same sum of which none is negative or above the one before:
    neighbours that are get their mean."""
    levels: list[tuple[float, int]] = []  # sum, count
    for value in values:
        total, count = value, 1
        while levels and total / count > levels[-1][0] / levels[-1][1]:
            before, members = levels.pop()
            total, count = total + before, count + members
        levels.append((total, count))
    while len(levels) > 1 and levels[-1][0] < 0:
        (before, members), (total, count) = levels[-2:]
        levels[-2:] = [(before + total, members + count)]
    return tuple(min(1.0, total / count) for total, count in levels for _ in range(count))


@cache
def tables() -> Mapping[str, AcceptanceTable]:
    """All tables by name."""
    file = Fields(str(FILE), read_yaml(FILE))
    return {
        name: AcceptanceTable(
            entry.text("model"), entry.text("method"), _lengths(entry), entry.text("source")
        )
        for name in file
        for entry in [file.inner(name)]
    }


def _lengths(entry: Fields) -> tuple[float, ...]:
    found = entry.value("lengths")
    if not isinstance(found, list) or not all(isinstance(each, int | float) for each in found):
        raise entry.error("lengths", "expected a list of numbers")
    return tuple(float(each) for each in found)
