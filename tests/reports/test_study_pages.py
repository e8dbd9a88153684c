"""The pages of studies: complete without a browser, and drawn in one without complaint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from html import unescape
from typing import Any

import pytest

from reports.figures import charts, slo_bars
from reports.frame import theme
from sim.planning.answers import claims
from sim.planning.answers import diagnose as diagnose_answer
from sim.planning.answers.ablate import figures, headline, part_text
from sim.planning.answers.cells import effect
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar
from sim.planning.answers.sensitivity import attained_at_ends, changes
from sim.planning.causes import ablate as ablation
from sim.planning.causes import diagnose_document
from sim.planning.causes import sensitivity as uncertainty
from sim.planning.causes.ablate import ablate
from sim.planning.causes.diagnose import diagnose
from sim.planning.causes.sensitivity import sensitivity
from sim.planning.points.executors import local
from sim.terminal.console import as_text
from tests import made_up_studies, made_up_verdicts
from tests.answers import ablate_view, render_ablation, render_diagnosis, render_sensitivity
from tests.browser import Show, needs_browser
from tests.planning_fixtures import small

HOSTILE = "</script><script>alert(1)</script><b>"

Render = Callable[[Mapping[str, Any]], str]


def _scenario() -> Any:
    return small(
        name=f"a {HOSTILE}", workload__arrivals__rate=300, run__requests=40,
        scheduler__max_num_seqs=16,
    )  # fmt: skip


@cache
def study(kind: str) -> tuple[Mapping[str, Any], Render]:
    scenario = _scenario()
    if kind == "ablation":
        return ablation.document(ablate(scenario, local(1))), render_ablation
    if kind == "diagnosis":
        found = diagnose(scenario, local(1), target="x.yaml")
        return diagnose_document.document(found), render_diagnosis
    made = sensitivity(scenario, local(1))
    return uncertainty.document(made), render_sensitivity


KINDS: Mapping[str, list[str]] = {
    "ablation": [
        *("waterfall-capacity", "waterfall-output_throughput", "waterfall-request_goodput"),
        *("waterfall-p99_ttft_ms", "waterfall-p99_tpot_ms"),
    ],
    "diagnosis": [
        *("parts-ttft", "parts-e2el"),
    ],
    "sensitivity": [
        "attained",
        *("tornado-p99_ttft_ms", "tornado-p99_tpot_ms", "tornado-capacity"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_a_function_of_the_result_and_escapes_it(kind: str) -> None:
    document, render = study(kind)
    html = render(document)
    assert html == render(document)
    assert HOSTILE not in html
    assert f"a {HOSTILE}" in unescape(html)
    assert html.count('<div class="plot ') == len(KINDS[kind])


@needs_browser
@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_draws_and_nothing_is_fetched(kind: str, show: Show) -> None:
    document, render = study(kind)
    opened = show(render(document))
    assert opened.complaints == []
    assert opened.drawn == KINDS[kind]
    assert opened.section("figures").count('class="main-svg"') >= len(KINDS[kind])
    opened.section("numbers")


def test_every_command_of_the_advice_is_on_the_page() -> None:
    document, render = study("diagnosis")
    html = unescape(render(document))
    assert document["advice"]
    trials = {trial["name"]: trial for trial in document["trials"]}
    assert all(trials[name]["command"] in html for name in document["advice"])


def test_a_study_of_sensitivity_opens_with_the_share_that_decides() -> None:
    document, render = study("sensitivity")
    verdict = document["verdict"]
    drawn = charts.chart(attained_at_ends(document))
    dashed = [line for line in drawn.layout.shapes if line.line.dash == "dash"]
    assert [line.x0 for line in dashed] == [verdict["target"]]
    ends = {f"{e['title']} {e[end]['text']}": e[end] for e in document["inputs"]
            for end in ("low", "high") if e[end] is not None}  # fmt: skip
    (bars,) = drawn.data
    assert len(bars.x) == len(ends)
    for base, length, said, colour in zip(
        bars.base, bars.x, bars.customdata, bars.marker.color, strict=True
    ):
        text = said.partition(": ")[0]
        assert base + length == pytest.approx(ends[text]["attainment"])
        same = ends[text]["slo_state"] == verdict["slo_state"]
        assert (colour == theme.GREY.light) == same
    html = render(document)
    assert html.index('id="figure-attained"') < html.index('id="figure-tornado')


def test_an_end_that_flips_the_verdict_is_coloured_by_its_state() -> None:
    document = made_up_studies.uncertainty()
    document["inputs"][1]["high"]["slo_state"] = "missed"
    document["inputs"][2]["low"]["slo_state"] = "too close to call"
    (bars,) = charts.chart(attained_at_ends(document)).data
    names = (text.partition(": ")[0] for text in bars.customdata)
    told = dict(zip(names, bars.marker.color, strict=True))
    assert told["burstiness x 1.2"] == theme.VERMILLION.light
    assert told["host x 0.8"] == theme.ORANGE.light
    assert told["host x 1.2"] == theme.GREY.light


def test_changes_have_their_unit_in_the_cell_not_that_of_the_metric_above() -> None:
    document, render = study("sensitivity")
    table = render(document).partition('id="table-inputs"')[2].partition("</table>")[0]
    assert "(ms)" not in table
    assert re.search(r"[-+][\d.]+\u202f%", table)
    assert re.search(r">\d[\d.,]* (ms|s|us)<", table)  # the unchanged run


def test_more_traffic_is_not_better_throughput() -> None:
    document, _ = study("sensitivity")
    found = changes(document, "output_throughput")
    tones = {bar.row: bar.tone for bar in found.bars}
    assert not tones["request rate"]
    assert not tones["answer lengths"]
    assert tones["kernel times"]
    drawn = charts.chart(found).data[0]
    rate = [c for y, c in zip(drawn.y, drawn.marker.color, strict=True) if y == "request rate"]
    assert rate == [theme.GREY.light] * 2


def test_effects_are_coloured_by_what_is_better_for_each_metric() -> None:
    document = {
        "figures": [
            {"key": "p99_ttft_ms", "more": False, "chance": 0.07},
            {"key": "capacity", "more": True, "chance": None},
        ]
    }
    found = {
        (key, change): effect(document, key, change)[4:7]
        for key, change in (
            ("p99_ttft_ms", -0.5), ("p99_ttft_ms", 1.0), ("capacity", 1.0), ("capacity", -1.0),
            ("capacity", 0.0004), ("capacity", None), ("p99_ttft_ms", 0.06),
        )
    }  # fmt: skip
    assert list(found.values()) == [
        ("better", "good", 1.0), ("worse", "bad", 1.0), ("better", "good", 1.0),
        ("worse", "bad", 1.0), ("chance alone moves it as far", "none", 0.0), ("", "", 0.0),
        ("chance alone moves it as far", "none", 0.0),
    ]  # fmt: skip
    slight = effect(document, "capacity", 0.0025)
    assert (slight.tone, round(slight.strength, 4)) == ("good", 0.0036)


def test_page_and_terminal_say_the_same_of_techniques() -> None:
    document, render = study("ablation")
    html, shown = unescape(render(document)), as_text(ablate_view(document))
    assert headline(document) in html
    assert headline(document) in " ".join(shown.split())
    parts = html.partition('id="table-parts"')[2].partition("</table>")[0]
    for entry in figures(document):
        for part in entry["parts"]:
            told = part_text(entry, part)
            assert told in shown
            assert (">–<" if told == "-" else f">{told}<") in parts


def test_a_metric_that_is_0_for_some_set_has_differences_on_the_page_too() -> None:
    document = made_up_studies.ablation()
    goodput = next(f for f in document["figures"] if f["key"] == "request_goodput")
    for part, brings in zip(goodput["parts"], (2.9, 1.4, 0.000704, 0.0), strict=True):
        part.update(factor=None, difference=brings)
    page = render_ablation(document).partition('id="table-parts"')[2].partition("</table>")[0]
    for told in (">+2.9<", ">+1.4<", ">no change<"):
        assert told in page
    assert page.count(">no change<") == 2


def test_the_capacity_leads_where_the_traffic_sets_the_throughput() -> None:
    document = made_up_studies.ablation()
    assert headline(document).startswith("10x the capacity of the naive baseline; TTFT p99 is ")
    document["subsets"][0] |= {"with": [], "state": "overloaded"}
    assert "baseline, which is overloaded by this traffic" in headline(document)
    next(f for f in document["figures"] if f["key"] == "capacity").update(full=None, factor=None)
    assert headline(document).startswith("10x the throughput")


def test_what_does_not_run_has_a_section_of_its_own() -> None:
    document, render = study("diagnosis")
    assert 'id="failures"' not in render(document)
    first, *rest = document["trials"]
    broken = {**first, "error": "does not fit", "figures": None, "changes": {}, "effect": None}
    changed = {**document, "trials": [broken, *rest], "latency": {}}
    html = render(changed)
    assert 'id="failures"' in html
    assert "does not fit" in html


def test_a_diagnosis_has_one_table_of_changes_before_its_figures() -> None:
    document, render = study("diagnosis")
    html = render(document)
    assert html.count('id="table-trials"') == 1
    assert html.index('id="table-trials"') < html.index('id="figure-parts-ttft"')
    assert "tornado-" not in html
    made = made_up_studies.diagnosis()
    states = {"met": "good", "missed": "bad"}
    rows = diagnose_answer.trials(made).rows
    outcomes = [made["verdict"], *(t for t in made["trials"] if t["error"] is None)]
    assert [row[1].tone for row in rows] == [states.get(o["slo_state"], "") for o in outcomes]


def test_a_share_that_nothing_moves_is_a_sentence_not_a_figure_without_bars() -> None:
    document = made_up_studies.uncertainty()
    assert 'data-name="attained"' in render_sensitivity(document)
    for entry in document["inputs"]:
        for end in (entry["low"], entry["high"]):
            if end is not None:
                end["attainment"] = document["verdict"]["attainment"]
    page = render_sensitivity(document)
    assert 'data-name="attained"' not in page
    assert "No input alone moves the share within the SLO: " in page


def test_words_next_to_bars_have_room() -> None:
    """A word on the left begins right of the axis, three figures in a row or on a telephone."""
    bars = tuple(ChartBar("times", change, "", "x 0.933") for change in (-0.08, 0.09))
    low, high = charts.chart(BarChart(ChartAxis("TPOT p99", "share"), bars)).layout.xaxis.range
    left = (-0.08 - low) / (high - low) * charts.NARROW
    assert left >= charts.LETTER * len("x 0.933")


def test_the_share_of_a_limit_is_in_the_name_of_its_row() -> None:
    """Next to the bar, the line of the limit would go through it on a narrow screen."""
    use = slo_bars.LimitUse("TTFT p99", "907 ms of 1 s", 0.907, "good")
    drawn = slo_bars.limit_use([use])
    assert list(drawn.data[0].text) == [""]
    (row,) = drawn.data[0].y
    assert row.replace("<br>", " ") == "TTFT p99: 907 ms of 1 s, 91%"


def test_bars_of_a_claim_are_of_the_figure_that_it_compares() -> None:
    (entry, *_) = made_up_verdicts.claims()["claims"]
    first, second = (figure["key"] for figure in entry["figures"])
    (check, *_) = entry["checks"]
    for statement, key in ((f"a.kv_bytes < b.{second}", second), ("a.kv_bytes < 3", first)):
        drawn, *_ = claims.compared({**entry, "checks": [{**check, "statement": statement}]})
        assert drawn["key"] == key
