"""Provides the scenario: one YAML file that states model, fleet, traffic and SLO.

>>> from sim.scenario import load_scenario
>>> scenario = load_scenario({
...     "model": "llama-3.1-8b",
...     "fleet": {"gpu": "h100-sxm"},
...     "workload": {
...         "arrivals": {"kind": "poisson", "rate": 6},
...         "prompt_tokens": {"kind": "fixed", "value": 512},
...         "output_tokens": {"kind": "fixed", "value": 128},
...     },
...     "slo": {"ttft": "500ms"},
... })
>>> scenario.slo.ttft, scenario.fleet[0].replicas, scenario.scheduler.max_num_seqs
(0.5, 1, 1024)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError
from sim.scenario.reading.extends import extended
from sim.scenario.reading.loading import from_mapping, read
from sim.scenario.reading.overrides import Overrides, applied
from sim.scenario.schema import Scenario
from sim.scenario.text.document import Problem, show

__all__ = ["AnyScenario", "Scenario", "as_scenario", "load_scenario"]

AnyScenario = Scenario | str | Path | Mapping[str, Any]
"""A scenario, or what ``load_scenario`` makes one of."""


def as_scenario(source: AnyScenario) -> Scenario:
    """``source`` itself where it is a scenario, else the one that it describes."""
    return source if isinstance(source, Scenario) else load_scenario(source)


def load_scenario(source: str | Path | Mapping[str, Any], overrides: Overrides = ()) -> Scenario:
    """The scenario in a YAML file, or given as a mapping, with ``overrides`` made to it.

    What it ``extends`` is merged in. Relative paths start at the folder of the file that they
    stand in, or at the working directory for a mapping. Raises ScenarioError with every problem:
    position, value, what is allowed.
    """
    problems: list[Problem] = []
    if isinstance(source, Mapping):
        document, inherited = extended(from_mapping(source))
    elif isinstance(source, str | Path):
        document, problems = read(source)
        document, inherited = extended(document)
        stem = "".join(char for char in Path(source).stem if char.isprintable())
        document.data.setdefault("name", stem.strip() or "scenario")
    else:
        raise ScenarioError(f"a scenario is a path or a mapping, got {show(source)}")
    document, refused = applied(document, overrides)
    return Scenario.from_document(document, [*problems, *inherited, *refused])
