"""Thins out a long series without changing how it looks when drawn.

A screen has about a thousand columns. Of all points that fall into one column only the first, the
lowest, the highest and the last can be seen, so only those are drawn: no spike is ever lost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


def extremes(x: Floats, y: Floats, buckets: int) -> Indices:
    """Indices, ascending, of the points of ``(x, y)`` that stand for all of them.

    ``x`` is non-decreasing. It is cut into ``buckets`` (at least one) equal widths, and each keeps
    its first, lowest, highest and last point, so at most ``4 * buckets`` points remain. Points
    with a NaN or infinite coordinate are dropped. Shorter series keep every finite point.

    >>> extremes(np.arange(8.0), np.array([0.0, 9, 0, 0, 0, 0, -9, 0]), 1).tolist()
    [0, 1, 6, 7]
    """
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if finite.size <= 4 * buckets:
        return finite
    x, y = x[finite], y[finite]
    width = (x[-1] - x[0]) / buckets
    if width <= 0:
        bucket = np.zeros(x.size, dtype=np.intp)
    else:
        bucket = np.minimum(((x - x[0]) / width).astype(np.intp), buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], x.size) - 1
    by_value = np.lexsort((y, bucket))  # the buckets stay in place, each sorted by y
    kept = np.unique(np.concatenate([starts, by_value[starts], by_value[ends], ends]))
    drawn: Indices = finite[kept]
    return drawn


def ranks(count: int, limit: int) -> Indices:
    """About ``limit`` of the ranks ``0 .. count-1`` of a sorted sample, ascending, for drawing it.

    Half of them are spread evenly; the other half crowds towards the top, where tail latencies
    lie, so that the last thousandth is as smooth as the middle. The lowest and the highest stay.

    >>> ranks(5, 100).tolist()
    [0, 1, 2, 3, 4]
    """
    if count <= limit:
        return np.arange(count, dtype=np.intp)
    even = np.linspace(0, count - 1, limit // 2)
    tail = count - np.geomspace(1, count, limit // 2)
    return np.unique(np.concatenate([even, tail]).round().astype(np.intp))
