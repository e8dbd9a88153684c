"""The words of the source: every module begins with a statement of what it provides."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.places import ROOT

# Folders and files, each with everything below it: add what is written in statements.
STATED = (
    "sim",
    "reports",
    "calibrate",
    "notebooks/build.py",
    "notebooks/palette.py",
    "notebooks/pictures.py",
)

MODULES = sorted(
    path
    for name in STATED
    for path in ((ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name])
)
PAGES = sorted(
    path
    for name in ("sim", "reports", "calibrate", "notebooks", "README.md")
    for path in ((ROOT / name).rglob("*.md") if (ROOT / name).is_dir() else [ROOT / name])
)
QUESTION_WORDS = frozenset(
    ["How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"]
)


RIDDLES = re.compile(
    r"\b(nobody|whoever|beside|but for|told|seats?|(?<!new )promise[sd]?|thrown out)\b",
    re.IGNORECASE,
)


def prose(path: Path) -> list[str]:
    """What people read in a file: in source the comments, docstrings and messages, not names."""
    text = path.read_text(encoding="utf-8")
    if not RIDDLES.search(text):
        return []  # taking source apart takes long
    if path.suffix == ".md":
        return [re.sub(r"`[^`]*`", "", text)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    read = [t.string for t in tokens if t.type in (tokenize.STRING, tokenize.COMMENT)]
    return [re.sub(r"``[^`]*``|\{[^{}]*\}", "", each) for each in read if " " in each]


def opening(text: str) -> str:
    """The first sentence of a docstring, or its first paragraph if no sentence ends in it."""
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.?!])\s", paragraph, maxsplit=1)[0]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Draws lengths. In tokens.\n\nMore.", "Draws lengths."),
        ("Where is it? Here.", "Where is it?"),
        ("Draws lengths\nin tokens.", "Draws lengths in tokens."),
        ("Times, 0.5 s at most.", "Times, 0.5 s at most."),
    ],
)
def test_the_opening_is_the_first_sentence(text, first):
    assert opening(text) == first


def test_the_folders_are_there():
    assert all((ROOT / name).exists() for name in STATED)
    assert len(MODULES) >= len(STATED)


DOCSTRING = re.compile(r'(?:#.*\n|\s)*"""(.*?)"""', re.DOTALL)
CLASS = re.compile(r"^[ \t]*class (\w+)[:(\[]", re.MULTILINE)


@cache
def stated(path: Path) -> tuple[str, tuple[str, ...]]:
    """The docstring of a module, and the names of its classes; found by their spelling, since to
    parse every module takes long."""
    text = path.read_text(encoding="utf-8")
    docstring = DOCSTRING.match(text)
    return docstring[1] if docstring else "", tuple(CLASS.findall(text))


def trouble(docstring: str) -> str | None:
    """What is wrong with how a module begins."""
    first = opening(docstring)
    if not first.endswith("."):
        return f"no sentence, or not a statement: {first!r}"
    if first.split()[0] in QUESTION_WORDS:
        return f"opens like a question: {first!r}"
    return None


@pytest.mark.parametrize("text", ["", "Lengths", "Where is it?", "How it is drawn."])
def test_what_is_no_statement_is_found(text):
    assert trouble(text)


def test_a_docstring_and_classes_are_found_as_python_finds_them():
    for path in MODULES[::40]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert opening(stated(path)[0]) == opening(ast.get_docstring(tree) or "")
        assert sorted(stated(path)[1]) == sorted(classes)


def test_modules_begin_with_a_statement():
    found = {str(path.relative_to(ROOT)): trouble(stated(path)[0]) for path in MODULES}
    assert {path: why for path, why in found.items() if why} == {}


def test_words_are_those_of_a_native_speaker():
    """The list is of words that made sentences hard to follow; each has a plain one."""
    found = {
        str(path.relative_to(ROOT)): words
        for path in (*MODULES, *PAGES)
        if (words := [each[0] for text in prose(path) for each in RIDDLES.finditer(text)])
    }
    assert found == {}, "say it in plain words: next to, except, no request, known, slot"


def test_no_two_classes_share_a_name():
    """Whoever reads ``Figure`` or ``Run`` in one module knows which it is."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for name in stated(path)[1]:
            homes.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
