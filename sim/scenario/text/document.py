"""Records where each value of a scenario was written, and shows a problem with it in that place.

A ``Document`` is plain data (mappings, lists, numbers, texts) plus, for every key and value, the
``Place`` it was written at: a line and column of a file, or an override. Data handed over
from Python has no places; there the dotted path of the key is the position. Lines and columns
count from 1, in characters. A document that extends others has places in several files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError, shorten

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the root to a value, such as ``("fleet", 0, "gpu")``."""

MAX_SHOWN = 20
"""Problems listed in one error; a file with more is wrong in a way that the first ones tell."""

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_WIDEST = 100


@dataclass(frozen=True, slots=True)
class Place:
    """One spot that a user wrote: a file position, or an argument when ``line`` is None."""

    label: str
    line: int | None = None
    column: int = 1
    width: int = 1

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and the value where it is.

    ``at_key`` points at the key (an unknown one, or the section that lacks something) and not at
    its value; ``place`` is set only where the path alone cannot tell the spot.
    """

    path: KeyPath
    message: str
    at_key: bool = False
    place: Place | None = None


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Document:
    """A scenario as written: its data, and the places of its keys and values.

    ``text`` is the scenario's own file; ``texts`` holds that and the files which it extends, by
    the label of their places; its own file comes first. Relative paths start at ``base``;
    ``working`` is the working directory in which it was read, None where that is gone.
    """

    data: dict[str, Any]
    base: Path
    text: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    working: Path | None = field(default_factory=_working_directory)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where parts of one's own are looked for, in this order."""
        places = (self.base, self.working)
        return tuple(dict.fromkeys(place for place in places if place is not None))

    def place(self, path: KeyPath, *, at_key: bool = False) -> Place | None:
        """The place of ``path`` or else of what encloses it; None for data from Python."""
        table = self.keys if at_key else self.values
        for length in range(len(path), -1, -1):
            found = table.get(path[:length]) or self._given_below(path[:length])
            if found is not None:
                return found
            table = self.keys
        return None

    def _given_below(self, path: KeyPath) -> Place | None:
        """The first override of something within ``path``, which no file has."""
        if not path or path in self.keys:
            return None
        return next(
            (
                place
                for inner, place in self.values.items()
                if place.line is None and inner[: len(path)] == path
            ),
            None,
        )

    def most_likely(self, paths: Iterable[KeyPath]) -> KeyPath:
        """The value to point at, of several that contradict each other.

        Overrides come first, then the scenario's own file, then those that it extends.
        """
        candidates = list(paths)
        for path in candidates:
            place = self.place(path)
            if place is not None and place.line is None and path in self.values:
                return path
        written = [path for path in candidates if has(self.data, path)]
        return min(written or candidates[:1], key=lambda path: self.order(self.place(path))[0])

    def order(self, place: Place | None) -> tuple[int, int, int]:
        """File by file from top to bottom, then command-line arguments in the order given."""
        if place is None or place.line is None:
            return (len(self.texts), 0, 0)
        return (list(self.texts).index(place.label), place.line, place.column)


def has(data: Any, path: KeyPath) -> bool:
    """Whether a value was written at ``path``."""
    for step in path:
        in_mapping = isinstance(data, dict) and step in data
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not in_mapping and not in_list:
            return False
        data = data[step]
    return True


def dotted(path: KeyPath) -> str:
    """A path as ``--set`` spells it.

    >>> dotted(("fleet", 0, "gpu"))
    'fleet.0.gpu'
    """
    return ".".join(str(step) for step in path)


def show(value: object) -> str:
    """A value as a user would recognise it, short enough for a message.

    >>> show("abc"), show(True), show(None), show({"kind": "burst"})
    ("'abc'", 'true', 'nothing', 'a mapping')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return "a huge number"
    return shorten(text)


def failure(problems: Sequence[Problem], document: Document) -> ScenarioError:
    """All problems as one error: a position and a message each, in the order of the file."""
    located = [
        (problem, problem.place or document.place(problem.path, at_key=problem.at_key))
        for problem in problems
    ]
    located.sort(key=lambda pair: document.order(pair[1]))
    blocks = [_block(problem, place, document.texts) for problem, place in located[:MAX_SHOWN]]
    if len(located) > MAX_SHOWN:
        blocks.append(f"... and {len(located) - MAX_SHOWN} more problems")
    return ScenarioError("\n".join(blocks))


def _block(problem: Problem, place: Place | None, texts: dict[str, str]) -> str:
    """``position: path: message``, and for a file the line with a caret below it."""
    name = dotted(tuple(step if isinstance(step, int) else shorten(step) for step in problem.path))
    parts = [] if place is None else [str(place)]
    given = None if place is None or place.line is not None else place.label
    if name and not (given and given.removeprefix("--set ").startswith(f"{name}=")):
        parts.append(name)
    head = ": ".join([*parts, problem.message])
    if place is None or place.line is None:
        return printable(head)
    snippet = _snippet(place.line, place.column, place.width, texts[place.label])
    return "\n".join([printable(head), *snippet])


def _snippet(line: int, column: int, width: int, text: str) -> list[str]:
    """The source line and a line of carets, aligned also below tabs and wide characters."""
    lines = _LINE_BREAK.split(text)
    source = lines[line - 1] if line <= len(lines) else ""
    start = column - 1
    left = max(0, start - _WIDEST // 2) if len(source) > _WIDEST else 0
    window = source[left : left + _WIDEST]
    before = sum(_cells(char) for char in window[: start - left])
    marked = window[start - left : start - left + width]
    carets = "^" * max(1, sum(_cells(char) for char in marked))
    gutter = f"  {line} | "
    shown = "".join(char if char.isprintable() else " " for char in window)
    return [f"{gutter}{shown}".rstrip(), " " * (len(gutter) - 2) + "| " + " " * before + carets]


def _cells(char: str) -> int:
    """Columns of a terminal that a character fills."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def printable(text: str) -> str:
    """Text that any terminal can take: what cannot be encoded or would control it is escaped."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )
