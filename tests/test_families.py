"""Families of tests: each is there, and `make test` runs each of its parameters' values."""

from __future__ import annotations

import ast

import pytest

from tests.families import FAMILIES, is_left_out
from tests.places import ROOT


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_there(family: str) -> None:
    path, name = family.split("::")
    body = ast.parse((ROOT / path).read_text("utf-8")).body
    assert name in {node.name for node in body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("family", FAMILIES)
def test_of_each_place_in_a_family_one_is_run(family: str) -> None:
    each = FAMILIES[family]
    run = [number for number in range(each * each) if not is_left_out(family, number)]
    assert [number // each for number in run] == list(range(each))
    assert sorted(number % each for number in run) == list(range(each))
    assert not is_left_out(f"{family}_too", 1)
