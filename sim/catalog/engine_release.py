"""Finds the engine that stands for a recorded or published release of one.

A release older than the first that is known is given the first, and a newer one the newest, each
with a note: how far predictions are off for such a release is not known.
"""

from __future__ import annotations

from typing import NamedTuple

from sim import catalog
from sim.catalog.releases import before, beyond, number


class PresetOfRelease(NamedTuple):
    """The ``preset`` for a release of ``engine``, whether it ``covers`` that release, and a
    ``note`` that says so."""

    engine: str
    preset: str
    covers: bool
    note: str


def preset_of(engine: str, version: str | None) -> PresetOfRelease | None:
    """The preset of a release of ``engine``; the newest known where ``version`` states no release.
    None for an engine without releases.

    >>> preset_of("vllm", "0.19.0").preset, preset_of("sglang", "0.4.3").covers
    ('vllm@0.19.0', False)
    """
    newest = catalog.engine(engine) if engine in catalog.names("engines") else None
    if newest is None or newest.releases is None:
        return None
    known, stated = newest.releases, number(version or "")
    if stated is None:
        note = f"The release of {engine} is not stated; {newest.title} stands for it."
        return PresetOfRelease(engine, newest.label, True, note)
    release = ".".join(map(str, stated))
    if not before(known, release) and not beyond(known, release):
        found = catalog.engine(f"{engine}@{release}")
        return PresetOfRelease(engine, found.label, True, f"The engine is {found.title}.")
    nearest = catalog.engine(f"{engine}@{known.first}") if before(known, release) else newest
    note = (
        f"Nothing is known of {engine} {version}: the nearest release, {nearest.title}, stands in "
        "for it, and how far its predictions are off is not known."
    )
    return PresetOfRelease(engine, nearest.label, False, note)
