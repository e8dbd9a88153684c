"""Checks fleets that serve several models: which pool has which, and which requests ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.scenario.fields import trouble

if TYPE_CHECKING:
    from sim.scenario.schema import Scenario


def check_models(scenario: Scenario) -> None:
    """Raise the error of a ``scenario`` whose pools serve models that no class of the traffic asks
    for, or with what is not modelled for several."""
    pools, classes = scenario.pools, scenario.workload.classes or ()
    served = list(dict.fromkeys(pool.model.path for pool in pools))
    for at, item in enumerate(classes):
        if item.model is not None and item.model not in served:
            raise trouble(
                f"no pool serves {item.model!r}; there are {', '.join(served)}",
                ("workload", "classes", at, "model"),
            )
    if len(served) == 1:
        return
    wanted = {item.model or scenario.model.path for item in classes}
    for pool in pools:
        if pool.model.path not in wanted:
            raise trouble(
                f"no class of workload.classes asks for {pool.model.path!r}; say which requests "
                "are for it, as `classes: [{name: small, share: 0.5, model: "
                f"{pool.model.path}}}, ...]`",
                ("fleet", pool.index, "model"),
                ("workload", "classes"),
                ("model",),
            )
    kept = {
        "pools of one phase": any(pool.role != "both" for pool in pools),
        "pools that are scaled": any(pool.scales is not None for pool in pools),
        "failures": scenario.failures is not None,
        "steering": scenario.steering is not None,
        "drafts (speculative), which are made for one model": scenario.speculative is not None,
    }
    for what, there in kept.items():
        if there:
            raise trouble(
                f"several models in one fleet ({', '.join(served)}) are not modelled with {what}",
                ("fleet",),
            )


def endpoints_of(scenario: Scenario) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Each model of a fleet that serves several, with the classes of requests that ask for it and
    the pools that serve it, by number; empty where there is one model."""
    served = list(dict.fromkeys(pool.model.path for pool in scenario.pools))
    if len(served) == 1:
        return []
    wanted = [item.model or scenario.model.path for item in scenario.workload.classes or ()]
    return [
        (
            model,
            tuple(at for at, its in enumerate(wanted) if its == model),
            tuple(pool.index for pool in scenario.pools if pool.model.path == model),
        )
        for model in served
    ]
