"""A real browser asks by hand: the page as a reader has it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra `serve`")

from sim.export.browser import Browser, Tab
from tests.browser import PROGRAM, WAIT, in_page, needs_browser
from tests.places import ROOT

pytestmark = [needs_browser, pytest.mark.slow]

ANSWERED = "until(() => Number(root.dataset.answered) > before)"
SHORT = "requests=200"
"""In the fragment of an address: a run that is fast."""

TOOLS = f"""
const root = document.documentElement;
const $ = (id) => document.getElementById(id);
const change = async (name, value) => {{
  const before = Number(root.dataset.answered);
  $(`f-${{name}}`).value = value;
  $(`f-${{name}}`).dispatchEvent(new Event("input", {{ bubbles: true }}));
  await {ANSWERED};
}};
const click = async (id) => {{
  $(id).click();
  await new Promise((done) => setTimeout(done, 300));
}};
const headline = (side = "now") => $(side).querySelector(".headline-title")?.textContent;
const errors = () => [...document.querySelectorAll(".error:not(:empty)")].map((e) => e.id);
"""


class Asked:
    """The page, open in a browser."""

    def __init__(self, browser: Browser, tab: Tab, where: str) -> None:
        self._browser, self.tab, self._where = browser, tab, where

    def go(self, question: str = SHORT, answers: int = 1) -> None:
        """Open the page with that question, and wait for its answers."""
        for address in ("about:blank", f"{self._where}/#=&{question}"):
            self._browser.events.clear()
            self.tab.go(address)
        self.run(f"await until(() => Number(root.dataset.answered) >= {answers});")

    def run(self, script: str) -> Any:
        return self.tab.evaluate(in_page(TOOLS + script))

    def press(self, key: str, text: str = "") -> None:
        """A key of the keyboard."""
        given = {"key": key, "windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}.get(key, 0)}
        given |= {"text": text} if text else {}
        self.tab.ask("Input.dispatchKeyEvent", type="keyDown", **given)
        self.tab.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    @property
    def complaints(self) -> list[str]:
        """Without those of the protocol about streams: it calls one aborted whose last bytes were
        read before it had noted its end."""
        return [each for each in self.tab.complaints if each != "network: net::ERR_ABORTED"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    blank = tmp_path_factory.mktemp("ui") / "blank.html"
    blank.write_text("")
    command = [sys.executable, "-m", "sim", "ui", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stderr is not None
        told = server.stderr.readline()
        where = told.removeprefix("Listening at ").partition(",")[0]
        assert where.startswith("http://127.0.0.1:"), told
        with Browser(str(PROGRAM), patience=10 * WAIT) as browser:
            tab = browser.open(blank, width=1440, height=900)
            online = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
            tab.ask("Network.emulateNetworkConditions", offline=False, **online)
            yield Asked(browser, tab, where)
        server.terminate()
        assert server.wait(WAIT) == 0
        assert server.stderr.read() == ""


def test_a_change_of_the_gpu_changes_the_verdict(page: Asked) -> None:
    page.go("requests=1000&rate=4")
    before = page.run("return [headline(), $('said').textContent, root.dataset.figures];")
    assert before[0].startswith("Stable, SLO met")
    assert before[1].startswith("Stable, SLO met (")  # with its word of trust
    after = page.run("await change('gpu', 'l4'); return [headline(), $('said').textContent];")
    assert after[0].startswith("Overloaded")
    assert after[1].startswith("Overloaded")
    drawn = page.run(
        "return [...$('now').querySelectorAll('.plot')].map((each) => "
        "[each.dataset.name, each.querySelectorAll('.trace, .bars').length > 0]);"
    )
    assert drawn == [["states", True], ["ttft", True], ["tpot", True], ["slots", True]]
    assert page.run("return $('yaml').textContent").startswith("name: asked\n")
    assert "--set 'fleet=[{gpu: l4}]'" in page.run("return $('command').textContent")
    offered = page.run("return [$('ask-cheapest').innerText, $('cheapest').textContent];")
    assert offered[0].startswith("which card is cheapest?")
    assert re.search(r"^infersim plan chat --gpus a100-pcie,\S+,t4\S* --set ", offered[1])
    assert page.complaints == []


def test_an_error_stands_next_to_its_field_until_it_is_mended(page: Asked) -> None:
    page.go()
    where = (
        "[...document.querySelectorAll('.field')].map((each) => each.getBoundingClientRect())"
        ".map(({ left, top, width, height }) => [left, top, width, height].map(Math.round))"
    )
    before = page.run(f"return {where};")
    found = page.run(
        "await change('gpu', 'h100x'); const field = $('f-gpu'); return [errors(), "
        "$('e-gpu').textContent, field.getAttribute('aria-invalid'), "
        "field.getAttribute('aria-describedby'), $('said').textContent];"
    )
    assert found[0] == ["e-gpu"]
    assert "did you mean 'h100-sxm'" in found[1]
    assert found[2:4] == ["true", "e-gpu"]
    assert found[4] == found[1]
    assert page.run(f"return {where};") == before, "an error moves no field"
    seen = "getComputedStyle($('e-gpu')).visibility"
    assert page.run(f"$('f-gpu').focus(); return {seen};") == "visible"
    assert page.run(f"$('f-rate').focus(); return {seen};") == "hidden"
    assert found[1] in page.run("return $('took').textContent;")
    assert page.run("await change('gpu', 'h100-sxm'); return errors();") == []
    top = page.run(
        "await change('model', 'llama-3.1-70b'); return [errors(), $('error').innerText]"
    )
    assert top[0] == ["error"]
    assert "does not fit" in top[1]
    assert page.complaints == []


def test_a_link_restores_the_question_and_what_it_is_compared_with(page: Asked) -> None:
    page.go()
    link = page.run(
        "await change('batching', 'static'); await change('max_num_seqs', '8');"
        "await click('keep'); await change('batching', 'continuous'); return location.hash;"
    )
    told = page.run("return [headline('kept'), headline(), $('differences').innerText];")
    page.go(link.removeprefix("#=&"), answers=2)
    assert page.run("return location.hash") == link
    again = page.run("return [headline('kept'), headline(), $('differences').innerText];")
    assert again == told
    fields = "return ['batching', 'max_num_seqs', 'requests'].map((name) => $(`f-${name}`).value);"
    assert page.run(fields) == ["continuous", "8", "200"]
    assert page.complaints == []


def test_two_variants_stand_side_by_side_and_move(page: Asked) -> None:
    page.go("requests=300&rate=10&max_num_seqs=8")
    page.run("await click('keep'); await change('batching', 'static');")
    names, rows, tops, widths = page.run(
        "const two = [$('kept'), $('now')];"
        "return [two.map((each) => each.querySelector('h2').innerText),"
        "[...$('differences').querySelectorAll('tbody tr')].map((each) => each.innerText),"
        "two.map((each) => each.getBoundingClientRect().top),"
        "two.map((each) => [each.offsetWidth, ...[...each.querySelectorAll('.main-svg')]"
        ".map((svg) => svg.getBoundingClientRect().width)])];"
    )
    assert names[0].startswith("A")
    assert names[0].endswith("continuous")
    assert names[1].endswith("static")
    assert tops[0] == tops[1]
    assert all(max(inner) <= outer for outer, *inner in widths)
    assert re.search(r"TTFT p99\s.*times|%", rows[0])
    words = page.run("return $('differences').querySelector('p').innerText;")
    assert "Batching continuous → static" in words
    page.run("$('play-both').click();")
    moving = (
        "[...document.querySelectorAll('[data-name=slots]')].map((p) => p.layout.shapes?.length)"
    )
    assert page.run(f"return await until(() => {moving}.every((n) => n >= 2));")
    page.run("document.querySelectorAll('.play').forEach((each) => each.click());")
    assert page.run("await click('single'); return $('kept').hidden && $('differences').hidden;")
    assert page.complaints == []


def test_the_keyboard_is_enough(page: Asked) -> None:
    page.go()
    page.run("$('f-model').focus();")
    page.press("Tab")
    focus = "const at = document.activeElement; return [at.id, getComputedStyle(at).outlineStyle]"
    assert page.run(focus) == ["f-gpu", "solid"]
    page.run("document.activeElement.select();")
    page.tab.ask("Input.insertText", text="l4")
    before = page.run("return Number(root.dataset.answered)")
    page.press("Enter", "\r")
    page.run(f"const before = {before}; await {ANSWERED};")
    assert " l4," in page.run("return $('now-title').textContent")
    unlabelled = "[...document.querySelectorAll('input, select')].filter((e) => !e.labels.length)"
    assert page.run(f"return {unlabelled}.length") == 0
    assert page.complaints == []


def test_a_trace_is_uploaded_and_told_by_its_name(page: Asked, tmp_path: Path) -> None:
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens"]
    rows += [f"{number / 4},{100 + number},20" for number in range(60)]
    script = (
        "const before = Number(root.dataset.answered); const kept = new DataTransfer();"
        "kept.items.add(new File([text], 'mine.csv')); $('f-trace').files = kept.files;"
        f"$('f-trace').dispatchEvent(new Event('change')); await {ANSWERED};"
        "return [errors(), $('yaml').textContent, $('f-rate').offsetWidth, headline()];"
    )
    page.go()
    text = "\\n".join(rows)
    found = page.run(f"const text = '{text}\\n'; {script}")
    assert found[0] == []
    assert "path: mine.csv" in found[1]
    assert found[2] == 0
    assert found[3].startswith("Stable")
    bad = page.run(f"const text = 'a,b\\n1,2\\n'; {script}")
    assert bad[0] == ["e-trace"]
    assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_in_one_direction(page: Asked, *, dark: bool) -> None:
    page.tab.resize(390, 844)
    page.tab.prefer(dark=dark)
    try:
        page.go()
        page.run("await click('keep'); await change('max_num_seqs', '4');")
        width = "return [root.scrollWidth, innerWidth, getComputedStyle(document.body).colorScheme]"
        assert page.run(width) == [390, 390, "dark" if dark else "light"]
        assert page.complaints == []
    finally:
        page.tab.resize(1440, 900)
        page.tab.prefer(dark=False)
