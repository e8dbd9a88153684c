"""Defines the scenario: the whole of the YAML contract, version 1, as one frozen object.

``Scenario`` is built by ``load_scenario`` and changed by ``Scenario.override``; both validate
everything and report every problem at the place where it was written. All numbers are SI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from sim.errors import UsageError
from sim.scenario.checks.table import check_scenario
from sim.scenario.pools import PoolSettings, only, pools_of
from sim.scenario.reading.diagnostics import problems_of
from sim.scenario.reading.overrides import Overrides, applied, in_full
from sim.scenario.reading.paths import absolute_paths
from sim.scenario.sections.contract import Contract
from sim.scenario.sections.deployment import SchedulerSettings
from sim.scenario.text.document import Document, KeyPath, Problem, failure, has
from sim.scenario.text.writing import write_yaml


class Scenario(Contract):
    """One question to the simulator: this model on these GPUs, for this traffic."""

    @model_validator(mode="after")
    def _what_goes_together(self) -> Scenario:
        check_scenario(self)
        return self

    @classmethod
    def from_document(cls, document: Document, found: Sequence[Problem] = ()) -> Scenario:
        """The scenario that a document describes; ``found`` are problems known before.

        Raises ScenarioError with every problem, in the order of the file.
        """
        document = in_full(document)
        problems = list(found)
        try:
            scenario = cls.model_validate(document.data, context={"base": document.base})
        except ValidationError as error:
            known = [problem.path for problem in found if problem.path]
            for problem in problems_of(error, cls, document):
                if not any(problem.path[: len(path)] == path for path in known):
                    problems.append(problem)
        if problems:
            raise failure(problems, document)
        scenario._document = document
        return scenario

    @property
    def pools(self) -> tuple[PoolSettings, ...]:
        """The pools of its fleet, each with everything that rules it."""
        return pools_of(self)

    @property
    def patience(self) -> SchedulerSettings:
        """Settings with how long clients wait, and what they do then: alike for all pools."""
        return self.pools[0].scheduler

    @property
    def disturbed(self) -> bool:
        """Whether replicas fail or are steered, or clients do not wait."""
        happens = self.failures is not None or self.steering is not None
        return happens or self.patience.client_timeout is not None

    @property
    def only_pool(self) -> PoolSettings:
        """The pool of a fleet that has one; UsageError where there are several."""
        return only(self.pools)

    @property
    def replicas(self) -> int:
        """Replicas of the whole fleet."""
        return sum(pool.most_replicas for pool in self.fleet)

    @property
    def source_text(self) -> str | None:
        """The file as written, without overrides; None for a mapping from Python."""
        return None if self._document is None else self._document.text

    @contextmanager
    def blamed(self, key: str, pool: int | None = None) -> Iterator[None]:
        """Give what a block refuses the place at which the scenario has ``key``, or the pool of
        that number has its own; a scenario of plain data has no places."""
        try:
            yield
        except UsageError as error:
            document = self._document
            path: KeyPath = tuple(key.split("."))
            if document is not None and pool is not None:
                own = ("fleet", pool, *path)
                path = own if has(document.data, own) else path
            if document is None or not has(document.data, path):
                raise
            raise failure([Problem(path, str(error))], document) from error

    def path(self, name: str | Path) -> Path:
        """Where a path of this scenario leads; relative ones start at ``base``."""
        return Path(self.base, Path(name).expanduser())

    def override(self, changes: Overrides) -> Scenario:
        """A copy with other values, from ``"a.b.0.c=value"`` texts or a mapping of dotted keys.

        Raises ScenarioError when a key does not exist or the result is no valid scenario.

        >>> from sim.scenario import load_scenario
        >>> chat = {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "workload": {
        ...     "arrivals": {"kind": "poisson", "rate": 6}, "prompt_tokens": {"kind": "fixed",
        ...     "value": 512}, "output_tokens": {"kind": "fixed", "value": 128}}}
        >>> load_scenario(chat).override({"workload.arrivals.rate": "90/min"}).workload.arrivals
        PoissonArrivals(kind='poisson', rate=1.5)
        """
        document = self._document or Document(self.resolved(), self.base)
        return Scenario.from_document(*applied(document, changes))

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, defaults included, as plain data in SI units.

        Loading it anywhere on this machine gives an equal scenario: paths become absolute.
        """
        data: dict[str, Any] = self.model_dump(mode="json")
        return absolute_paths(data, self.base, self.folders)

    def written(self) -> dict[str, Any]:
        """The scenario as written, with its parents and with overrides, but without defaults.

        Loading it anywhere on this machine gives an equal scenario, to which overrides do the
        same as to this one: paths become absolute.
        """
        data = self.resolved() if self._document is None else self._document.data
        return absolute_paths(data, self.base.absolute(), self.folders)

    def states(self, key: str) -> bool:
        """Whether the scenario itself, not a pool of it, was written with a value at a dotted
        ``key``, rather than left to its engine or to a default."""
        found: Any = self.resolved() if self._document is None else self._document.data
        for step in key.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        return found is not None

    def to_yaml(self) -> str:
        """``resolved()`` as YAML text."""
        return write_yaml(self.resolved())

    def moved(self, base: Path) -> Scenario:
        """The scenario as a file in the folder ``base``, where relative paths start then."""
        document = self._document or Document(self.resolved(), self.base)
        scenario = self.model_copy()
        scenario._document = dataclasses.replace(document, base=base)
        return scenario

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.resolved() == other.resolved()

    def __hash__(self) -> int:
        return hash(self.to_yaml())
