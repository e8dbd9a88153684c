"""Applies ``--set a.b.0.c=value`` arguments to a scenario before it is validated.

An override replaces one value, or adds one; what it replaced loses its position in the file, and
a problem with the new value is reported at the argument.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sim.errors import ScenarioError
from sim.scenario.reading.loading import plain
from sim.scenario.sections.model import model_as_mapping
from sim.scenario.text.document import Document, KeyPath, Place, Problem, dotted, show
from sim.scenario.text.parsing import BrokenYamlError, is_unicode, parse

Overrides = Sequence[str] | Mapping[str, object]
"""``"a.b.0.c=value"`` texts (the value is YAML), or a mapping of dotted keys to values."""

_LONGEST_LABEL = 60
_LONGEST_ARGUMENT = 200


class _RefusedError(Exception):
    """An override that cannot be made, in the user's words."""


def applied(document: Document, changes: Overrides) -> tuple[Document, list[Problem]]:
    """The document with the changes made, in order, and the changes that could not be made."""
    pairs: list[tuple[str, str | tuple[str, Any]]]
    if isinstance(changes, Mapping):
        pairs = [_label_of_item(key, value) for key, value in changes.items()]
    else:
        pairs = [(_label(text), text) for text in _texts(changes)]
    problems: list[Problem] = []
    for label, change in pairs:
        try:
            key, value = _read(change) if isinstance(change, str) else change
            document = _with(in_full(document), key, value, Place(label))
        except _RefusedError as error:
            problems.append(Problem((), str(error), place=Place(label)))
    return document, problems


def in_full(document: Document) -> Document:
    """Expands short forms to a list of one or a mapping of one key: a fleet given as one mapping,
    failures given as a list of outages."""
    fleet, failures = document.data.get("fleet"), document.data.get("failures")
    if isinstance(fleet, dict):
        document = _moved(document, "fleet", [fleet], 0)
    if isinstance(failures, list):
        document = _moved(document, "failures", {"outages": failures}, "outages")
    return document


def _moved(document: Document, key: str, value: Any, inside: str | int) -> Document:
    """``document`` with ``value`` at ``key``: what stood there, at ``inside`` of it."""

    def moved(places: dict[KeyPath, Place]) -> dict[KeyPath, Place]:
        found = {
            (key, inside, *path[1:]) if path[:1] == (key,) else path: place
            for path, place in places.items()
        }
        if (key,) in places:
            found[key,] = places[key,]
        return found

    data = {**document.data, key: value}
    keys, values = moved(document.keys), moved(document.values)
    return dataclasses.replace(document, data=data, keys=keys, values=values)


def _label(text: str) -> str:
    """An argument as it was given, in one line."""
    cut = f"{text[:_LONGEST_ARGUMENT]}..." if len(text) > _LONGEST_ARGUMENT else text
    return f"--set {' '.join(cut.splitlines())}"


def _label_of_item(key: object, value: object) -> tuple[str, str | tuple[str, Any]]:
    """An override from Python, named as ``key=value``: there was no ``--set``."""
    if not isinstance(key, str):
        raise ScenarioError(f"the key of an override is a dotted text, got {show(key)}")
    understood = plain(value, tuple(key.split(".")))
    text = yaml.safe_dump(understood, default_flow_style=True, allow_unicode=True, width=1000)
    text = text.removesuffix("\n").removesuffix("\n...")
    if len(text) > _LONGEST_LABEL:
        text = f"{text[:_LONGEST_LABEL]}..."
    return f"{key}={text}", (key, understood)


def _texts(changes: Sequence[str]) -> Sequence[str]:
    texts = [changes] if isinstance(changes, str) else changes
    for text in texts:
        if not isinstance(text, str) or not is_unicode(text):
            raise ScenarioError(f"an override is a text such as 'seed=7', got {show(text)}")
    return texts


def _read(text: str) -> tuple[str, Any]:
    """The key and the value of ``key=value``."""
    key, equals, value = text.partition("=")
    if not equals:
        raise _RefusedError("an override is key=value, such as workload.arrivals.rate=8")
    try:
        parsed = parse(value, "")
    except BrokenYamlError as error:
        raise _RefusedError(error.problem.message) from None
    if parsed.problems:
        raise _RefusedError(parsed.problems[0].message)
    return key.strip(), parsed.data


def _with(document: Document, key: str, value: Any, place: Place) -> Document:
    """The document with the value at a dotted key replaced, or added."""
    steps = _steps(key, document.data)
    if steps[0] == "model" and len(steps) > 1:
        document = model_as_mapping(document)
    data = copy.deepcopy(document.data)
    path: KeyPath = ()
    inside: Any = data
    for step in steps[:-1]:
        index = _index(inside, step, path)
        if isinstance(inside, dict) and inside.get(index) is None:
            inside[index] = {}
        inside = inside[index]
        path = (*path, index)
    last = _index(inside, steps[-1], path)
    inside[last] = value
    path = (*path, last)
    keys = {other: kept for other, kept in document.keys.items() if other[: len(path)] != path}
    values = {other: kept for other, kept in document.values.items() if other[: len(path)] != path}
    return dataclasses.replace(
        document, data=data, keys=keys | {path: place}, values=values | {path: place}
    )


def _steps(key: str, data: dict[str, Any]) -> list[str]:
    """The parts of a dotted key; ``fleet.gpu`` is short for ``fleet.0.gpu`` with one pool, and
    ``failures.0`` for ``failures.outages.0``."""
    steps = key.split(".")
    if not all(steps):
        raise _RefusedError("the key is dotted, such as workload.arrivals.rate")
    fleet = data.get("fleet")
    alone = isinstance(fleet, list) and len(fleet) == 1
    if steps[0] == "fleet" and len(steps) > 1 and alone and not steps[1].isdecimal():
        steps.insert(1, "0")
    if steps[0] == "failures" and len(steps) > 1 and steps[1].isdecimal():
        steps.insert(1, "outages")
    return steps


def _index(inside: Any, step: str, path: KeyPath) -> str | int:
    """``step`` as a key or list index of the value ``inside``, which stands at ``path``."""
    name = dotted(path)
    if isinstance(inside, dict):
        return step
    if not isinstance(inside, list):
        raise _RefusedError(f"{name} is {show(inside)}, which has no key {show(step)}")
    if not step.isdecimal() or not step.isascii() or len(step) > 9 or int(step) >= len(inside):
        entries = f"its entries are 0 to {len(inside) - 1}" if inside else "it is empty"
        entries = "its only entry is 0" if len(inside) == 1 else entries
        raise _RefusedError(f"{name} has no entry {show(step)}: {entries}")
    return int(step)
