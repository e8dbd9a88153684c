"""Counts the work of a piece of Python: the same on a busy machine as on an idle one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls(job: Callable[[], object]) -> int:
    """How many functions ``job`` calls, written in Python or in C, those of libraries included.

    What handles a million rows at once calls as many as what handles a thousand.

    >>> calls(lambda: [abs(number) for number in range(1000)]) > 1000
    True
    """
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(before)
    return counted
