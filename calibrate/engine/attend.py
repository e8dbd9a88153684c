"""Defines what a pass asks of attention: each token over the cache of its own sequence."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from calibrate.bench.latent_by_sequence import Up
from calibrate.lazy_torch import Tensor
from sim.specs.window import Window


class View(NamedTuple):
    """How a layer sees the context: over the blocks of which ``group``, through which window, and
    the ``sinks`` of its query heads."""

    group: int = 0
    window: Window | None = None
    sinks: Tensor | None = None


WHOLE = View()


class Attend(Protocol):
    """Attention of one iteration; one row of the result for each query token."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, view: View = WHOLE) -> Tensor:
        """Queries (token x head x size) over one layer's keys and values (block x slot x KV head x
        size)."""

    def latent(self, query: Tensor, cached: Tensor, up: Up) -> Tensor:
        """Queries (token x head x key size) over one layer's latent vectors (block x slot x 1 x
        size): token x head x value size."""
