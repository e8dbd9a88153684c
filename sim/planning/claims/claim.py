"""Reads claims: YAML files with a scenario, its variants, and statements about their figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sim.errors import ScenarioError, UsageError, did_you_mean
from sim.metrics.terms.definitions import METRIC
from sim.scenario import Scenario
from sim.scenario.reading.diagnostics import problems_of
from sim.scenario.reading.extends import extended
from sim.scenario.reading.loading import from_mapping, read
from sim.scenario.text.document import failure

SUFFIXES = (".yaml", ".yml")

Text = Annotated[str, Field(min_length=1)]


class Claim(BaseModel):
    """One sentence about serving that a simulation can refute.

    Each of the ``variants`` is the ``scenario`` with keys of its own. The claim holds if every one
    of the statements under ``holds_if`` is true (``sim.planning.claims.expressions``); ``verdict``
    is what its author says will come out. ``shown`` are the metrics of the table, the first of
    which is drawn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Text
    because: Text
    verdict: Literal["holds", "fails"] = "holds"
    scenario: dict[str, Any]
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    shown: list[Text] = Field(min_length=1)
    holds_if: list[Text] = Field(min_length=1)

    _name: str = ""
    _scenario: Scenario

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return self._name

    @property
    def base(self) -> Scenario:
        """The scenario, of which the variants are overrides."""
        return self._scenario


def read_claim(path: Path) -> Claim:
    """The claim in a file; ScenarioError or UsageError for what is wrong with it."""
    document, problems = read(path)
    try:
        claim = Claim.model_validate(document.data)
    except ValidationError as error:
        raise failure([*problems, *problems_of(error, Claim, document)], document) from None
    if problems:
        raise failure(problems, document)
    for key in claim.shown:
        if key not in METRIC:
            raise UsageError(f"{path}: shown: no metric {key!r}{did_you_mean(key, METRIC)}")
    for name in claim.variants:
        if not name.isidentifier():
            raise UsageError(
                f"{path}: variants: {name!r} cannot be named in a statement; use letters, digits "
                "and underscores"
            )
    claim._name = path.stem
    try:
        claim._scenario = _scenario(claim, path)
        for changes in claim.variants.values():
            claim.base.override(changes)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
    return claim


def _scenario(claim: Claim, path: Path) -> Scenario:
    """The scenario in a claim; its relative paths start at the folder of the claim."""
    mapping = {"version": 1, "name": path.stem, **claim.scenario}
    document = dataclasses.replace(from_mapping(mapping), base=path.absolute().parent)
    merged, problems = extended(document)
    return Scenario.from_document(merged, problems)


def read_claims(paths: Iterable[Path]) -> list[Claim]:
    """The claims of files and of all YAML files in folders, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not found:
                raise UsageError(f"{path}: no claims here; they are files *.yaml")
            files += found
        else:
            files.append(path)
    return [read_claim(file) for file in files]
