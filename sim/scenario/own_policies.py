"""Checks a policy of one's own for what the rest of its scenario asks of it.

The policies that ship are checked where the scenario is validated; one's own, once it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import UsageError
from sim.own import is_own
from sim.scenario.pools import PoolSettings
from sim.scenario.roles import DECODE, PREFILL
from sim.schedulers import abilities as a
from sim.schedulers import able
from sim.schedulers.orders import Fair

if TYPE_CHECKING:
    from sim.scenario.schema import Scenario


def check_policies(scenario: Scenario, folders: Sequence[Path]) -> None:
    """UsageError for a policy that does not say that it can do what is asked of it."""
    for pool in scenario.pools:
        batching = pool.scheduler.batching
        for key, ability in _asked(scenario, pool) if is_own(batching) else ():
            if not able(batching, ability, folders):
                raise UsageError(
                    f"{key}: scheduler {batching!r} does not say that it {ability.about}; "
                    f"{ability.stated}, or leave out {key}"
                )


def _asked(scenario: Scenario, pool: PoolSettings) -> Iterator[tuple[str, a.Ability]]:
    """What is asked of the policy of ``pool``, and the key that asks."""
    knobs, drafts = pool.scheduler, pool.speculative
    steps = () if scenario.steering is None else scenario.steering.steps
    for key, asks, ability in (
        ("fleet.pipeline_parallel", pool.layout.pipeline > 1, a.IN_FLIGHT),
        ("fleet.role", pool.role == PREFILL, a.PREFILLS),
        ("fleet.role", pool.role == DECODE, a.DECODES),
        ("failures", scenario.failures is not None, a.LOSES),
        ("steering", any(step.do == "fail" for step in steps), a.LOSES),
        ("scheduler.client_timeout", knobs.client_timeout is not None, a.LOSES),
        ("scheduler.client_timeout", knobs.client_timeout is not None, a.WITHDRAWS),
        ("fleet.replicas", pool.scales is not None, a.DRAINS),
        ("admission", scenario.admission is not None, a.IN_ORDER),
        ("scheduler.order", knobs.order == Fair.name, a.IN_ORDER),
        ("speculative", drafts is not None, a.DRAFTS),
        (
            "speculative",
            drafts is not None and bool(drafts.num_tokens_per_batch_size),
            a.DRAFTS_BY_BATCH,
        ),
        ("kv_cache.host_memory", pool.kv_cache.host_memory is not None, a.HOST),
    ):
        if asks:
            yield key, ability
