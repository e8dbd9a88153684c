"""Provides the cost model of a deployment, with the tables that it has already.

The tables of a cost model depend on its deployment alone, and to make them takes longer than a run
of some hundred requests. Runs of one process that differ in traffic, scheduling or memory share
them.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from operator import attrgetter

from sim.cost.model import CostModel
from sim.specs.deployment import Deployment

MOST = 16
"""Deployments whose tables are kept, the last that were asked for; each takes a few megabytes."""

_rest_of = attrgetter(
    *(field.name for field in fields(Deployment) if field.name not in ("model", "gpu", "engine"))
)


def cost_of(deployment: Deployment) -> CostModel:
    """The cost model of ``deployment``; the same one for equal deployments on the same GPU.

    One that drafts has a cost model of its own.
    """
    if deployment.speculation is not None:
        return CostModel(deployment)
    return _known(_Alike(deployment))


@lru_cache(maxsize=MOST)
def _known(alike: _Alike) -> CostModel:
    return CostModel(alike.deployment)


class _Alike:
    """A deployment as a key. Of its GPU only the very same one counts as equal: the catalogue reads
    each once, and to compare the numbers of two profiles takes as long as what is looked up."""

    __slots__ = ("deployment",)

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Alike):
            return NotImplemented
        mine, theirs = self.deployment, other.deployment
        same = mine.gpu is theirs.gpu and _rest_of(mine) == _rest_of(theirs)
        return same and mine.engine == theirs.engine and mine.model == theirs.model

    def __hash__(self) -> int:
        d = self.deployment
        return hash((id(d.gpu), d.engine.name, d.model.name, _rest_of(d)))
