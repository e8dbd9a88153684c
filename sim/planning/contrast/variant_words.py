"""Names the variants of a comparison, and finds its figures by their keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.terms.definitions import METRIC
from sim.metrics.terms.metric import Metric
from sim.planning.points.figures import COMING
from sim.planning.points.points import show

WAYS: Mapping[str, str] = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "data_parallel": "DP",
    "expert_parallel": "EP",
}
"""Key of a pool -> what engines' users call the way that it spreads a model over GPUs."""

Document = Mapping[str, Any]
Entry = Mapping[str, Any]


def varied(document: Document) -> list[Mapping[str, Any]]:
    """The axes with several values."""
    axes: Sequence[Mapping[str, Any]] = document.get("axes", ())
    return [axis for axis in axes if len(axis["values"]) > 1]


def values_of(document: Document, index: int) -> list[str]:
    """The values that distinguish a variant from the others; its label where there are none."""
    variant = document["variants"][index]
    found = []
    for axis in varied(document):
        shown = show(variant["settings"][axis["key"]])
        short = zip(map(show, axis["values"]), short_values(axis["values"]), strict=True)
        found.append(dict(short).get(shown, shown))
    return found or [variant["label"]]


def short_values(values: Sequence[object]) -> list[str]:
    """The values of an axis as tables and sentences name them: mappings by what differs between
    them, in the words of engines' users, where that tells them apart.

    >>> short_values([{"gpu": "l4", "tensor_parallel": 8}, {"gpu": "l4", "data_parallel": 4,
    ...     "expert_parallel": 4}, {"gpu": "l4", "tensor_parallel": 2, "replicas": 4}])
    ['TP 8', 'DP 4 + EP', 'TP 2 x 4']
    >>> short_values([{"gpu": "l4", "replicas": 4}, {"gpu": "h100-sxm", "replicas": 4}])
    ['l4', 'h100-sxm']
    >>> short_values([2.0, "a"]), short_values([{"a": 1, "b": 2}, {"a": 1}])
    (['2', 'a'], ['b: 2', 'without b'])
    """
    mappings = [value for value in values if isinstance(value, Mapping)]
    whole = [show(value) for value in values]
    if len(mappings) < len(values):
        return whole
    keys = dict.fromkeys(key for each in mappings for key in each)
    apart = [key for key in keys if len({show(each.get(key, _ABSENT)) for each in mappings}) > 1]
    found = [_short(each, apart) for each in mappings]
    return found if len({*found}) == len(found) else whole


_ABSENT = "-"
"""What stands for a key that a mapping does not have."""


def _short(value: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A mapping by ``keys`` alone."""
    ways = [_way(key, value) for key in WAYS if key in keys and key in value]
    told = [str(value["gpu"])] if "gpu" in keys and "gpu" in value else []
    told += [" + ".join(filter(None, ways))] if any(ways) else []
    others = [key for key in keys if key not in (*WAYS, "gpu", "replicas")]
    told += [f"{key}: {show(value[key])}" for key in others if key in value]
    count = show(value.get("replicas", 1))
    if "replicas" in keys and (count != "1" or not told):
        told.append(f"x {count}" if told else f"{count} replica{'s' * (count != '1')}")
    without = [WAYS.get(key, key) for key in keys]
    return " ".join(told) or f"without {', '.join(without)}"


def _way(key: str, value: Mapping[str, Any]) -> str:
    """One way in which ``value`` spreads a model; empty where it is off.

    >>> _way("expert_parallel", {"tensor_parallel": 8, "expert_parallel": 2})
    'EP 2'
    """
    found, ranks = value[key], [value.get(each, 1) for each in ("tensor_parallel", "data_parallel")]
    if found is False:
        return ""
    whole = key == "expert_parallel" and show(found) in ("true", str(_product(ranks)))
    return WAYS[key] if whole else f"{WAYS[key]} {show(found)}"


def _product(counts: Sequence[object]) -> int:
    return math.prod(count for count in counts if isinstance(count, int))


def in_full(document: Document) -> list[str]:
    """Each shortened value of an axis with what it stands for, as the scenario has it."""
    return [
        f"{short}: {show(value)}"
        for axis in varied(document)
        for short, value in zip(short_values(axis["values"]), axis["values"], strict=True)
        if short != show(value)
    ]


def name(document: Document, index: int) -> str:
    """The name of a variant in a sentence: a bare number has its key."""
    label, axes = str(document["variants"][index]["label"]), varied(document)
    bare = len(axes) == 1 and not isinstance(next(iter(axes[0]["values"])), str | Mapping)
    return f"{axes[0]['name']}={label}" if bare else label


def latency_keys(document: Document) -> tuple[str, str]:
    """The keys of TTFT and TPOT at the percentile that the SLO judges, p99 where that is not known
    of all variants."""
    known, asked = entries_of(document), document.get("latencies", {})
    keys = [(asked.get(name), f"p99_{name}_ms") for name in ("ttft", "tpot")]
    ttft, tpot = (key if key in known else usual for key, usual in keys)
    return ttft, tpot


def metric_of(entry: Entry) -> Metric | None:
    """The metric that a figure is, over whichever time; None for one of the user's own."""
    return METRIC.get(entry["key"].removeprefix(COMING))


def rate_of(document: Document, key: str) -> Entry | None:
    """The figure of a rate: while requests come, where all variants have that; None where it is not
    compared."""
    known = entries_of(document)
    return known.get(f"{COMING}{key}", known.get(key))


def entries_of(document: Document) -> dict[str, Entry]:
    """The figures that are compared, by their keys."""
    return {entry["key"]: entry for entry in document["figures"]}


SAME = 0.005
"""Means that are no further apart than this share would be multiples of 1.00."""


def alike(means: Sequence[float | None]) -> bool:
    """Whether no variant is so much better than another that a multiple would show it.

    >>> alike([200.0, 200.9]), alike([200.0, 201.1]), alike([200.0, None])
    (True, False, False)
    """
    known = [mean for mean in means if mean]
    return len(known) == len(means) and max(known) / min(known) < 1 + SAME
