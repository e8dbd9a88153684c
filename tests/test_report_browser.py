"""The report in a real browser: does every figure draw, offline, without an error?

Needs a Chromium or Chrome on the PATH; the tests are skipped where there is none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import make_run
from test_report import FIGURES, HOSTILE, empty_run, hostile_run, rejected_run, render

from reports import page, theme

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed")

FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--window-size=1280,2000", "--enable-logging=stderr", "--v=0"),
    *("--virtual-time-budget=10000", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"),
)


class Page:
    """What a browser made of a page: its elements after all scripts, and what it complained of."""

    def __init__(self, html: str, folder: Path) -> None:
        path = folder / "report.html"
        path.write_text(html, encoding="utf-8")
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [str(BROWSER), *FLAGS, *root, f"--user-data-dir={folder / 'profile'}"]
        done = subprocess.run(
            [*command, path.as_uri()], capture_output=True, timeout=120, check=True
        )
        self.dom = done.stdout.decode()
        log = done.stderr.decode(errors="replace").splitlines()
        self.complaints = [line for line in log if "CONSOLE" in line or "net::ERR" in line]
        shutil.rmtree(folder / "profile", ignore_errors=True)

    @property
    def drawn(self) -> list[str]:
        """Names of the figures that Plotly drew, in the order of the page."""
        plots = re.findall(r'<div class="plot[^>]*>', self.dom)
        done = [plot for plot in plots if 'data-drawn="yes"' in plot]
        return [found[1] for plot in done if (found := re.search(r'data-name="([^"]+)"', plot))]

    def section(self, name: str) -> str:
        """The inside of a section."""
        found = re.search(rf'<section id="{name}">(.*?)</section>', self.dom, re.DOTALL)
        assert found is not None, name
        return found[1]


def drive(html: str, script: str, folder: Path) -> dict[str, Any]:
    """Open the page, wait for its figures, run ``script`` (the body of an async function)."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    driver = (
        "<script>(async () => { const nap = (ms) => new Promise((ok) => setTimeout(ok, ms));"
        "while (!document.documentElement.dataset.figures) await nap(50);"
        f"const result = await (async () => {{ {script} }})();"
        "const box = document.createElement('pre'); box.id = 'driven';"
        "box.textContent = JSON.stringify(result); document.body.append(box); })();</script>"
    )
    done = Page(html.replace("</body>", driver + "</body>"), folder)
    assert done.complaints == []
    found = re.search(r'<pre id="driven">(.*?)</pre>', done.dom, re.DOTALL)
    assert found is not None, "the script did not finish"
    result = json.loads(unescape(found[1]))
    assert isinstance(result, dict)
    return result


AXES = {
    "limits": ("share of requests within the limit", "target 99 %"),
    "parts": ("mean TTFT (ms)", "percentiles of E2EL", "own prefill", "p99–100"),
    "memory": ("memory of one GPU (GiB)", "KV cache, wasted", "share of the KV cache"),
    "time": ("share of the busy time", "gate and up projection"),
    "roofline": ("arithmetic intensity (FLOP per byte)", "FLOP/s of one GPU", "ridge: 295 FLOP"),
    "workload": ("prompt tokens", "output tokens", "time between arrivals (ms)"),
}
"""Section -> what its figures must say."""


def test_every_figure_draws_and_nothing_is_fetched(tmp_path: Path) -> None:
    opened = Page(render(make_run(800, replicas=2)), tmp_path)
    assert opened.complaints == []
    assert f'data-figures="{len(FIGURES)}"' in opened.dom
    assert opened.drawn == list(FIGURES)
    for name in page.SECTIONS:
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


def test_hostile_names_in_the_dark(tmp_path: Path) -> None:
    html = render(hostile_run()).replace('<html lang="en">', '<html lang="en" data-theme="dark">')
    opened = Page(html, tmp_path)
    assert opened.complaints == []
    assert opened.drawn == list(FIGURES)
    assert f"scenario {HOSTILE}" in unescape(opened.dom)
    assert not re.search(r"<script>\s*alert", opened.dom)
    red, green, blue = (int(theme.METRICS["ttft"].dark[i : i + 2], 16) for i in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in opened.section("latency")


def test_a_run_without_figures_stays_quiet(tmp_path: Path) -> None:
    opened = Page(render(empty_run()), tmp_path)
    assert opened.complaints == []
    assert opened.drawn == []
    assert 'data-figures="0"' in opened.dom


def test_a_run_that_served_nothing_has_few_figures(tmp_path: Path) -> None:
    opened = Page(render(rejected_run()), tmp_path)
    assert opened.complaints == []
    assert opened.drawn == ["gpu-memory", "prompts", "outputs", "gaps"]


def test_buttons_do_what_they_say(tmp_path: Path) -> None:
    result = drive(
        render(make_run(300)),
        """
        const table = document.querySelector("#table-operators table");
        const first = () => table.tBodies[0].rows[0].cells[0].textContent.trim();
        const sort = table.tHead.rows[0].cells[1].querySelector("button");
        const before = first();
        sort.click(); const up = first();
        sort.click(); const down = first();
        let copied = null;
        const clipboard = { writeText: async (text) => { copied = text; } };
        Object.defineProperty(navigator, "clipboard", { value: clipboard });
        [...document.querySelectorAll("#table-latency .tools button")][0].click();
        await nap(100);
        const plot = document.querySelector(".plot-cdf-ttft");
        const color = () => plot.querySelector(".scatterlayer .js-line").style.stroke;
        const light = color();
        document.getElementById("theme-toggle").click(); await nap(500);
        const dark = color();
        const tools = plot.closest("figure").querySelectorAll(".tools button");
        tools[0].click(); await nap(500);
        const axis = plot.layout.xaxis.type;
        return { before, up, down, copied, light, dark, axis, label: tools[0].textContent,
                 theme: document.documentElement.dataset.theme };
        """,
        tmp_path,
    )
    assert result["before"] == result["down"] == "gate and up projection"
    assert result["up"] == "attention (prefill)"
    lines = result["copied"].splitlines()
    assert lines[0].startswith("Latency,mean (ms),std (ms),p50 (ms)")
    assert len(lines) == 6
    assert result["theme"] == "dark"
    assert result["light"] != result["dark"]
    assert (result["axis"], result["label"]) == ("log", "linear axis")


def test_headings_sort_by_number_and_by_name(tmp_path: Path) -> None:
    result = drive(
        render(make_run(300)),
        """
        const table = document.querySelector("#table-operators table");
        const column = (index) => [...table.tBodies[0].rows].map((row) =>
          row.cells[index].dataset.value ?? row.cells[index].textContent.trim());
        const heading = (index) => table.tHead.rows[0].cells[index];
        const click = (index) => heading(index).querySelector(".name").click();
        click(2); const seconds = column(2); const state = heading(2).getAttribute("aria-sort");
        click(0); const names = column(0); const cleared = heading(2).getAttribute("aria-sort");
        const link = heading(1).querySelector("a") ?? heading(0).querySelector("a");
        let copied = null;
        const clipboard = { writeText: async (text) => { copied = text; } };
        Object.defineProperty(navigator, "clipboard", { value: clipboard });
        table.closest(".table").querySelector(".tools button").click();
        await nap(50);
        return { seconds, state, names, cleared, link: link.getAttribute("href"), copied };
        """,
        tmp_path,
    )
    known = [float(value) for value in result["seconds"] if value]
    assert len(known) >= 3
    assert known == sorted(known)
    assert result["seconds"][-1] == "" or len(known) == len(result["seconds"])  # unknown ones last
    assert result["state"] == "ascending"
    assert result["cleared"] is None
    assert result["names"] == sorted(result["names"], key=str.casefold)
    assert result["link"] == "#def-operator"
    head, *lines = result["copied"].splitlines()
    assert head.startswith("Operator,Share of busy time (%),Seconds,FLOP,Bytes,FLOP/B,FLOP/s,")
    flop = next(line for line in lines if line.startswith("gate and up")).split(",")[3]
    assert float(flop) == 4e15  # all digits, not "4 P"


def test_legends_toggle_bars_become_shares_and_hover_tells(tmp_path: Path) -> None:
    result = drive(
        render(make_run(300)),
        """
        const plot = document.querySelector('[data-name="parts-e2el"]');
        const before = plot._fullLayout.yaxis.range[1];
        const item = plot.querySelector(".legendtoggle");
        item.dispatchEvent(new MouseEvent("mousedown"));
        item.dispatchEvent(new MouseEvent("mouseup"));
        await nap(800);
        const hidden = plot.data.map((trace) => trace.visible);
        const button = [...plot.closest("figure").querySelectorAll("button")]
          .find((each) => each.textContent === "as shares");
        button.click(); await nap(300);
        const shares = [plot.layout.barnorm, plot._fullLayout.yaxis.range[1], button.textContent];
        button.click(); await nap(300);
        const back = [plot.layout.barnorm ?? "", button.textContent];
        const timeline = document.querySelector('[data-name="timeline"]');
        Plotly.Fx.hover(timeline, [{ curveNumber: 0, pointNumber: 3 }], "xy");
        await nap(200);
        const told = timeline.querySelector(".hoverlayer").textContent;
        return { before, hidden, shares, back, told };
        """,
        tmp_path,
    )
    assert "legendonly" in result["hidden"]
    assert result["shares"] == ["percent", 100, "as times"]
    assert result["back"] == ["", "as shares"]
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


@pytest.mark.parametrize("width", [390, 1000])
def test_nothing_is_wider_than_the_page_and_no_figure_is_cut(width: int, tmp_path: Path) -> None:
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
        tmp_path,
    )
    assert result["inner"] <= width
    assert result["scroll"] <= 1
    assert (result["wide"], result["cut"], result["scrolled"]) == ([], [], [])


def test_on_paper_figures_are_light_and_legends_stand_above_them(tmp_path: Path) -> None:
    """What is measured right after the event is what a browser prints."""
    dark = '<html lang="en" data-theme="dark">'
    result = drive(
        render(make_run(300)).replace('<html lang="en">', dark),
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
        dispatchEvent(new Event("afterprint")); await nap(800);
        const after = named("cdf-ttft").querySelector(".js-line").style.stroke;
        return { gaps, widest: Math.max(...widths), stroke, after, open };
        """,
        tmp_path,
    )
    assert min(result["gaps"]) >= 0
    assert result["widest"] <= 670
    assert result["open"]

    def css(colour: str) -> str:
        return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"

    assert result["stroke"] == css(theme.METRICS["ttft"].light)
    assert result["after"] == css(theme.METRICS["ttft"].dark)
