"""Parses a YAML text into plain data, with the place of each key and value.

Scenarios use a small, predictable part of YAML: mappings, lists and scalars. Anchors, aliases,
tags and several documents in one file are refused, so a file cannot expand and cannot build
objects. A plain scalar is null, true/false, a number (``1e3`` is one, unlike in YAML 1.1; ``010``
is ten and ``1:30`` a text) or else a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from sim.scenario.text.document import KeyPath, Place, Problem, show

MAX_DEPTH = 20
MAX_VALUES = 10_000
"""Keys, values and list entries of one file; a scenario has about a hundred."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER = 100

_SYNTAX = (
    ("character '\\t'", False, "a tab cannot indent YAML; use spaces"),
    ("mapping values are not allowed", False, "a second ':' in a line; quote a text that has one"),
    ("could not find expected ':'", True, "a key without its ':' (write `key: value`)"),
    ("unexpected end of stream", True, "a quote that is opened here is never closed"),
    ("expected <block end>", False, "this does not line up with the lines above"),
    ("expected '<document start>'", False, "this does not line up with the lines above"),
    ("expected ',' or '}'", True, "this '{' is not closed, or a ',' is missing after it"),
    ("expected ',' or ']'", True, "this '[' is not closed, or a ',' is missing after it"),
    ("expected the node content", False, "a value is missing, or a '[' or '{' is not closed"),
    ("cannot start any token", False, "a text cannot begin with this character; put it in quotes"),
)
"""Phrases of the YAML parser, whether the fault is where the construct began (and not where the
parser gave up), and the same in the words of a scenario's author."""


class BrokenYamlError(Exception):
    """The text is no YAML that scenarios allow; the caller reports it to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class Parsed:
    """The data of one YAML text, the places in it, and what is wrong short of broken syntax."""

    label: str
    data: Any = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def note(self, path: KeyPath, place: Place, message: str) -> None:
        """Keep a problem that does not prevent reading on."""
        self.problems.append(Problem(path, message, place=place))

    def broken(self, place: Place, reason: str) -> BrokenYamlError:
        """The error that ends the reading."""
        message = f"the YAML cannot be read: {' '.join(reason.split())}"
        return BrokenYamlError(Problem((), message, place=place))

    def broken_syntax(self, error: yaml.MarkedYAMLError) -> BrokenYamlError:
        """The error that the YAML parser found, in the words of ``_SYNTAX``."""
        reason = f"{error.context or ''} {error.problem or ''}"
        mark = error.problem_mark or error.context_mark
        for phrase, at_start, words in _SYNTAX:
            if phrase in reason:
                mark = error.context_mark or mark if at_start else mark
                reason = words
                break
        return self.broken(Place(self.label) if mark is None else _place(self.label, mark), reason)


def parse(text: str, label: str) -> Parsed:
    """``text`` as data with places named after ``label``; BrokenYamlError if it has no meaning."""
    parsed = Parsed(label)
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        place = Place(label, len(before), len(before[-1]) + 1)
        reason = "a control character, which no YAML file may hold"
        hint = "; is it UTF-16? save the file as UTF-8" if "\0" in text else ""
        raise parsed.broken(place, f"{reason}{hint}") from None
    try:
        _documents(_events(loader, parsed), parsed)
    except yaml.MarkedYAMLError as error:
        raise parsed.broken_syntax(error) from None
    except (ValueError, OverflowError):  # "\UFFFFFFFF" and the like fail inside the scanner
        place = _place(label, loader.get_mark())
        raise parsed.broken(place, "this number or escape is out of range") from None
    return parsed


def _events(loader: yaml.SafeLoader, parsed: Parsed) -> Iterator[Any]:
    left = MAX_VALUES
    while loader.check_event():
        event = loader.get_event()  # type: ignore[no-untyped-call]
        yield event
        left -= 1
        if not left:
            place = _place(parsed.label, event.start_mark)
            raise parsed.broken(place, f"more than {MAX_VALUES:,} values, which no scenario has")


def _documents(events: Iterator[Any], parsed: Parsed) -> None:
    """The one document of the text; a second is a problem."""
    documents = 0
    for event in events:
        if not isinstance(event, yaml.DocumentStartEvent):
            continue
        documents += 1
        if documents > 1:
            place = _place(parsed.label, event.start_mark)
            parsed.note((), place, "a second document begins; a file holds one scenario")
            return
        parsed.data = _value(next(events), events, (), parsed)


def scalar(text: str) -> str | int | float | bool | None:
    """The meaning of an unquoted word.

    >>> [scalar(word) for word in ("1e3", "010", "1:30", "on", "true", "~", "4_096")]
    [1000.0, 10, '1:30', 'on', True, None, 4096]
    """
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    return text if len(text) > _LONGEST_NUMBER else _number(text)


def _number(text: str) -> str | int | float:
    """A number when the word is one, else the word."""
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be encoded: no lone half of a surrogate pair."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _value(event: Any, events: Iterator[Any], path: KeyPath, parsed: Parsed) -> Any:
    """The value that begins with ``event``; records where it stands."""
    start = _place(parsed.label, event.start_mark)
    parsed.keys.setdefault(path, start)
    parsed.values[path] = start
    if isinstance(event, yaml.AliasEvent):
        parsed.note(path, start, f"aliases are not read; write out what *{event.anchor} stands for")
        return None
    if event.anchor is not None:
        parsed.note(path, start, f"anchors are not read; drop &{event.anchor}")
    if event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        parsed.note(path, start, f"tags are not read; drop {show(tag)} and quote texts")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, path, parsed)
    if len(path) >= MAX_DEPTH:
        raise parsed.broken(start, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(event, yaml.SequenceStartEvent):
        data: Any = _sequence(events, path, parsed)
    else:
        data = _mapping(events, path, parsed)
    if not event.flow_style:
        parsed.values[path] = parsed.keys[path]
    return data


def _scalar(event: Any, path: KeyPath, parsed: Parsed) -> Any:
    place = _place(parsed.label, event.start_mark, event.end_mark)
    empty = event.start_mark.index == event.end_mark.index
    parsed.values[path] = parsed.keys[path] if empty else place
    if not is_unicode(event.value):
        parsed.note(path, place, "the text holds half a character (a lone surrogate)")
        return None
    return scalar(event.value) if event.style is None else event.value


def _sequence(events: Iterator[Any], path: KeyPath, parsed: Parsed) -> list[Any]:
    items: list[Any] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_value(event, events, (*path, len(items)), parsed))
    return items


def _mapping(events: Iterator[Any], path: KeyPath, parsed: Parsed) -> dict[str, Any]:
    data: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        place = _place(parsed.label, event.start_mark, event.end_mark)
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            raise parsed.broken(place, "a key is a plain text, such as `model`")
        key = event.value
        if not is_unicode(key):
            raise parsed.broken(place, "a key holds half a character (a lone surrogate)")
        here = (*path, key)
        first = parsed.keys.get(here)
        if first is not None:
            where = f"line {first.line}, column {first.column}"
            parsed.note(here, place, f"this key is given twice; the first is at {where}")
            _value(next(events), events, here, Parsed(parsed.label))
            continue
        parsed.keys[here] = place
        data[key] = _value(next(events), events, here, parsed)
    return data


def _place(label: str, start: Any, end: Any = None) -> Place:
    """A parser's mark, which counts from 0, as a place; at most one line is underlined."""
    width = end.column - start.column if end is not None and end.line == start.line else 1
    return Place(label, start.line + 1, start.column + 1, max(1, width))
