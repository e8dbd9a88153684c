"""How are keys and figures written in the tables of everything that plans?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.units import show_time


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each dotted key, and the shortest end of it that no other one has.

    >>> short_keys(["workload.arrivals.rate", "workload.prompt_tokens.mean", "other.mean"])
    {'workload.arrivals.rate': 'rate', 'workload.prompt_tokens.mean': 'prompt_tokens.mean', \
'other.mean': 'other.mean'}
    """
    return {key: _ending(key, [other for other in keys if other != key]) for key in keys}


def _ending(key: str, others: Sequence[str]) -> str:
    steps = key.split(".")
    for length in range(1, len(steps)):
        ending = steps[-length:]
        if not ending[0].isdecimal() and all(o.split(".")[-length:] != ending for o in others):
            return ".".join(ending)
    return key


def milliseconds(value: float | None) -> str:
    """A latency given in ms, in the unit that suits it."""
    return "-" if value is None else show_time(value / 1e3)


def share(value: float | None) -> str:
    """A share in percent that neither rounds up to all nor down to nothing.

    >>> share(0.99996), share(1.0), share(0.5), share(None)
    ('99.99%', '100%', '50%', '-')
    """
    if value is None:
        return "-"
    if 0.99 < value < 1 or 0 < value < 0.01:
        return f"{math.floor(value * 1e4) / 1e4:.2%}"
    return f"{value:.0%}"


def counted(count: int, noun: str) -> str:
    """So many of something, in words.

    >>> counted(1, "replica"), counted(1200, "GPU")
    ('1 replica', '1,200 GPUs')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def number(value: float | None) -> str:
    """Three digits, and all of the whole part.

    >>> number(12345.6), number(1.2345), number(None)
    ('12,346', '1.23', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
