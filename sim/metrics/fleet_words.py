"""Says in words which GPUs a fleet has, and how many of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def fleet_text(own: Mapping[str, Any]) -> str:
    """The GPUs of each kind that a run had, of the part ``infersim`` of its summary.

    >>> fleet_text({"gpu": "h100-sxm", "gpus": 2})
    '2 x h100-sxm'
    >>> kept = {"name": "a", "gpu": "a10g", "gpus": 1}
    >>> more = {"name": "b", "gpu": "l40s", "gpus": 6}
    >>> fleet_text({"pools": [kept, more], "scaling": [{"name": "b", "min": 1, "max": 3}]})
    '1 x a10g + 2 to 6 x l40s'
    """
    pools = own.get("pools") or [own]
    scaled = {each["name"]: each for each in own.get("scaling", ())}
    found = []
    for pool in pools:
        scales = scaled.get(pool["name"]) if "pools" in own else next(iter(scaled.values()), None)
        fewest = pool["gpus"]
        if scales is not None:
            fewest = fewest_of(fewest, scales["min"], scales["max"])
        found.append((pool["gpu"], fewest, pool["gpus"]))
    return by_kind(found)


def fewest_of(gpus: int, least: int, most: int) -> int:
    """GPUs of a pool of ``gpus`` when it has the ``least`` of its replicas."""
    return gpus * least // most


def by_kind(pools: Iterable[tuple[str, int, int]]) -> str:
    """Pools of (GPU, fewest, most of them), those of one GPU added up."""
    totals: dict[str, tuple[int, int]] = {}
    for gpu, fewest, most in pools:
        low, high = totals.get(gpu, (0, 0))
        totals[gpu] = low + fewest, high + most
    return " + ".join(
        f"{low:,} x {gpu}" if low == high else f"{low:,} to {high:,} x {gpu}"
        for gpu, (low, high) in totals.items()
    )
