"""The page of a run and the terminal say the same: in words, and in metrics as far as they are
rounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import unescape
from typing import Any

import pytest

import reports
from reports.frame.page import typeset
from sim.metrics.words.slo_text import headroom_text, slo_head, slo_text
from sim.result import simulate
from sim.terminal.console import as_text
from sim.terminal.findings import run_view
from sim.units import parse, show_share
from tests.planning_fixtures import small

DAY = {"kind": "diurnal", "rate": 2, "peak_rate": 30, "period": "20s"}
CASES: Mapping[str, Mapping[str, Any]] = {
    "stable": {"run__requests": 400},
    "near saturation": {"workload__arrivals__rate": 190, "run__requests": 3000},
    "not settled": {"workload__arrivals__rate": 190, "run__requests": 300},
    "not settled, no SLO": {"workload__arrivals__rate": 190, "run__requests": 300, "slo": {}},
    "overloaded": {"workload__arrivals__rate": 900, "run__requests": 1500},
    "minutes": {
        "workload__arrivals__rate": 900,
        "run__requests": 1500,
        "scheduler__max_num_seqs": 2,
        "scheduler__max_num_batched_tokens": 512,
    },
    "too close to call": {
        "workload__arrivals__rate": 120,
        "slo": {"ttft": "26ms", "attainment": 0.5},
        "run__requests": 200,
    },
    "rejected": {"max_model_len": 250, "run__requests": 300},
    "closed loop": {"workload__arrivals": {"kind": "closed", "concurrency": 12}},
    "burst": {"workload__arrivals": {"kind": "burst"}, "run__requests": 300},
    "replicas": {"fleet__0__replicas": 3, "workload__arrivals__rate": 150, "run__requests": 600},
    "95 %": {"slo__attainment": 0.95, "workload__arrivals__rate": 120, "slo__ttft": "26ms"},
    "percentiles": {"slo": {"ttft_p95": "40ms", "tpot_p50": "20ms"}, "run__requests": 300},
    "no SLO": {"slo": {}, "run__requests": 100},
    "a day without its peak": {"workload__arrivals": DAY, "run__requests": 40},
    "most of a day": {
        "workload__arrivals": DAY,
        "run": {"requests": 240},
        "slo": {"ttft": "1s", "attainment": 0.9},
    },
    "a horizon": {"run": {"requests": 500, "horizon": "5s"}},
}


class Shown:
    """A run as the terminal and as the page show it; blanks are single."""

    def __init__(self, summary: Mapping[str, Any], page: str) -> None:
        self.summary = summary
        self.own = summary["infersim"]
        lines = re.sub("[│┃┆]", " ", as_text(run_view(dict(summary))))
        self.terminal = " ".join(lines.split())
        self.style = page.partition("<style>")[2].partition("</style>")[0]
        text = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
        self.tiles = {
            unescape(re.sub("<[^>]*>", "", label)).strip(): unescape(re.sub("<[^>]*>", "", value))
            for label, value in re.findall(
                r'<p class="label">(.*?)</p>\s*<p class="value">(.*?)</p>', text, flags=re.S
            )
        }
        self.page = " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())


@cache
def shown(case: str) -> Shown:
    scenario = small(**CASES[case])
    result = simulate(scenario)
    result.confirm()
    summary = result.summary
    page = reports.render(
        summary=summary,
        requests=result.requests,
        timeseries=result.timeseries,
        scenario_yaml="",
        charts=result.charts,
    )
    return Shown(summary, page)


def latency_row(text: str, label: str) -> dict[str, float]:
    """The percentiles (ms) that the terminal shows of a latency."""
    found = re.search(rf"{label}((?: (?:[\d.,]+ (?:us|ms|s|min|h)|-))+)", text)
    assert found is not None, label
    times = re.findall(r"([\d.,]+) (us|ms|s|min|h)|(?<= )-", found[1])
    values = [milliseconds(f"{digits} {unit}") if digits else None for digits, unit in times]
    return dict(zip(("mean", "p50", "p90", "p95", "p99"), values, strict=True))  # type: ignore[arg-type]


def milliseconds(text: str) -> float:
    return 1e3 * parse(text.replace(",", ""), "time")


@pytest.mark.parametrize("case", CASES)
def test_the_states_are_those_that_the_cases_are_called(case: str) -> None:
    verdict = shown(case).own["verdict"]
    told = {verdict["state"], verdict["slo_state"]}
    if case in ("stable", "near saturation", "overloaded", "too close to call", "closed loop"):
        assert case in told
    assert (shown(case).own["rejection"] is not None) == (case == "rejected")


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_the_same_sentence(case: str) -> None:
    both = shown(case)
    text = both.own["verdict"]["text"]
    assert text in both.terminal
    state, _, rest = text.partition(": ")
    rest = typeset(rest[:1].upper() + rest[1:]) if rest else state
    assert " ".join(rest.split()) in both.page
    if rest != state:
        assert state in both.page


@pytest.mark.parametrize("case", CASES)
def test_the_slo_has_the_same_state_and_the_same_shares(case: str) -> None:
    both = shown(case)
    verdict = both.own["verdict"]
    if verdict["slo_state"] is None:
        assert "SLO" not in both.terminal.partition("Latency")[0]
        assert "There is no SLO." in both.page
        return
    assert slo_text(verdict, "", both.own["ends"]) in both.terminal
    assert slo_head(verdict) in both.page
    for name, limit in verdict["limits"].items():
        if "_p" not in name:
            share = show_share(limit["attainment"], limit["target"])
            assert f" {share}" in both.terminal
            assert f": {' '.join(typeset(share).split())}" in both.page
    if not all("_p" in name for name in verdict["limits"]):
        share = show_share(verdict["attainment"], verdict["target"])
        assert " ".join(f"{typeset(share)} of requests are within".split()) in both.page


@pytest.mark.parametrize("case", CASES)
def test_the_part_of_a_curve_stands_by_the_slo(case: str) -> None:
    both = shown(case)
    cut = both.own["verdict"]["cut"]
    assert (cut is None) == ("day" not in case)
    if cut is None:
        return
    if cut["has_peak"]:
        assert f"SLO met in {cut['part']}: " in both.terminal
        assert f"Yes, in {typeset(cut['part'])}: " in both.page
    else:
        assert "SLO too close to call: so far met, 100% of requests, 99% wanted" in both.terminal
        for text in (both.terminal, both.page):
            assert text.count(" ".join(typeset(cut["note"]).split())) + text.count(cut["note"]) >= 2


@pytest.mark.parametrize("case", CASES)
def test_the_headroom_is_the_same_sentence(case: str) -> None:
    both = shown(case)
    text = headroom_text(both.own["verdict"])
    assert (f"Headroom: {text}" in both.terminal) == bool(text)
    for sentence in text.replace("`", "").split(". ") if text else []:
        assert " ".join(typeset(sentence).split()) in both.page


@pytest.mark.parametrize("case", CASES)
def test_rejected_requests_are_the_same_sentence(case: str) -> None:
    both = shown(case)
    refused = both.own["rejection"]
    assert ("Rejected:" in both.terminal) == (refused is not None)
    if refused is not None:
        assert " ".join(refused["text"].split()) in both.terminal
        assert " ".join(typeset(refused["text"]).split()) in both.page
        assert refused["remedy"] in both.terminal
        assert refused["remedy"] in both.page


@pytest.mark.parametrize("case", CASES)
def test_error_band_and_its_ends_are_the_same_sentences(case: str) -> None:
    both = shown(case)
    sentences = [both.own["error_band"]["text"], both.own["whole_runs"]["text"]]
    if both.own["ends"] is not None:
        sentences.append(both.own["ends"]["text"])
    for sentence in sentences:
        assert " ".join(sentence.split()) in both.terminal
        assert " ".join(typeset(sentence).split()) in both.page


@pytest.mark.parametrize("case", CASES)
def test_later_requests_are_the_same_sentences(case: str) -> None:
    both = shown(case)
    assert (both.own["later"] is not None) == (both.own["verdict"]["settled"] is False)
    assert both.own["later"] is not None or not case.startswith("not settled")
    if both.own["later"] is not None:
        text = " ".join(both.own["later"]["text"].split())
        assert text in both.terminal
        assert " ".join(typeset(text).split()) in both.page


@pytest.mark.parametrize("case", CASES)
def test_tiles_of_latencies_are_cells_of_the_terminal(case: str) -> None:
    both = shown(case)
    rows = {
        "TTFT": latency_row(both.terminal, "time to first token"),
        "TPOT": latency_row(both.terminal, "time per output token"),
        "Queue time": latency_row(both.terminal, "of it in the queue"),
    }
    seen = 0
    for label, value in both.tiles.items():
        name, _, rank = label.rpartition(" ")
        if name in rows and rank in rows[name]:
            assert milliseconds(value) == rows[name][rank], label
            seen += 1
    assert seen >= 2


@pytest.mark.parametrize("case", CASES)
def test_throughput_and_cost_are_the_same_digits(case: str) -> None:
    both = shown(case)
    throughput, requests, cost = (
        float(both.tiles[label].split()[0].replace(",", ""))
        for label in ("Output throughput", "Request throughput", "Cost")
    )

    def stated(pattern: str) -> float:
        found = re.search(pattern, both.terminal)
        assert found is not None, pattern
        return float(found[1].replace(",", ""))

    assert throughput == stated(r"output tokens/s ([\d.,]+)")
    assert requests == stated(r"(?<!, )requests/s ([\d.,]+)")
    assert cost == stated(r"output tokens, ([\d.,]+) USD per 1M tokens")
    per_output = stated(r"Cost: (?:.*; )?([\d.,]+) USD per 1M output tokens")
    assert f"{per_output:g}" in both.page


@pytest.mark.parametrize("case", CASES)
def test_the_time_that_was_simulated_is_the_same(case: str) -> None:
    both = shown(case)
    found = re.search(r"simulated time ([\d.,]+ \w+)", both.terminal)
    assert found is not None
    assert f"Duration {found[1]}" in both.page


def test_no_tile_breaks_between_digits() -> None:
    style = shown("stable").style
    assert ".card .value { white-space: nowrap;" in style
    assert ".card .unit { display: block; white-space: normal;" in style  # units may be long
    for case in CASES:
        for value in shown(case).tiles.values():
            assert len(value.split()[0]) <= 7, value


def test_a_latency_of_minutes_is_in_minutes() -> None:
    assert re.fullmatch(r"[\d.]+ min", shown("minutes").tiles["TTFT p99"])
    assert "x the limit" in shown("minutes").page
