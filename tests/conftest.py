"""Provides a browser to the tests that open pages; no test of a property depends on a clock."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

from calibrate.scoring.evidence import FILE as EVIDENCE
from sim.cli import GARBAGE
from sim.export.browser import Browser
from sim.planning.load.probe import LONG_ENOUGH
from tests.browser import PROGRAM, WAIT, Drive, Page, Show, Window
from tests.families import is_left_out
from tests.planning_fixtures import BRIEF, be_brief, decide_by

os.environ["INFERSIM_FULL"] = "1"  # tests of the first lines alone take it away

# A busy machine may take any time over an example. Each run draws others; `make thorough` many.
ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("some", ANY_MACHINE, max_examples=25)
settings.register_profile("many", ANY_MACHINE, max_examples=500)
settings.load_profile("some")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: nothing is gained by looking for garbage among them,
    which takes a third of the time of a collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)  # as the command does
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out parts of families, and run slow tests first: at the end no process waits for
    another one's."""
    seen: Counter[str] = Counter()
    for item in items:
        family = item.nodeid.partition("[")[0]
        if is_left_out(family, seen[family]):
            item.add_marker("thorough")
        seen[family] += 1
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def evidence() -> Any:
    """``calibrate/evidence.json``; tests are skipped where no one has made it yet."""
    if not EVIDENCE.exists():
        pytest.skip("calibrate/evidence.json is not there: `make validation` writes it")
    return json.loads(EVIDENCE.read_text(encoding="utf-8"))


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """``CliRunner`` puts all commands together anew at every call, which takes longer than most of
    them: here they are put together once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with Browser(str(PROGRAM), patience=10 * WAIT) as browser:
        yield Window(browser, tmp_path_factory.mktemp("window"))


@pytest.fixture
def brief_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``tests.planning_fixtures.be_brief`` says, in this test."""
    be_brief(monkeypatch)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Slow tests are those of how sure an answer is; the others ask for something else of it. As a
    fixture of every test this would take longer than many of them."""
    decide_by(BRIEF if item.get_closest_marker("slow") is None else LONG_ENOUGH)


@pytest.fixture
def show(window: Window) -> Show:
    """Opens a page and waits for its figures."""
    return lambda html: Page(window, html)


@pytest.fixture
def drive(window: Window) -> Drive:
    """Opens a page, waits for its figures, and runs a script in it."""

    def drive(html: str, script: str) -> dict[str, Any]:
        done = Page(window, html, script)
        assert done.complaints == []
        assert isinstance(done.result, dict)
        return done.result

    return drive
