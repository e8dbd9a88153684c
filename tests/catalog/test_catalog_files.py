"""A file of the catalogue is parsed once, and read as YAML reads it or refused."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from sim.catalog import files
from sim.catalog.entries import FOLDER
from sim.catalog.files import read_yaml
from sim.errors import UsageError

SHIPPED = sorted(FOLDER.rglob("*.yaml"))
SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""What ``yaml.safe_load`` does, ten times as fast where its parser in C is there."""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_shipped_file_is_read_as_yaml_reads_it(path: Path) -> None:
    assert repr(read_yaml(path)) == repr(yaml.load(path.read_bytes(), SAFE))


def test_a_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()

    class Counted(files._Loader):  # type: ignore[misc]
        def __init__(self, stream: str) -> None:
            made["parser"] += 1
            super().__init__(stream)

    class CountedScalars(files._Scalars):
        def meaning(self, text: str, mark: object) -> object:
            made[text] += 1
            return super().meaning(text, mark)

    monkeypatch.setattr(files, "_Loader", Counted)
    monkeypatch.setattr(files, "_Scalars", CountedScalars)
    path = FOLDER / "spreads.yaml"
    read_yaml(path)
    assert made.pop("parser") == 1
    assert set(made.values()) == {1}, "each text is understood once, however often it stands there"


@pytest.mark.parametrize(
    "text",
    [
        *("a: 1\nb: 0x1f\nc: 0o17\nd: 017\ne: 1_000\nf: 1:30\n", "a: 2001-12-14\nb: yes\nc: ~\n"),
        *("a: .inf\nb: -.INF\nc: 1e3\nd: 1.5e+3\ne: ''\nf:\n", "a: 'yes'\nb: \"1\"\nc: '<<'\n"),
        *("{a: [1, [2, {b: 3}]], c: []}\n", "1: a\n2.5: b\ntrue: c\n", "a: |\n  two\n  lines\n"),
        *("'<<': 1\n", "%YAML 1.1\n---\na: 1\n...\n"),
    ],
)
def test_a_value_means_what_it_means_in_yaml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(text, encoding="utf-8")
    assert repr(read_yaml(path)) == repr(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "2:11", "is not valid YAML ('c' is given twice)"),
        ("a: 1\n[b]: 2\n", "2:1", "is not valid YAML (a key is a list or a mapping)"),
        ("a: {<<: {b: 1}}\n", "1:5", "'<<' merges what aliases name; write the keys out"),
        # the syntax of a whole file goes before the meaning of a value
        ("a: 1\na: 2\nb: *c\n", "3:4", "anchors and aliases are not read"),
        ("a: 1\na: 2\nb: [1\n", "4:1", "is not valid YAML (did not find expected ',' or ']')"),
        ("a: 2001-99-99\nb: !x 1\n", "2:4", "tags are not read; drop '!x' and quote texts"),
        ("a: 1\na: 2\n---\nb: 1\n", "3:1", "a second document begins; a file holds one"),
        ("a: 1\na: 2\nb: " + "[" * 20 + "]" * 20 + "\n", "3:23", "is nested deeper than 20 levels"),
    ],
)
def test_a_file_that_is_refused_names_the_place(
    text: str, place: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}:{place}: ")
    assert problem in str(caught.value)


def test_nesting_as_deep_as_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("b: " + "[" * 19 + "]" * 19 + "\n", encoding="utf-8")
    assert list(read_yaml(path)) == ["b"]
