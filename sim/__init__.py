"""infersim: predict the throughput and latency of LLM inference serving.

>>> import sim
>>> scenario = sim.load_scenario({
...     "model": "llama-3.1-8b",
...     "fleet": {"gpu": "h100-sxm"},
...     "workload": {
...         "arrivals": {"kind": "burst"},
...         "prompt_tokens": {"kind": "fixed", "value": 512},
...         "output_tokens": {"kind": "fixed", "value": 64},
...     },
...     "run": {"requests": 8},
... })
>>> sim.simulate(scenario).summary["completed"]
8
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.results import Result
    from sim.scenario import Scenario, load_scenario
    from sim.simulation import simulate

_HOMES = {
    "Result": "sim.results",
    "Scenario": "sim.scenario",
    "load_scenario": "sim.scenario",
    "simulate": "sim.simulation",
}

__all__ = ["Result", "Scenario", "load_scenario", "simulate"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``infersim --help`` does not wait for numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
