"""The report in a real browser: every figure draws, offline, without an error.

One browser shows all pages. Needs a Chromium or Chrome; skipped where there is none.
"""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from reports.frame import theme
from reports.pages.run.page import SECTIONS
from tests.browser import Drive, Show, needs_browser, with_figures
from tests.report_fixtures import make_run
from tests.reports.test_report import (
    FIGURES,
    HOSTILE,
    MANY,
    empty_run,
    hostile_run,
    rejected_run,
    render,
)

pytestmark = needs_browser

AXES = {
    "limits": ("share of requests within the limit", "target 99\u202f%"),
    "parts": ("mean TTFT (ms)", "percentiles of E2EL", "own prefill", "p99–100"),
    "memory": ("memory of one GPU (GiB)", "KV cache, wasted", "share of the KV cache"),
    "time": ("share of the busy time", "gate and up projection"),
    "roofline": ("arithmetic intensity (FLOP per byte)", "FLOP/s of one GPU", "ridge: 295 FLOP"),
    "workload": ("prompt tokens", "output tokens", "time between arrivals (ms)"),
}
"""Section -> what its figures must say."""


def test_every_figure_draws_and_nothing_is_fetched(show: Show) -> None:
    opened = show(render(make_run(800, replicas=2)))
    assert opened.complaints == []
    assert f'data-figures="{len(MANY)}"' in opened.dom
    assert opened.drawn == list(MANY)
    for name in SECTIONS:
        opened.section(name)
    assert opened.section("latency").count('class="main-svg"') >= 8
    assert opened.section("timeline").count("scatterlayer") >= 6
    for label in ("TTFT (ms)", "share of requests", "p99", "limit 500 ms"):
        assert label in opened.section("latency")
    for label in ("time since the start", "tokens/s", "requests/s", "running", "completions"):
        assert label in opened.section("timeline")
    for section, labels in AXES.items():
        for label in labels:
            assert label in opened.section(section), label
    for label in ("slots of the batch", "not in the batch", "waits in the queue", "prefill chunk"):
        assert label in opened.section("slots")
    assert theme.METRICS["ttft"].dark not in opened.section("latency")


@pytest.mark.slow
def test_hostile_names_in_the_dark(show: Show) -> None:
    html = render(hostile_run()).replace('<html lang="en">', '<html lang="en" data-theme="dark">')
    opened = show(html)
    assert opened.complaints == []
    assert opened.drawn == [name for name in FIGURES if not name.startswith("course-")]
    assert f"scenario {HOSTILE}" in unescape(opened.dom)
    assert not re.search(r"<script>\s*alert", opened.dom)
    red, green, blue = (int(theme.METRICS["ttft"].dark[i : i + 2], 16) for i in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in opened.section("latency")


def test_a_run_without_figures_stays_quiet(show: Show) -> None:
    opened = show(render(empty_run()))
    assert opened.complaints == []
    assert opened.drawn == []
    assert 'data-figures="0"' in opened.dom


def test_a_run_that_served_nothing_has_few_figures(show: Show) -> None:
    opened = show(render(rejected_run()))
    assert opened.complaints == []
    assert opened.drawn == ["gpu-memory", "prompts", "outputs", "gaps"]


def test_buttons_do_what_they_say(drive: Drive) -> None:
    result = drive(
        with_figures(render(make_run(300)), "cdf-ttft"),
        """
        const table = document.querySelector("#table-operators table");
        const first = () => table.tBodies[0].rows[0].cells[0].textContent.trim();
        const sort = table.tHead.rows[0].cells[1].querySelector("button");
        const before = first();
        sort.click(); const down = first();
        sort.click(); const up = first();
        let copied = null;
        const clipboard = { writeText: async (text) => { copied = text; } };
        Object.defineProperty(navigator, "clipboard", { value: clipboard });
        [...document.querySelectorAll("#table-latency .tools button")][0].click();
        await until(() => copied !== null);
        const plot = document.querySelector(".plot-cdf-ttft");
        const color = () => plot.querySelector(".scatterlayer .js-line").style.stroke;
        const light = color();
        document.getElementById("theme-toggle").click();
        await until(() => color() !== light);
        const dark = color();
        const tools = plot.closest("figure").querySelectorAll(".tools button");
        const axis = () => plot._fullLayout.xaxis.type;
        tools[0].click();
        await until(() => axis() === "log");
        const ticks = [...plot._fullLayout.xaxis.ticktext];
        return { before, up, down, copied, light, dark, ticks, axis: axis(),
                 label: tools[0].textContent, theme: document.documentElement.dataset.theme };
        """,
    )
    assert result["before"] == result["down"] == "gate and up projection"
    assert result["up"] == "attention (prefill)"
    lines = result["copied"].splitlines()
    assert lines[0].startswith("Latency,mean (ms),std (ms),min (ms),p50 (ms)")
    assert len(lines) == 6
    assert result["theme"] == "dark"
    assert result["light"] != result["dark"]
    assert (result["axis"], result["label"]) == ("log", "linear axis")
    ticks = [float(text.replace(",", "")) for text in result["ticks"]]
    assert ticks == sorted(ticks), "whole numbers, not 2 5 10 2 5"
    assert len(ticks) > 2


def test_headings_sort_by_number_and_by_name(drive: Drive) -> None:
    result = drive(
        with_figures(render(make_run(300))),
        """
        const table = document.querySelector("#table-operators table");
        const column = (index) => [...table.tBodies[0].rows].map((row) =>
          row.cells[index].dataset.value ?? row.cells[index].textContent.trim());
        const heading = (index) => table.tHead.rows[0].cells[index];
        const click = (index) => heading(index).querySelector(".name").click();
        click(2); const largest = column(2)[0];
        click(2); const seconds = column(2); const state = heading(2).getAttribute("aria-sort");
        click(0); const names = column(0); const cleared = heading(2).getAttribute("aria-sort");
        const link = heading(1).querySelector("a") ?? heading(0).querySelector("a");
        let copied = null;
        const clipboard = { writeText: async (text) => { copied = text; } };
        Object.defineProperty(navigator, "clipboard", { value: clipboard });
        table.closest(".table").querySelector(".tools button").click();
        await until(() => copied !== null);
        return { seconds, largest, state, names, cleared, link: link.getAttribute("href"), copied };
        """,
    )
    known = [float(value) for value in result["seconds"] if value]
    assert len(known) >= 3
    assert known == sorted(known)
    assert float(result["largest"]) == known[-1]  # figures begin with the largest
    assert result["seconds"][-1] == "" or len(known) == len(result["seconds"])  # unknown ones last
    assert result["state"] == "ascending"
    assert result["cleared"] is None
    assert result["names"] == sorted(result["names"], key=str.casefold)
    assert result["link"] == "#def-operator"
    head, *lines = result["copied"].splitlines()
    assert head.startswith("Operator,Share of busy time (%),Seconds,FLOP,Bytes,FLOP/B,FLOP/s,")
    flop = next(line for line in lines if line.startswith("gate and up")).split(",")[3]
    assert float(flop) == 4e15  # all digits, not "4 P"


def test_legends_toggle_bars_become_shares_and_hover_tells(drive: Drive) -> None:
    result = drive(
        with_figures(render(make_run(300)), "parts-e2el", "timeline"),
        """
        const plot = document.querySelector('[data-name="parts-e2el"]');
        const before = plot._fullLayout.yaxis.range[1];
        const item = plot.querySelector(".legendtoggle");
        item.dispatchEvent(new MouseEvent("mousedown"));
        item.dispatchEvent(new MouseEvent("mouseup"));
        const hidden = await until(() => plot.data.some((each) => each.visible === "legendonly"));
        const button = [...plot.closest("figure").querySelectorAll("button")]
          .find((each) => each.textContent === "as shares");
        const whole = () => plot.data.reduce((sum, each) => sum + each.y[0], 0);
        const time = whole();
        button.click();
        await until(() => whole() !== time);
        const shares = [whole().toFixed(6), plot._fullLayout.yaxis.range[1], button.textContent];
        button.click();
        await until(() => whole() === time);
        const back = button.textContent;
        const timeline = document.querySelector('[data-name="timeline"]');
        Plotly.Fx.hover(timeline, [{ curveNumber: 0, pointNumber: 3 }], "xy");
        const told = await until(() => timeline.querySelector(".hoverlayer").textContent);
        return { before, hidden, shares, back, told };
        """,
    )
    assert result["hidden"] is True
    assert result["shares"] == ["100.000000", 100, "as times"]  # the hidden part counts
    assert result["back"] == "as shares"
    assert "/s" in result["told"]


def framed(html: str, width: int) -> str:
    """A page with ``html`` in a frame ``width`` px wide: windows of a browser cannot be narrow."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    inner = json.dumps(html).replace("<", "\\u003c")
    return (
        f"<html><body><iframe id='frame' width='{width}' height='900'></iframe>"
        f"<script type='application/json' id='inner'>{inner}</script><script>"
        "const frame = document.getElementById('frame');"
        "frame.srcdoc = JSON.parse(document.getElementById('inner').textContent);"
        "const wait = setInterval(() => {"
        " const ready = frame.contentDocument?.documentElement?.dataset.figures;"
        " if (ready) { clearInterval(wait); document.documentElement.dataset.figures = ready; }"
        "}, 50);</script></body></html>"
    )


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1000])
def test_nothing_is_wider_than_the_page_and_no_figure_is_cut(width: int, drive: Drive) -> None:
    result = drive(
        framed(render(make_run(300, replicas=2)), width),
        """
        const view = frame.contentWindow, page = frame.contentDocument;
        const wide = [], cut = [], scrolled = [];
        for (const plot of page.querySelectorAll(".plot")) {
          const drawing = plot.querySelector(".main-svg").getBoundingClientRect();
          const room = plot.getBoundingClientRect();
          if (drawing.right > view.innerWidth + 1) wide.push(plot.dataset.name);
          if (drawing.height > room.height + 1) cut.push(plot.dataset.name);
          const bars = [...plot.querySelectorAll(".legend .scrollbar")];
          if (bars.some((bar) => bar.getBoundingClientRect().height > 0)) {
            scrolled.push(plot.dataset.name);
          }
        }
        return { scroll: page.documentElement.scrollWidth - view.innerWidth, wide, cut, scrolled,
                 inner: view.innerWidth };
        """,
    )
    assert result["inner"] <= width
    assert result["scroll"] <= 1
    assert (result["wide"], result["cut"], result["scrolled"]) == ([], [], [])


PRINTED = ("operators", "slots", "cdf-ttft", "timeline", "parts-e2el", "prompts")
"""Figures of every shape: all of them are printed by the same lines, and drawn thrice."""


def test_on_paper_figures_are_light_and_legends_stand_above_them(drive: Drive) -> None:
    """What is measured right after the event is what a browser prints."""
    dark = '<html lang="en" data-theme="dark">'
    result = drive(
        with_figures(render(make_run(300)), *PRINTED).replace('<html lang="en">', dark),
        """
        const box = (plot, what) => plot.querySelector(what).getBoundingClientRect();
        const named = (name) => document.querySelector(`[data-name="${name}"]`);
        dispatchEvent(new Event("beforeprint"));
        const gap = (name) =>
          box(named(name), ".barlayer").top - box(named(name), ".legend").bottom;
        const gaps = ["operators", "slots"].map(gap);
        const widths = [...document.querySelectorAll(".plot")]
          .map((plot) => plot.querySelector(".main-svg").getBoundingClientRect().width);
        const stroke = named("cdf-ttft").querySelector(".js-line").style.stroke;
        const open = [...document.querySelectorAll("details")].every((each) => each.open);
        dispatchEvent(new Event("afterprint"));
        const now = () => named("cdf-ttft").querySelector(".js-line")?.style.stroke;
        await until(() => now() && now() !== stroke);
        const after = now();
        const wide = () => named("timeline").querySelector(".main-svg").clientWidth;
        await until(() => wide() > 670);
        return { gaps, widest: Math.max(...widths), stroke, after, open, wide: wide() };
        """,
    )
    assert min(result["gaps"]) >= 0
    assert result["widest"] <= 670 < result["wide"]
    assert result["open"]

    def css(colour: str) -> str:
        return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"

    assert result["stroke"] == css(theme.METRICS["ttft"].light)
    assert result["after"] == css(theme.METRICS["ttft"].dark)


def test_a_wide_table_goes_on_below_on_paper_and_is_whole_after(drive: Drive) -> None:
    """Of its columns each is in one part, but for those that name the row."""
    many = "".join(f'<th class="num"><span class="name">latency {n}</span></th>' for n in range(30))
    html = render(make_run(300)).replace(
        '<span class="name">Latency</span></th>', f'<span class="name">Latency</span></th>{many}', 1
    )
    result = drive(
        html,
        """
        const all = () => [...document.querySelectorAll("#table-latency table")];
        const heads = (table) => [...table.tHead.rows[0].cells].filter((cell) => !cell.hidden)
          .map((cell) => cell.querySelector(".name").textContent);
        const before = heads(all()[0]);
        dispatchEvent(new Event("beforeprint"));
        const parts = all().map(heads), zooms = all().map((table) => Number(table.style.zoom || 1));
        dispatchEvent(new Event("afterprint"));
        return { before, parts, zooms, after: all().map(heads) };
        """,
    )
    assert len(result["parts"]) > 1
    assert [part[0] for part in result["parts"]] == ["Latency"] * len(result["parts"])
    assert [name for part in result["parts"] for name in part[1:]] == result["before"][1:]
    assert min(result["zooms"]) >= 0.8
    assert result["after"] == [result["before"]]


def test_the_first_stop_of_the_keyboard_skips_to_the_answer(drive: Drive) -> None:
    result = drive(
        with_figures(render(make_run(30))),
        """
        const skip = document.querySelector("a[href]");
        const shown = () => skip.getBoundingClientRect().left >= 0;
        const before = shown();
        skip.focus();
        const focused = shown();
        skip.click();
        const topics = [...document.querySelectorAll("nav [role=group]")];
        return { before, focused, at: document.activeElement.id,
                 topics: topics.map((each) => each.getAttribute("aria-label")) };
        """,
    )
    assert (result["before"], result["focused"], result["at"]) == (False, True, "main")
    assert result["topics"] == ["Answer", "Response", "Machine", "Money", "Sources"]
