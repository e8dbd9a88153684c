"""The pages of sweeps and comparisons: hostile names stay text, every figure has its colours."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from reports import theme
from reports.planning import differences, heat, knee, tradeoff
from reports.planning.compare import headlines, render_compare
from reports.planning.demo import made_up_comparison, made_up_grid, made_up_sweep, main
from reports.planning.sweep import plots, render_sweep

HOSTILE = '</script><b>"&amp;'

FIGURES: dict[str, tuple[Callable[[Any], go.Figure], Callable[[], Any]]] = {
    "knee": (lambda document: knee.figure(document, "tpot"), made_up_sweep),
    "heat": (lambda document: heat.figure(document, "output_throughput"), made_up_grid),
    "tradeoff": (tradeoff.figure, made_up_grid),
    "differences": (
        lambda document: differences.figure(document, "output_throughput"),
        made_up_comparison,
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_colour_has_a_dark_twin(name: str) -> None:
    build, made_up = FIGURES[name]
    text = build(made_up()).to_json()
    colours = set(re.findall(r'"(#[0-9a-f]{6}|rgba?\([^)]*\))"', text))
    assert colours
    assert colours - {"rgba(0, 0, 0, 0)"} <= set(theme.dark_twins())


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_alone(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build, made_up = FIGURES[name]
    result = tmp_path / "result.json"
    result.write_text(json.dumps(made_up()))
    target = tmp_path / "one.html"
    main(name, build, made_up, [str(result), "-o", str(target)])
    assert capsys.readouterr().out.strip() == str(target)
    assert target.stat().st_size > 1_000_000  # plotly.js is inside


def test_what_is_drawn_of_a_sweep() -> None:
    assert [plot.name for plot in plots(made_up_sweep())] == ["knee-ttft", "knee-tpot"]
    grid = dict(made_up_grid())
    assert [plot.name for plot in plots(grid)] == ["heat-ttft", "heat-output_throughput"]
    grid["axes"] = [{**grid["axes"][0], "values": ["a", "b"]}, grid["axes"][1]]
    assert [plot.name for plot in plots(grid)] == ["tradeoff"]
    assert plots({**grid, "failed": grid["points"]}) == []


def test_the_knee_has_a_line_for_each_variant_and_the_limit() -> None:
    drawn = knee.figure(made_up_sweep(), "ttft")
    assert [trace.name for trace in drawn.data] == ["seats=12", "seats=26"]
    assert list(drawn.data[0].x) == sorted(drawn.data[0].x)
    assert "circle-open" in drawn.data[0].marker.symbol
    assert [shape.y0 for shape in drawn.layout.shapes] == [500.0]


def test_a_point_that_failed_is_a_hole_in_the_heat_map() -> None:
    grid = json.loads(json.dumps(made_up_grid()))
    grid["results"][0].update(summary=None, error="no", exit_code=3)
    drawn = heat.figure(grid, "p99_ttft_ms")
    assert drawn.data[0].customdata[0][0] is None
    assert drawn.data[0].customdata[1][0] is not None


def test_differences_are_coloured_by_what_is_better() -> None:
    document = made_up_comparison()
    slower, faster, unclear = (
        differences.figure(document, key).data[0].marker.color[index]
        for key, index in (("p99_ttft_ms", 0), ("output_throughput", 0), ("p99_ttft_ms", 1))
    )
    assert slower == faster == theme.GREEN.light  # less latency, more throughput
    assert unclear == theme.GREY.light


def test_what_the_summary_of_a_comparison_says() -> None:
    document = dict(made_up_comparison())
    assert headlines(document)[0] == "Best TTFT p99: continuous, 365 ms"
    document["figures"] = [{**document["figures"][0], "best": [1, 2]}]
    assert headlines(document) == ["Best TTFT p99: continuous; request; about 365 ms"]
    document["figures"] = [{**document["figures"][0], "best": []}]
    assert headlines(document) == ["TTFT p99: no variant can be told from the others"]


def test_hostile_names_stay_text() -> None:
    sweep = json.loads(json.dumps(made_up_sweep()))
    sweep["name"] = HOSTILE
    sweep["axes"][1].update(name=HOSTILE, values=[HOSTILE])
    for row in sweep["results"]:
        row.update(label=HOSTILE, settings={**row["settings"], "seats": HOSTILE})
    sweep["results"][0].update(summary=None, error=HOSTILE, exit_code=1)
    sweep["failed"] = 1
    comparison = json.loads(json.dumps(made_up_comparison()))
    comparison["name"] = HOSTILE
    for variant in comparison["variants"]:
        variant["label"] = HOSTILE
    comparison["variants"][2].update(error=HOSTILE, state=None)
    harmless = (render_sweep(made_up_sweep()), render_compare(made_up_comparison()))
    for page, plain in zip(
        (render_sweep(sweep), render_compare(comparison)), harmless, strict=True
    ):
        assert HOSTILE not in page
        assert page.count("</script>") == plain.count("</script>")
        assert "&lt;/script&gt;" in page
        assert "<b>" not in page.replace("\\u003cb>", "")


def test_many_lines_are_cut_and_it_says_so() -> None:
    sweep = json.loads(json.dumps(made_up_sweep()))
    for index, row in enumerate(sweep["results"]):
        row["settings"]["seats"] = index
    first = plots(sweep)[0]
    assert "The first 8 of 30 lines." in first.caption
    assert len(knee.figure(sweep, "ttft").data) == 8
