"""Pages of planning commands say when and how they were made, and commands can be copied."""

from __future__ import annotations

import pytest

from tests.browser import Window, needs_browser
from tests.page_kinds import DECISIONS
from tests.report_fixtures import make_run
from tests.reports.test_pages_browser import move, opened, until
from tests.reports.test_report import render

MADE = {"date": "2031-02-03 04:05 +0000", "command": "infersim find 'a <b>.yaml' --json"}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_page_says_where_it_is_from(name: str) -> None:
    decision = DECISIONS[name]
    if name == "trust":
        return
    document = decision.document()
    html = decision.render({**document, "made": MADE})
    assert f"Predicted, not measured. infersim {document['infersim']}, {MADE['date']}" in html
    assert "infersim find &#39;a &lt;b&gt;.yaml&#39; --json" in html
    assert "2031" not in decision.render(document)


@needs_browser
def test_a_command_is_copied_whole(window: Window) -> None:
    decision = DECISIONS["plan"]
    tab = opened(window, decision.render({**decision.document(), "made": MADE}))
    folded = tab.evaluate("[...document.querySelectorAll('#launch details')].map((e) => e.open)")
    assert folded[0]
    assert not any(folded[1:])
    assert move(tab, "#launch .command button", click=True)
    assert until(tab, "document.querySelector('#launch .command button').textContent === 'copied'")
    assert tab.complaints == []


def test_a_run_names_the_commands_that_print_its_sources() -> None:
    html = render(make_run(30))
    for name in ("llama-3.1-8b", "h100-sxm"):
        assert f"<code>infersim show {name}</code>" in html
