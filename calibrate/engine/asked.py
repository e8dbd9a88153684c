"""Checks what every engine here requires of a scenario, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Iterable

from sim.errors import UsageError
from sim.scenario import Scenario
from sim.setup import Setup

Refusal = tuple[bool, str]
"""Whether something does not fit, and the message for that case: the key, and what would fit."""


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise UsageError for the first thing that does not fit."""
    for applies, message in refusals:
        if applies:
            raise UsageError(message)


def single(setup: Setup, what: str) -> list[Refusal]:
    """Refuses all but one replica on one device, run once; ``what`` begins the sentence: ``vLLM
    runs``."""
    return [
        (
            any(pool.gpus > 1 for pool in setup.pools),
            f"fleet: {what} as one replica on one device; set fleet.0.replicas and "
            "fleet.0.tensor_parallel to 1",
        ),
        (
            setup.scenario.run.repetitions > 1,
            "run.repetitions: the engine runs once; repeat the command with other seeds",
        ),
    ]


def as_driven(scenario: Scenario) -> Scenario:
    """``scenario`` with what all engines here do where it leaves that to its engine: they keep no
    prefixes, and plan no iteration ahead."""
    chosen = {
        "kv_cache.enable_prefix_caching": scenario.kv_cache.enable_prefix_caching,
        "scheduler.async_scheduling": scenario.scheduler.async_scheduling,
    }
    changes = {key: False for key, on in chosen.items() if on and not scenario.states(key)}
    return scenario.override(changes) if changes else scenario


def no_prefixes(setup: Setup) -> Refusal:
    """Refuses a prefix cache, which would find nothing."""
    return (
        any(pool.settings.kv_cache.enable_prefix_caching for pool in setup.pools),
        "kv_cache.enable_prefix_caching: prompts are random here and share nothing; set it to "
        "false",
    )


def no_drafts(setup: Setup) -> Refusal:
    """Refuses drafted tokens, which only the reference engine has here."""
    return (
        any(pool.settings.speculative is not None for pool in setup.pools),
        "speculative: of the engines that are observed only the reference engine drafts tokens; "
        "set it to null, or give --engine reference",
    )


def one_precision(setup: Setup, what: str) -> str:
    """The one precision of weights, activations and KV cache; ``what`` as in ``single``.

    UsageError where they differ.
    """
    d = setup.only.deployment
    if not d.weights == d.activations == d.kv_cache:
        raise UsageError(
            f"precision: {what} in one precision, not in {d.weights} weights, "
            f"{d.activations} activations and {d.kv_cache} KV cache"
        )
    return d.weights
