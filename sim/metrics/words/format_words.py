"""Says in which formats a scenario stores and multiplies numbers, and when narrower products are
left unused."""

from __future__ import annotations

from collections.abc import Iterable

from sim.cost.plausible import HARDLY
from sim.scenario import Scenario
from sim.specs.gpu import GpuSpec
from sim.specs.precision import PLAIN, WIDE_ACTIVATIONS, narrow_formats

COMPUTED_WIDE = " are computed in bf16 here: "
"""What marks the note on products that nothing was said about."""


def wide_note(scenario: Scenario, gpus: Iterable[GpuSpec]) -> str | None:
    """The note that products run in bf16, since the scenario states the format of its weights
    alone, though some ``gpus`` have units for the activations that usually go with it; else None.
    """
    precision = scenario.precision
    usual = WIDE_ACTIVATIONS.get(precision.weights, precision.weights)
    if precision.activations != "bf16" or scenario.states("precision.activations"):
        return None
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus if gpu.computes(usual)))
    if usual in PLAIN or not names:
        return None
    return (
        f"Weights in {precision.weights}{COMPUTED_WIDE}on {names} engines usually compute "
        f"{precision.weights} checkpoints in {usual}, which is faster. Set precision.activations: "
        f"{usual}, or bf16 to say that this is meant."
    )


UNCOMPARED = (
    "No pipeline was ever compared with a measured run: no band counts what that leaves open."
)
"""The note on a deployment with several stages."""

MOVING_ALL = (COMPUTED_WIDE, HARDLY, UNCOMPARED)
"""Words of the notes that may move all figures."""


def leading(notes: Iterable[str]) -> list[str]:
    """The notes that stand in the first lines of an answer, since they may move all figures."""
    return [note for note in notes if any(words in note for words in MOVING_ALL)]


def formats(scenario: Scenario, varied: Iterable[str] = ()) -> str:
    """The formats of fewer than 16 bits in a scenario; empty if there are none, or where a study
    has ``varied`` one of them, so that no answer is of one format alone.

    >>> from sim.scenario import load_scenario
    >>> chat = load_scenario("scenarios/chat.yaml").override({"precision.kv_cache": "fp8"})
    >>> formats(chat), formats(chat, ["precision.weights"])
    ('fp8 KV cache', '')
    """
    if any(key.partition(".")[0] in ("precision", "model") for key in varied):
        return ""
    return narrow_formats(
        {"experts": scenario.precision.weights}
        | {key: value for key, value in scenario.precision.model_dump().items() if value}
    )
