"""The words of the source: every module begins with a statement of what it provides."""

import ast
import re

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
QUESTION_WORDS = frozenset(
    ["How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"]
)


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_begins_with_a_statement(path):
    first = opening(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    assert first.endswith("."), f"no sentence, or not a statement: {first!r}"
    assert first.split()[0] not in QUESTION_WORDS, f"opens like a question: {first!r}"


def test_no_two_classes_share_a_name():
    """Whoever reads ``Figure`` or ``Run`` in one module knows which it is."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
