"""The figures of planning: seconds for long latencies, and the percentile that the SLO asks for."""

from __future__ import annotations

from typing import Any

import pytest

from reports.figures.charts import chart
from reports.frame import theme
from sim.planning.answers.diagnose import mean_parts
from sim.planning.answers.drawings import (
    BarChart,
    ChartAxis,
    ChartBar,
    ChartPoint,
    Grid,
    PointChart,
    Series,
)
from sim.planning.answers.find import curve as curve_of
from sim.planning.answers.plan_drawings import cost_and_latency, fleet_costs
from tests import made_up, made_up_studies
from tests.answers import drawings, drawn, render_diagnosis


def test_words_next_to_bars_have_room_behind_the_axis_not_on_it() -> None:
    """A wide figure would leave a third of itself blank for them."""
    bars = tuple(ChartBar(f"row {end}", end, "", "123.4 GiB") for end in (2.0, 80.0))
    drawn = chart(BarChart(ChartAxis("memory (GiB)"), bars))
    assert drawn.layout.xaxis.range[1] < 85
    assert drawn.layout.margin.r >= 6 * len("123.4 GiB")
    short = chart(BarChart(ChartAxis("memory (GiB)"), (bars[0], ChartBar("long", 80.0, ""))))
    assert short.layout.margin.r == theme.RIGHT  # they fit over the longer bar


def test_shares_of_all_have_no_labels_beyond_them() -> None:
    met = PointChart(
        ChartAxis("cost"),
        ChartAxis("share", "share", ends=(0.98, 1.02)),
        (Series("a", (ChartPoint(1.0, 1.0, "a"),)),),
    )
    assert max(chart(met).layout.yaxis.tickvals) == 1


def test_a_curve_of_long_latencies_is_in_seconds() -> None:
    found = made_up.highest_load()
    for probe in found["probes"]:
        probe["slo_ttft_ms"] = 20_000.0 + 1000 * probe["load"]
    curve = chart(curve_of(found, "ttft"))
    assert curve.layout.yaxis.title.text == "TTFT p99 (s)"
    line = next(trace for trace in curve.data if trace.mode == "lines" and not trace.name)
    assert list(line.y) == pytest.approx([20 + probe["load"] for probe in found["probes"]])
    region = next(shape for shape in curve.layout.shapes if shape.name == "within the SLO")
    assert region.y1 == pytest.approx(0.5)
    told = [trace.hovertemplate for trace in curve.data if trace.mode == "markers"]
    assert told
    assert all("<br>TTFT p99: %{customdata[1]:,.4~g} s" in each for each in told)


def test_fleets_with_long_latencies_are_drawn_in_seconds() -> None:
    plan_of = made_up.fleet_plan()
    for point in plan_of["sized"]:
        point["slo_ttft_ms"] *= 100
    fleets = chart(cost_and_latency(plan_of, "ttft"))
    assert fleets.layout.yaxis.title.text == "TTFT p99 (s)"
    drawn = sorted(y for trace in fleets.data if "markers" in trace.mode for y in trace.y)
    wanted = sorted(point["slo_ttft_ms"] / 1e3 for point in plan_of["sized"])
    assert drawn == pytest.approx(wanted)
    limit = next(shape for shape in fleets.layout.shapes if shape.name == "limit 500 ms")
    assert (limit.y0, limit.y1) == pytest.approx((0.5, 0.5))


def test_the_parts_of_a_long_latency_are_in_seconds() -> None:
    diagnosed = made_up_studies.diagnosis()
    for of in diagnosed["latency"].values():
        of["queue"] = 45_000.0
    bars = chart(mean_parts(diagnosed, "ttft"))
    assert bars.layout.xaxis.title.text == "TTFT, mean (s)"
    queue = next(trace for trace in bars.data if trace.name == "queue")
    assert list(queue.x) == pytest.approx([45.0, 45.0])
    table = render_diagnosis(diagnosed).partition('id="table-latency"')[2]
    assert ">45 s<" in table.partition("</table>")[0]


def test_a_heat_map_of_long_latencies_is_in_minutes() -> None:
    grid = made_up.grid_sweep()
    for row in grid["results"]:
        row["summary"]["p99_ttft_ms"] *= 1000
    heated = drawn("sweep", grid, "heat-ttft")
    assert heated.title == "TTFT p99 (min)"
    assert by_point(heated) == pytest.approx(
        [row["summary"]["p99_ttft_ms"] / 60e3 for row in grid["results"]]
    )


def by_point(grid: Grid) -> list[float | None]:
    """The values of a grid in the order of its points."""
    return [value for column in zip(*grid.values, strict=True) for value in column]


def test_short_latencies_are_drawn_in_milliseconds() -> None:
    assert chart(curve_of(made_up.highest_load(), "ttft")).layout.yaxis.title.text == (
        "TTFT p99 (ms)"
    )
    fleets = chart(cost_and_latency(made_up.fleet_plan(), "ttft"))
    assert fleets.layout.yaxis.title.text == "TTFT p99 (ms)"
    bars = chart(mean_parts(made_up_studies.diagnosis(), "ttft"))
    assert bars.layout.xaxis.title.text == "TTFT, mean (ms)"


def test_a_wide_range_of_latencies_has_units_at_its_ticks() -> None:
    found = made_up.highest_load()
    found["probes"][-1]["slo_ttft_ms"] = 200_000.0
    curve = chart(curve_of(found, "ttft"))
    assert curve.layout.yaxis.type == "log"
    assert {"1 s", "100 s"} <= set(curve.layout.yaxis.ticktext)
    line = next(trace for trace in curve.data if trace.mode == "lines" and not trace.name)
    assert line.y[-1] == pytest.approx(200.0)
    low, high = curve.layout.yaxis.range
    assert 10**low < min(line.y) < max(line.y) < 10**high


def asking(document: dict[str, Any], limits: dict[str, float]) -> dict[str, Any]:
    """``document``, the SLO of whose points limits these percentiles; p95 is half of p99."""
    for row in document["results"]:
        found = row["summary"]
        for latency in ("ttft", "tpot"):
            found[f"p95_{latency}_ms"] = found[f"p99_{latency}_ms"] / 2
        found["infersim"]["verdict"]["limits"] = {
            name: {"limit_ms": 500.0, "attainment": 0.9, "percentile": at}
            for name, at in limits.items()
        }
    return document


@pytest.mark.parametrize(
    ("limits", "rank"),
    [
        ({"ttft": 95.0}, "p95"),
        ({"ttft_p50": 50.0, "ttft_p95": 95.0}, "p95"),
        ({"tpot": 95.0}, "p95"),
        ({"tpot_p95": 95.0}, "p99"),
        ({}, "p99"),
    ],
)
def test_heat_map_and_cost_show_the_percentile_of_the_slo(
    limits: dict[str, float], rank: str
) -> None:
    document = asking(made_up.grid_sweep(), limits)
    wanted = [row["summary"][f"{rank}_ttft_ms"] for row in document["results"]]
    heated = drawings("sweep", document)["heat-ttft"]
    assert heated.title == f"TTFT {rank} (ms)"
    assert isinstance(heated.data, Grid)
    assert heated.data.title == heated.title
    assert by_point(heated.data) == pytest.approx(wanted)
    judged = [row["summary"]["infersim"]["verdict"] for row in document["results"]]
    serving = [
        value
        for value, verdict in zip(wanted, judged, strict=True)
        if verdict["state"] == "stable" and verdict["slo_state"] == "met"
    ]
    assert 0 < len(serving) < len(wanted)
    cost = chart(drawn("sweep", document, "pareto-cost"))
    assert cost.layout.yaxis.title.text == f"TTFT {rank}"
    ys = [y for trace in cost.data if trace.mode == "markers" for y in trace.y]
    assert ys == pytest.approx([value / 1e3 for value in serving])


def test_the_limit_of_a_percentile_alone_is_drawn() -> None:
    document = asking(made_up.load_sweep(), {"ttft_p50": 50.0, "ttft_p95": 95.0})
    figure = chart(drawn("sweep", document, "knee-ttft"))
    assert figure.layout.yaxis.title.text == "TTFT p95"
    region, limit = figure.layout.shapes
    assert region.y1 == limit.y0 == 0.5


def test_a_cost_without_a_known_upper_end_is_an_arrow_and_others_are_whiskers() -> None:
    made = made_up.fleet_plan()
    first, second = made["fleets"][:2]
    usd = first["usd_per_hour"]
    first["error_band"] |= {"usd_per_hour": [usd - 10, None]}
    second["error_band"] |= {"usd_per_hour": [150.0, 260.0]}
    figure = chart(fleet_costs({**made, "fleets": [first, second]}))
    (arrow,) = figure.layout.annotations
    assert (arrow.ax, arrow.x) == (usd, figure.layout.xaxis.range[1])
    assert arrow.x >= 260.0
    spread = figure.data[0].error_x
    assert (spread.arrayminus[0], spread.array[0]) == (10.0, 0.0)
    assert spread.array[1] == 260.0 - second["usd_per_hour"]
    assert figure.data[0].customdata[0].endswith("to not known)")
    assert [f"${usd:,.2f}" in row for row in figure.layout.yaxis.ticktext] == [True, False]
    assert not any(words.strip() for words in figure.data[0].text)  # whiskers would cross them
