"""Reads a file of the catalogue, or a user's file of the same form, into plain data.

YAML and JSON, in UTF-8. Whatever a file may hold, the answer is data or one UsageError that names
the file, and where in it: it can neither exhaust the memory nor build objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sim.errors import UsageError, shorten

MAX_YAML = 1_000_000
MAX_JSON = 10_000_000
"""Bytes of the largest file that is read; the configuration of a model may list its layers."""

MAX_DEPTH = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML has it: ten times as fast."""


_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+(e[-+][0-9]+)?")
"""Numbers of which most tables consist, and which YAML and Python write alike."""


def read_yaml(path: Path) -> dict[str, object]:
    """The mapping that one YAML file holds; UsageError for anything else."""
    text = _text(path, MAX_YAML)
    try:
        document = _document(path, text)
    except yaml.MarkedYAMLError as error:
        at = _place(path, error.problem_mark)
        raise UsageError(f"{at}: is not valid YAML ({error.problem})") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: is not valid YAML ({reason})") from None
    except ValueError as error:  # 2001-99-99, or an integer of 5,000 digits
        raise _unreadable(path, error) from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: expected a mapping of keys to values")
    return document


def _document(path: Path, text: str) -> object:
    """The data of ``text``. Newer releases of libyaml stop at 1,000 levels and say where that is;
    the parser in Python comes to the level that is refused here, at its own place."""
    try:
        return _OnePass(path, text, _Loader).document()
    except yaml.MarkedYAMLError as error:
        if "nesting depth" not in str(error.problem):
            raise
        return _OnePass(path, text, yaml.SafeLoader).document()


def read_json(path: Path) -> object:
    """The content of one JSON file; UsageError if it is no JSON."""
    text = _text(path, MAX_JSON)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}:{error.lineno}:{error.colno}: is not valid JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deep") from None
    except ValueError as error:  # an integer of 5,000 digits
        raise _unreadable(path, error) from None


def _text(path: Path, most: int) -> str:
    """The text of a UTF-8 file of at most that many bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise UsageError(f"{path}: is larger than {most:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: is not a text file in UTF-8 (byte 0x{content[error.start]:02x})"
        ) from None


def _unreadable(path: Path, error: ValueError) -> UsageError:
    reason = str(error).partition(";")[0]
    return UsageError(f"{path}: holds a value that cannot be read ({reason})")


class _Scalars(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """The meaning of a plain scalar: null, a flag, a number, a date or a text, as in YAML 1.1."""

    def __init__(self) -> None:
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)

    def meaning(self, text: str, mark: Any) -> object:
        """The value of ``text``, which stands at ``mark``."""
        tag = self.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return self.construct_document(yaml.ScalarNode(tag, text, mark, mark))


class _OnePass:
    """Builds the data of a text while its events are parsed, and refuses what is not plain:
    aliases, which can make a small text huge, and nesting that no loader survives.

    A fault of the syntax or a refusal goes before a value that has no meaning, wherever it stands.
    """

    def __init__(self, path: Path, text: str, loader: Any) -> None:
        self._path = path
        self._events: Iterator[Any] = yaml.parse(text, Loader=loader)
        self._scalars = _Scalars()
        self._known: dict[str, object] = {}
        self._fault: Exception | None = None

    def document(self) -> object:
        """The data of the one document; None if there is none."""
        found, documents = None, 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refused(event, "a second document begins; a file holds one")
                found = self._value(next(self._events), 0)
        if self._fault is not None:
            raise self._fault
        return found

    def _value(self, event: Any, depth: int) -> Any:
        """The value that begins with ``event``, inside that many collections."""
        if event.anchor is not None:
            raise self._refused(
                event, "anchors and aliases are not read; write the value out each time"
            )
        if event.tag:
            tag = shorten(repr(event.tag))
            raise self._refused(event, f"tags are not read; drop {tag} and quote texts")
        if isinstance(event, yaml.ScalarEvent):
            return self._plain(event) if event.implicit[0] else event.value
        if depth == MAX_DEPTH:
            raise self._refused(event, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth + 1)
        return self._mapping(depth + 1)

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth))
        return items

    def _mapping(self, depth: int) -> dict[Any, Any]:
        """The entries of a mapping, which may give a key only once, unlike in YAML itself."""
        entries: dict[Any, Any] = {}
        written: set[str] = set()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
            if merge and event.implicit[0]:
                raise self._refused(event, "'<<' merges what aliases name; write the keys out")
            key = self._value(event, depth)
            if not isinstance(event, yaml.ScalarEvent):
                self._note(event, "a key is a list or a mapping")
                key = None
            elif event.value in written:
                self._note(event, f"{shorten(repr(event.value))} is given twice")
            else:
                written.add(event.value)
            entries[key] = self._value(next(self._events), depth)
        return entries

    def _plain(self, event: Any) -> object:
        """The meaning of a scalar without quotes; tables repeat theirs."""
        text = event.value
        if text not in self._known:
            try:
                if _DECIMAL.fullmatch(text):
                    self._known[text] = float(text)
                else:
                    self._known[text] = self._scalars.meaning(text, event.start_mark)
            except (yaml.YAMLError, ValueError) as error:
                self._fault = self._fault or error
                return None
        return self._known[text]

    def _note(self, event: Any, problem: str) -> None:
        fault = yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self._fault = self._fault or fault

    def _refused(self, event: Any, problem: str) -> UsageError:
        return UsageError(f"{_place(self._path, event.start_mark)}: {problem}")


def position(path: Path, key: str) -> str:
    """Where the value of a dotted ``key`` stands in a YAML file that can be read, or the nearest
    key above it, as ``file:line:column``; the file alone if there is none."""
    node = yaml.compose(_text(path, MAX_YAML), Loader=_Loader)
    mark = None
    for name in key.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        if isinstance(node, yaml.SequenceNode) and name.isdecimal() and int(name) < len(node.value):
            node = node.value[int(name)]
            mark = node.start_mark
            continue
        node = next((value for each, value in pairs if each.value == name), None)
        if node is None:
            break
        mark = node.start_mark
    return _place(path, mark)


def _place(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
