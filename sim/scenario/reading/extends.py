"""Merges a scenario with the scenario files that it extends.

``extends: base.yaml`` at the top, or a list of files of which a later one wins over an earlier.
Mappings are merged key by key; anything else replaces what the parent says. Every value keeps the
place where it was written, and a relative path is relative to the folder of the file that has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.scenario.reading.loading import UnreadableError, read
from sim.scenario.reading.paths import absolute_paths
from sim.scenario.text.document import Document, KeyPath, Place, Problem, failure, has, show

LONGEST_CHAIN = 10
"""Files that extend one another in a row; in a longer chain a value is hard to trace."""
MOST_FILES = 100
"""Files of one scenario, each counted as often as it is extended."""

_SPREAD: dict[str, tuple[str, ...]] = {"p95": ("cv",), "cv": ("p95",)}
_KIND = ("kind", "peer_to_peer")
RIVALS: Mapping[KeyPath, Mapping[str, tuple[str, ...]]] = {
    ("workload",): {
        "trace": ("arrivals", "prompt_tokens", "output_tokens", "lengths", "shared_prefix"),
        "arrivals": ("trace",),
        "prompt_tokens": ("trace", "lengths"),
        "output_tokens": ("trace", "lengths"),
        "lengths": ("trace", "prompt_tokens", "output_tokens"),
    },
    ("fleet", "link"): {"bandwidth": _KIND, "latency": _KIND},
    ("workload", "prompt_tokens"): _SPREAD,
    ("workload", "output_tokens"): _SPREAD,
}
"""Keys that exclude each other: with the one in the child, the parent's others are gone."""


def extended(document: Document) -> tuple[Document, list[Problem]]:
    """The document with the files that it extends merged in, and the problems of those files.

    A name is not taken over: it is what tells a scenario from its parent. Raises ScenarioError
    when a parent cannot be read, when files extend each other in a circle, or when they are
    more than ``LONGEST_CHAIN`` in a row or ``MOST_FILES`` altogether.
    """
    if "extends" not in document.data:
        return document, []
    label = next(iter(document.texts), "")
    chain = [] if document.text is None else [label]
    return _Reader(document).merged(document, chain)


class _Reader:
    """Reads the parents of one scenario, and remembers how many there were."""

    def __init__(self, root: Document) -> None:
        self.files = 0
        self.texts = dict(root.texts)

    def merged(self, child: Document, chain: list[str]) -> tuple[Document, list[Problem]]:
        """``child``, the last file of ``chain``, on top of its parents."""
        problems: list[Problem] = []
        base = Document({}, child.base)
        for place, written in self._parents(child):
            label = _label(written, chain)
            parent, found = self._parent(label, place, [*chain, label])
            problems += found
            base = _on_top(parent, base)
        child = dataclasses.replace(_dropped(child, "extends"), texts=self.texts)
        return _on_top(child, base), problems

    def _parents(self, child: Document) -> Iterator[tuple[Place | None, str]]:
        """Each parent as written, with its place."""
        value = child.data.get("extends", [])
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            path: KeyPath = ("extends", index) if isinstance(value, list) else ("extends",)
            if not isinstance(item, str) or not item.strip():
                message = "expected the path of a scenario, or a list of such paths"
                raise failure([Problem(path, f"{message}; got {show(item)}")], child)
            yield child.place(path), item

    def _parent(
        self, label: str, place: Place | None, chain: list[str]
    ) -> tuple[Document, list[Problem]]:
        """One parent, itself merged, ready for a child in any folder."""
        self._check(place, chain)
        try:
            parent, found = read(label)
        except UnreadableError as error:
            raise self._refused(place, f"{label}: {error.reason}", chain[:-1]) from None
        self.texts |= parent.texts
        merged, more = self.merged(parent, chain)
        parent = _dropped(merged, "name")
        data = absolute_paths(parent.data, parent.base.resolve(), parent.folders)
        return _one_pool(dataclasses.replace(parent, data=data)), [*found, *more]

    def _check(self, place: Place | None, chain: list[str]) -> None:
        self.files += 1
        known = [_identity(label) for label in chain[:-1]]
        if _identity(chain[-1]) in known:
            raise self._refused(place, "files extend each other in a circle", chain)
        if len(chain) > LONGEST_CHAIN:
            message = f"more than {LONGEST_CHAIN} files extend each other in a row"
            raise self._refused(place, message, chain)
        if self.files > MOST_FILES:
            raise self._refused(place, f"more than {MOST_FILES} files are extended", chain)

    def _refused(self, place: Place | None, message: str, chain: list[str]) -> Exception:
        """An error at the ``extends`` that leads to it; the chain where there is one to follow."""
        if len(chain) > 1:
            message = f"{message} ({' -> '.join(chain)})"
        problem = Problem(("extends",), message, place=place)
        return failure([problem], Document({}, Path(), texts=self.texts))


def _label(written: str, chain: list[str]) -> str:
    """The path of a parent, which starts at the folder of the last file of ``chain``."""
    try:
        path = Path(written).expanduser()
    except RuntimeError:  # an unknown ~user, which is refused when it is opened
        path = Path(written)
    return str(Path(chain[-1]).parent / path if chain else path)


def _identity(label: str) -> Path | str:
    """One identity for every way to write the path of a file."""
    try:
        return Path(label).resolve()
    except (OSError, ValueError, RuntimeError):  # it is refused when it is opened
        return label


def _dropped(document: Document, key: str) -> Document:
    """The document without one key."""
    return dataclasses.replace(
        document,
        data={name: value for name, value in document.data.items() if name != key},
        keys=_without(document.keys, [(key,)]),
        values=_without(document.values, [(key,)]),
    )


def _one_pool(document: Document) -> Document:
    """A fleet that is a list of one pool as the mapping that is short for it, to merge into."""
    fleet = document.data.get("fleet")
    if not isinstance(fleet, list) or len(fleet) != 1:
        return document
    first: KeyPath = ("fleet", 0)

    def moved(places: dict[KeyPath, Place]) -> dict[KeyPath, Place]:
        return {
            ("fleet", *path[2:]) if path[:2] == first else path: place
            for path, place in places.items()
            if path != first
        }

    return dataclasses.replace(
        document,
        data={**document.data, "fleet": fleet[0]},
        keys=moved(document.keys),
        values=moved(document.values),
    )


def _on_top(child: Document, base: Document) -> Document:
    """``child`` with what only ``base`` says; the places of both."""
    replaced: list[KeyPath] = []
    merged: set[KeyPath] = set()
    data = _merge(child.data, base.data, (), replaced, merged)
    keys = {path: place for path, place in base.keys.items() if path not in merged}
    values = {path: place for path, place in base.values.items() if path not in merged}
    return dataclasses.replace(
        child,
        data=data,
        keys=_without(keys, replaced) | child.keys,
        values=_without(values, replaced) | child.values,
    )


def _merge(
    child: dict[str, Any],
    base: dict[str, Any],
    at: KeyPath,
    replaced: list[KeyPath],
    merged: set[KeyPath],
) -> dict[str, Any]:
    """The two mappings at ``at`` as one; notes what of ``base`` is replaced and what merged."""
    merged.add(at)
    rivals = RIVALS.get(at, {})
    gone = {
        rival
        for key, others in rivals.items()
        if has(child, (key,)) and child[key] is not None
        for rival in others
    }
    replaced.extend((*at, key) for key in gone)
    data = {key: value for key, value in base.items() if key not in gone}
    for key, value in child.items():
        path = (*at, key)
        if key in data and _mergeable(value, data[key]):
            data[key] = _merge(value, data[key], path, replaced, merged)
        else:
            replaced.append(path)
            data[key] = value
    return data


def _mergeable(child: Any, base: Any) -> bool:
    """Two mappings, unless the child's is of another ``kind``."""
    if not isinstance(child, dict) or not isinstance(base, dict):
        return False
    return "kind" not in child or child["kind"] == base.get("kind")


def _without(places: dict[KeyPath, Place], gone: list[KeyPath]) -> dict[KeyPath, Place]:
    """The places of all that does not stand at or below one of the paths ``gone``."""
    refused = set(gone)
    return {
        path: place
        for path, place in places.items()
        if not any(path[:length] in refused for length in range(1, len(path) + 1))
    }
