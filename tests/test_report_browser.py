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
from test_report import HOSTILE, hostile_run, rejected_run, render

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


def test_every_figure_draws_and_nothing_is_fetched(tmp_path: Path) -> None:
    opened = Page(render(make_run(800, replicas=2)), tmp_path)
    assert opened.complaints == []
    assert 'data-figures="6"' in opened.dom
    assert opened.drawn == ["cdf-ttft", "cdf-tpot", "cdf-e2el", "cdf-queue", "timeline", "slots"]
    for name in page.SECTIONS:
        opened.section(name)
    assert opened.section("latency").count('class="main-svg"') >= 8
    assert opened.section("timeline").count("scatterlayer") >= 3
    for label in ("TTFT (ms)", "share of requests", "p99", "limit 500 ms"):
        assert label in opened.section("latency")
    for label in ("time since the start", "tokens per second", "running", "waiting"):
        assert label in opened.section("timeline")
    for label in ("seats of the batch", "not in the batch", "waits in the queue", "prefill chunk"):
        assert label in opened.section("slots")
    assert theme.METRICS["ttft"].dark not in opened.section("latency")


def test_hostile_names_in_the_dark(tmp_path: Path) -> None:
    html = render(hostile_run()).replace('<html lang="en">', '<html lang="en" data-theme="dark">')
    opened = Page(html, tmp_path)
    assert opened.complaints == []
    assert len(opened.drawn) == 6
    assert f"scenario {HOSTILE}" in unescape(opened.dom)
    assert not re.search(r"<script>\s*alert", opened.dom)
    red, green, blue = (int(theme.METRICS["ttft"].dark[i : i + 2], 16) for i in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in opened.section("latency")


def test_a_run_without_figures_stays_quiet(tmp_path: Path) -> None:
    opened = Page(render(rejected_run()), tmp_path)
    assert opened.complaints == []
    assert opened.drawn == []
    assert 'data-figures="0"' in opened.dom


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
    assert lines[0].startswith("Latency (ms),mean,std,p50")
    assert len(lines) == 6
    assert result["theme"] == "dark"
    assert result["light"] != result["dark"]
    assert (result["axis"], result["label"]) == ("log", "linear axis")
