"""Says that prefix caches start empty, and where there was nothing to find in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.engine.prefix_hits import SMALL, prefix_cache
from sim.metrics.record.run_record import RunRecord
from sim.routers import AFFINE
from sim.units import show_share


def shares_nothing(entry: Mapping[str, Any]) -> bool:
    """Whether no texts of a run were shared, by its ``prefix_cache``: there was nothing to find.
    False where that was not recorded."""
    return not entry["hits"] and entry.get("first_seen") == 0 and not entry.get("evicted")


def states_note(run: RunRecord) -> str | None:
    """The note on hits of models with a state; None where nothing was found, or none has one."""
    entry = prefix_cache(run).get("prefix_cache")
    if entry is None:
        return None
    if not entry["hits"] or not any(part.pool.capacity.states for part in run.parts):
        return None
    return (
        "A state is taken to be kept wherever a prefix was found to end. SGLang keeps it at the "
        "end of a prompt, of an answer and of a second prompt that begins alike, rounded down to "
        "64 tokens, as long as slots are free: it finds a little less."
    )


def cold_note(run: RunRecord) -> str | None:
    """The note that caches started empty, and its effect on the figures; None without caches."""
    entry = prefix_cache(run).get("prefix_cache")
    if entry is None or run.observed or not entry["queries"] or shares_nothing(entry):
        return None
    start, rest = entry["warmup"], entry["after"]
    if start["requests"] and entry["first_seen"] is not None:
        said = (
            f"Prefix caches start empty: in the warm-up {show_share(start['first_seen'])} of the "
            f"tokens looked up were of shared texts seen for the first time, "
            f"{show_share(rest['first_seen'] or 0.0)} after it."
        )
    else:
        said = "Prefix caches start empty, and the statistics leave no warm-up out"
        if entry["first_seen"] is None:
            said += "."
        else:
            share = show_share(entry["first_seen"] / entry["queries"])
            said += (
                f": {share} of the tokens looked up were of shared texts seen for the first time."
            )
    said += _anew(run, rest["first_seen"])
    if entry["steady"] is False:
        said += (
            " Hits were still becoming more when the run ended: it is not steady, and a longer one "
            "(run.requests) finds more."
        )
    return said


def _anew(run: RunRecord, first_seen: float | None) -> str:
    """The note that texts are new to each replica, where a router that does not look for what is
    cached deals them out and ``first_seen`` of the tokens after the warm-up were new; empty
    elsewhere."""
    router = run.scenario.router
    several = any(
        part.pool.replicas > 1 and part.pool.settings.kv_cache.enable_prefix_caching
        for part in run.parts
    )
    if not several or router in AFFINE or ":" in router or (first_seen or 0.0) <= SMALL:
        return ""
    return (
        " That is not the start alone: each replica has a cache of its own and meets the texts "
        f"anew, since router {router} does not look for what is cached; {' and '.join(AFFINE)} do."
    )
