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
    fleet,
    histogram,
    kernels,
    latency_cdf,
    latency_parts,
    memory_use,
    operator_work,
    over_run,
    overlaid,
    score_bands,
    slo_bars,
    slots,
    timeline,
    validated,
)
from reports.figures.charts import chart
from reports.figures.kernels import by_operator
from reports.figures.latency_parts import bands
from reports.figures.memory_use import gpu_memory as in_memory
from reports.figures.steps import replica_count
from reports.figures.validated import LatencySample
from reports.frame.run_directory import SavedRun, read
from reports.pages import trust
from reports.pages.planning import compare_runs
from reports.pages.run.slo import attained, limit_uses
from sim.errors import InfersimError
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
    found = over_run.course(run.requests, "ttft", 99.0)
    assert found is not None, "a run of so few requests has no course"
    return over_run.latency_over_time(found, "ttft", 99.0)


OF_RUNS: Mapping[str, Callable[[SavedRun], go.Figure]] = {
    "over_run.latency_over_time": _course,
    "over_run.density": lambda run: over_run.density(
        run.requests["arrival_s"].to_numpy(float),
        run.requests["prompt_tokens"].to_numpy(float),
        *("prompt", "tokens"),
    ),
    "over_run.ttft_by_prompt": lambda run: over_run.ttft_by_prompt(run.requests),
    "slo_bars.attainment": lambda run: slo_bars.attainment(attained(run.summary), 0.99),
    "slo_bars.limit_use": lambda run: slo_bars.limit_use(limit_uses(run.summary, run.requests)),
    "memory_use.figure": lambda run: memory_use.gpu_bars(
        in_memory(run.summary["infersim"]["memory"], run.timeseries)
    ),
    "histogram": lambda run: histogram.figure(
        run.requests["prompt_tokens"].to_numpy(float),
        title="prompt tokens",
        metric="prompt_tokens",
        whole=True,
    ),
    "latency_cdf.itl": lambda run: latency_cdf.itl(
        run.charts["itl"], latency_cdf.stated(run.summary)
    ),
    "memory_use.kv_map": lambda run: memory_use.kv_map(
        run.timeseries,
        run.requests,
        kv_tokens=_kv(run),
        replicas=replica_count(run.timeseries, run.requests),
    ),
    "latency_cdf.figure": lambda run: latency_cdf.figure(run.requests, "ttft", limit_s=0.5),
    "latency_parts": lambda run: latency_parts.figure(bands(run.requests, "e2el"), "e2el"),
    "operator_work.operator_time": lambda run: operator_work.operator_time(
        run.summary["infersim"]["time_by_operator"], run.summary["infersim"]["operators"]
    ),
    "operator_work.roofline": lambda run: operator_work.roofline(run.charts["roofline"]),
    "slots.figure": lambda run: slots.figure(run.requests, run.timeseries),
    "timeline": lambda run: timeline.figure(
        run.timeseries,
        run.requests,
        kv_tokens=_kv(run),
        replicas=replica_count(run.timeseries, run.requests),
    ),
}
"""Figures of a run."""


def _of(command: str, name: str) -> Build:
    """The figure ``name`` of the page of ``command``."""
    return lambda document: chart(drawn(command, document, name))


OF_RESULTS: Mapping[str, tuple[Build, Callable[[], Any]]] = {
    "heat": (_of("sweep", "heat-output_throughput"), made_up.grid_sweep),
    "fleet.attempts": (lambda d: fleet.attempts(d["course"], d["outages"]), made_up.failures),
    **{
        f"charts.{name}": (_of(command, name), made)
        for command, names, made in (
            ("ablate", ["waterfall-p99_ttft_ms"], made_up_studies.ablation),
            (
                "compare",
                ["cost-attained", "difference-output_throughput", "mean-p99_ttft_ms"],
                made_up.comparison,
            ),
            ("diagnose", ["parts-e2el"], made_up_studies.diagnosis),
            ("find", ["attainment", "curve-ttft"], made_up.highest_load),
            ("plan", ["growth", "pareto-ttft", "plan-cost"], made_up.fleet_plan),
            ("plan", ["split-ratios"], made_up.split_plan),
            ("sensitivity", ["attained", "tornado-p99_ttft_ms"], made_up_studies.uncertainty),
            ("sweep", ["knee-tpot"], made_up.load_sweep),
            ("sweep", ["pareto-speed"], made_up.policy_sweep),
        )
        for name in names
    },
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
    return validated.all_errors(rows, document["band"]["throughput"])


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
    "score_bands.coverage": Drawing(
        lambda document: score_bands.coverage([trust.held("all", _with_bands(document))]),
        made_up_verdicts.scores,
    ),
    "score_bands.ratios": Drawing(
        lambda document: score_bands.ratios(_with_bands(document)), made_up_verdicts.scores
    ),
    "fleet.pools": Drawing(fleet.pools, made_up.fleet_course),
    "overlaid": Drawing(_overlaid, compared_runs),
    "slots.shares": Drawing(_slot_shares, compared_runs),
    **{name: Drawing(build, make_run, read) for name, build in OF_RUNS.items()},
    **{
        name: Drawing(build, made, lambda path: json.loads(path.read_text("utf-8")))
        for name, (build, made) in OF_RESULTS.items()
    },
    "kernels.fitted": _of_profile(lambda d, _: kernels.fitted(_same_curves(d))),
    "kernels.predicted": _of_profile(lambda _, owns: kernels.predicted(owns[0])),
    "kernels.residuals": _of_profile(
        lambda d, owns: kernels.residuals(owns[0], d["regimes"].get(owns[0].operator, []))
    ),
    "kernels.arithmetic": _of_profile(
        lambda d, owns: kernels.arithmetic(d["roofline"], owns, d["curves"])
    ),
    "validated.all_errors": _of_validation(lambda d, *_: _errors(d)),
    "validated.against": _of_validation(
        lambda d, seen, told, series: validated.against(series["iterations"])
    ),
    "validated.latencies": _of_validation(
        lambda d, seen, told, series: validated.latencies(
            "TTFT",
            *(LatencySample(latency_cdf.sample(side.requests, "ttft")) for side in (seen, told)),
        )
    ),
    "validated.timelines": _of_validation(
        lambda d, seen, told, series: validated.timelines(seen, told, d["composition"]["kv_tokens"])
    ),
}
"""Every figure, by the name of its module, with that of its function where there are several."""


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
