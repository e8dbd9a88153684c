"""Predicts the throughput and latency of LLM inference serving: infersim's Python API.

``simulate`` runs one scenario: the path of a file, or a mapping like it.

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
>>> result = sim.simulate(scenario)
>>> result.summary["completed"]
8
>>> result
<Result of scenario: 8 requests completed, offline>

``print(result)`` shows what ``infersim run`` prints, and so does every answer. ``find``, ``plan``,
``compare`` and ``sweep`` decide as the commands of these names do.

>>> answer = sim.compare(scenario, {"scheduler.max_num_seqs": [2, 8]}, jobs=1)
>>> [variant["label"] for variant in answer["variants"]]
['2', '8']

``report(result, "page.html")`` draws the page of a run or of an answer.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.questions import Answer, compare, find, plan, report, sweep
    from sim.result import Result, simulate
    from sim.scenario import Scenario, load_scenario

_HOMES = {
    "Answer": "sim.questions",
    "Result": "sim.result",
    "Scenario": "sim.scenario",
    "compare": "sim.questions",
    "find": "sim.questions",
    "load_scenario": "sim.scenario",
    "plan": "sim.questions",
    "report": "sim.questions",
    "simulate": "sim.result",
    "sweep": "sim.questions",
}

__all__ = [
    "Answer",
    "Result",
    "Scenario",
    "compare",
    "find",
    "load_scenario",
    "plan",
    "report",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``infersim --help`` does not wait for numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    if _HOMES[name] not in sys.modules:
        _import(_HOMES[name])
    return getattr(sys.modules[_HOMES[name]], name)


def _import(module: str) -> None:
    """Import without looking for garbage among what is there to stay, now or at the end of the
    process: that would take a quarter of the time again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        import_module(module)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    """The names that are public, for completion."""
    return [*__all__, "__doc__", "__path__"]
