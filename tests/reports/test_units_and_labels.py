"""Times have the units that people say, labels stand free, texts have one typography."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

import sim
from reports.figures import fleet, latency_cdf, latency_parts, memory_use, over_run, slots, timeline
from reports.figures.axes import labelled
from reports.figures.latency_parts import Bands
from reports.figures.slot_view import slot_view
from reports.figures.steps import fleet_steps
from reports.frame.formats import NARROW_SPACE
from reports.pages.run import head
from reports.pages.run.tables import facts, latencies, lines
from reports.pages.run.verdict import verdict
from sim.planning.points.wording import spoken
from tests import made_up
from tests.answers import render_sweep
from tests.browser import Drive, needs_browser, with_figures
from tests.report_fixtures import SavedRun, make_run
from tests.reports.test_report import render


@pytest.mark.parametrize(
    ("duration", "unit", "factor"), [(500.0, "s", 1.0), (7200.0, "min", 60.0), (86400.0, "h", 3600)]
)
def test_a_run_is_drawn_in_the_unit_of_its_length(
    duration: float, unit: str, factor: float
) -> None:
    course = {
        "edges": [0.0, duration / 2, duration],
        "pools": [{"name": "main", "held": [1, 2], "running": [3, 4], "waiting": [0, 1]}],
        "handed": None,
    }
    drawn = fleet.pools(course)
    assert drawn.layout.xaxis.ticksuffix == f" {unit}"
    assert drawn.layout.xaxis.range == pytest.approx((0, duration / factor))
    for trace in drawn.data:
        assert np.asarray(trace.x).max() == pytest.approx(duration / factor)


def test_figures_of_one_long_run_agree_on_the_unit() -> None:
    run = make_run(300, rate=0.25)  # twenty minutes
    end = float(run.timeseries["end_s"].max())
    course = over_run.course(run.requests, "ttft", 99.0)
    assert course is not None
    made = [
        memory_use.kv_map(run.timeseries, run.requests, kv_tokens=1e5),
        over_run.latency_over_time(course, "ttft", 99.0),
    ]
    for drawn in made:
        assert drawn.layout.xaxis.ticksuffix == " min"
        furthest = max(float(np.asarray(trace.x).max()) for trace in drawn.data)
        assert 0.5 * end / 60 < furthest <= end / 60


def test_a_long_latency_has_its_percentiles_in_minutes() -> None:
    run = make_run(200)
    frame = run.requests.assign(status="completed", warmup=False)
    frame["ttft_s"] = np.linspace(60.0, 240.0, len(frame))
    drawn = latency_cdf.figure(frame, "ttft", limit_s=1.0, target=0.95)
    assert drawn.layout.xaxis.title.text == "TTFT (min)"
    texts = [text.strip() for text in drawn.data[-1].text if text]
    assert texts == ["p50  2.5 min", "p95  3.85 min"], "p99 would lie on p95"
    named = [(shape.name, shape.showlegend) for shape in drawn.layout.shapes]
    assert named == [("limit 1 s", True), ("95 % wanted", True)]
    assert drawn.layout.showlegend


def test_labels_of_high_percentiles_stay_below_the_legend() -> None:
    """Over a mark at the right there is room up to it, and none stands on the wanted share."""
    seconds = np.linspace(1.0, 100.0, 100)
    requests = pd.DataFrame({"ttft_s": seconds, "status": "completed", "warmup": False})
    drawn = latency_cdf.figure(requests, "ttft", limit_s=90.0, target=0.99)
    assert drawn.data[1].textposition == (
        "bottom right", "middle left", "top left",
    )  # fmt: skip
    assert drawn.layout.yaxis.range[1] > 1.1
    assert {shape.layer for shape in drawn.layout.shapes} == {"below"}


def test_a_logarithmic_axis_has_whole_numbers_and_leaves_out_what_says_nothing() -> None:
    assert labelled(8.0, 120.0)["ticktext"] == ["10", "20", "50", "100"]
    run = make_run(400)
    frame = run.requests.assign(status="completed", warmup=False)
    frame["queue_s"] = np.concatenate([[1e-6] * 4, np.geomspace(2e-3, 0.3, 396)])
    axis = latency_cdf.figure(frame, "queue").layout.meta["log"]
    assert axis["type"] == "log"
    assert 10 ** axis["range"][0] > 0.5, "not from a microsecond on (ms)"
    assert 10 ** axis["range"][1] >= 300


def test_the_legend_of_the_parts_is_above_the_bars_below_it() -> None:
    whole = np.array([8.0, 9.0, 9.5, 9.8, 10.0, 10.0, 10.0, 10.0])
    names = ("front_end", "queue", "prefill", "prefill_delay", "decode", "decode_delay")
    parts = {name: whole / len(names) for name in names}
    labels = tuple(f"p{number}" for number in range(8))
    found = Bands(labels, (1,) * 8, parts, whole, dict.fromkeys(names, 1.0))
    drawn = latency_parts.figure(found, "e2el")
    assert drawn.layout.legend.traceorder == "reversed", "as the parts lie on each other"
    top = drawn.layout.yaxis.range[1]
    legend = latency_parts.LINE * len(names) / latency_parts.PLOT
    factor = 1.0 if drawn.layout.yaxis.title.text.endswith("(s)") else 1e3
    assert factor * whole[: latency_parts.UNDER].max() / top <= 1 - legend


def test_a_slot_says_whose_request_it_serves() -> None:
    run = make_run(40)
    view = slot_view(run.requests, run.timeseries)
    assert view is not None
    drawn = slots.chart(view)
    (decode,) = [trace for trace in drawn.data if trace.name == "decode"]
    asked = run.requests.set_index("request_id")
    for number, *_, about in decode.customdata:
        row = asked.loc[number]
        assert about.startswith(f"{row['prompt_tokens']:,} in, {row['output_tokens']:,} out")
        assert "TTFT" in about


def test_rows_of_a_slot_chart_are_numbered_in_plain_steps() -> None:
    assert slots._rows(9)["tickvals"] == [*range(1, 10)]
    assert slots._rows(16)["tickvals"] == [1, 5, 10, 15]
    assert slots._rows(40)["tickvals"] == [1, 5, 10, 15, 20, 25, 30, 35, 40]


# ---- an observed run ----------------------------------------------------------------------------


@pytest.fixture
def seen() -> SavedRun:
    run = make_run(60)
    own = run.summary["infersim"]
    bands = {"figures": {"p99_ttft_ms": {"band50": [1, 2], "band90": [1, 2]}}, "text": "a chance"}
    own |= {"verdict": own["verdict"] | {"state": "observed", "headroom": None}, "bands": bands}
    own["asked"] = {"traffic": "trace trace.csv", "lengths": "", "slo": "", "still_asks": True}
    own["utilisation"] = own["utilisation"] | {"mfu": None}
    for name in ("mean", "median", "std", "p90", "p95", "p99"):
        run.summary[f"{name}_itl_ms"] = None
    return dataclasses.replace(run, requests=run.requests)


def test_a_measurement_has_no_band_of_predictions(seen: SavedRun) -> None:
    told = {answer.key: answer for answer in verdict(seen.summary).answers}["band"]
    assert "a chance" not in told.detail
    assert not any(
        "nine of ten" in line for card in head.cards(seen.summary) for line in card.details
    )
    seen.summary["infersim"]["verdict"]["state"] = "stable"
    assert any("nine of ten" in line for card in head.cards(seen.summary) for line in card.details)


def test_the_head_of_a_record_says_what_came(seen: SavedRun) -> None:
    asked = head.header(seen.summary, seen.requests)["asked"]
    span = np.ptp(seen.requests["arrival_s"])
    assert "trace.csv" not in asked
    assert f"60 requests at {59 / span:.1f}"[:-1] in asked
    assert f"prompts {seen.requests['prompt_tokens'].mean():,.0f}" in asked


def test_what_was_not_recorded_has_no_row(seen: SavedRun) -> None:
    table = latencies(seen.summary, seen.requests, {})
    assert "ITL" not in [row[0].text for row in table.rows]
    made = facts(seen.summary, "batch", "Batch", lines("use"))
    assert "MFU" not in [row[0].text for row in made.rows]
    seen.summary["infersim"]["verdict"]["state"] = "stable"
    made = facts(seen.summary, "batch", "Batch", lines("use"))
    assert "MFU" in [row[0].text for row in made.rows]


# ---- texts --------------------------------------------------------------------------------------


def test_percent_signs_are_written_alike_but_for_what_is_copied() -> None:
    run = make_run(40)
    run.summary["infersim"]["notes"] = ["88% of 3 us, see `--set a=12%`"]
    page = render(run)
    assert f"88{NARROW_SPACE}% of 3 \u00b5s, see <code>--set a=12%</code>" in page


def test_settings_are_said_as_people_say_them() -> None:
    assert spoken("rate=2, gpu=l40s and 7 more") == "2 requests/s, l40s and 7 more"
    assert spoken("workload.arrivals.rate=2") == "workload.arrivals.rate=2", "a key of a file"


def test_a_sweep_says_how_to_see_one_of_its_points() -> None:
    document = made_up.load_sweep()
    command = "infersim sweep scenarios/chat.yaml --set run.requests=9 --sweep a=1,2 --jobs 1"
    page = render_sweep(document | {"made": {"date": "2030-01-02", "command": command}})
    first = next(row for row in document["results"] if row["summary"] is not None)
    settings = " ".join(f"--set {key}={value:g}" for key, value in first["settings"].items())
    assert f"infersim run scenarios/chat.yaml --set run.requests=9 {settings}" in page
    assert "infersim run scenarios" not in render_sweep(document)


def test_conversations_are_on_the_page_of_their_run() -> None:
    result = sim.simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {
                "sessions": {
                    "turns": {"kind": "fixed", "value": 2},
                    "think_time": {"kind": "fixed", "value": 1},
                },
                "arrivals": {"kind": "poisson", "rate": 2},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 10},
            },
            "run": {"requests": 40},
        }
    )
    assert result.summary["infersim"]["sessions"]["started"] > 0
    run = make_run(40)
    run.summary["infersim"]["sessions"] = result.summary["infersim"]["sessions"]
    page = render(run)
    assert 'id="table-sessions"' in page
    assert 'id="table-sessions"' not in render(make_run(40))


# ---- figures that are folded away ---------------------------------------------------------------

FOLDED = """<details id="folded"><summary>more</summary>
<div style="width:400px">{}</div></details>"""


@needs_browser
def test_a_figure_that_is_folded_away_is_drawn_when_it_is_opened(drive: Drive) -> None:
    page = with_figures(render(make_run(80)), "cdf-ttft")
    at = page.index('<figure id="figure-cdf-ttft">')
    end = page.index("</figure>", at) + len("</figure>")
    page = page[:at] + FOLDED.format(page[at:end]) + page[end:]
    result = drive(
        page,
        """const plot = document.querySelector(".plot");
        const before = plot.dataset.drawn;
        document.getElementById("folded").open = true;
        await until(() => plot.dataset.drawn);
        return { before: before ?? null, after: plot.dataset.drawn,
                 width: plot.querySelector("svg").getBoundingClientRect().width };""",
    )
    assert result["before"] is None
    assert result["after"] == "yes"
    assert math.isclose(result["width"], 400, abs_tol=2)


def test_of_a_long_run_the_mean_and_the_most_that_ran_are_drawn() -> None:
    run = make_run(3000)
    level = fleet_steps(run.timeseries, run.requests)
    assert level.time.size > timeline.MANY
    drawn = timeline.figure(run.timeseries, run.requests, kv_tokens=1e6)
    named = {trace.name: np.asarray(trace.y, float) for trace in drawn.data}
    mean, most = named["running, mean"], named["running, most"]
    assert (mean <= most + 1e-6).all()
    assert most.max() == level.levels["running"].max()
    assert len(mean) == timeline.BINS + 1
    short = make_run(40)
    few = timeline.figure(short.timeseries, short.requests, kv_tokens=1e6)
    assert "running" in [trace.name for trace in few.data]
