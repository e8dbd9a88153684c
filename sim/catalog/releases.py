"""Reads engine files at a release: ``vllm@0.18`` is the file of vLLM with what changed up to 0.18.

An engine file says of its first release on what it has at the top, and under ``changes`` what later
releases have instead, oldest first. The bare name is the newest release that is known. A release
beyond that is taken for the newest, with a note: how far its predictions are off is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.errors import UsageError
from sim.specs.engine import Releases

RELEASES, CHANGES, RELEASE = "releases", "changes", "release"
"""Keys of an engine file: the span of releases that are known, and what changed in it. The third is
of the file as read: the release that was asked for."""

FIRST = ("defaults", "fused_sums")
"""Keys whose value is a list of which the first entry that applies counts: a release states those
that are new, which go before the others."""

NEWEST = "the newest that is known"

Number = tuple[int, ...]


class Spelled(NamedTuple):
    """An engine as a scenario writes it: a ``name`` or path, and a ``release``, "" for none."""

    name: str
    release: str


def spelled(text: str) -> Spelled:
    """The parts of an engine's spelling.

    >>> spelled("vllm@0.18"), spelled("my/engine.yaml")
    (Spelled(name='vllm', release='0.18'), Spelled(name='my/engine.yaml', release=''))
    """
    name, _, release = text.rpartition("@")
    return Spelled(name, release) if name and number(release) else Spelled(text, "")


def number(version: str) -> Number | None:
    """The numbers of a version, two at least; None if it states none.

    >>> number("0.14.0"), number("1.0.0rc3"), number("nightly 2023-24")
    ((0, 14, 0), (1, 0, 0), None)
    """
    found = re.search(r"\d+(\.\d+)+", version)
    return tuple(map(int, found[0].split("."))) if found else None


def beyond(releases: Releases, release: str) -> bool:
    """Whether ``release`` is newer than all that is known.

    >>> known = Releases("0.8", "0.33")
    >>> beyond(known, "0.33.1"), beyond(known, "0.34")
    (False, True)
    """
    newest = _number(releases.newest)
    return _number(release)[: len(newest)] > newest


def before(releases: Releases, release: str) -> bool:
    """Whether ``release`` is older than the first that is known."""
    return _number(release) < _number(releases.first)


def releases_of(values: Fields) -> Releases:
    """The releases that an engine knows; UsageError where they are malformed."""
    found = values.inner(RELEASES)
    found.only(Releases._fields)
    return Releases(*(_release(found, key) for key in Releases._fields))


def as_of(
    document: Mapping[str, object], asked: str, where: str | Callable[[str], str]
) -> dict[str, object]:
    """An engine's ``document`` at the release ``asked`` ("": the newest that is known).

    A document that states its ``release`` is of that one already. Raises UsageError for a release
    older than the first, and for changes that are out of order.
    """
    entry = Fields(where, document)
    place = where if isinstance(where, str) else where(RELEASES)
    kept = {key: value for key, value in document.items() if key != CHANGES}
    if not entry.has(RELEASES) or entry.has(RELEASE):
        if asked:
            has = "is of one release" if entry.has(RELEASE) else "has no releases"
            raise UsageError(f"{place}: this engine {has}; leave out @{asked}")
        return kept
    values, _ = Fields(where, {RELEASES: document[RELEASES]}).sourced()
    known = releases_of(values)
    if asked and before(known, asked):
        raise UsageError(
            f"{place}: release {asked} is older than {known.first}, the first that is known"
        )
    mine = asked or known.newest
    for since, change in _changes(entry):
        if _number(since) <= _number(mine):
            for key, value in change.items():
                kept[key] = _before(value, kept[key]) if key in FIRST and key in kept else value
    if isinstance(title := kept.get("title"), str):
        kept["title"] = f"{title} {mine}"
    return {**kept, RELEASE: {"value": mine, "source": "as asked for" if asked else NEWEST}}


def _before(new: object, old: object) -> object:
    """A list with its source that goes before an older one, whose entries hold for the rest."""
    joined: list[object] = []
    sources: list[str] = []
    for each in (new, old):
        if not isinstance(each, Mapping) or not isinstance(each.get("value"), list):
            return new  # which its reader will refuse
        joined += each["value"]
        sources.append(str(each.get("source")).strip())
    return {"value": joined, "source": " Before: ".join(sources)}


def _changes(entry: Fields) -> Iterator[tuple[str, dict[str, object]]]:
    """The changes, by the release since which it has them."""
    last: Number = ()
    for each in entry.mappings(CHANGES) if entry.has(CHANGES) else ():
        since = _release(each, "since")
        if _number(since) <= last:
            raise each.error("since", f"changes are in order, but {since} is not after the last")
        last = _number(since)
        yield since, {key: each.value(key) for key in each if key != "since"}


def _release(found: Fields, key: str) -> str:
    text = found.text(key)
    if re.fullmatch(r"\d+(\.\d+)+", text) is None:
        raise found.error(key, f"expected a release such as '0.14', found {text!r}")
    return text


def _number(release: str) -> Number:
    found = number(release)
    assert found is not None
    return found
