"""Checks claims: simulates the variants of each and evaluates its statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.errors import InfersimError, UsageError
from sim.iteration import Batch
from sim.metrics.terms.definitions import DEFINITIONS, METRIC, path_of
from sim.planning.claims.claim import Claim
from sim.planning.claims.expressions import check
from sim.planning.points.executors import Executor
from sim.planning.points.points import Outcome
from sim.planning.points.study import Study, Tell
from sim.scenario import Scenario
from sim.setup import prepare
from sim.version import version


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
    return {
        "command": "claims",
        "infersim": version(),
        "claims": found,
        "unexpected": wrong,
    }


def _checked(claim: Claim, executor: Executor) -> dict[str, Any]:
    outcomes = Study(claim.base, executor).variants(claim.variants.items())
    summaries = {outcome.point.label: _figures(claim, outcome) for outcome in outcomes}
    try:
        checks = [check(statement, summaries) for statement in claim.holds_if]
    except UsageError as error:
        raise UsageError(f"{claim.name}: {error}") from None
    return {
        "name": claim.name,
        "claim": claim.claim,
        "because": claim.because,
        "verdict": "holds" if all(each.true for each in checks) else "fails",
        "expected": claim.verdict,
        "model": str(claim.base.model),
        "figures": [
            {"key": key, "title": _title(key), "kind": METRIC[key].kind, "unit": METRIC[key].unit}
            for key in claim.shown
        ],
        "variants": [
            {
                "name": name,
                "changes": dict(claim.variants[name]),
                "figures": {key: _value(summary, key) for key in claim.shown},
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


def _title(key: str) -> str:
    metric = METRIC[key]
    return metric.head or DEFINITIONS[metric.definition].title


def _value(summary: Mapping[str, Any], key: str) -> float | None:
    """A metric of a summary; None where the run has no such figure."""
    found: Any = summary
    for step in path_of(key).split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
