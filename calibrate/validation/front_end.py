"""Determines which front end the observed engine had, and what follows for a prediction of it.

An engine that is driven in process, or whose log begins at its own queue, has no server in front of
it; a preset of the catalogue may have one. Seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from sim.results.run_directory import MANIFEST
from sim.scenario.pools import only
from sim.setup import Setup
from sim.units import show_time

FrontEnd = Literal["none", "server"]
"""Nothing, or a server whose time is in the times of the requests."""

FRONT_END = "front_end"
"""The key of the manifest that says so; a manifest without it leaves it open."""


def front_end_of(manifest: Mapping[str, Any]) -> FrontEnd | None:
    """The front end of a manifest; None where it states none that is known."""
    found = manifest.get(FRONT_END)
    return next((kind for kind in get_args(FrontEnd) if kind == found), None)


def without_front_end(setup: Setup) -> tuple[Setup, str]:
    """``setup`` for requests that came straight to the engine, and what was changed for that; an
    empty text if nothing was."""
    engine = setup.only.deployment.engine
    if not engine.front_end:
        return setup, ""
    told = (
        f"Measured inside the engine: the {show_time(engine.front_end)} of the HTTP front end "
        f"({engine.name}) are excluded from the prediction."
    )
    sources = {**engine.sources, "front_end": "Nothing stood in front of the observed engine."}
    bare = replace(engine.without_front_end(), sources=sources)
    return setup.each(lambda pool: pool.with_engine(bare)), told


def scenario_note(scenario: Path, setup: Setup) -> str | None:
    """The note before the scenario of an observed run is simulated as it stands: that the engine
    has a front end, which that run lacked. None for any other scenario."""
    try:
        manifest = json.loads(scenario.with_name(MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("kind") != "observed":
        return None
    engine = only(setup.pools).deployment.engine
    if front_end_of(manifest) != "none" or not engine.front_end:
        return None
    return (
        f"note: {scenario} is of an observed run in front of which nothing stood, but "
        f"{engine.name} has a front end of {show_time(engine.front_end)}, which is simulated. "
        f"To compare without it: infersim validate-run {scenario.parent}"
    )
