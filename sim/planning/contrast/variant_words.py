"""Names the variants of a comparison, and finds its figures by their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.planning.points.points import show

Document = Mapping[str, Any]
Entry = Mapping[str, Any]


def varied(document: Document) -> list[Mapping[str, Any]]:
    """The axes with several values."""
    axes: Sequence[Mapping[str, Any]] = document.get("axes", ())
    return [axis for axis in axes if len(axis["values"]) > 1]


def values_of(document: Document, index: int) -> list[str]:
    """The values that distinguish a variant from the others; its label where there are none."""
    variant = document["variants"][index]
    keys = [axis["key"] for axis in varied(document)]
    return [show(variant["settings"][key]) for key in keys] or [variant["label"]]


def name(document: Document, index: int) -> str:
    """The name of a variant in a sentence: a bare number has its key."""
    label, axes = str(document["variants"][index]["label"]), varied(document)
    bare = len(axes) == 1 and not isinstance(next(iter(axes[0]["values"])), str)
    return f"{axes[0]['name']}={label}" if bare else label


def latency_keys(document: Document) -> tuple[str, str]:
    """The keys of TTFT and TPOT at the percentile that the SLO judges, p99 where that is not known
    of all variants."""
    known, asked = entries_of(document), document.get("latencies", {})
    keys = [(asked.get(name), f"p99_{name}_ms") for name in ("ttft", "tpot")]
    ttft, tpot = (key if key in known else usual for key, usual in keys)
    return ttft, tpot


def entries_of(document: Document) -> dict[str, Entry]:
    """The figures that are compared, by their keys."""
    return {entry["key"]: entry for entry in document["figures"]}
