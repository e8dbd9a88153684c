"""Finds the preset that covers a release of a served engine, by what the presets say of themselves.

Presets of served engines name the releases that they cover (``EngineSpec.releases``); one that
takes that over from another preset is chosen by something else than the release. A
release that none covers is given the nearest one, with a note: how far its predictions are off for
that release is not known.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from sim import catalog
from sim.specs.engine import EngineSpec, Releases


class PresetOfRelease(NamedTuple):
    """The ``preset`` for a release of ``engine``, whether it ``covers`` that release, and a
    ``note`` that says so."""

    engine: str
    preset: str
    covers: bool
    note: str


def release(version: str) -> tuple[int, int] | None:
    """Major and minor number of a version, None if it states none.

    >>> release("0.14.0"), release("1.0.0rc3"), release("nightly 2023-24")
    ((0, 14), (1, 0), None)
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


@cache
def presets_of(engine: str) -> tuple[EngineSpec, ...]:
    """The presets that cover releases of ``engine``, the oldest releases first; none of an engine
    that has no preset.

    >>> [each.name for each in presets_of("vllm")]
    ['vllm-0.13', 'vllm', 'vllm-0.18']
    """
    stating = (n for n in catalog.names("engines") if "releases" in catalog.raw("engines", n))
    known = [each for each in map(catalog.engine, stating) if _of(each).engine == engine]
    return tuple(sorted(known, key=_since))


def preset_of(engine: str, version: str | None) -> PresetOfRelease | None:
    """The preset of a release of ``engine``; that of its own name where ``version`` states no
    release. None for an engine without any preset.

    >>> preset_of("vllm", "0.19.0").preset, preset_of("sglang", "0.4.3").covers
    ('vllm-0.18', False)
    """
    known = presets_of(engine)
    if not known:
        return None
    stated = None if version is None else release(version)
    if stated is None:
        title = catalog.engine(engine).title
        return PresetOfRelease(
            engine, engine, True, f"The release of {engine} is not stated; its preset is {title!r}."
        )
    for each in known:
        if _covers(each, stated):
            why = f"The preset of {engine} {version} is {each.name} ({each.title})."
            return PresetOfRelease(engine, each.name, True, why)
    nearest = known[0] if stated < _since(known[0]) else known[-1]
    note = (
        f"No preset covers {engine} {version}: the nearest, {nearest.name} ({nearest.title}), "
        "stands in for it, and how far its predictions are off is not known."
    )
    return PresetOfRelease(engine, nearest.name, False, note)


def _of(preset: EngineSpec) -> Releases:
    assert preset.releases is not None
    return preset.releases


def _since(preset: EngineSpec) -> tuple[int, int]:
    found = release(_of(preset).since)
    assert found is not None
    return found


def _covers(preset: EngineSpec, stated: tuple[int, int]) -> bool:
    before = release(_of(preset).before)
    return _since(preset) <= stated and (before is None or stated < before)
