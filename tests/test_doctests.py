"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.places import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("sim", "calibrate", "reports")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """As ``doctest.testmod``, which sets up a debugger for each docstring that has no example."""
    if name.startswith("sim.serve."):
        pytest.importorskip("aiohttp", reason="needs the extra `serve`")
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(module):
        if test.examples:
            runner.run(test)
    assert runner.tries
    assert runner.failures == 0
