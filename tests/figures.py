"""Draws any one figure of the reports alone: ``python -m tests.figures NAME [SOURCE] [-o FILE]``.

``SOURCE`` is a run directory for a figure of a run's page and a ``result.json`` for a figure of a
planning command; without it, and for profiles and validations always, the data is made up. The
figure is written as one offline HTML file.
"""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures import (
    attained_at_ends,
    attainment,
    attempts,
    cost_attained,
    coverage,
    density,
    differences,
    find_attainment,
    find_curve,
    fleet,
    gpu_memory,
    growth,
    heat,
    histogram,
    itl_cdf,
    kernel_curves,
    kernel_predicted,
    kernel_residuals,
    kernel_roofline,
    knee,
    kv_map,
    latency_cdf,
    latency_over_time,
    latency_parts,
    limit_use,
    mean_parts,
    observed_errors,
    observed_iterations,
    observed_latencies,
    observed_timelines,
    operator_time,
    overlaid,
    pareto,
    plan_cost,
    plan_pareto,
    ratios,
    roofline,
    slots,
    split_ratios,
    timeline,
    tornado,
    ttft_by_prompt,
    waterfall,
)
from reports.figures.kernel_names import by_operator
from reports.figures.latency_bands import bands
from reports.figures.memory_parts import gpu_memory as in_memory
from reports.figures.observed_latencies import LatencySample
from reports.figures.steps import replica_count
from reports.frame.run_directory import SavedRun, read
from reports.pages import trust
from reports.pages.planning import compare_runs
from reports.pages.run.limits import attained, limit_uses
from sim.errors import InfersimError
from sim.planning.answers.ablate import waterfall as steps_of
from sim.planning.answers.diagnose import mean_parts as parts_of
from sim.planning.answers.find import attained_by_load, curve
from sim.planning.answers.plan_drawings import cost_and_latency, fleet_costs
from sim.planning.answers.plan_drawings import growth as growth_of
from sim.planning.answers.sensitivity import attained_at_ends as at_ends
from sim.planning.answers.sensitivity import changes
from sim.planning.answers.split import replica_ratios
from sim.planning.answers.validated import rows_of
from tests import made_up, made_up_studies, made_up_verdicts
from tests.answers import drawn
from tests.observed_fixtures import made_up_validation
from tests.page_kinds import compared_runs
from tests.profile_fixtures import made_up_profile
from tests.report_fixtures import make_run

Build = Callable[[Any], go.Figure]


class Drawing(NamedTuple):
    """A figure: ``build`` makes it of data that is ``made_up`` or, where that is possible, ``read``
    from a path."""

    build: Build
    made_up: Callable[[], Any]
    read: Callable[[Path], Any] | None = None


def _kv(run: SavedRun) -> Any:
    return run.summary["infersim"]["kv_cache"]["tokens"]


def _course(run: SavedRun) -> go.Figure:
    found = latency_over_time.course(run.requests, "ttft", 99.0)
    assert found is not None, "a run of so few requests has no course"
    return latency_over_time.figure(found, "ttft", 99.0)


OF_RUNS: Mapping[str, Callable[[SavedRun], go.Figure]] = {
    "latency_over_time": _course,
    "density": lambda run: density.figure(
        run.requests["arrival_s"].to_numpy(float),
        run.requests["prompt_tokens"].to_numpy(float),
        *("prompt", "tokens"),
    ),
    "ttft_by_prompt": lambda run: ttft_by_prompt.figure(run.requests),
    "attainment": lambda run: attainment.figure(attained(run.summary), 0.99),
    "limit_use": lambda run: limit_use.figure(limit_uses(run.summary, run.requests)),
    "gpu_memory": lambda run: gpu_memory.figure(
        in_memory(run.summary["infersim"]["memory"], run.timeseries)
    ),
    "histogram": lambda run: histogram.figure(
        run.requests["prompt_tokens"].to_numpy(float),
        title="prompt tokens",
        metric="prompt_tokens",
        whole=True,
    ),
    "itl_cdf": lambda run: itl_cdf.figure(run.charts["itl"], itl_cdf.stated(run.summary)),
    "kv_map": lambda run: kv_map.figure(
        run.timeseries,
        run.requests,
        kv_tokens=_kv(run),
        replicas=replica_count(run.timeseries, run.requests),
    ),
    "latency_cdf": lambda run: latency_cdf.figure(run.requests, "ttft", limit_s=0.5),
    "latency_parts": lambda run: latency_parts.figure(bands(run.requests, "e2el"), "e2el"),
    "operator_time": lambda run: operator_time.figure(
        run.summary["infersim"]["time_by_operator"], run.summary["infersim"]["operators"]
    ),
    "roofline": lambda run: roofline.figure(run.charts["roofline"]),
    "slots": lambda run: slots.figure(run.requests, run.timeseries),
    "timeline": lambda run: timeline.figure(
        run.timeseries,
        run.requests,
        kv_tokens=_kv(run),
        replicas=replica_count(run.timeseries, run.requests),
    ),
}
"""Figures of a run."""


def _of(build: Build, command: str, name: str) -> Build:
    """The figure ``name`` of the page of ``command``, which ``build`` draws."""
    return lambda document: build(drawn(command, document, name))


OF_RESULTS: Mapping[str, tuple[Build, Callable[[], Any]]] = {
    "attained_at_ends": (
        lambda d: attained_at_ends.figure(at_ends(d)),
        made_up_studies.uncertainty,
    ),
    "attempts": (lambda d: attempts.figure(d["course"], d["outages"]), made_up.failures),
    "cost_attained": (
        _of(cost_attained.figure, "compare", "cost-attained"),
        made_up.comparison,
    ),
    "differences": (
        _of(differences.figure, "compare", "difference-output_throughput"),
        made_up.comparison,
    ),
    "find_attainment": (
        lambda d: find_attainment.figure(attained_by_load(d)),
        made_up.highest_load,
    ),
    "find_curve": (lambda d: find_curve.figure(curve(d, "ttft")), made_up.highest_load),
    "heat": (_of(heat.figure, "sweep", "heat-output_throughput"), made_up.grid_sweep),
    "knee": (_of(knee.figure, "sweep", "knee-tpot"), made_up.load_sweep),
    "mean_parts": (lambda d: mean_parts.figure(parts_of(d, "e2el")), made_up_studies.diagnosis),
    "means": (_of(differences.means, "compare", "mean-p99_ttft_ms"), made_up.comparison),
    "pareto": (_of(pareto.figure, "sweep", "pareto-speed"), made_up.policy_sweep),
    "growth": (lambda d: growth.figure(growth_of(d)), made_up.fleet_plan),
    "plan_pareto": (lambda d: plan_pareto.figure(cost_and_latency(d, "ttft")), made_up.fleet_plan),
    "tornado": (
        lambda d: tornado.figure(changes(d, "p99_ttft_ms")),
        made_up_studies.uncertainty,
    ),
    "waterfall": (lambda d: waterfall.figure(steps_of(d, "p99_ttft_ms")), made_up_studies.ablation),
}
"""Figures of the results of planning commands, with a result of each."""


def _of_profile(build: Callable[[Any, Any], go.Figure | None]) -> Drawing:
    """A figure of a profile's document and its points, operator by operator."""

    def drawn(found: tuple[Any, Any]) -> go.Figure:
        figure = build(found[0], by_operator(found[1]))
        assert figure is not None
        return figure

    return Drawing(drawn, partial(_in_folder, made_up_profile))


def _of_validation(build: Callable[..., go.Figure]) -> Drawing:
    """A figure of a validation's document, the tables of both runs and its series."""
    return Drawing(lambda found: build(*found), lambda: deepcopy(_validated()))


@cache
def _validated() -> Any:
    """What figures of a validation are drawn from, made once."""
    return _in_folder(made_up_validation)


def _in_folder(make: Callable[[Path], Any]) -> Any:
    with TemporaryDirectory() as folder:
        return make(Path(folder))


def _same_curves(document: Mapping[str, Any]) -> list[Any]:
    """The curves of the operator and precision that come first."""
    first, *others = document["curves"]
    key = ("operator", "precision")
    return [first, *(each for each in others if all(each[k] == first[k] for k in key))]


def _errors(document: Mapping[str, Any]) -> go.Figure:
    rows = [(row.figure, row) for row in rows_of(document).errors]
    return observed_errors.figure(rows, document["band"]["throughput"])


def _with_bands(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["band90"] is not None]


def _slot_shares(runs: Mapping[int, SavedRun]) -> go.Figure:
    shown = compare_runs.drawn_variants(made_up.comparison(), runs)
    (drawn,) = compare_runs.slot_shares_of(compare_runs.slot_views(shown))
    assert isinstance(drawn.data, go.Figure)
    return drawn.data


def _overlaid(runs: Mapping[int, SavedRun]) -> go.Figure | None:
    shown = compare_runs.drawn_variants(made_up.comparison(), runs)
    return overlaid.distributions(shown, "ttft", 0.5)


DRAWINGS: Mapping[str, Drawing] = {
    "coverage": Drawing(
        lambda document: coverage.figure([trust.held("all", _with_bands(document))]),
        made_up_verdicts.scores,
    ),
    "ratios": Drawing(
        lambda document: ratios.figure(_with_bands(document)), made_up_verdicts.scores
    ),
    "fleet": Drawing(fleet.figure, made_up.fleet_course),
    "plan_cost": Drawing(lambda d: plan_cost.figure(fleet_costs(d)), made_up.fleet_plan),
    "split_ratios": Drawing(
        lambda document: split_ratios.figure(replica_ratios(document)), made_up.split_plan
    ),
    "overlaid": Drawing(_overlaid, compared_runs),
    "slot_shares": Drawing(_slot_shares, compared_runs),
    **{name: Drawing(build, make_run, read) for name, build in OF_RUNS.items()},
    **{
        name: Drawing(build, made, lambda path: json.loads(path.read_text("utf-8")))
        for name, (build, made) in OF_RESULTS.items()
    },
    "kernel_curves": _of_profile(lambda d, _: kernel_curves.figure(_same_curves(d))),
    "kernel_predicted": _of_profile(lambda _, owns: kernel_predicted.figure(owns[0])),
    "kernel_residuals": _of_profile(
        lambda d, owns: kernel_residuals.figure(owns[0], d["regimes"].get(owns[0].operator, []))
    ),
    "kernel_roofline": _of_profile(
        lambda d, owns: kernel_roofline.arithmetic(d["roofline"], owns, d["curves"])
    ),
    "observed_errors": _of_validation(lambda d, *_: _errors(d)),
    "observed_iterations": _of_validation(
        lambda d, seen, told, series: observed_iterations.against(series["iterations"])
    ),
    "observed_latencies": _of_validation(
        lambda d, seen, told, series: observed_latencies.figure(
            "TTFT",
            *(LatencySample(latency_cdf.sample(side.requests, "ttft")) for side in (seen, told)),
        )
    ),
    "observed_timelines": _of_validation(
        lambda d, seen, told, series: observed_timelines.figure(
            seen, told, d["composition"]["kv_tokens"]
        )
    ),
}
"""Every figure, by the name of its module; ``means`` is the other one of ``differences``."""


def main(arguments: list[str] | None = None) -> int:
    """Draw the figure, write it, print its path; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__)
    parser.add_argument("name", choices=sorted(DRAWINGS), metavar="NAME")
    parser.add_argument("source", nargs="?", type=Path, help="a run directory or a result.json")
    parser.add_argument("-o", "--output", type=Path, help="default: NAME.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    given = parser.parse_args(arguments)
    drawing = DRAWINGS[given.name]
    if given.source is not None and drawing.read is None:
        parser.error(f"{given.name} is drawn from made-up data only")
    try:
        data = drawing.made_up() if given.source is None else drawing.read(given.source)
    except InfersimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    path = (given.output or Path(f"{given.name}.html")).resolve()
    config = {"displayModeBar": False, "responsive": True}
    drawing.build(data).write_html(path, include_plotlyjs=True, config=config)
    print(path)
    if given.open:
        webbrowser.open(path.as_uri())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
