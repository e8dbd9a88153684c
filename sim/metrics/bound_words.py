"""Names what the busy time is spent waiting for, as pages and the terminal say it."""

from __future__ import annotations

_TITLES = {"latency": "launch overhead"}


def bound_name(bound: str) -> str:
    """``bound``, a key of ``infersim.bound_by`` of a summary, in words.

    >>> bound_name("latency"), bound_name("memory")
    ('launch overhead', 'memory')
    """
    return _TITLES.get(bound, bound)
