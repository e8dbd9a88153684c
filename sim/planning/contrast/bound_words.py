"""Says what bounds the variants of a comparison, and why layouts of GPUs differ.

The figures are those of the runs: where the busy time goes, the weights that each GPU holds, and
the tokens that all KV caches hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.metrics.terms.definitions import bound_name
from sim.planning.contrast.variant_words import Document, varied
from sim.units import show_bytes, show_share

LAYOUT = ("fleet", "replicas")
"""Keys, or the ends of keys, that change which GPU does what; so do all that end in _parallel."""

FEW = 4
"""Variants that a sentence has one by one; of more it has the least and the most."""

APART, TIMES = 0.03, 1.1
"""The difference of two shares, and the ratio of two sizes, from which on they are worth a
sentence."""


def bound_text(variant: Mapping[str, Any]) -> str:
    """What most of the busy time of a variant goes to; "-" where that is not known.

    >>> bound_text({"bounds": {"bound_by": {"compute": 0.31, "memory": 0.6, "host": 0.09}}})
    'memory 60%'
    """
    shares = (variant.get("bounds") or {}).get("bound_by") or {}
    if not shares:
        return "-"
    most = max(shares, key=lambda key: float(shares[key]))
    return f"{bound_name(most)} {shares[most]:.0%}"


def varies_layout(document: Document) -> bool:
    """Whether the variants differ in their layouts of GPUs."""
    keys = [str(axis["key"]).split(".") for axis in varied(document)]
    return any(key[0] in LAYOUT[:1] and len(key) < 3 for key in keys) or any(
        key[-1] in LAYOUT or key[-1].endswith("_parallel") for key in keys
    )


def why_layouts_differ(document: Document) -> str:
    """Why variants of other layouts differ, in a sentence; empty where nothing tells, or the layout
    is the same, or some of them failed."""
    found = [each.get("bounds") for each in document["variants"]]
    if not varies_layout(document) or not all(found):
        return ""
    waits = [float(each["bound_by"].get("communication", 0.0)) for each in found]
    weights, room = ([each[key] for each in found] for key in ("weights_bytes", "kv_tokens"))
    told = []
    if max(waits) - min(waits) >= APART:
        told.append(f"communication takes {_each(waits, show_share)} of the busy time")
    if _differ(weights):
        told.append(f"each GPU holds {_each(weights, show_bytes)} of weights to read")
    if _differ(room):
        told.append(f"all KV caches hold {_each(room, '{:,.0f}'.format)} tokens")
    order = "" if len(found) > FEW else ", in the order of the variants"
    return f"Why{order}: {'; '.join(told)}." if told else ""


def _differ(values: Sequence[float | None]) -> bool:
    """Whether the largest of sizes that are all known is well above the least."""
    known = [value for value in values if value]
    return len(known) == len(values) and max(known) >= TIMES * min(known)


def _each(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """The values of a few variants, or the least and the most.

    >>> _each([0.2, 0.15, 0.0], show_share), _each([1, 2, 4, 8, 3], str)
    ('20%, 15% and 0%', '1 to 8')
    """
    if len(values) > FEW:
        return f"{shown(min(values))} to {shown(max(values))}"
    told = [shown(value) for value in values]
    return f"{', '.join(told[:-1])} and {told[-1]}"
