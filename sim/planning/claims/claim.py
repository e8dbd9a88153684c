"""Reads claims (YAML files with a scenario, its variants, and statements), and checks them.

The variants of each are simulated, and its statements about their figures evaluated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sim.errors import InfersimError, ScenarioError, UsageError, did_you_mean
from sim.iteration import Batch
from sim.metrics.terms.definitions import METRIC, path_of
from sim.planning.claims.expressions import check
from sim.planning.claims.shown import OWN, keys_of, shown_figure
from sim.planning.points.executors import Executor
from sim.planning.points.points import Outcome
from sim.planning.points.study import Study, Tell
from sim.scenario import Scenario
from sim.scenario.reading.diagnostics import problems_of
from sim.scenario.reading.extends import extended
from sim.scenario.reading.loading import from_mapping, read
from sim.scenario.shipped import CLAIMS, names
from sim.scenario.text.document import failure
from sim.setup import prepare
from sim.version import version

SUFFIXES = (".yaml", ".yml")

Text = Annotated[str, Field(min_length=1)]


class Claim(BaseModel):
    """One sentence about serving that a simulation can refute.

    Each of the ``variants`` is the ``scenario`` with keys of its own. The claim holds if every one
    of the statements under ``holds_if`` is true (``sim.planning.claims.expressions``); ``verdict``
    is what its author says will come out. The table has what the statements compare, then the
    further metrics in ``shown``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Text
    because: Text
    verdict: Literal["holds", "fails"] = "holds"
    scenario: dict[str, Any]
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    shown: list[Text] = []
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
        elif not path.exists():
            known = names(CLAIMS)
            hint = did_you_mean(str(path), known) or f"; the shipped ones are {', '.join(known)}"
            raise UsageError(f"{path}: no such claim{hint}")
        else:
            files.append(path)
    return [read_claim(file) for file in files]


def check_claims(
    claims: Sequence[Claim], executor: Executor, progress: Tell | None = None
) -> dict[str, Any]:
    """Every claim with its figures and its verdict, as plain data; ``progress`` counts claims.

    Raises UsageError where a statement cannot be evaluated, and InfersimError where a variant
    cannot be simulated: neither says anything about the claim.
    """
    found = []
    for claim in claims:
        found.append(_checked(claim, executor))
        if progress is not None:
            progress(len(found), len(claims))
    wrong = [entry["name"] for entry in found if entry["verdict"] != entry["expected"]]
    return {"command": "claims", "infersim": version(), "claims": found, "unexpected": wrong}


def _checked(claim: Claim, executor: Executor) -> dict[str, Any]:
    outcomes = Study(claim.base, executor).variants(claim.variants.items())
    summaries = {outcome.point.label: _figures(claim, outcome) for outcome in outcomes}
    try:
        checks = [check(statement, summaries) for statement in claim.holds_if]
    except UsageError as error:
        raise UsageError(f"{claim.name}: {error}") from None
    keys = dict.fromkeys([*keys_of(claim.holds_if), *claim.shown])
    return {
        "name": claim.name,
        "claim": claim.claim,
        "because": claim.because,
        "verdict": "holds" if all(each.true for each in checks) else "fails",
        "expected": claim.verdict,
        "model": str(claim.base.model),
        "figures": [shown_figure(key)._asdict() for key in keys],
        "variants": [
            {
                "name": name,
                "changes": dict(claim.variants[name]),
                "figures": {key: _metric_of(summary, key) for key in keys},
            }
            for name, summary in summaries.items()
        ],
        "checks": [
            {"statement": each.statement, "text": each.text, "true": each.true,
             "left": each.left, "right": each.right}
            for each in checks
        ],
    }  # fmt: skip


def _figures(claim: Claim, outcome: Outcome) -> Mapping[str, Any]:
    """Figures for a statement: the summary, and the reads of decode steps and prompts."""
    if outcome.summary is None:
        raise InfersimError(f"{claim.name}: {outcome.point.label}: {outcome.error}")
    operators = outcome.summary["infersim"]["operators"]
    weights = _of_weights(claim.base.override(outcome.point.settings))
    return {
        **outcome.summary,
        "weight_bytes": sum(o["bytes"] for name, o in operators.items() if name in weights),
        "kv_bytes": sum(o["bytes"] for name, o in operators.items() if "decode" in name),
    }


def _of_weights(scenario: Scenario) -> set[str]:
    """The operators that read weights."""
    costs = [pool.cost for pool in prepare(scenario).pools]
    found = [each for cost in costs for each in cost.pass_operators(Batch(1, 1))]
    return {operator.name for operator in found if operator.per_batch}


def _metric_of(summary: Mapping[str, Any], key: str) -> float | None:
    """A metric of a summary; None where the run has no such figure."""
    found: Any = summary
    for step in (key if key in OWN else path_of(key)).split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
