"""The report of a run: what the page says, what it must never do, and how big and slow it is."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import reports
from reports.__main__ import main
from reports.figures import latency_cdf, timeline
from reports.figures.steps import fleet_steps, nice_width, replica_count, token_rates
from reports.frame import theme
from reports.frame.decimate import extremes, ranks
from reports.frame.formats import phrase, show
from reports.frame.run_directory import pick, read
from reports.pages.run import head, machine, tables
from reports.pages.run.page import SECTIONS
from reports.pages.run.verdict import verdict
from sim.errors import UsageError
from sim.metrics.terms import definitions
from tests.counted_work import calls
from tests.figures import OF_RUNS
from tests.report_fixtures import KV_TOKENS, SavedRun, make_run, plan_frame, save, summary_of

HOSTILE = "<script>alert(1)</script> \"q\" 'q' & </script><!-- ünï漢字"


class Reader(HTMLParser):
    """Collects tags, attributes and visible text of a page, and how its scripts are framed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.json: dict[str, Any] = {}
        self._open: list[str] = []
        self._script = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        self.tags.append((tag, attributes))
        self._open.append(tag)
        if attributes.get("type") == "application/json":
            self._script = attributes["id"]

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.json[self._script] = json.loads(data)
        elif not {"script", "style"} & set(self._open):
            self.text += data

    def ids(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


def render(run: SavedRun) -> str:
    return reports.render(
        summary=run.summary,
        requests=run.requests,
        timeseries=run.timeseries,
        scenario_yaml=run.scenario_yaml,
        charts=run.charts,
    )


def rejected_run() -> SavedRun:
    """Forty requests, every one rejected: no plan, no latency, no price, no error band."""
    requests = make_run(40).requests
    requests["status"], requests["reason"] = "rejected", "longer than the KV cache"
    requests["replica"], requests["slo_met"] = -1, False
    for column in ("scheduled_s", "first_token_s", "finish_s", "queue_s", "ttft_s", "tpot_s"):
        requests[column] = math.nan
    requests["e2el_s"] = math.nan
    series = plan_frame([])
    summary = summary_of(requests, series, {"ttft": 500.0, "tpot": 40.0})
    summary["infersim"] |= {"cost": None, "energy": None, "error_band": None}
    return SavedRun(
        summary, requests, series, "version: 1\n", charts={"itl": None, "roofline": None}
    )


def empty_run() -> SavedRun:
    """Not one request, and nothing known of the GPU: there is nothing at all to draw."""
    run = rejected_run()
    requests = run.requests.iloc[:0]
    summary = summary_of(requests, run.timeseries, {})
    summary["infersim"]["memory"] = None
    return SavedRun(summary, requests, run.timeseries, "", charts={"itl": None, "roofline": None})


def hostile_run() -> SavedRun:
    """Markup wherever a person can put a name."""
    run = make_run(60)
    nested = run.summary["infersim"]
    for key in ("scenario", "description", "model", "gpu", "engine", "batching", "provenance"):
        nested[key] = f"{key} {HOSTILE}"
    nested["verdict"]["text"] = HOSTILE
    nested["error_band"]["text"] = HOSTILE
    nested["notes"] = [HOSTILE]
    nested["time_by_operator"] = {HOSTILE: 0.6, "other": 0.4}
    nested["requests"] |= {"rejected": 1, "rejected_reasons": {HOSTILE: 1}}
    return dataclasses.replace(run, scenario_yaml=f"name: {HOSTILE}\n")


FIGURES = (
    *("limit-use", "attainment", "course-ttft", "course-tpot"),
    *("cdf-ttft", "cdf-tpot", "cdf-itl", "cdf-e2el", "cdf-queue", "ttft-by-prompt"),
    *("parts-ttft", "parts-e2el", "timeline", "slots", "gpu-memory", "kv-map"),
    *("operators", "roofline", "prompts", "outputs", "gaps"),
)
"""The figures of a run's report, in the order of the page."""

MANY = (*FIGURES[:13], "density-input_tokens", "density-ttft", *FIGURES[13:])
"""The figures of a run of many requests, with the heat maps below the timeline."""


@pytest.fixture(scope="module")
def run() -> SavedRun:
    return make_run(600)


@pytest.fixture(scope="module")
def html(run: SavedRun) -> str:
    return render(run)


# ---- the page ------------------------------------------------------------------------------------


def test_every_section_has_an_anchor_and_a_link(html: str) -> None:
    reader = Reader(html)
    links = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert set(SECTIONS) <= reader.ids()
    assert {f"#{key}" for key in SECTIONS} <= links


def test_every_internal_link_leads_somewhere(html: str) -> None:
    reader = Reader(html)
    links = {a["href"][1:] for tag, a in reader.tags if tag == "a" and a["href"].startswith("#")}
    assert links <= reader.ids()


def test_every_metric_is_defined(html: str) -> None:
    reader = Reader(html)
    assert {f"def-{key}" for key in definitions.DEFINITIONS} <= reader.ids()
    for _, attributes in reader.tags:
        if attributes.get("class") == "term":
            assert attributes["title"]


def test_the_page_fetches_nothing(html: str) -> None:
    for tag, attributes in Reader(html).tags:
        assert "src" not in attributes, tag
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:,")), attributes
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src" not in policy[1]
    styles = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert styles is not None
    assert "url(" not in styles[1]
    assert "@import" not in styles[1]


def test_plotly_is_inside_once(html: str) -> None:
    assert html.count('id="plotly-js"') == 1
    assert html.count("H4sI") >= 1  # the first bytes of gzip in base64
    assert "plotly.js v" not in html


def test_scripts_that_are_not_ours_may_not_run(html: str) -> None:
    policy = re.search(r"script-src ([^;]+);", html)
    assert policy is not None
    assert "unsafe" not in policy[1]
    inline = [tag for tag, attributes in Reader(html).tags if tag == "script" and not attributes]
    packed = 1  # plotly.js
    assert policy[1].count("sha256-") == len(inline) + packed + 1  # one of plans alone


def test_size_stays_below_the_limit() -> None:
    big = make_run(8000, rate=60.0, replicas=4)
    assert len(render(big).encode()) < 1_500_000


def test_rendering_twice_gives_the_same_page(run: SavedRun, html: str) -> None:
    assert render(run) == html


def long_run(requests: int) -> SavedRun:
    """A run of so many requests, and of three plans for each."""
    random, plans = np.random.default_rng(3), 3 * requests
    base = make_run(400)
    picked = random.integers(0, 400, requests)
    rows = base.timeseries.iloc[random.integers(0, len(base.timeseries), plans)]
    start = np.arange(plans) * 0.01
    return SavedRun(
        base.summary,
        base.requests.iloc[picked].sort_values("arrival_s").reset_index(drop=True),
        rows.assign(start_s=start, end_s=start + 0.01).reset_index(drop=True),
        base.scenario_yaml,
        charts=base.charts,
    )


@pytest.mark.slow
def test_ten_times_the_requests_are_not_even_twice_the_work() -> None:
    """Columns are handled as wholes and figures thinned; ``tests/page_sizes.py`` has seconds."""
    pages: list[str] = []
    small, large = (
        calls(partial(lambda run: pages.append(render(run)), long_run(requests)))
        for requests in (2_000, 20_000)
    )
    assert large < 2 * small
    assert len(pages[1].encode()) < 1_500_000


def test_without_javascript_the_numbers_are_there(run: SavedRun, html: str) -> None:
    text = Reader(html).text
    assert "need JavaScript" in text
    for key in ("p99_ttft_ms", "output_throughput", "median_e2el_ms"):
        kind = "ms" if key.endswith("_ms") else "number"
        assert show(run.summary[key], kind).text in text


def test_hostile_names_are_shown_and_not_run() -> None:
    html = render(hostile_run())
    assert "<script>alert" not in html
    assert "alert(1)</script>" not in html
    reader = Reader(html)
    for key in ("scenario", "description", "model", "engine"):
        assert f"{key} {HOSTILE}" in reader.text
    assert reader.text.count(HOSTILE) >= 9
    assert set(reader.json) == {"dark-twins", *(s for s in reader.ids() if s.startswith("spec-"))}


@pytest.mark.parametrize(("count", "figures"), [(1, 18), (2, 19)])
def test_tiny_runs(count: int, figures: int) -> None:
    """With one request there is no time between arrivals; neither has a course."""
    html = render(make_run(count))
    reader = Reader(html)
    assert "nan" not in reader.text.lower().split()
    assert sum(name.startswith("spec-") for name in reader.json) == figures
    assert html.count("data-spec=") == figures


def test_a_run_in_which_everything_was_rejected() -> None:
    run = rejected_run()
    run.summary["infersim"]["interrupted"] = True
    html = render(run)
    text = Reader(html).text
    drawn = set(re.findall(r'data-spec="spec-([^"]+)"', html))
    assert drawn == {"gpu-memory", "prompts", "outputs", "gaps"}  # what arrived, and an empty cache
    for expected in (
        "This run was interrupted",
        "No traffic served",
        "every request was rejected",
        "longer than the KV cache",
        "No price was given",
        "No error band is known",
        "No iteration was run",
        "No request could be judged",
        "No request was completed, so that there is nothing to show",
        "The KV cache was never used",
    ):
        assert expected in text
    assert not re.search(r"\b(nan|None|null)\b", text)


def test_a_run_without_any_request() -> None:
    html = render(empty_run())
    text = Reader(html).text
    assert "No request was completed." in text
    assert "No request arrived." in text
    assert html.count("data-spec=") == 0


def test_a_run_without_limits() -> None:
    run = make_run(50)
    run.summary["infersim"]["verdict"] |= {
        "slo_met": None,
        "attainment": None,
        "target": None,
        "first_limit": None,
        "limits": {},
    }
    html = render(run)
    assert "There is no SLO." in html
    assert " limit 500 ms " not in html


def test_columns_full_of_nan_are_left_out() -> None:
    run = make_run(50)
    run.requests.loc[5:, ["tpot_s", "queue_s"]] = math.nan
    run.requests["e2el_s"] = math.nan
    html = render(run)
    assert "No completed request has a E2EL" in html
    missing = {"cdf-e2el", "parts-e2el", "course-ttft", "course-tpot"}  # 50 are too few for those
    assert {name for name in FIGURES if f'data-spec="spec-{name}"' not in html} == missing


def test_a_missing_entry_is_named() -> None:
    run = make_run(5)
    del run.summary["infersim"]["batch"]["mean_running"]
    with pytest.raises(UsageError, match=r"infersim\.batch\.mean_running"):
        render(run)


# ---- files ---------------------------------------------------------------------------------------


def test_rendering_from_files_gives_the_same_page(
    tmp_path: Path, run: SavedRun, html: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == html
    assert sorted(p.name for p in tmp_path.glob("*.html")) == ["report.html"]


def test_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "summary.json" in error
    assert "Traceback" not in error


def test_a_failing_report_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    run = make_run(5)
    del run.summary["infersim"]["verdict"]
    with pytest.raises(UsageError):
        reports.write_report(
            tmp_path,
            summary=run.summary,
            requests=run.requests,
            timeseries=run.timeseries,
            scenario_yaml="",
        )
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


def test_read_says_what_is_broken(tmp_path: Path, run: SavedRun) -> None:
    save(run, tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(UsageError, match="not valid JSON"):
        read(tmp_path)
    assert pick({"a": {"b": None}}, "a.b") is None
    with pytest.raises(UsageError, match=r"a\.c"):
        pick({"a": {"b": 1}}, "a.c")


# ---- verdict, tables, numbers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "met", "tone"),
    [
        ("stable", True, "good"),
        ("stable", False, "bad"),
        ("near saturation", True, "warn"),
        ("overloaded", None, "bad"),
        ("something new", True, "good"),
    ],
)
def test_the_headline_is_as_bad_as_the_worst_answer(
    state: str, met: bool | None, tone: str
) -> None:
    run = make_run(50)
    run.summary["infersim"]["verdict"] |= {"state": state, "slo_met": met}
    answer = verdict(run.summary)
    assert answer.tone == tone
    assert answer.headline.lower().startswith(state)


def test_the_headline_is_not_said_twice() -> None:
    run = make_run(50)
    answer = verdict(run.summary)
    assert answer.headline == "Stable, SLO met"
    assert answer.text.startswith("The queue does not grow")


def test_the_verdict_names_the_limit_that_breaks_first() -> None:
    run = make_run(50)
    run.summary["infersim"]["verdict"] |= {"slo_met": False, "first_limit": "tpot"}
    answers = {answer.key: answer for answer in verdict(run.summary).answers}
    assert "TPOT breaks first" in answers["slo"].detail
    assert "within about 10" in answers["band"].short


@pytest.mark.parametrize("met", [True, None])
def test_headroom_is_not_said_to_keep_the_limits(met: bool | None) -> None:
    run = make_run(50)
    run.summary["infersim"]["verdict"] |= {"slo_met": met, "headroom": 3.0, "utilisation": 0.25}
    headroom = {answer.key: answer for answer in verdict(run.summary).answers}["headroom"]
    loose = "" if met is None else "; a rough bound that leaves the SLO out"
    told = "About 4 times the traffic: then it takes the whole capacity"
    assert headroom.short == f"{told}{loose}."
    assert ("infersim find" in headroom.detail) == (met is not None)


def test_latencies_of_the_table_are_those_of_the_summary(run: SavedRun) -> None:
    table = tables.latencies(run.summary, run.requests, run.charts)
    titles = [column.title for column in table.columns]
    rows = {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}
    assert rows["TTFT"]["p99"].value == run.summary["p99_ttft_ms"]
    assert rows["TTFT"]["Limit"].value == 500.0
    assert rows["ITL"]["Limit"].value is None
    assert rows["Queue time"]["mean"].value == run.summary["infersim"]["queue_ms"]["mean"]
    ranked = ("min", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
    assert [title for title in titles if title in ranked] == list(ranked)
    for name in ("TTFT", "TPOT", "E2EL"):
        values = [rows[name][title].value for title in ranked]
        assert values == sorted(values), name
    drawn = latency_cdf.sample(run.requests, "ttft")
    assert rows["TTFT"]["max"].value == pytest.approx(1e3 * drawn[-1])
    assert rows["ITL"]["max"].value == run.charts["itl"]["ms"][-1]


def test_of_several_repetitions_the_ends_of_a_distribution_are_not_stated() -> None:
    run = make_run(60)
    run.summary["infersim"]["repetitions"] = {"count": 3, "intervals": {}}
    columns = tables.latencies(run.summary, run.requests, run.charts).columns
    assert {"max", "min", "p75"}.isdisjoint(column.title for column in columns)


def test_the_largest_operator_comes_first(run: SavedRun) -> None:
    rows = machine.operator_table(run.summary).rows
    values = [row[1].value for row in rows]
    assert values == sorted(values, reverse=True)
    assert rows[0][1].bar == 1.0


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (0.99994, "share", "99.99"),
        (1.0, "share", "100"),
        (0.9999999, "share", ">99.99"),
        (1e-9, "share", "<0.01"),
        (0.0, "usd", "0.00"),
        (0.01234, "usd", "0.0123"),
        (math.nan, "number", "–"),
        (math.inf, "count", "–"),
        (-3.14159, "number", "-3.14"),
    ],
)
def test_numbers(number: float, kind: Any, text: str) -> None:
    assert show(number, kind).text == text


def test_an_unknown_number_in_a_sentence() -> None:
    assert phrase(None, "usd") == "unknown"


# ---- thinning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_thinning_keeps_extremes_of_every_bucket(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = np.sort(random.random(5000) ** 3)
    y = random.normal(size=5000).cumsum()
    kept = extremes(x, y, 50)
    assert kept.size <= 200
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == 4999
    bucket = np.minimum(((x - x[0]) / ((x[-1] - x[0]) / 50)).astype(int), 49)
    for b in np.unique(bucket):
        inside, drawn = y[bucket == b], y[kept[bucket[kept] == b]]
        assert drawn.min() == inside.min()
        assert drawn.max() == inside.max()
        assert drawn[-1] == inside[-1]


def test_thinning_of_awkward_series() -> None:
    empty = np.empty(0)
    assert extremes(empty, empty, 3).size == 0
    short = np.array([0.0, 1.0, 2.0])
    assert extremes(short, np.array([1.0, math.nan, 2.0]), 3).tolist() == [0, 2]
    one_moment = np.zeros(100)
    assert extremes(one_moment, np.arange(100.0), 5).tolist() == [0, 99]


def test_ranks_keep_both_ends_and_the_tail() -> None:
    kept = ranks(100_000, 800)
    assert kept[0] == 0
    assert kept[-1] == 99_999
    assert 700 < kept.size <= 800
    assert (kept >= 99_900).sum() > 50


# ---- steps ---------------------------------------------------------------------------------------


def plans(*rows: tuple[int, float, float, int, int]) -> pd.DataFrame:
    """Rows (replica, start, end, running, waiting) with 100 KV tokens per running request."""
    return plan_frame(
        [(r, s, e, 1, n, 0, 0, 0, n, w, 100 * n, 120 * n, 0) for r, s, e, n, w in rows]
    )


def arrivals(*rows: tuple[int, float, float]) -> pd.DataFrame:
    """Rows (replica, arrival, scheduled) as a requests table."""
    frame = pd.DataFrame(rows, columns=["replica", "arrival_s", "scheduled_s"])
    return frame.assign(status="completed", first_token_s=math.nan, warmup=False)


def test_replicas_are_summed() -> None:
    steps = fleet_steps(plans((0, 0, 2, 3, 0), (1, 1, 4, 2, 0), (0, 2, 3, 1, 0)), arrivals())
    assert steps.time.tolist() == [0, 1, 2, 3, 4]
    assert steps.levels["running"].tolist() == [3, 5, 3, 2, 0]
    assert steps.levels["kv_used_tokens"].tolist() == [300, 500, 300, 200, 0]


def test_between_plans_a_replica_is_idle_and_a_batch_that_fills_waits() -> None:
    steps = fleet_steps(
        plans((0, 0, 1, 1, 0), (0, 4, 5, 2, 0)), arrivals((0, 0, 0), (0, 2, 4), (0, 3, 4))
    )
    assert steps.time.tolist() == [0, 1, 2, 3, 4, 5]
    assert steps.levels["running"].tolist() == [1, 0, 0, 0, 2, 0]
    assert steps.levels["waiting"].tolist() == [0, 0, 1, 2, 0, 0]


def test_a_preempted_request_waits_again() -> None:
    steps = fleet_steps(plans((0, 0, 1, 2, 0), (0, 1, 3, 1, 1)), arrivals((0, 0, 0), (0, 0, 0)))
    assert steps.levels["waiting"].tolist() == [0, 1, 0]


def test_simultaneous_changes_leave_no_spike() -> None:
    steps = fleet_steps(plans((0, 0, 1, 5, 0), (1, 0, 1, 5, 0), (0, 1, 2, 5, 0)), arrivals())
    assert steps.levels["running"].tolist() == [10, 5, 0]


def test_rejected_requests_do_not_wait() -> None:
    requests = arrivals((0, 0, 0), (-1, 1, math.nan)).assign(status=["completed", "rejected"])
    assert fleet_steps(plans((0, 0, 2, 1, 0)), requests).levels["waiting"].max() == 0


def test_tokens_are_conserved() -> None:
    run = make_run(300, replicas=2)
    rates = token_rates(run.timeseries, run.requests, 0.7)
    end = float(run.timeseries["end_s"].max())
    lengths = np.minimum(rates.edges[1:], end) - rates.edges[:-1]
    assert (rates.output * lengths).sum() == pytest.approx(run.requests["output_tokens"].sum())
    assert (rates.prompt * lengths).sum() == pytest.approx(run.requests["prompt_tokens"].sum())


def test_a_plan_without_duration_still_counts() -> None:
    series = plan_frame([(0, 1.0, 1.0, 1, 0, 0, 1, 50, 1, 0, 50, 64, 0)])
    rates = token_rates(series, arrivals(), nice_width(1.0, 10))
    assert rates.prompt.sum() * 0.1 == pytest.approx(50)


def test_replicas_are_counted_from_both_tables() -> None:
    assert replica_count(plans((2, 0, 1, 1, 0)), arrivals((5, 0, 0))) == 6
    assert replica_count(plan_frame([]), arrivals((-1, 0, 0))) == 1


# ---- figures -------------------------------------------------------------------------------------


def colours(value: Any) -> set[str]:
    """Every string in a figure's JSON that is a colour."""
    if isinstance(value, dict):
        return set().union(*map(colours, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(colours, value), set())
    is_colour = isinstance(value, str) and re.match(r"#[0-9a-f]{3,8}$|rgba?\(", value)
    return {value} if is_colour else set()


def figures(run: SavedRun) -> list[go.Figure]:
    made = [latency_cdf.figure(run.requests, name, limit_s=0.4) for name in latency_cdf.TITLES]
    return [*made, *(build(run) for build in OF_RUNS.values())]


def test_figures_use_only_colours_that_have_a_dark_twin(run: SavedRun) -> None:
    run.timeseries["preemptions"] = 1
    known = {*theme.dark_twins(), "rgba(0, 0, 0, 0)"}
    for figure in figures(run):
        assert colours(json.loads(figure.to_json())) <= known


def test_colours_can_be_exchanged_and_are_told_apart() -> None:
    everything = [*theme.PAGE.values(), *theme.METRICS.values(), *theme.BOUNDS.values()]
    assert len(set(everything)) == len({tone.light for tone in everything})
    assert len({tone.light for tone in theme.POLICIES.values()}) == len(theme.POLICIES)
    assert len({tone.light for tone in theme.BOUNDS.values()}) == len(theme.BOUNDS)
    css = theme.css_variables("dark")
    assert f"--ink:{theme.PAGE['ink'].dark};" in css


@pytest.mark.parametrize("pair", [("ink", 7.0), ("muted", 4.5), ("good", 4.5), ("bad", 4.5)])
@pytest.mark.parametrize("side", ["light", "dark"])
def test_text_has_contrast(pair: tuple[str, float], side: str) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    name, least = pair
    both = [luminance(getattr(theme.PAGE[key], side)) for key in (name, "surface")]
    assert (max(both) + 0.05) / (min(both) + 0.05) >= least


def test_percentiles_are_marked_as_the_summary_has_them(run: SavedRun) -> None:
    marks = latency_cdf.figure(run.requests, "ttft").data[-1]
    expected = [run.summary[f"p{p}_ttft_ms"] for p in latency_cdf.MARKS]
    assert np.asarray(marks.x) == pytest.approx(expected)


def test_the_curve_is_a_distribution(run: SavedRun) -> None:
    curve = latency_cdf.figure(run.requests, "e2el").data[0]
    assert (np.diff(np.asarray(curve.x)) >= 0).all()
    assert np.asarray(curve.y)[[0, -1]].tolist() == [0, 1]


def test_a_wide_distribution_gets_a_log_axis() -> None:
    values = np.concatenate([np.full(99, 0.01), [5.0]])
    frame = pd.DataFrame({"status": "completed", "warmup": False, "ttft_s": values})
    assert latency_cdf.figure(frame, "ttft").layout.xaxis.type == "log"
    assert latency_cdf.figure(frame[:99], "ttft").layout.xaxis.type is None


def test_figures_of_nothing_say_so() -> None:
    run = rejected_run()
    assert "No completed request" in str(latency_cdf.figure(run.requests, "ttft").layout)
    drawn = timeline.figure(run.timeseries, run.requests, kv_tokens=None)
    assert "No iteration" in str(drawn.layout)


def test_the_cache_of_a_fleet_is_that_of_all_its_replicas() -> None:
    run = make_run(60)
    one, two = (
        next(
            trace
            for trace in timeline.figure(
                run.timeseries, run.requests, kv_tokens=10_000, replicas=replicas
            ).data
            if trace.name.startswith("KV")
        )
        for replicas in (1, 2)
    )
    assert np.max(one.y) > 0
    np.testing.assert_allclose(one.y, 2 * np.asarray(two.y), rtol=1e-5)


def test_a_record_says_at_which_rate_its_requests_came() -> None:
    requests = pd.DataFrame(
        {"arrival_s": [0.0, 0.25, 1.0], "prompt_tokens": [10, 20, 30], "output_tokens": [1, 2, 3]}
    )
    summary = {"infersim": {"asked": {"model": "x"}, "verdict": {"state": "observed"}}}
    asked = head._asked(summary, requests)
    assert asked is not None
    assert asked["traffic"] == "3 requests at 2 requests/s"


def test_the_timeline_has_the_power_where_it_is_known() -> None:
    run = make_run(400)
    power = {"edges": [0.0, 1.0, 2.0], "watts": [300.0, 650.0]}
    plain = timeline.figure(run.timeseries, run.requests, kv_tokens=None)
    drawn = timeline.figure(run.timeseries, run.requests, kv_tokens=None, power=power)
    assert len(drawn.data) == len(plain.data) + 1
    assert drawn.data[-1].y.tolist() == [300, 650, 650]
    assert "W per GPU" in str(drawn.layout)


def test_the_timeline_is_thinned_and_names_its_axes() -> None:
    run = make_run(4000)
    assert len(run.timeseries) > 4 * timeline.BUCKETS
    drawn = timeline.figure(run.timeseries, run.requests, kv_tokens=None)
    assert max(len(trace.x) for trace in drawn.data) <= 4 * timeline.BUCKETS
    assert drawn.layout.xaxis.ticksuffix == " s"
    axes = [drawn.layout[f"yaxis{n if n > 1 else ''}"].title.text for n in range(1, 7)]
    assert axes == [
        *("requests/s", "requests", "KV cache (tokens)"),
        *("tokens/iteration", "tokens/iteration", "tokens/s"),
    ]


def test_preemptions_have_a_panel_if_there_were_any(run: SavedRun) -> None:
    calm = run.timeseries.assign(preemptions=0)
    quiet = timeline.figure(calm, run.requests, kv_tokens=KV_TOKENS)
    assert "preemptions" not in str(quiet.layout)
    series = run.timeseries.assign(preemptions=1)
    drawn = timeline.figure(series, run.requests, kv_tokens=KV_TOKENS)
    trace = next(t for t in drawn.data if t.name.startswith("preemptions"))
    assert np.asarray(trace.y)[:-1].sum() == len(series)
