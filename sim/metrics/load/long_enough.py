"""Decides whether a run is long enough to show what its traffic does to the fleet.

A run begins with an empty fleet, and batches that fill up swallow an overload for a while. So the
requests of a short run are served faster than those that come later: a bias, not chance, which no
interval of the run shows. It matters where the traffic may be as much as the capacity, or more, and
a little below it, where a fleet takes long to reach its usual state, and as long to leave a crowd
behind (``relaxation``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from sim.metrics.latency.intervals import rounded_up
from sim.metrics.load.stability import Load
from sim.metrics.record.recorded import STEADY

FULL = 0.8
"""From this utilisation on saturation is near: speeds are predicted within about 15 to 20 %, so
that the real one may be 1. Midway between the 0.7 and the 0.9 of queues with known answers."""

DOUBT = 0.02
"""The utilisation's error apart from chance. Estimates over 5,000 requests to queues whose
utilisation is 0.99 or 1.1 are off by less than 0.01, on average over seeds; where memory is the
limit by 0.02 too much or 0.03 too little, and by 0.05 at lower loads."""

SURE = 2.0
"""Standard errors, in addition to ``DOUBT``, by which the utilisation must exceed 1 to be called
too much. Of 1,300 runs at 0.99, of 1,000 requests and more, one did."""

PILED_UP = 3
"""Full batches of requests that an overload must pile up to be seen: one fills the batch, one is
the queue that makes it an overload, and one is for chance."""

SPARE = 2.0
"""How many times shorter than ``enough_requests`` a run may be. The number is an estimate from a
short run, and one that was obeyed is not to be called too low."""

CROWD = 2.0
"""How much longer a crowd is felt than a small deviation. Of 12 runs of 100,000 requests of the
chat scenario at 24 to 26.5 requests/s, batch means of the share within the SLO have nine tenths of
the variance of the longest batches from two to six linear relaxation times on."""

SETTLED = 5
"""Relaxation times that a run near saturation must last. Of 276 runs of the chat scenario at 26.5
and 27 requests/s, where long runs miss the SLO, of 2,000 to 20,000 requests, it calls none met."""

ADVISED = 8
"""Relaxation times that are advised: rounded to a generous number, still more than ``SETTLED``."""


def too_much(load: Load) -> bool:
    """Whether more than the capacity of the fleet arrives, beyond doubt."""
    return load.utilisation - 1 > DOUBT + SURE * load.error


def too_much_for_one(load: Load) -> bool:
    """Whether one replica is sent more than it can serve, beyond doubt, while others are not. What
    a trace sends it is no sample."""
    one = load.uneven
    if one is None:
        return False
    return one.utilisation - 1 > DOUBT + (0.0 if load.law is None else SURE * one.error)


def may_be_too_much(load: Load) -> bool:
    """Whether the capacity, or more, may arrive."""
    return load.utilisation + SURE * load.error >= 1


def enough_requests(load: Load) -> int:
    """Requests with which an overload would be seen if there is one: those whose lengths say to
    ``DOUBT`` what arrives, and of whose surplus ``PILED_UP`` full batches pile up.

    The surplus is the least that the run leaves possible, and the number a generous one (1, 2 or 5
    with zeros), so that longer runs seldom ask for more.
    """
    surplus = max(DOUBT, load.utilisation - 1 - SURE * load.error)
    seen = PILED_UP * load.batch * (1 + surplus) / surplus
    known = len(load.arrived) * (SURE * load.error / DOUBT) ** 2
    return _generous(max(seen, known))


def grows_at_its_end(found: Load) -> bool:
    """Whether a trace ends while its queue grows, with more than batches hold."""
    return found.law is None and found.late > 1 + DOUBT and found.backlog > found.batch


def too_short(load: Load) -> bool:
    """Whether the capacity, or more, may arrive without the run being long enough to show it."""
    return may_be_too_much(load) and len(load.arrived) < enough_requests(load) / SPARE


def is_near(load: Load) -> bool:
    """Whether requests come at a steady rate that is close to the capacity, and not beyond it."""
    steady = load.law is not None and load.law.kind in STEADY
    return steady and load.utilisation >= FULL and not too_much(load)


def relaxation(load: Load) -> float:
    """Requests that come while a fleet forgets a start, or a crowd: its relaxation time.

    Sequences that are decoded together leave at the rate N / T(N), where the time T that each stays
    grows linearly with their number N. So a small deviation from the usual N decays with the time
    constant T / (1 - u) at the utilisation u; by Little's law, N / (1 - u) requests come in it. Run
    lengths that single-server queues need near saturation grow alike, as 1 / (1 - u)^2 (Whitt,
    Planning Queueing Simulations, Management Science 35, 1989). A crowd that misses the SLO takes
    ``CROWD`` times as long to go. Closer to 1 than ``DOUBT`` a utilisation is not known. Sessions
    that began at the start are there for as long as they last.
    """
    linear = load.present / max(1 - load.utilisation, DOUBT)
    return float(f"{CROWD * linear + load.remembered:.4g}")


def unsettled(load: Load) -> bool:
    """Whether a run near saturation ends before its empty start is forgotten."""
    return is_near(load) and len(load.arrived) < SETTLED * relaxation(load)


def holds_without_start(low: float, target: float, start: float) -> bool:
    """Whether at least the share ``target`` would be within the SLO even if all requests that are
    late, with the share ``low`` in time, had come after a ``start``: a share of the run.

    >>> holds_without_start(0.995, 0.99, 0.2), holds_without_start(0.992, 0.99, 0.25)
    (True, False)
    """
    return start < 1 and (1 - low) / (1 - start) <= 1 - target


def at_capacity(utilisation: float, error: float) -> bool:
    """Whether a load is so near the capacity that no length of a run tells on which side it is:
    within ``DOUBT``, by which a utilisation is off however long the run, and known so closely.

    >>> at_capacity(0.99, 0.005), at_capacity(0.99, 0.02), at_capacity(0.97, 0.005)
    (True, False, False)
    """
    return abs(1 - utilisation) <= DOUBT and SURE * error <= DOUBT


def _at_more(load: Load) -> Load:
    """The load at a utilisation larger by its standard error, as far as ``DOUBT`` below 1: a longer
    run may find that one, and is then to be as long as it needs. Requests in the fleet grow as
    1 / (1 - u) (``relaxation``)."""
    most = min(load.utilisation + load.error, 1 - DOUBT)
    if most <= load.utilisation:
        return load
    grown = (1 - load.utilisation) / (1 - most)
    return replace(load, utilisation=most, present=load.present * grown)


class ShareInTime(NamedTuple):
    """The ``share`` of requests within a limit, the ``low`` end of its interval, and its
    ``target``."""

    share: float
    low: float
    target: float


def enough_without_start(load: Load, found: ShareInTime) -> int:
    """Requests with which ``holds_without_start`` holds for a limit that is met, if its share stays
    what it is and the interval narrows with the square root of the length; 0 where no interval is
    narrow enough."""
    first, start = len(load.arrived), relaxation(load)
    if found.share <= found.target:
        return 0
    needed = float(max(first, math.ceil(start) + 1))
    while not holds_without_start(
        found.share - (found.share - found.low) * math.sqrt(first / needed),
        found.target,
        start / needed,
    ):
        needed *= 2
    return _generous(needed)


def enough_of_all(load: Load) -> int | None:
    """Requests with which a longer run would settle a ``doubt``; None for a trace, which has no
    more of its own kind."""
    law = load.law
    if law is None:
        return None
    enough = enough_requests(load)
    if is_near(load) and not too_short(load):
        enough = _generous(ADVISED * relaxation(_at_more(load)) / math.sqrt(2))
    if enough < SPARE * len(load.arrived):
        enough = _generous(SPARE * len(load.arrived))
    if law.kind == "diurnal":
        return max(enough, rounded_up(load.offered * law.period))
    return enough


def _generous(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 and so on."""
    unit = int(10.0 ** math.floor(math.log10(max(1.0, number))))
    return next(unit * step for step in (1, 2, 5, 10) if unit * step >= number)
