"""Narrows a calibration to the operators that are asked for, in less time.

A name is an operator as profiles and tables have it, or one of ``GROUPS``. Seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibrate.device import DeviceFacts
from sim.catalog.gpu_names import named_by_driver
from sim.errors import UsageError, did_you_mean

GROUPS: Mapping[str, tuple[str, ...]] = {
    "experts": ("moe",),
    "latent": ("mla_decode", "mla_prefill"),
    "windows": ("window_decode", "window_prefill"),
}

LEAST = 30.0
"""Seconds measured for when no time is given, however little was asked for."""


def chosen(names: Sequence[str], shares: Mapping[str, float]) -> frozenset[str]:
    """The operators that ``names`` stand for, of those that have ``shares``; all of them where
    there are no names. UsageError for a name that is none.

    >>> sorted(chosen(["gemm", "latent"], {"gemm": 1, "moe": 1, "mla_decode": 1, "mla_prefill": 1}))
    ['gemm', 'mla_decode', 'mla_prefill']
    """
    known = (*shares, *(name for name, own in GROUPS.items() if set(own) <= shares.keys()))
    for name in names:
        if name not in known:
            raise UsageError(
                f"--only {name}: not known{did_you_mean(name, known)}; known: {', '.join(known)}"
            )
    found = [operator for name in names for operator in GROUPS.get(name, (name,))]
    return frozenset(found or shares)


def budget(whole: float, operators: frozenset[str], shares: Mapping[str, float]) -> float:
    """The share of the ``whole`` time for these operators, and no less than ``LEAST``."""
    part = sum(shares[name] for name in operators) / sum(shares.values())
    return min(whole, max(LEAST, whole * part))


def check_ceilings(operators: frozenset[str], device: DeviceFacts, moving: Sequence[str]) -> None:
    """UsageError where a profile of a ``device`` that the catalogue does not know could not be made
    of these operators alone: products and one of ``moving`` show what it can do at all."""
    if named_by_driver(device.name) is not None:
        return
    if "gemm" in operators and not operators.isdisjoint(moving):
        return
    raise UsageError(
        f"--only: the ceilings of {device.name} are taken from gemm and memory; name them too, or "
        "--resume a table that has them, or measure with --no-fit"
    )
