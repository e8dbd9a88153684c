"""Says in words which GPUs a fleet has, and how many of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def fleet_text(own: Mapping[str, Any]) -> str:
    """The replicas of a run and the GPUs of each, of the part ``infersim`` of its summary: those of
    a fleet of one replica, ``4 x h100-sxm``, are its GPUs.

    >>> fleet_text({"gpu": "h100-sxm", "gpus": 2, "replicas": 1})
    '2 x h100-sxm'
    >>> kept = {"name": "a", "gpu": "a10g", "gpus": 1, "replicas": 1}
    >>> more = {"name": "b", "gpu": "l40s", "gpus": 6, "replicas": 3}
    >>> fleet_text({"pools": [kept, more], "scaling": [{"name": "b", "min": 1, "max": 3}]})
    '1 x a10g + 1 to 3 x (2 x l40s)'
    """
    pools = own.get("pools") or [own]
    scaled = {each["name"]: each for each in own.get("scaling", ())}
    found = []
    for pool in pools:
        scales = scaled.get(pool["name"]) if "pools" in own else next(iter(scaled.values()), None)
        most = pool.get("replicas", 1)
        fewest = most if scales is None else scales["min"]
        found.append((pool["gpu"], pool["gpus"] // most, fewest, most))
    return by_kind(found)


def by_kind(pools: Iterable[tuple[str, int, int, int]]) -> str:
    """Pools of (GPU, GPUs of a replica, fewest, most replicas), those of one layout added up.

    >>> by_kind([("l4", 2, 1, 1)]), by_kind([("l4", 1, 1, 1), ("l4", 1, 1, 1)])
    ('2 x l4', '2 x (1 x l4)')
    """
    totals: dict[tuple[str, int], tuple[int, int]] = {}
    for gpu, each, fewest, most in pools:
        low, high = totals.get((gpu, each), (0, 0))
        totals[gpu, each] = low + fewest, high + most
    return " + ".join(
        f"{each:,} x {gpu}"
        if low == high == 1
        else f"{low:,} x ({each:,} x {gpu})"
        if low == high
        else f"{low:,} to {high:,} x ({each:,} x {gpu})"
        for (gpu, each), (low, high) in totals.items()
    )
