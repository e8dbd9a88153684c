"""Provides the record of a run with what is computed of it once: pools, warm-up, attribution.

The metrics of ``sim.metrics`` and the tables of a run directory are made of these. Times in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.metrics.record.attribution import Attribution
from sim.metrics.record.cut_short import Cut, cut_short
from sim.metrics.record.links import OpenLinks, open_links
from sim.metrics.record.pools import PoolRun, split, total
from sim.metrics.record.recorded import Recorded
from sim.metrics.record.warmup import warmup


@dataclass(frozen=True)
class RunRecord(Recorded):
    """What a run leaves behind, and what its metrics share, each computed when first asked for."""

    @cached_property
    def parts(self) -> tuple[PoolRun, ...]:
        """What each of its pools did."""
        return split(self)

    @cached_property
    def attribution(self) -> Attribution:
        """Where the busy time went, in all pools."""
        return total([part.attribution for part in self.parts])

    @cached_property
    def open_links(self) -> OpenLinks | None:
        """What the other case of links comes to of which nothing says how cards reach each
        other."""
        return None if self.observed else open_links(self.parts, self.scenario.assume.link)

    @cached_property
    def cut(self) -> Cut | None:
        """How it ended before its traffic did; None if it did not."""
        return cut_short(self)

    @cached_property
    def warmup(self) -> NDArray[np.bool_]:
        """Which requests are left out of the latency statistics."""
        return warmup(self, self.parts)

    @cached_property
    def found(self) -> NDArray[np.int64]:
        """Tokens of each prompt that were in a prefix cache when it was first admitted."""
        found = np.zeros(len(self.requests), dtype=np.int64)
        for part in self.parts:
            found[part.places] = part.found
        return found

    def judged(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Which requests say whether ``limits`` are met: all but the warm-up and those that are set
        aside."""
        return ~(self.warmup | self.set_aside(limits))

    @property
    def span(self) -> float:
        """Seconds of the run, of all ranks together."""
        if any(part.held is not None for part in self.parts):
            return sum(part.span for part in self.parts)
        return self.duration * self.ranks
