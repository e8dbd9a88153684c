"""One page of every kind, made of made-up results, and the sections that it must have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import reports
import reports.page
from reports.decimate import ranks
from reports.planning import (
    ablate,
    compare,
    diagnose,
    find,
    made_up,
    made_up_studies,
    plan,
    sensitivity,
    sweep,
)
from reports.profile import render_profile
from reports.profile.page import SECTIONS as OF_PROFILES
from reports.run_directory import Run
from reports.validation import Frames, render_validation
from reports.validation.page import SECTIONS as OF_VALIDATIONS


class Kind(NamedTuple):
    """``render`` makes the page, given an empty folder to work in; ``sections`` are its anchors."""

    render: Callable[[Path], str]
    sections: Mapping[str, str]


class Decision(NamedTuple):
    """A page that is a function of one plain document."""

    render: Callable[[Any], str]
    document: Callable[[], dict[str, Any]]
    sections: Mapping[str, str]


DECISIONS: Mapping[str, Decision] = {
    "compare": Decision(compare.render_compare, made_up.comparison, compare.SECTIONS),
    "sweep over a load": Decision(sweep.render_sweep, made_up.load_sweep, sweep.SECTIONS),
    "sweep over a grid": Decision(sweep.render_sweep, made_up.grid_sweep, sweep.SECTIONS),
    "sweep over policies": Decision(sweep.render_sweep, made_up.policy_sweep, sweep.SECTIONS),
    "find": Decision(find.render_find, made_up.highest_load, find.SECTIONS),
    "plan": Decision(plan.render_plan, made_up.fleet_plan, plan.SECTIONS),
    "ablate": Decision(ablate.render_ablation, made_up_studies.ablation, ablate.SECTIONS),
    "diagnose": Decision(diagnose.render_diagnosis, made_up_studies.diagnosis, diagnose.SECTIONS),
    "sensitivity": Decision(
        sensitivity.render_sensitivity, made_up_studies.uncertainty, sensitivity.SECTIONS
    ),
}


def long_run(requests: int) -> Run:
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
    from sim.calibration.document import document, points
    from sim.calibration.find import find as found_in
    from sim.calibration.measured import read
    from tests.profile_fixtures import profile_of, rows_of, write_gpu, write_table

    path = write_gpu(folder / "gpu.yaml", profile_of())
    found = found_in(str(path))
    measured = read(write_table(folder / "gpu.csv", rows_of(profile_of())))
    return render_profile(document(found, measured), points(found, measured))


def _validation(folder: Path) -> str:
    from sim.validation.document import Validation
    from sim.validation.observed import read_observed
    from sim.validation.prediction import question
    from sim.validation.series import series
    from sim.validation.variant import Variant
    from tests.observed_fixtures import observe, write_scenario

    truth = Variant(per_iteration=3e-3)
    run = read_observed(observe(write_scenario(folder), folder / "observed", truth, noise=0.02))
    validation = Validation(run, [], question(run, None, [], None))
    result = validation.predicted.result
    sides = Frames(run.requests, run.timeseries), Frames(result.requests, result.timeseries)
    return render_validation(validation.document, *sides, series(validation))


def _decided(decision: Decision) -> Kind:
    made = decision.document()
    failed = made.get("failed") or made.get("infeasible")
    kept = {k: v for k, v in decision.sections.items() if failed or k != "failures"}
    return Kind(lambda folder: decision.render(made), kept)


KINDS: Mapping[str, Kind] = {
    "run": Kind(_run(2000), reports.page.SECTIONS),
    **{name: _decided(decision) for name, decision in DECISIONS.items()},
    "profile": Kind(_profile, OF_PROFILES),
    "validation": Kind(_validation, OF_VALIDATIONS),
}

LARGE = Kind(_run(100_000), reports.page.SECTIONS)
"""A run of a hundred thousand requests."""
