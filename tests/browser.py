"""Opens pages in a real browser, the same one for all tests of a process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.export.browser import Browser, Tab, find_browser

PROGRAM = find_browser()

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome is installed")

WINDOW = {"width": 1280, "height": 2000}

WAIT = 60
"""Seconds after which what has not happened is not waited for any longer."""

READY = """new Promise((done) => {
  const look = () => (document.documentElement.dataset.figures === undefined
    ? setTimeout(look, 20) : done(true));
  look();
})"""
"""Ends when every figure of the page is drawn."""

UNTIL = f"""const until = (asked) => new Promise((done, failed) => {{
  const begin = Date.now();
  const look = () => {{
    try {{
      const found = asked();
      if (found || Date.now() - begin > {WAIT * 1000}) done(found); else setTimeout(look, 20);
    }} catch (error) {{ failed(error); }}
  }};
  look();
}});"""
"""What ``asked`` returns as soon as that is true; after ``WAIT``, what it returns then."""


def in_page(script: str) -> str:
    """``script``, the body of an async function that may ``await until(() => ...)``, as an
    expression."""
    return f"(async () => {{ {UNTIL} {script} }})()"


def with_figures(html: str, *names: str) -> str:
    """A page that draws these figures alone; without any, a page is ready in a moment."""

    def kept(plot: re.Match[str]) -> str:
        found = re.search(r'data-name="([^"]+)"', plot[0])
        assert found is not None, plot[0]
        return plot[0] if found[1] in names else plot[0].replace('"plot', '"', 1)

    return re.sub(r'<div class="plot[^>]*>', kept, html)


class Window:
    """The one window of a browser in which all tests look at their pages, one after the other.

    All pages have the same address: for another one, Chromium would start another process, which
    compiles the drawing library anew, and that takes longer than most pages do.
    """

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser, self._path = browser, folder / "report.html"
        self._tab: Tab | None = None

    def open(self, html: str, *, width: int = 1200, height: int = 900) -> Tab:
        """``html``, loaded, in a window of that size; of the page before nothing is left."""
        self._path.write_text(html, encoding="utf-8")
        if self._tab is None:
            self._tab = self._browser.open(self._path, width=width, height=height)
            return self._tab
        tab = self._tab
        tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0, button="none")
        tab.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        tab.ask("Storage.clearDataForOrigin", origin="file://", storageTypes="all")
        tab.prepare(width, height, dark=False)
        self._browser.events.clear()
        tab.go(self._path.resolve().as_uri())
        return tab


class Page:
    """What a browser made of a page: its elements after all scripts, what ``script`` (the body of
    an async function, see ``in_page``) returned, and what the browser complained of."""

    def __init__(self, window: Window, html: str, script: str = "") -> None:
        tab = window.open(html, **WINDOW)
        tab.evaluate(READY)
        self.result = tab.evaluate(in_page(script))
        self.dom: str = tab.evaluate("document.documentElement.outerHTML")
        self.complaints = tab.complaints

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


Drive = Callable[[str, str], dict[str, Any]]
Show = Callable[[str], Page]
