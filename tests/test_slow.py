"""The list of slow tests names tests that there are."""

from __future__ import annotations

import ast

import pytest

from tests.places import ROOT
from tests.slow import FAMILIES, SLOW, is_left_out, is_slow


@pytest.mark.parametrize("name", sorted({*SLOW, *FAMILIES}))
def test_what_is_listed_is_there(name: str) -> None:
    path, *inner = name.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
    for wanted in inner:
        (found,) = (
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == wanted
        )
        body = found.body
    assert is_slow(name) == (name in SLOW)
    assert not is_slow(f"{path}::test_another") or not inner


@pytest.mark.parametrize("family", FAMILIES)
def test_of_each_place_in_a_family_one_is_run(
    family: str,
) -> None:
    each = FAMILIES[family]
    run = [number for number in range(each * each) if not is_left_out(family, number)]
    assert [number // each for number in run] == list(range(each))
    assert sorted(number % each for number in run) == list(range(each))
    assert not is_left_out(f"{family}_too", 1)


def test_a_longer_name_is_another_test() -> None:
    name = next(each for each in sorted(SLOW) if "::" in each)
    assert is_slow(f"{name}[1]")
    assert not is_slow(f"{name}_too")
