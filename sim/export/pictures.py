"""Draws each figure of a page, with its title and caption, as a PNG.

The page is one that a run, a planning command, ``calibrate report`` or ``validate-run`` has
written; an installed browser shows it, and the picture is what it shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sim.errors import InfersimError, UsageError
from sim.export.browser import NAMES, Box, Browser, Tab, find_browser

PAGE = "report.html"
"""The page in the directory of a run or of a planning command."""

WIDTH = 1200
"""Pixels of the window: as wide as the page needs to show figures in pairs."""

SCALE = 2.0
"""Dots per pixel: sharp on paper and on dense screens."""

MARGIN = 12.0
"""Pixels around a figure."""

_GENERATOR = '<meta name="generator" content="infersim'

_READY = """new Promise((done) => {
  const root = document.documentElement;
  const look = () => (root.dataset.figures === undefined ? setTimeout(look, 20) : done(true));
  look();
})"""
"""Kept when the page has drawn what it can."""

_BARE = """(() => {
  const style = document.createElement("style");
  style.textContent = ".tools, a.anchor, nav { display: none !important }";
  document.head.append(style);
  document.querySelectorAll("details").forEach((each) => (each.open = true));
  document.querySelectorAll("figure > figcaption").forEach((each) => {
    const run = document.createElement("p");
    run.className = "note";
    run.textContent = document.documentElement.dataset.run || "";
    each.after(run);
  });
  const plots = [...document.querySelectorAll(".plot")];
  return new Promise((done) => {
    const drawn = () => plots.every((plot) => plot.dataset.drawn);
    const look = () => (drawn() ? done(true) : setTimeout(look, 20));
    look();
  }).then(() => document.fonts.ready).then(() => true);
})()"""
"""Takes away what only a reader at a screen needs, unfolds the rest and waits until it is drawn;
says with each figure what was run."""

_FIGURES = """[...document.querySelectorAll("figure")].flatMap((figure) => {
  const plot = figure.querySelector(".plot");
  if (!plot) return [];
  const { left, top, width, height } = figure.getBoundingClientRect();
  const box = [left + scrollX, top + scrollY, width, height];
  return [{ name: plot.dataset.name, drawn: plot.dataset.drawn === "yes", box }];
})"""
"""Every figure: its name, whether it was drawn, and where it is."""


def page_of(given: Path) -> Path:
    """The page to draw from: ``given`` itself, or that in a directory; UsageError if there is
    none."""
    if given.is_dir():
        page = given / PAGE
        if not page.is_file():
            raise UsageError(
                f"{given}: has no {PAGE} to draw from; of a run, `python -m reports {given}` makes "
                "it again"
            )
    elif given.is_file():
        page = given
    else:
        raise UsageError(f"{given}: does not exist; expected a directory with a page, or a page")
    try:
        head = page.read_text(encoding="utf-8")[:4000]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{page}: cannot be read ({error})") from None
    if _GENERATOR not in head:
        raise UsageError(f"{page}: is no page that infersim has written")
    return page


def pictures(page: Path) -> tuple[list[tuple[str, bytes]], list[str]]:
    """A name and a PNG for every figure of ``page``, in their order, and what should be known.

    InfersimError if there is no browser, or it cannot show the page.
    """
    program = find_browser()
    if program is None:
        raise InfersimError(
            f"no browser to draw with: none of {', '.join(NAMES)} is on the PATH; install "
            f"Chromium, or open {page} and use the button next to each figure"
        )
    with Browser(program) as browser:
        tab = browser.open(page, width=WIDTH)
        tab.evaluate(_READY)
        tab.evaluate(_BARE)
        found = tab.evaluate(_FIGURES)
        drawn = [each for each in found if each["drawn"]]
        names = file_names([str(each["name"]) for each in drawn])
        made = [(name, _picture(tab, each["box"])) for name, each in zip(names, drawn, strict=True)]
    left = len(found) - len(drawn)
    return made, [f"{left:,} figures could not be drawn"] if left else []


def file_names(names: list[str]) -> list[str]:
    """A file for each figure: its name in plain letters, with a number where two have the same.

    >>> file_names(["cdf-ttft", "curve of/x", "curve of x"])
    ['cdf-ttft.png', 'curve-of-x.png', 'curve-of-x-2.png']
    """
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-") or "figure"
        file, number = f"{plain}.png", 2
        while file in found:
            file, number = f"{plain}-{number}.png", number + 1
        found.append(file)
    return found


def _picture(tab: Tab, box: Any) -> bytes:
    x, y, width, height = box
    left, top = max(0.0, x - MARGIN), max(0.0, y - MARGIN)
    return tab.picture(Box(left, top, width + 2 * MARGIN, height + 2 * MARGIN), SCALE)
