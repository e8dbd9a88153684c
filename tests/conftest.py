"""Provides a browser to the tests that open pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sim.export.browser import Browser
from tests.browser import PROGRAM, Drive, Page, Show


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(str(PROGRAM)) as opened:
        yield opened


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Show:
    """Opens a page and waits for its figures."""
    return lambda html: Page(browser, html, tmp_path)


@pytest.fixture
def drive(browser: Browser, tmp_path: Path) -> Drive:
    """Opens a page, waits for its figures, and runs a script in it."""

    def drive(html: str, script: str) -> dict[str, Any]:
        done = Page(browser, html, tmp_path, script)
        assert done.complaints == []
        assert isinstance(done.result, dict)
        return done.result

    return drive
