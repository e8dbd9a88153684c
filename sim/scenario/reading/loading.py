"""Loads a scenario file, or a mapping from Python, as a ``Document``.

Everything that can go wrong before a single key is examined is found here: a missing file, a
directory, an encoding, an empty file, a value that no YAML file could hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError, did_you_mean
from sim.scenario.sections.slo import with_units
from sim.scenario.shipped import found
from sim.scenario.shipped import names as shipped
from sim.scenario.text.document import Document, KeyPath, Place, Problem, failure, printable, show
from sim.scenario.text.parsing import MAX_DEPTH, BrokenYamlError, is_unicode, parse

MAX_BYTES = 1_000_000
_NEEDED = "a scenario is a mapping with at least model, fleet and workload"


class UnreadableError(ScenarioError):
    """The file as a whole cannot be had; ``reason`` says why, without its name."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(printable(f"{label}: {reason}"))
        self.reason = reason


def read(source: str | Path) -> tuple[Document, list[Problem]]:
    """One file as data with places, and the problems that do not prevent reading on; the file of
    a shipped scenario by its name (``sim.scenario.shipped``).

    Raises UnreadableError when the file cannot be read, and ScenarioError when it is not UTF-8 or
    no YAML mapping.
    """
    path, label = found(source), str(source)
    text = _text(path, label)
    try:
        parsed = parse(text, label)
    except BrokenYamlError as error:
        raise failure([error.problem], Document({}, Path(), text, {label: text})) from None
    if parsed.data is None and not parsed.problems:
        raise ScenarioError(printable(f"{label}:1:1: the file is empty; {_NEEDED}"))
    document = Document(
        data=with_units(parsed.data) if isinstance(parsed.data, dict) else {},
        base=path.absolute().parent,
        text=text,
        texts={label: text},
        keys=parsed.keys,
        values=parsed.values,
    )
    if not isinstance(parsed.data, dict):
        problem = Problem((), f"{_NEEDED}; this is {show(parsed.data)}")
        raise failure(parsed.problems or [problem], document)
    return document, parsed.problems


def from_mapping(source: Mapping[Any, Any]) -> Document:
    """A mapping given from Python as plain data; relative paths refer to the working directory.

    Raises ScenarioError for keys that are no text and values that YAML could not express.
    """
    return Document(data=with_units(plain(source, ())), base=Path.cwd())


def plain(value: object, path: KeyPath) -> Any:
    """``value`` with only dict, list, str, int, float, bool and None in it, as a YAML file gives.

    NumPy numbers, paths and tuples are accepted, since sweeps are written with them.
    """
    if len(path) > MAX_DEPTH:
        raise _refused(path[:3], f"nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | Path):
        if not is_unicode(str(value)):
            raise _refused(path, "the text holds half a character (a lone surrogate)")
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not is_unicode(key):
                raise _refused(path, f"keys are texts; {show(key)} is none")
        return {str(key): plain(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, (*path, index)) for index, item in enumerate(value)]
    kind = type(value).__name__
    raise _refused(path, f"expected a text, number, list or mapping, got a Python {kind}")


def _text(path: Path, label: str) -> str:
    """The file's text; every way in which that can fail is one sentence."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableError(label, f"no such file{_sibling(path)}") from None
    except IsADirectoryError:
        message = "this is a directory; name the scenario file in it"
        raise UnreadableError(label, message) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableError(label, f"cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise UnreadableError(label, f"larger than {MAX_BYTES:,} bytes, which no scenario is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        place = Place(label, len(before), len(before[-1].decode("utf-8-sig", "replace")) + 1)
        message = f"not UTF-8 text (byte 0x{content[error.start]:02x}); save the file as UTF-8"
        raise ScenarioError(printable(f"{place}: {message}")) from None


def _sibling(path: Path) -> str:
    """The file next to a missing one that was probably meant."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    return did_you_mean(path.name, names) or did_you_mean(str(path), shipped())


def _refused(path: KeyPath, message: str) -> ScenarioError:
    return failure([Problem(path, message)], Document({}, Path()))
