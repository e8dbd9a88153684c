"""A page of every kind in a real browser: opened from a file, offline, read, pointed at, darkened.

One browser shows all of them. Needs a Chromium or Chrome; skipped where there is none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.frame import theme
from sim.export.browser import Tab
from tests.browser import READY, Window, in_page, needs_browser
from tests.page_kinds import DECISIONS, KINDS
from tests.reports.test_page_fuzz import NAMES, RUNS, SPOKEN, broken, renamed, render

pytestmark = needs_browser

PLACE = """(() => {
  const all = [...document.querySelectorAll(%s)];
  const found = all.find((each) => each.getBoundingClientRect().width > 4) ?? all[0];
  if (!found) return null;
  found.scrollIntoView({ block: "center", behavior: "instant" });
  const { left, top, width, height } = found.getBoundingClientRect();
  return [left + width / 2, top + height / 2];
})()"""

OTHER_SWEEPS = ("sweep over a grid", "sweep over policies")
"""Of sweeps one is enough to be read and pointed at; these are opened below."""

MARKS = (".points path", ".barlayer .point path", ".plot-timeline .nsewdrag")
"""What can be pointed at: a point, a bar, or a place in a figure that tells all of one time."""


def opened(window: Window, html: str) -> Tab:
    tab = window.open(html)
    tab.evaluate(READY)
    return tab


def until(tab: Tab, condition: str) -> Any:
    return tab.evaluate(in_page(f"return until(() => ({condition}));"))


def move(tab: Tab, selector: str, *, click: bool = False) -> bool:
    """Put the pointer on an element; whether there is one."""
    place = tab.evaluate(PLACE % json.dumps(selector))
    if place is None:
        return False
    kinds = ["mouseMoved", "mousePressed", "mouseReleased"] if click else ["mouseMoved"]
    for kind in kinds:
        button = "none" if kind == "mouseMoved" else "left"
        at = {"type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1}
        tab.ask("Input.dispatchMouseEvent", **at)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in OTHER_SWEEPS])
def test_a_page_of_every_kind(name: str, window: Window, tmp_path: Path) -> None:
    kind = KINDS[name]
    tab = opened(window, kind.render(tmp_path))
    assert tab.complaints == []
    # figures that are folded away are drawn when they are opened
    plots = tab.evaluate(
        "[...document.querySelectorAll('.plot')]"
        ".filter((plot) => !plot.closest('details:not([open])')).length"
    )
    assert int(tab.evaluate("document.documentElement.dataset.figures")) == plots
    assert bool(plots) == (name != "claims")  # its tables have bars
    heights = tab.evaluate(
        "Object.fromEntries([...document.querySelectorAll('section')].map("
        "(each) => [each.id, each.offsetHeight]))"
    )
    assert list(heights) == list(kind.sections)
    assert min(heights.values()) > 40

    _text_can_be_selected(tab)
    if plots:
        _hover_tells_values(tab)
        _a_click_in_the_legend_hides(tab)
        _dark_and_light(tab)
    _narrow(tab)
    assert tab.complaints == []


def _text_can_be_selected(tab: Tab) -> None:
    chosen = tab.evaluate(
        "(() => { const all = getSelection();"
        "all.selectAllChildren(document.querySelector('main'));"
        "const text = all.toString(); all.removeAllRanges(); return text; })()"
    )
    assert "Definitions" in chosen
    assert len(chosen) > 500


def _hover_tells_values(tab: Tab) -> None:
    assert any(move(tab, f"[data-drawn=yes] {mark}") for mark in MARKS)
    words = "[...document.querySelectorAll('.hoverlayer')].map((e) => e.textContent).join('')"
    told = until(tab, f"{words}.trim()")
    assert any(letter.isdigit() for letter in told), told


def _a_click_in_the_legend_hides(tab: Tab) -> None:
    if not move(tab, "[data-drawn=yes] .legendtoggle", click=True):
        assert tab.evaluate("document.querySelectorAll('.legend .traces').length") == 0
        return
    hidden = "[...document.querySelectorAll('.plot')].some((plot) => plot.data?.some("
    assert until(tab, hidden + "(trace) => trace.visible === 'legendonly'))")


def _dark_and_light(tab: Tab) -> None:
    for dark in (True, False):
        tab.prefer(dark=dark)
        for tone, where in (
            (theme.PAGE["surface"], "getComputedStyle(document.body).backgroundColor"),
            (theme.PAGE["muted"], "document.querySelector('[data-drawn=yes] :is(.xtick, .ytick) "
             "text').style.fill"),
        ):  # fmt: skip
            wanted = _rgb(tone.dark if dark else tone.light)
            assert until(tab, f"{where} === {json.dumps(wanted)}"), (dark, where)


def _rgb(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


CUT = """(() => [...document.querySelectorAll("[data-drawn=yes]")].flatMap((plot) => {
  const box = plot.getBoundingClientRect();
  const out = (text) => {
    const { left, right, top, bottom, width } = text.getBoundingClientRect();
    const above = top < box.top - 2 || bottom > box.bottom + 2;
    return width && (left < box.left - 2 || right > box.right + 2 || above);
  };
  const seen = [...plot.querySelectorAll(".main-svg text")];
  return seen.filter(out).map((text) => `${plot.dataset.name}: ${text.textContent}`);
}))()"""
"""Words of figures that lie beyond their edges."""

LAID_OVER = """(() => [...document.querySelectorAll("[data-drawn=yes]")].flatMap((plot) => {
  const level = (text) => !/rotate\\((?!0[,)])/.test(text.getAttribute("transform") || "");
  const words = [...plot.querySelectorAll(".main-svg text")]
    .filter((text) => text.textContent.trim() && level(text))
    .filter((text) => getComputedStyle(text).visibility === "visible")
    .map((text) => [text.textContent, text.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1);
  return words.flatMap(([first, a], place) => words.slice(place + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
  ).map(([other]) => `${plot.dataset.name}: ${first} / ${other}`));
}))()"""
"""Level words of figures that lie on each other, by more than the blank around letters."""

LOW_LEGENDS = """[...document.querySelectorAll("[data-drawn=yes]")].filter((plot) => {
  const legend = plot.querySelector(".legend"), { y, yanchor } = plot._fullLayout.legend ?? {};
  if (!legend || y < 1 || yanchor !== "bottom") return false;
  const areas = [...plot.querySelectorAll(".nsewdrag")].map((each) => each.getBoundingClientRect());
  return legend.getBoundingClientRect().bottom > Math.min(...areas.map(({ top }) => top)) + 2;
}).map((plot) => plot.dataset.name)"""
"""Figures whose legend, which stands above them, lies on their curves."""

WIDE = """[...document.querySelectorAll("main *, header *")]
  .filter((each) => !each.closest(".scroll, .plot, pre"))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.textContent.trim().slice(0, 40))"""
"""What stands beyond the right edge of the page, other than what scrolls by itself."""


@pytest.mark.parametrize("name", list(KINDS))
def test_nothing_is_cut_or_lies_on_words_on_any_screen(
    name: str, window: Window, tmp_path: Path
) -> None:
    html = KINDS[name].render(tmp_path)
    assert len(html.encode()) < 1.5e6
    tab = opened(window, html)
    for width in (1440, 768, 390, 1440):  # and back again, as a phone that is turned
        tab.resize(width, 900)
        drawn = "[...document.querySelectorAll('.main-svg')]"
        assert until(tab, f"{drawn}.every((each) => each.clientWidth < {width})")
        assert until(tab, f"{CUT}.length === 0"), (width, tab.evaluate(CUT))
        assert until(tab, f"{WIDE}.length === 0"), (width, tab.evaluate(WIDE))
        assert until(tab, f"{LAID_OVER}.length === 0"), (width, tab.evaluate(LAID_OVER))
        assert until(tab, f"{LOW_LEGENDS}.length === 0"), (width, tab.evaluate(LOW_LEGENDS))
    assert tab.complaints == []


def _narrow(tab: Tab) -> None:
    """On a phone nothing is wider than the screen, and no figure lies over the next one."""
    tab.resize(390, 800)
    drawn = "[...document.querySelectorAll('.main-svg')]"
    assert until(tab, f"{drawn}.every((each) => each.getBoundingClientRect().width < 391)")
    wide = "document.documentElement.scrollWidth"
    assert until(tab, f"{wide} <= 390"), tab.evaluate(wide)
    over = """[...document.querySelectorAll("figure")].filter((figure) => {
      const svg = figure.querySelector(".main-svg"), note = figure.querySelector(".note");
      if (!svg || !note) return false;
      return svg.getBoundingClientRect().bottom > note.getBoundingClientRect().top + 1;
    }).map((figure) => figure.id).join()"""
    assert until(tab, f"({over}) === '' || null"), tab.evaluate(over)


@pytest.mark.slow
def test_unusual_results_open_without_a_complaint(window: Window) -> None:
    pages = {name: render(RUNS[name]()) for name in ("empty", "interrupted", "no numbers")}
    for name, what in (
        *(("compare", "one"), ("compare", "failed"), ("sweep over a load", "one")),
        *(("find", "failed"), ("plan", "same"), ("ablate", "failed"), ("sensitivity", "same")),
    ):
        pages[f"{name}, {what}"] = DECISIONS[name].render(broken(name)[what])
    for name in ("compare", *OTHER_SWEEPS):
        document = renamed(DECISIONS[name].document(), NAMES[0], SPOKEN)
        pages[f"{name}, hostile"] = DECISIONS[name].render(document)
    for name, html in pages.items():
        tab = opened(window, html)
        assert tab.complaints == [], name
        assert tab.evaluate("document.querySelectorAll('.plot-failed').length") == 0, name
        assert tab.evaluate("window.pwned === undefined"), name


def test_the_price_of_a_gpu_moves_its_costs_and_the_cheapest_fleet(window: Window) -> None:
    tab = opened(window, DECISIONS["plan"].render(DECISIONS["plan"].document()))
    costs = "[...document.querySelectorAll('#table-cards [data-priced]')]"
    shown = f"{costs}.map((cell) => [cell.dataset.priced, cell.textContent])"
    best = "document.querySelector('tr.best').cells[0].textContent.trim()"
    before = tab.evaluate(shown)
    assert dict(before)["h200-sxm"] == "134,320"
    assert tab.evaluate(best) == "h200-sxm"
    tab.evaluate(
        "(() => { const field = [...document.querySelectorAll('.prices label')]"
        ".find((label) => label.textContent.includes('h200')).control;"
        "field.focus(); field.select(); })()"
    )
    tab.ask("Input.insertText", text="8")
    assert dict(tab.evaluate(shown)) == dict(before) | {"h200-sxm": "268,640"}
    assert tab.evaluate(best) == "h100-sxm"
    assert "h100-sxm, $" in tab.evaluate("document.querySelector('.prices output').value")
    tab.evaluate("document.querySelector('.prices [type=reset]').click()")
    assert until(tab, f"{best} === 'h200-sxm'")
    assert tab.evaluate(shown) == before
    assert tab.complaints == []
