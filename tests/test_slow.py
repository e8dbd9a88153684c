"""The list of slow tests names tests that there are."""

from __future__ import annotations

import ast

import pytest

from tests.places import ROOT
from tests.slow import SLOW, is_slow


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_slow_test_is_there(name: str) -> None:
    path, *inner = name.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
    for wanted in inner:
        (found,) = (
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == wanted
        )
        body = found.body
    assert is_slow(name)
    assert not is_slow(f"{path}::test_another") or not inner


def test_a_longer_name_is_another_test() -> None:
    name = next(each for each in sorted(SLOW) if "::" in each)
    assert is_slow(f"{name}[1]")
    assert not is_slow(f"{name}_too")
