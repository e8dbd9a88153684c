"""Reads a file of the catalogue, or a user's file of the same form, into plain data.

YAML and JSON, in UTF-8. Whatever a file may hold, the answer is data or one UsageError that names
the file, and where in it: it can neither exhaust the memory nor build objects.
"""

from __future__ import annotations

import json
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


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a mapping that gives a key twice, which YAML itself lets pass."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                twice = f"{shorten(repr(name))} is given twice"
                raise yaml.MarkedYAMLError(problem=twice, problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, *, without: str | None = None) -> dict[str, object]:
    """The mapping that one YAML file holds; UsageError for anything else.

    Blocks under a key ``without``, at any depth, are left out and cost no time.
    """
    text = _text(path, MAX_YAML)
    if without is not None:
        text = _pruned(text, without)
    try:
        _check_plain(path, text)
        document = yaml.load(text, Loader=_UniqueKeys)  # a safe loader, as its base is
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


def read_json(path: Path) -> object:
    """What one JSON file holds; UsageError if it is no JSON."""
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
    """The text of a UTF-8 file of at most so many bytes."""
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


def _pruned(text: str, key: str) -> str:
    """``text`` without the blocks under lines that are ``key:``, which are the lines that are
    indented further."""
    kept, above = [], None
    for line in text.splitlines(keepends=True):
        depth = len(line) - len(line.lstrip(" "))
        if above is not None and depth > above:
            continue
        above = depth if line.strip() == f"{key}:" else None
        if above is None:
            kept.append(line)
    return "".join(kept)


def _check_plain(path: Path, text: str) -> None:
    """Refuse aliases, which can make a small text huge, and nesting that no loader survives."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        problem = ""
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = "anchors and aliases are not read; write the value out each time"
        elif tag := getattr(event, "tag", None):
            problem = f"tags are not read; drop {shorten(repr(tag))} and quote texts"
        elif depth > MAX_DEPTH:
            problem = f"is nested deeper than {MAX_DEPTH} levels"
        elif documents > 1:
            problem = "a second document begins; a file holds one"
        if problem:
            raise UsageError(f"{_place(path, event.start_mark)}: {problem}")


def position(path: Path, key: str) -> str:
    """Where the value of a dotted ``key`` stands in a YAML file that can be read, or the nearest
    key above it, as ``file:line:column``; the file alone if there is none."""
    node = yaml.compose(_text(path, MAX_YAML), Loader=_Loader)
    mark = None
    for name in key.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for each, value in pairs if each.value == name), None)
        if node is None:
            break
        mark = node.start_mark
    return _place(path, mark)


def _place(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
