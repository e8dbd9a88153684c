"""Provides the table of what does not go together in a scenario, and asks it before anything runs.

A row is a ``Clash`` of a chapter; chapters are asked in this order, and the first row that holds is
the refusal. ``check_scenario`` asks of what is written; the others need what it leads to: the
classes of a user's own, the deployment of a replica, its memory. ``infersim explain limits`` shows
all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sim.errors import UsageError
from sim.scenario.checks import adapters, clients, drafts, fleets, own, queues, replicas
from sim.scenario.checks.subjects import LoadedPool, WholeFleet
from sim.scenario.clash import Chapter
from sim.scenario.pools import PoolSettings, pools_of
from sim.scenario.sections import pool, traffic
from sim.scenario.values.fields import trouble

if TYPE_CHECKING:
    from sim.memory.capacity import Capacity
    from sim.routers import Router
    from sim.scenario.sections.contract import Contract
    from sim.specs.deployment import Deployment
    from sim.specs.model import ModelSpec

WRITTEN: list[Chapter[WholeFleet, Any]] = [
    *fleets.SCALED,
    *fleets.APART,
    *clients.LOSING,
    *fleets.MODELS,
    *clients.ADMITTING,
    *queues.ORDERED,
    drafts.POOLS,
    adapters.POOLS,
    queues.PAGES,
]
"""Clashes in the text of a scenario."""

INSIDE: list[Chapter[Any, Any]] = [
    Chapter("data ranks", lambda _: (), pool.IN_STAGES),
    Chapter("sessions", lambda _: (), traffic.BY_CURVE),
]
"""Clashes within a section, which asks its rows itself."""

ALL: list[Chapter[Any, Any]] = [
    *INSIDE,
    *WRITTEN,
    own.POLICIES,
    own.ROUTERS,
    drafts.MODELS,
    replicas.LIMITS,
    *replicas.FILLED,
    replicas.MODELS,
]


def documents() -> Iterator[dict[str, Any]]:
    """Every row as plain data; those of chapters about the same thing follow one another."""
    order = list(dict.fromkeys(chapter.about for chapter in ALL))
    for chapter in sorted(ALL, key=lambda chapter: order.index(chapter.about)):
        for row in chapter.rows:
            yield row.document(chapter.about)


def check_scenario(scenario: Contract) -> None:
    """Raise the error of a ``scenario`` that asks for what does not go together."""
    fleet = WholeFleet(scenario, pools_of(scenario))
    for chapter in WRITTEN:
        if (found := chapter.refusal(fleet)) is not None:
            raise trouble(found.message, *found.places)


def check_policies(scenario: Contract) -> None:
    """UsageError for a policy of a user's own that does not say that it can do what is asked."""
    _check(WholeFleet(scenario, pools_of(scenario)), own.POLICIES)


def check_router(scenario: Contract, kind: type[Router]) -> None:
    """UsageError for a router of a user's own, of this ``kind``, that does not heed weights."""
    _check(own.RoutedFleet(scenario, pools_of(scenario), kind), own.ROUTERS)


def check_drafts(deployment: Deployment, method: str, drafter: ModelSpec | None) -> None:
    """UsageError for a ``deployment`` for which ``method``, or the model ``drafter``, cannot
    draft."""
    _check(drafts.DraftsFor(deployment, method, drafter), drafts.MODELS)


def check_limits(scenario: Contract, pool: PoolSettings, deployment: Deployment) -> None:
    """UsageError for limits that replicas of ``pool`` cannot have."""
    _check(replicas.OneReplica(scenario, pools_of(scenario), pool, deployment), replicas.LIMITS)


def check_replica(
    scenario: Contract, pool: PoolSettings, deployment: Deployment, memory: Capacity
) -> None:
    """UsageError for what does not go together in replicas of ``pool``, which have ``memory``."""
    _check(
        replicas.FilledReplica(scenario, pools_of(scenario), pool, deployment, memory),
        *replicas.FILLED,
    )


def check_models(kept: Mapping[str, bool]) -> None:
    """UsageError for models of one fleet that see different amounts of their context: by name,
    whether each has windows or a state."""
    _check(replicas.ServedModels(kept), replicas.MODELS)


def unfailing(scenario: Contract, pool: PoolSettings) -> str | None:
    """Why replicas of ``pool``, whose policy is loaded, cannot fail; None if they can."""
    found = clients.LIVE.refusal(LoadedPool(scenario, pools_of(scenario), pool))
    return None if found is None else found.message


def _check(whole: Any, *chapters: Chapter[Any, Any]) -> None:
    for chapter in chapters:
        if (found := chapter.refusal(whole)) is not None:
            raise UsageError(f"{found.key}: {found.message}")
