"""The pages of sweeps and comparisons: hostile names stay text, every figure has its colours."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from reports.figures.charts import chart
from reports.figures.series import styles
from reports.frame import theme
from sim.planning.answers import findings_of
from sim.planning.answers.ablate import waterfall as steps_of
from sim.planning.answers.compare import cost_attained
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar
from sim.planning.answers.find import cards
from sim.planning.answers.plan_drawings import cost_and_latency, fleet_costs, user_and_gpu
from sim.planning.answers.sweep_points import front
from tests import made_up, made_up_studies
from tests.answers import (
    drawings,
    drawn,
    headlines,
    render_ablation,
    render_compare,
    render_diagnosis,
    render_find,
    render_plan,
    render_sensitivity,
    render_sweep,
)
from tests.figures import OF_RESULTS as FIGURES

HOSTILE = '</script><b>"&amp;'

PAGES: dict[str, tuple[Callable[[Any], str], Callable[[], Any]]] = {
    "compare": (render_compare, made_up.comparison),
    "sweep over a load": (render_sweep, made_up.load_sweep),
    "sweep over a grid": (render_sweep, made_up.grid_sweep),
    "sweep over policies": (render_sweep, made_up.policy_sweep),
    "find": (render_find, made_up.highest_load),
    "plan": (render_plan, made_up.fleet_plan),
    "split": (render_plan, made_up.split_plan),
    "ablate": (render_ablation, made_up_studies.ablation),
    "diagnose": (render_diagnosis, made_up_studies.diagnosis),
    "sensitivity": (render_sensitivity, made_up_studies.uncertainty),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_colour_has_a_dark_twin(name: str) -> None:
    build, made_up = FIGURES[name]
    text = build(made_up()).to_json()
    colours = set(re.findall(r'"(#[0-9a-f]{6}|rgba?\([^)]*\))"', text))
    assert colours
    assert colours - {"rgba(0, 0, 0, 0)"} <= set(theme.dark_twins())


@pytest.mark.parametrize("name", FIGURES)
def test_every_axis_with_numbers_has_a_name(name: str) -> None:
    build, made_up = FIGURES[name]
    layout = json.loads(build(made_up()).to_json())["layout"]
    for axis in (layout["xaxis"], layout["yaxis"]):
        assert axis.get("type") == "category" or axis["title"]["text"], axis


@pytest.mark.parametrize("kind", PAGES)
def test_every_link_to_a_definition_leads_to_one(kind: str) -> None:
    render, made = PAGES[kind]
    html = render(made())
    wanted, there = set(re.findall(r'href="#([^"]+)"', html)), re.findall(r' id="([^"]+)"', html)
    assert wanted <= set(there)
    assert len(there) == len(set(there))
    defined = {f"def-{key}" for key in re.findall(r' id="def-([^"]+)"', html)}
    assert defined <= wanted, "a definition that nothing leads to"


def test_what_is_drawn_of_a_sweep() -> None:
    heats = ["heat-ttft", "heat-output_throughput", "heat-attainment"]
    fronts = ["pareto-speed", "pareto-cost"]
    names = list(drawings("sweep", made_up.load_sweep()))
    assert names == ["knee-ttft", "knee-tpot", *heats, *fronts]
    grid = made_up.grid_sweep()
    assert list(drawings("sweep", grid)) == [*heats, *fronts]
    grid["axes"] = [{**grid["axes"][0], "values": ["a", "b"]}, grid["axes"][1]]
    assert list(drawings("sweep", grid)) == fronts
    for row in grid["results"]:
        row["summary"]["infersim"]["verdict"]["limits"] = {}
        row["summary"]["infersim"]["cost"] = None
    assert list(drawings("sweep", grid)) == ["pareto-speed"]
    for row in grid["results"]:
        row["summary"] = None
    assert drawings("sweep", {**grid, "failed": grid["points"]}) == {}


def test_a_policy_has_its_colour_on_every_page() -> None:
    known = {name: tone.light for name, tone in theme.POLICIES.items()}
    document = made_up.policy_sweep()
    serving = drawn("sweep", document, "pareto-speed").series  # all others are overloaded
    assert [each.name for each in serving if each.points and each.settings] == [
        "batching=continuous"
    ]
    for row in document["results"]:
        row["summary"]["infersim"]["verdict"].update(state="stable", slo_state="met")
    figure = chart(drawn("sweep", document, "pareto-speed"))
    points = {trace.name: trace.marker.color for trace in figure.data if trace.mode == "markers"}
    assert points == known
    means = chart(drawn("compare", made_up.comparison(), "mean-p99_ttft_ms")).data[0]
    assert dict(zip(means.y, means.marker.color, strict=True)) == known
    both = styles([{"scheduler.batching": "static", "seats": seats} for seats in (1, 2)])
    assert [each.color for each in both] == [known["static"]] * 2
    assert both[0].dash != both[1].dash


def test_no_point_beats_one_of_the_front() -> None:
    document = made_up.load_sweep()
    for kind, sign in (("speed", 1), ("cost", -1)):
        trade = drawn("sweep", document, f"pareto-{kind}")
        line, *groups = trade.series
        points = [at for group in groups for at in group.points]
        best = front(points, kind)
        assert [at[:2] for at in line.points] == [at[:2] for at in best]
        assert [at.x for at in best] == sorted(at.x for at in best)
        beaten = [
            at for at in points
            if any(sign * o.x >= sign * at.x and sign * o.y >= sign * at.y and o[:2] != at[:2]
                   for o in points)
        ]  # fmt: skip
        assert {at[:2] for at in points} - {at[:2] for at in beaten} == {at[:2] for at in best}
        assert list(chart(trade).data[0].x) == [at.x for at in best]


def test_the_summary_of_a_sweep_names_the_best_point() -> None:
    document = made_up.policy_sweep()
    assert findings_of("sweep", document).headline.title == (
        "Most output within the SLO: 1,600 tokens/s, with continuous, h100-sxm"
    )
    assert findings_of("sweep", document).headline.text == "2 of 6 points meet the SLO."
    for row in document["results"]:
        row["summary"]["infersim"]["verdict"] |= {"slo_met": False, "slo_state": "missed"}
    none = findings_of("sweep", document).headline
    assert none.title == "None of 6 points meets the SLO"


def test_the_parts_of_a_waterfall_sum_to_the_whole() -> None:
    document = made_up_studies.ablation()
    for entry in document["figures"]:
        baseline, *steps, whole = steps_of(document, entry["key"]).bars
        assert (baseline.end, whole.end) == (entry["baseline"], entry["full"])
        assert (baseline.start, whole.start) == (0, 0)
        at = baseline.end
        for step in steps:
            gaps = [abs(step.start - at), abs(step.end - at)]
            assert min(gaps) <= 1e-9 * at, "each begins where the last one ended"
            at = step.start if gaps[0] > gaps[1] else step.end
        assert at == whole.end


def test_a_step_that_does_not_run_is_left_out_of_the_sum() -> None:
    document = made_up_studies.ablation()
    entry = document["figures"][0]
    entry["steps"][1]["value"] = None
    _, first, third, _, _ = steps_of(document, entry["key"]).bars
    assert third.start == first.end
    assert "Left out, as it has no such figure: batches of up to 256." in PAGES["ablate"][0](
        document
    )


def test_both_ends_of_an_input_can_be_seen() -> None:
    bars = (
        *(ChartBar("same", change, "", end) for change, end in ((0.3, "x 1"), (0.5, "x 2"))),
        *(ChartBar("apart", change, "", end) for change, end in ((-0.1, "x 1"), (0.2, "x 2"))),
    )
    drawn = chart(BarChart(ChartAxis("TTFT p99", "share"), bars)).data[0]
    spans = list(zip(drawn.y, drawn.offset, drawn.width, strict=True))
    (_, low, thick), (_, high, _), *wide = spans
    assert [row for row, *_ in spans] == ["same", "same", "apart", "apart"]
    assert low + thick == pytest.approx(high), "one below the other"
    assert wide[0][1:] == wide[1][1:]


def test_the_knee_has_a_line_for_each_variant_and_the_limit() -> None:
    figure = chart(drawn("sweep", made_up.load_sweep(), "knee-ttft"))
    assert [trace.name for trace in figure.data] == ["max_num_seqs 24", "max_num_seqs 52"]
    assert list(figure.data[0].x) == sorted(figure.data[0].x)
    assert "circle-open" in figure.data[0].marker.symbol
    region, limit = figure.layout.shapes
    assert (region.type, region.y1, limit.y0) == ("rect", 0.5, 0.5)
    low, high = figure.layout.yaxis.range
    assert region.y0 == pytest.approx(10**low)
    assert 10**low < min(figure.data[0].y) <= max(figure.data[0].y) < 10**high


def test_several_limits_are_lines_only() -> None:
    document = made_up.load_sweep()
    document["results"][0]["summary"]["infersim"]["verdict"]["limits"]["ttft"]["limit_ms"] = 90.0
    figure = chart(drawn("sweep", document, "knee-ttft"))
    assert [shape.type for shape in figure.layout.shapes] == ["line", "line"]


def test_a_knee_at_the_end_is_called_so_in_its_tile() -> None:
    document = made_up.highest_load()
    (between,) = next(card for card in cards(document) if card.label == "Knee").details
    assert between.startswith("between ")
    ended = {**document, "knee": {**document["knee"], "at_end": True}}
    (above,) = next(card for card in cards(ended) if card.label == "Knee").details
    assert above == "or above; no higher load holds"


def test_a_point_that_failed_is_a_hole_in_the_heat_map() -> None:
    grid = made_up.grid_sweep()
    grid["results"][0].update(summary=None, error="no", exit_code=3)
    figure = chart(drawn("sweep", grid, "heat-ttft"))
    assert figure.data[0].customdata[0][0] is None
    assert figure.data[0].customdata[1][0] is not None


def test_differences_are_coloured_by_what_is_better() -> None:
    document = made_up.comparison()
    slower, faster, unclear = (
        chart(drawn("compare", document, f"difference-{name}")).data[0].marker.color[index]
        for name, index in (("p99_ttft_ms", 0), ("output_throughput", 0), ("p99_ttft_ms", 1))
    )
    assert slower == faster == theme.GREEN.light  # less latency, more throughput
    assert unclear == theme.GREY.light


def test_what_the_summary_of_a_comparison_says() -> None:
    document = dict(made_up.comparison())
    assert headlines(document) == [
        "All 3 keep up with the traffic.",
        "continuous has the lowest TTFT p99, 165 ms (static: 49 times as long; request: 48 times "
        "as long).",
        "continuous has the highest goodput, 5.6 requests/s: 11x static, 14x request.",
    ]
    for entry in document["figures"]:
        entry["best"] = []
    unsure = "TTFT p99: no difference that is sure, "
    assert headlines(document)[1] == f"{unsure}with means of 165 ms to 8.12 s."
    assert headlines(document)[2] == (
        "Goodput: no difference that is sure, with means of 0.4 requests/s to 5.6 requests/s."
    )
    latency = next(entry for entry in document["figures"] if entry["key"] == "p99_ttft_ms")
    latency["means"] = [165.0, 165.01, 165.02]
    assert headlines(document)[1] == f"{unsure}about 165 ms."


def test_overloaded_variants_are_ranked_by_throughput() -> None:
    document = made_up.comparison()
    for variant in document["variants"]:
        variant["state"] = "overloaded"
    told = headlines(document)
    assert told[0] == (
        "All 3 are overloaded; continuous serves the most output tokens, 1,310 tokens/s: "
        "1.46x static, 1.45x request."
    )
    assert not any("lowest TTFT" in line for line in told)
    assert told[0] in render_compare(document)
    document["variants"][1]["state"] = "stable"
    assert headlines(document)[0] == (
        "continuous keeps up with the traffic; static and request are overloaded."
    )


def test_variants_that_tie_are_not_stars_and_say_why() -> None:
    document = made_up.comparison()
    entry = next(figure for figure in document["figures"] if figure["key"] == "p99_ttft_ms")
    entry["best"] = [1, 2]
    entry["to_first"][2] = {**entry["to_first"][2], "relative": 0.02, "certain": False}
    page = render_compare(document)
    row = page[page.index('id="table-means"') :]
    assert row.count("★ 165 ms") == 1
    assert "~ 7.98 s" in row
    assert "★ 7.98 s" not in row
    assert 'title="cannot be distinguished from continuous (+2.0\u202f% ±3.0\u202f%)"' in row


def test_labels_of_many_variants_have_room() -> None:
    document = made_up.comparison()
    keys = ("scheduler.max_num_seqs", "scheduler.order")
    orders = ("first come, first served", "shortest job first", "by their priority")
    settings = [dict(zip(keys, (n, o), strict=True)) for n in (8, 16, 32) for o in orders]
    document["axes"] = [
        {"key": keys[0], "name": "max_num_seqs", "values": [8, 16, 32]},
        {"key": keys[1], "name": "order", "values": list(orders)},
    ]
    state = document["variants"][0]
    document["variants"] = [
        {**state, "settings": each, "label": ", ".join(map(str, each.values()))}
        for each in settings
    ]
    for entry in document["figures"]:
        entry["means"] = [float(value) for value in (5, 3, 9, 1, 2, 4, 8, 7, 6)]
        entry["differences"] = [None, *entry["differences"][1:2] * 8]
        entry |= {"first": 3, "best": [3], "to_first": [None] * 9}
    figure = chart(drawn("compare", document, "mean-p99_ttft_ms"))
    assert figure.data[0].x == (1, 2, 3, 4, 5, 6, 7, 8, 9)  # the best on top
    assert figure.data[0].y[0] == "#4"
    assert figure.data[0].y[1] == "#5 16 · shortest job first"
    assert max(label.count("<br>") for label in figure.data[0].y) == 0
    head = render_compare(document).partition('id="table-means"')[2].partition("</thead>")[0]
    assert [head.index(f">{name}<") for name in ("#", "max_num_seqs", "order", "State")] == sorted(
        head.index(f">{name}<") for name in ("#", "max_num_seqs", "order", "State")
    )


def test_rows_are_as_tall_as_their_labels() -> None:
    document = made_up.comparison()
    before = chart(drawn("compare", document, "mean-p99_ttft_ms")).layout.height
    for variant, long in zip(document["variants"], "abc", strict=True):
        variant["settings"] = {
            "scheduler.batching": f"{long} package with words.module:Class of it"
        }
    after = chart(drawn("compare", document, "mean-p99_ttft_ms"))
    lines = max(label.count("<br>") for label in after.data[0].y)
    assert lines >= 1
    assert after.layout.height - before >= 3 * 12 * lines  # 12 pixels a line of text


def test_hostile_names_stay_text() -> None:
    sweep = made_up.load_sweep()
    sweep["name"] = HOSTILE
    sweep["axes"][1].update(name=HOSTILE, values=[HOSTILE])
    for row in sweep["results"]:
        row.update(label=HOSTILE, settings={**row["settings"], "scheduler.max_num_seqs": HOSTILE})
    sweep["results"][0].update(summary=None, error=HOSTILE, exit_code=1)
    sweep["failed"] = 1
    comparison = made_up.comparison()
    comparison["name"] = HOSTILE
    for variant in comparison["variants"]:
        variant["label"] = HOSTILE
    comparison["variants"][2].update(error=HOSTILE, state=None)
    for page in (render_sweep(sweep), render_compare(comparison)):
        assert HOSTILE not in page
        assert page.count("</script>") == page.count("<script") > 5
        assert "&lt;/script&gt;" in page
        assert "<b>" not in page.replace("\\u003cb>", "")


def test_many_lines_are_cut_and_it_says_so() -> None:
    sweep = made_up.load_sweep()
    for index, row in enumerate(sweep["results"]):
        row["settings"]["scheduler.max_num_seqs"] = index
    first = drawings("sweep", sweep)["knee-ttft"]
    assert "The first 8 of 30 lines." in first.caption
    assert len(chart(first.data).data) == 8


def test_a_sweep_counts_points_that_did_not_run_and_no_missed_slo() -> None:
    document = made_up.load_sweep()
    setups = [
        render_sweep({**document, "failed": failed}).partition('<dl class="setup">')[2]
        for failed in (0, 2)
    ]
    without, some = (setup.partition("</dl>")[0] for setup in setups)
    assert "Did not run" not in without
    assert "<dt>Did not run</dt><dd>2</dd>" in some


def test_replicas_of_a_layout_read_as_a_product() -> None:
    document = made_up.fleet_plan()
    for point in document["sized"]:
        point.update(replicas=3, layout="2 x h100-sxm")
    drawn = chart(cost_and_latency(document, "ttft"))
    texts = [text for trace in drawn.data for text, _ in trace.customdata]
    assert "3 x (2 x h100-sxm)" in texts


def test_words_of_a_front_stand_where_no_point_lies_and_not_on_each_other() -> None:
    """Of a front of which less is better nothing is below; of two close points one has words."""
    document = made_up.fleet_plan()
    front, *dots = chart(cost_and_latency(document, "ttft")).data
    assert front.name == "Pareto front"
    assert all(side in ("bottom left", "bottom right") for side in front.textposition)
    assert all(text.strip() for text in front.text)
    assert not any(trace.text for trace in dots)
    best = [each for each in document["sized"] if each["front_slo_ttft_ms"]]
    for each in best:
        each["usd_per_hour"] = 20.0 + each["slo_ttft_ms"] / -1e4
        each["slo_ttft_ms"] = 300.0 + each["slo_ttft_ms"] / 1e4
    close = chart(cost_and_latency(document, "ttft")).data[0]
    assert len(best) > 1
    assert sum(bool(text.strip()) for text in close.text) == 1
    speeds = chart(user_and_gpu(made_up.fleet_plan())).data[0]
    assert all(side in ("top right", "top left") for side in speeds.textposition)


def test_cost_against_attainment_names_its_variants_in_the_legend_alone() -> None:
    """Nothing stands next to the points, so that nothing is in the way where they are close."""
    document = made_up.comparison()
    drawn = cost_attained(document)
    assert drawn is not None
    found = chart(drawn)
    assert found.layout.showlegend
    assert len({trace.name for trace in found.data}) == len(found.data) > 1
    looks = {(trace.marker.color, *trace.marker.symbol) for trace in found.data}
    assert len(looks) == len(found.data)
    assert not any(trace.text for trace in found.data)
    many = styles([{"name": str(number)} for number in range(40)])
    assert len({(each.color, each.symbol) for each in many}) == 40


@pytest.mark.parametrize("outcome", ["fails", "too close to call"])
def test_the_load_after_the_highest_is_called_what_its_row_says(outcome: str) -> None:
    document = made_up.highest_load()
    (after,) = (probe for probe in document["probes"] if probe["load"] == document["fails_at"])
    after |= {"outcome": outcome, "breaks": "tpot"}
    word = "fails: TPOT" if outcome == "fails" else outcome
    assert next(cards(document)).details == (f"21 requests/s: {word}",)


def test_the_cost_of_fleets_has_both_ends_of_the_band() -> None:
    document = made_up.fleet_plan()
    (bars,) = chart(fleet_costs(document)).data
    found = [
        (cost - below, cost + above)
        for cost, below, above in zip(
            bars.x, bars.error_x.arrayminus, bars.error_x.array, strict=True
        )
    ]
    wanted = [tuple(fleet["error_band"]["usd_per_hour"]) for fleet in document["fleets"]]
    assert [end for ends in found for end in ends] == pytest.approx(sum(wanted, ()))
    assert bars.y[0].startswith("1. ")


def test_the_highest_load_says_up_to_which_it_is_sure() -> None:
    document = {**made_up.highest_load(), "trust": {"sure_up_to": 21.3}}
    (card,) = (card for card in cards(document) if card.label == "Highest load")
    assert card.details[0].startswith("sure to hold: 21.3")
