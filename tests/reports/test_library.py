"""The drawing library that pages carry: which one it is, and that it draws what pages need."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from reports.frame import page
from tests.browser import Window, needs_browser
from tests.page_kinds import KINDS

SPECS = re.compile(r'<script type="application/json" id="spec-[^"]+">(.*?)</script>', re.DOTALL)


def test_the_bundle_is_the_one_that_is_named() -> None:
    source = gzip.decompress(page.LIBRARY.read_bytes())
    assert hashlib.sha256(source).hexdigest() in str(Path(page.__file__).read_text("utf-8"))
    assert b"Licensed under the MIT license" in source[:300]
    assert "MIT License" in page.LIBRARY.with_name("LICENSE").read_text("utf-8")


@pytest.mark.parametrize("name", KINDS)
def test_pages_use_known_kinds_of_traces(name: str, tmp_path: Path) -> None:
    specs = SPECS.findall(KINDS[name].render(tmp_path))
    kinds = {trace["type"] for spec in specs for trace in json.loads(spec)["data"]}
    assert kinds <= set(page.TRACES)
    assert bool(kinds) == (name != "claims")


@pytest.mark.slow
@needs_browser
def test_the_bundle_draws_them(window: Window, tmp_path: Path) -> None:
    tab = window.open(KINDS["find"].render(tmp_path))
    found = tab.evaluate("(async () => { while (typeof Plotly === 'undefined') await new Promise("
                         "(wait) => setTimeout(wait, 20)); return Object.keys("
                         "Plotly.PlotSchema.get().traces); })()")  # fmt: skip
    assert set(page.TRACES) <= set(found)
