"""Small questions for the tests of everything that plans: a run takes a few milliseconds."""

from __future__ import annotations

from typing import Any

import pytest

from sim.planning.load import probe, settled
from sim.scenario import Scenario, load_scenario
from tests.places import VLLM

SMALL: dict[str, Any] = {
    "name": "small",
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "max_model_len": 1024,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 300},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 50},
    },
    "slo": {"ttft": "100ms", "tpot": "20ms"},
    "run": {"requests": 60},
}
"""A stream of short requests that one GPU holds easily."""


def small(**changes: object) -> Scenario:
    """``SMALL`` with other values; ``__`` in a name stands for the dots of a key."""
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    return load_scenario(SMALL, settings)


BRIEF = 2_000
"""Requests by which a load is decided in tests: a twenty-fifth of what one may usually take."""


def decide_by(requests: int) -> None:
    """Decide loads by so many requests from now on."""
    for module in (probe, settled):
        module.LONG_ENOUGH = requests


def be_brief(patch: pytest.MonkeyPatch, requests: int = BRIEF) -> None:
    """Decide loads by so many ``requests``. Processes that do not fork from this one do not
    know."""
    for module in (probe, settled):
        patch.setattr(module, "LONG_ENOUGH", requests)
