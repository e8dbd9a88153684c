"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import calibrate
import reports
import sim

MODULES = [
    name
    for package in (sim, calibrate, reports)
    for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not name.endswith("__main__")
]


@pytest.mark.parametrize("name", ["sim", *MODULES])
def test_examples(name: str) -> None:
    """As ``doctest.testmod``, which sets up a debugger for each docstring that has no example."""
    if name.startswith("sim.serve."):
        pytest.importorskip("aiohttp", reason="needs the extra `serve`")
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(module):
        if test.examples:
            runner.run(test)
    assert runner.failures == 0
