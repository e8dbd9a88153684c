"""The slot chart: what is drawn, of what, and that nothing is left out unsaid."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sim
from reports.figures import slot_view as views
from reports.figures import slots
from reports.figures.slot_view import caption, slot_view
from reports.frame import theme
from reports.frame.formats import NARROW_SPACE
from tests.browser import Drive, needs_browser, with_figures
from tests.report_fixtures import make_run, plan_frame
from tests.reports.test_report import rejected_run
from tests.reports.test_report import render as render_page


def simulated(batching: str, requests: int = 12, **blocks: int) -> sim.Result:
    return sim.simulate(
        sim.load_scenario(
            {
                "model": "llama-3.1-8b",
                "fleet": {"gpu": "h100-sxm"},
                "max_model_len": 512,
                "kv_cache": {"num_gpu_blocks": blocks.get("blocks")},
                "scheduler": {"batching": batching, "max_num_seqs": 4},
                "workload": {
                    "arrivals": {"kind": "burst"},
                    "prompt_tokens": {"kind": "fixed", "value": 300},
                    "output_tokens": {"kind": "uniform", "low": 2, "high": 200},
                },
                "run": {"requests": requests, "warmup": 0},
            }
        )
    )


def bars(figure: Any) -> pd.DataFrame:
    """Every bar: phase, panel, row, start and end, request."""
    rows = [
        (trace.name, trace.yaxis, y, base, base + x, data[0])
        for trace in figure.data
        if trace.type == "bar"
        for y, base, x, data in zip(trace.y, trace.base, trace.x, trace.customdata, strict=True)
    ]
    return pd.DataFrame(rows, columns=["phase", "panel", "row", "start", "end", "request"])


@pytest.mark.parametrize("batching", ["static", "request", "continuous"])
def test_every_request_is_drawn_from_arrival_to_finish(batching: str) -> None:
    result = simulated(batching)
    drawn = bars(slots.figure(result.requests, result.timeseries))
    spans = drawn.groupby("request").agg({"start": "min", "end": "max"})
    assert len(spans) == 12
    requests = result.requests.set_index("request_id")
    assert spans["start"].to_numpy() == pytest.approx(requests["arrival_s"].to_numpy())
    assert spans["end"].to_numpy() == pytest.approx(requests["finish_s"].to_numpy())
    in_slot = drawn[drawn["panel"] == "y"]
    assert in_slot["row"].max() == 4
    for _, unsorted in in_slot.groupby("row"):
        row = unsorted.sort_values("start")
        assert (row["end"].to_numpy()[:-1] <= row["start"].to_numpy()[1:] + 1e-9).all()


def test_static_batches_leave_seats_empty_and_continuous_ones_do_not() -> None:
    empty = {}
    for batching in ("static", "continuous"):
        result = simulated(batching, requests=40)
        drawn = bars(slots.figure(result.requests, result.timeseries))
        in_slot = drawn[drawn["panel"] == "y"]
        taken = (in_slot["end"] - in_slot["start"]).sum()
        empty[batching] = 1 - taken / (4 * in_slot["end"].max())
    assert empty["continuous"] < 0.1
    assert empty["static"] > 0.3


def test_a_slot_of_a_whole_batch_is_padded_or_held_until_the_batch_is_done() -> None:
    for batching, phase in (("static", "padding"), ("request", "held")):
        result = simulated(batching, requests=8)
        drawn = bars(slots.figure(result.requests, result.timeseries, batching))
        after = drawn[drawn["phase"] == slots.LABELS[phase]]
        ends = result.requests.groupby("scheduled_s")["finish_s"].max()
        assert len(ends) == 2
        done = result.requests.set_index("request_id")["finish_s"]
        assert len(after) == 6  # all but the longest of each batch
        assert set(after["end"]) == set(ends)
        assert (after["start"].to_numpy() == done[after["request"]].to_numpy()).all()
        in_slot = drawn[drawn["panel"] == "y"]
        taken = (in_slot["end"] - in_slot["start"]).sum()
        first = result.requests["scheduled_s"].min()
        assert taken == pytest.approx(4 * (in_slot["end"].max() - first), rel=1e-9)
        view = slot_view(result.requests, result.timeseries, batching)
        assert view is not None
        decoded = drawn.loc[drawn["phase"] == slots.LABELS["decode"]]
        share = (decoded["end"] - decoded["start"]).sum() / taken
        assert view.decoding == pytest.approx(share)
        assert f"{share:.0%} of the time of these slots" in caption(view)


def test_each_whole_batch_is_marked_where_it_begins_with_the_share_that_decodes() -> None:
    for batching in ("static", "request"):
        result = simulated(batching, requests=8)
        view = slot_view(result.requests, result.timeseries, batching)
        assert view is not None
        spans = result.requests.groupby("scheduled_s")["finish_s"].max()
        assert [(each.start, each.end) for each in view.batches] == list(spans.items())
        figure = slots.chart(view)
        drawn = bars(figure)
        decodes = drawn[drawn["phase"] == slots.LABELS["decode"]]
        for batch in view.batches:
            inside = decodes[(decodes["start"] >= batch.start) & (decodes["end"] <= batch.end)]
            share = (inside["end"] - inside["start"]).sum() / (4 * (batch.end - batch.start))
            assert batch.decoding == pytest.approx(share)
        marks = [shape.x0 for shape in figure.layout.shapes]
        unit = slots._unit(view).factor
        assert marks == pytest.approx([batch.start * unit for batch in view.batches])
        told = [each.text for each in figure.layout.annotations if each.text.endswith("%")]
        shares = [f"{batch.decoding:.0%}" for batch in view.batches]
        assert told == [share.replace("%", f"{NARROW_SPACE}%") for share in shares]
    result = simulated("continuous", requests=8)
    view = slot_view(result.requests, result.timeseries, "continuous")
    assert view is not None
    assert (view.batches, slots.chart(view).layout.shapes) == ((), ())


def test_a_batch_that_began_before_the_stretch_keeps_its_slots() -> None:
    result = simulated("static", requests=1200)
    view = slot_view(result.requests, result.timeseries, "static")
    assert view is not None
    assert view.is_cut
    for time in (view.start, (view.start + view.end) / 2):
        taken = [s for s in view.stays if s.in_slot and s.start <= time + 1e-9 < s.end]
        assert len(taken) == 4


def test_neighbours_in_a_slot_have_different_blues() -> None:
    result = simulated("continuous")
    figure = slots.figure(result.requests, result.timeseries)
    (decode,) = [trace for trace in figure.data if trace.name == slots.LABELS["decode"]]
    row = sorted(
        (base, data[0], colour)
        for y, base, data, colour in zip(
            decode.y, decode.base, decode.customdata, decode.marker.color, strict=True
        )
        if y == 1
    )
    pairs = [(one, other) for one, other in pairwise(row) if one[1] != other[1]]
    assert pairs
    assert all(one[2] != other[2] for one, other in pairs)


def test_preempted_requests_leave_their_seat() -> None:
    result = simulated("continuous", blocks=76)
    assert (result.requests["preemptions"] == 1).any()
    drawn = bars(slots.figure(result.requests, result.timeseries))
    away = drawn[drawn["phase"].isin([slots.LABELS["preempted"], slots.LABELS["unknown"]])]
    assert set(result.requests.loc[result.requests["preemptions"] > 0, "request_id"]) >= set(
        away["request"]
    )
    assert len(away)
    out = drawn[drawn["phase"] == slots.LABELS["preempted"]]
    assert (out["panel"] == "y2").all()


def test_a_small_run_is_shown_whole() -> None:
    result = simulated("continuous")
    view = slot_view(result.requests, result.timeseries)
    assert view is not None
    assert caption(view) == ""
    assert (view.start, view.end) == (0.0, result.requests["finish_s"].max())


def test_requests_whose_clients_gave_up_hold_no_slot() -> None:
    """When their last attempt ended is not known: drawn, it would hold its slot to the end."""
    run = make_run(100, rate=20.0)
    given_up = run.requests["request_id"] < 50
    requests = run.requests.assign(
        status=run.requests["status"].mask(given_up, "gave up"),
        finish_s=run.requests["finish_s"].mask(given_up),
    )
    view = slot_view(requests, run.timeseries)
    assert view is not None
    assert set(view.ids) == set(range(50, 100))


def test_a_large_run_is_shown_in_part_and_the_caption_says_which() -> None:
    run = make_run(4000, rate=60.0, replicas=3)
    view = slot_view(run.requests, run.timeseries)
    assert view is not None
    assert sum(len(stay.parts) for stay in view.stays) <= views.MOST_PARTS
    mine = run.requests[run.requests["replica"] == 0]
    assert view.start < mine["scheduled_s"].median() < view.end
    told = caption(view)
    assert f"{view.requests.drawn:,} of 4,000 requests." in told
    assert "One of 3 replicas." in told
    assert f"A stretch of the run: {view.start:.1f} to {view.end:.1f} s of" in told
    if view.slots.all > views.SLOTS + views.SPARE:
        assert f"The lowest {views.SLOTS} of {view.slots.all:,} slots." in told
    drawn = bars(slots.chart(view))
    assert drawn["start"].min() >= view.start
    assert drawn["end"].max() <= view.end + 1e-9
    assert drawn.loc[drawn["panel"] == "y", "row"].max() <= views.SLOTS + views.SPARE
    assert drawn.loc[drawn["panel"] != "y", "row"].max() <= views.LANES


def test_a_queue_that_never_ends_is_cut_too() -> None:
    run = make_run(12000, rate=4000.0)
    view = slot_view(run.requests, run.timeseries)
    assert view is not None
    assert view.lanes.drawn == 0
    assert view.lanes.all > views.FEW_REQUESTS
    assert view.queue is not None
    rows, time = run.requests, float(view.queue.times[-1])
    waits = (rows["arrival_s"] <= time) & ~(rows["scheduled_s"] <= time)
    assert view.queue.number[-1] == waits.sum() > views.FEW_REQUESTS
    assert 0 < view.requests.drawn < 300


def test_a_run_that_idles_in_the_middle() -> None:
    run = make_run(40)
    late = run.requests["request_id"] >= 20
    times = ["arrival_s", "scheduled_s", "first_token_s", "finish_s"]
    run.requests.loc[late, times] += 1e6
    drawn = bars(slots.figure(run.requests, run.timeseries))
    assert len(drawn)


def test_runs_without_anything_to_draw() -> None:
    assert slot_view(rejected_run().requests, plan_frame([])) is None
    empty = slots.figure(rejected_run().requests, plan_frame([]))
    assert empty.layout.annotations[0].text == "No request was served"
    assert slot_view(rejected_run().requests.iloc[:0], plan_frame([])) is None


def test_a_recorded_run_without_iterations() -> None:
    run = make_run(30)
    run.requests["scheduled_s"] = math.nan
    drawn = bars(slots.figure(run.requests, plan_frame([])))
    assert set(drawn["phase"]) == {slots.LABELS["unknown"], slots.LABELS["decode"]}


def test_a_run_that_was_cut_short() -> None:
    run = make_run(30)
    run.requests.loc[20:, "finish_s"] = math.nan
    run.requests.loc[25:, ["scheduled_s", "first_token_s"]] = math.nan
    run.requests.loc[20:, "status"] = "unfinished"
    drawn = bars(slots.figure(run.requests, run.timeseries))
    end = max(run.timeseries["end_s"].max(), run.requests["finish_s"].max())
    late = drawn[drawn["request"] >= 25]
    assert (late["phase"] == slots.LABELS["queue"]).all()
    assert late["end"].to_numpy() == pytest.approx(end)


def test_every_colour_has_a_dark_twin() -> None:
    assert set(slots.LABELS) == set(theme.PHASES)
    twins = theme.dark_twins()
    assert all(twins[tone.light] == tone.dark for tone in theme.PHASES.values())
    assert len({tone.light for tone in theme.PHASES.values()}) == len(theme.PHASES)


@needs_browser
def test_the_chart_in_a_browser(drive: Drive) -> None:
    found = drive(
        with_figures(render_page(make_run(60)), "slots"),
        """
        const plot = document.querySelector('[data-name="slots"]');
        const rows = () => plot.querySelectorAll(".barlayer .trace").length;
        const all = rows(), height = plot.clientHeight;
        const names = [...plot.querySelectorAll(".legendtext")].map((each) => each.textContent);
        const box = plot.getBoundingClientRect(), page = document.body.getBoundingClientRect();
        await Plotly.restyle(plot, { visible: "legendonly" }, [0]);
        await until(() => rows() !== all);
        return { all, left: rows(), names, height, layout: plot.layout.height,
                 inside: box.left >= page.left && box.right <= page.right };
        """,
    )
    assert found["all"] == len(found["names"]) >= 3
    assert found["left"] == found["all"] - 1
    assert found["height"] == pytest.approx(found["layout"], abs=4)
    assert found["inside"]


@needs_browser
def test_hatched_bars_are_lines_on_paper_and_patterns_on_the_screen(
    drive: Drive, tmp_path: Path
) -> None:
    """Of each pattern a browser would make a picture: the lines take a tenth of the room."""
    page = tmp_path / "page.html"
    sim.report(simulated("static"), page)
    found = drive(
        with_figures(page.read_text(), "slots"),
        """
        const all = (what) => [...document.querySelectorAll(`[data-name=slots] ${what}`)];
        const filled = () => all("path").filter((path) => path.style.fill.includes("url(")).length;
        const before = filled();
        dispatchEvent(new Event("beforeprint"));
        await until(() => all(".hatch").length);
        const outside = all(".bars .hatch").map((lines) => {
          const [inner, bar] = [lines.getBBox(), lines.previousElementSibling.getBBox()];
          const over = (at, size) => inner[at] + inner[size] - bar[at] - bar[size];
          const before = [bar.x - inner.x, bar.y - inner.y];
          return Math.max(...before, over("x", "width"), over("y", "height"));
        });
        const paper = [filled(), all(".hatch").length];
        dispatchEvent(new Event("afterprint"));
        await until(() => filled());
        const after = [filled(), all(".hatch").length];
        return { before, paper, outside: Math.max(...outside), after };
        """,
    )
    assert found["before"] > 4
    assert found["paper"] == [0, found["before"]]
    assert found["outside"] < 1e-3
    assert found["after"] == [found["before"], 0]
