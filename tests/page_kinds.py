"""One page of every kind, made of made-up results, and the sections that it must have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import reports
from reports.frame.decimate import ranks
from reports.frame.run_directory import SavedRun
from reports.pages import trust
from reports.pages.planning import compare_runs
from reports.pages.planning.findings import render
from reports.pages.profile.page import SECTIONS as OF_PROFILES
from reports.pages.profile.page import render_profile
from reports.pages.run.page import SECTIONS as OF_RUNS
from reports.pages.validation.page import SECTIONS as OF_VALIDATIONS
from reports.pages.validation.page import render_validation
from tests import made_up, made_up_studies, made_up_verdicts
from tests.answers import anchors


class Kind(NamedTuple):
    """``render`` makes the page, given an empty folder to work in; ``sections`` are its anchors."""

    render: Callable[[Path], str]
    sections: Mapping[str, str]


class Decision(NamedTuple):
    """A page that is a function of one plain document."""

    render: Callable[[Any], str]
    document: Callable[[], dict[str, Any]]
    sections: Mapping[str, str]


def _found(command: str, document: Callable[[], dict[str, Any]]) -> Decision:
    return Decision(partial(render, command), document, anchors(command, document()))


DECISIONS: Mapping[str, Decision] = {
    "compare": _found("compare", made_up.comparison),
    "sweep over a load": _found("sweep", made_up.load_sweep),
    "sweep over a grid": _found("sweep", made_up.grid_sweep),
    "sweep over policies": _found("sweep", made_up.policy_sweep),
    "find": _found("find", made_up.highest_load),
    "plan": _found("plan", made_up.fleet_plan),
    "split": _found("plan", made_up.split_plan),
    "ablate": _found("ablate", made_up_studies.ablation),
    "diagnose": _found("diagnose", made_up_studies.diagnosis),
    "sensitivity": _found("sensitivity", made_up_studies.uncertainty),
    "claims": _found("claims", made_up_verdicts.claims),
    "trust": Decision(trust.render_trust, made_up_verdicts.scores, trust.SECTIONS),
}


def long_run(requests: int) -> SavedRun:
    """A made-up run whose distribution of gaps has as few points as that of a real run."""
    from tests.report_fixtures import make_run

    run = make_run(requests)
    kept = ranks(len(run.charts["itl"]["ms"]), 800)
    gaps = {name: [values[rank] for rank in kept] for name, values in run.charts["itl"].items()}
    return dataclasses.replace(run, charts=run.charts | {"itl": gaps})


def _run(requests: int) -> Callable[[Path], str]:
    def render(folder: Path) -> str:
        run = long_run(requests)
        return reports.render(
            summary=run.summary,
            requests=run.requests,
            timeseries=run.timeseries,
            scenario_yaml=run.scenario_yaml,
            charts=run.charts,
        )

    return render


def _profile(folder: Path) -> str:
    from tests.profile_fixtures import made_up_profile

    return render_profile(*made_up_profile(folder))


def _validation(folder: Path) -> str:
    from tests.observed_fixtures import made_up_validation

    return render_validation(*made_up_validation(folder))


def _decided(decision: Decision) -> Kind:
    made = decision.document()
    failed = made.get("failed") or made.get("infeasible")
    kept = {k: v for k, v in decision.sections.items() if failed or k != "failures"}
    return Kind(lambda folder: decision.render(made), kept)


def compared_runs() -> dict[int, SavedRun]:
    """A made-up run of each variant of the made-up comparison."""
    from tests.report_fixtures import make_run

    return {index: make_run(count) for index, count in enumerate((300, 200, 100))}


def _compared(folder: Path) -> str:
    made = made_up.comparison()
    return render("compare", made, compare_runs.section(made, compared_runs()))


KINDS: Mapping[str, Kind] = {
    "run": Kind(_run(2000), OF_RUNS),
    **{name: _decided(decision) for name, decision in DECISIONS.items()},
    "compare": Kind(
        _compared,
        {
            "summary": "Summary",
            "runs": "One run of each",
            **anchors("compare", made_up.comparison()),
        },
    ),
    "profile": Kind(_profile, OF_PROFILES),
    "validation": Kind(_validation, OF_VALIDATIONS),
}

LARGE = Kind(_run(100_000), OF_RUNS)
"""A run of a hundred thousand requests."""
