"""Provides 95 % intervals of percentiles and shares of requests that depend on each other.

The interval of a percentile is one between two of the values, whatever their distribution: the
number of values above the true p99 is binomial. But neighbouring requests share a queue, so that n
of them say less than n independent ones would: batch means of the indicator "above p99" say how
much (Law and Kelton, Simulation Modeling and Analysis, 9.5.3). Near saturation batches are as long
as the fleet's memory, so that they are few, and their variance is uncertain too: Student's t.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARE = 0.99
TAIL = 0.025
"""Chance that the truth lies beyond one end of a 95 % interval."""

Z95 = NormalDist().inv_cdf(1 - TAIL)

POWER = 0.9
"""Chance with which that many requests as are said to decide are meant to decide."""

MOST_TIMES = 1e3
"""More than that many times the trials are never needed: 244 times where a share is the target."""

BATCHES = 30
FEW = 5
"""Batches that there are at least, however long the memory: fewer say nothing of their variance."""

MANY = 20
"""Batches as long as the fleet's memory from which on a percentile is bounded from above: of runs
of the chat scenario at 22 and 23 requests/s that had 5 to 10, half of the bounds on a p99 of the
TPOT were too low, since a run without a crowd does not show how late requests are in one."""


class Interval(NamedTuple):
    """A 95 % interval of the p99 of ``samples`` values that tell as much as ``effective``
    independent ones; ``low`` is None without values, ``high`` if they are too few for a bound."""

    low: float | None
    high: float | None
    samples: int
    effective: int


def percentile_interval(values: Floats, share: float, memory: float | None = None) -> Interval:
    """The interval of the latency that ``share`` of ``values`` keep, in the order in which they
    came; ``memory`` as in ``inflation``."""
    n = len(values)
    if not n:
        return Interval(None, None, 0, 0)
    above = values > np.percentile(values, 100 * share)
    effective = max(1, int(n / inflation(above, memory)))
    few, many = _exceedances(effective, share)
    scale = n / effective
    # that many values lie above each bound
    above_low = min(n, math.ceil(many * scale)) - 1
    low = float(np.partition(values, n - 1 - above_low)[n - 1 - above_low])
    if few is None or (memory is not None and n < MANY * memory):
        return Interval(low, None, n, effective)
    above_high = math.floor(few * scale) if memory is None else math.ceil((few + 1) * scale) - 1
    high = float(np.partition(values, n - 1 - above_high)[n - 1 - above_high])
    return Interval(low, high, n, effective)


def inflation(indicator: NDArray[np.bool_], memory: float | None = None) -> float:
    """By how much correlation widens the variance of the mean of ``indicator``; at least 1.

    Batch means. With a ``memory`` (``long_enough.relaxation``) batches are at least that many
    requests long, as far as there are ``FEW`` of them (of 5 to 30 batches, see Schmeiser, Batch
    Size Effects in the Analysis of Simulation Output, Operations Research 30, 1982), and the
    inflation is the one with which a normal interval is as wide as that of Student's t.
    """
    count = BATCHES
    if memory is not None:
        count = max(FEW, min(BATCHES, int(len(indicator) / max(1.0, memory))))
    size = len(indicator) // count
    share = float(indicator.mean())
    if not size or share in (0.0, 1.0):
        return 1.0
    means = indicator[: size * count].reshape(count, size).mean(axis=1)
    widened = float(means.var(ddof=1)) * size / (share * (1 - share))
    return max(1.0, widened if memory is None else widened * (student95(count - 1) / Z95) ** 2)


def student95(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches by Student's t, with 4 degrees of freedom or
    more (Abramowitz and Stegun, 26.7.5; SciPy takes longer to import than many runs take).

    >>> student95(4), student95(29)  # 2.776 and 2.045 in tables
    (2.769, 2.045)
    """
    z = Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return round(z + sum(term * (1 / freedom) ** power for power, term in enumerate(terms, 1)), 3)


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share that was seen in ``count`` independent trials (Wilson, 1927).

    >>> tuple(round(bound, 4) for bound in wilson(0.99, 1000))
    (0.9817, 0.9946)
    >>> wilson(0.5, 0)
    (0.0, 1.0)
    """
    if count <= 0:
        return 0.0, 1.0
    z2 = Z95 * Z95
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    low = max(0.0, middle - half) if share > 0 else 0.0  # not what rounding makes of it
    high = min(1.0, middle + half) if share < 1 else 1.0
    return low, high


def enough_to_decide(share: float, target: float, trials: float) -> float:
    """Independent trials with which the interval (``wilson``) will probably (``POWER``) leave
    ``target`` out, after a ``share`` seen in fewer of them; infinite where no number would do.

    >>> few = enough_to_decide(0.985, 0.99, 1000)
    >>> wilson(0.985, few)[1] < 0.99, 2000 < few < 50_000
    (True, True)
    >>> enough_to_decide(0.5, 0.5, 100) < 30_000  # the next trials will show a side
    True
    >>> enough_to_decide(0.0, 1e-200, 10) > 1e200  # as many as prove it if none is ever seen
    True
    """
    spread = target * (1 - target)
    if not spread or not trials:
        return math.inf
    apart = abs(share - target) / math.sqrt(spread / trials)
    wanted = trials * times_to_decide(apart)
    if share in (0.0, 1.0):
        wanted = max(
            wanted, Z95 * Z95 * (target / (share - target)) * ((1 - target) / (share - target))
        )
    return wanted


def times_to_decide(apart: float) -> float:
    """How many times as many trials will probably (``POWER``) leave a target out of their 95 %
    interval, after some whose mean lies ``apart`` standard errors from it.

    With r times the trials, those known among them, the mean is normal around what was seen, with
    the variance 1 - 1/r, and the interval sqrt(r) times narrower. At least 1.

    >>> times_to_decide(1.9) < times_to_decide(1.0) < times_to_decide(0.0) < 300
    True
    """
    if apart > Z95:
        return 1.0
    low, high = 0.0, math.log(MOST_TIMES)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _decided(apart, math.exp(middle)) > POWER else (middle, high)
    return math.exp(high)


def _decided(apart: float, times: float) -> float:
    """The chance that this many times the trials leave the target out, on either side."""
    spread, half = math.sqrt(1 - 1 / times), Z95 / math.sqrt(times)
    normal = NormalDist()
    return normal.cdf((apart - half) / spread) + normal.cdf((-apart - half) / spread)


def share_interval(held: NDArray[np.bool_], memory: float | None = None) -> tuple[float, float]:
    """The 95 % interval (Wilson) of the share of requests of which something ``held``.

    They are given in the order in which they came: neighbours share a queue, so that they count as
    fewer independent ones (``inflation``, as is ``memory``).

    >>> share_interval(np.ones(100, dtype=bool))[1]
    1.0
    """
    if not len(held):
        return 0.0, 1.0
    return wilson(float(held.mean()), len(held) / inflation(held, memory))


def _exceedances(n: int, share: float) -> tuple[int | None, int]:
    """How many of ``n`` independent values lie above the one that ``share`` of all stay within.

    The largest number that is too few to be likely (None: no number is) and the smallest that is
    too many: each is exceeded towards its side with a chance of at most ``TAIL``.
    """
    mean = n * (1 - share)
    top = min(n, int(mean + 12 * math.sqrt(mean) + 30))
    k = np.arange(top)
    steps = np.log((n - k) / (k + 1) * (1 - share) / share)
    logarithm = n * math.log(share) + np.concatenate([[0.0], np.cumsum(steps)])
    chance = np.cumsum(np.exp(logarithm))  # of at most that many
    few = int(np.searchsorted(chance, TAIL, side="right")) - 1
    return (None if few < 0 else few), int(np.searchsorted(chance, 1 - TAIL)) + 1


def rounded_up(number: float) -> int:
    """``number`` rounded up to two significant digits.

    >>> rounded_up(1234.5), rounded_up(7.2), rounded_up(90)
    (1300, 8, 90)
    """
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
