"""Decides whether a run is long enough to show what its traffic does to the fleet.

A run begins with an empty fleet, and batches that fill up swallow an overload for a while. So the
requests of a short run are served faster than those that come later: a bias, not chance, which no
interval of the run shows. It matters where the traffic may be as much as the capacity, or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sim.metrics.precision import rounded_up

if TYPE_CHECKING:
    from sim.metrics.peak import Peak
    from sim.metrics.stability import Load
    from sim.scenario.arrivals import Arrivals

DOUBT = 0.02
"""What the utilisation may be off without any chance. Estimates over 5,000 requests to queues whose
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

WHOLE = 0.9
"""Share of a day from which on it counts as whole: so many requests as come in a day on average may
come in a little less."""

LOAD, LENGTH, CHANCE, BAND = "load", "length", "chance", "band"
"""What leaves open whether an SLO is met: more arrives than full batches serve; a run too short to
tell whether it does; the interval of the share; the error band of the predicted times."""


def too_much(load: Load) -> bool:
    """Whether more than the capacity arrives, beyond doubt."""
    return load.utilisation - 1 > DOUBT + SURE * load.error


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


def too_short(load: Load) -> bool:
    """Whether the capacity, or more, may arrive without the run being long enough to show it."""
    return may_be_too_much(load) and len(load.arrived) < enough_requests(load) / SPARE


def doubt(load: Load, top: Peak | None, law: Arrivals | None) -> str | None:
    """What leaves open whether an SLO that the run met would be met by a longer one: ``LOAD``,
    ``LENGTH`` or None."""
    if too_much(load):
        return LOAD
    if too_short(load) or _before_its_peak(load, top, law):
        return LENGTH
    return None


def enough_of_all(load: Load, law: Arrivals | None) -> int | None:
    """Requests with which a longer run would settle a ``doubt``; None for a trace, which has no
    more of its own kind."""
    if law is None:
        return None
    enough = enough_requests(load)
    if law.kind == "diurnal":
        return max(enough, rounded_up(load.offered * law.period))
    return enough


def _generous(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 and so on."""
    unit = int(10.0 ** math.floor(math.log10(max(1.0, number))))
    return next(unit * step for step in (1, 2, 5, 10) if unit * step >= number)


def doubts_at_ends(verdict: Mapping[str, Any], ends: Mapping[str, Any]) -> dict[str, Any]:
    """What leaves an SLO open that both ends of the error band (``sim.ends``) do not decide: the
    band, or a slower end that met it so far in a run too short to tell."""
    slow, doubts = ends["slower"]["verdict"], verdict["slo_doubts"]
    if slow["slo_met"] and LENGTH in slow["slo_doubts"]:
        wanted = {"requests_to_decide": slow["requests_to_decide"]}
        return {"slo_doubts": list(dict.fromkeys([LENGTH, *doubts])), **wanted}
    return {"slo_doubts": [*doubts, BAND]}


def _before_its_peak(load: Load, top: Peak | None, law: Arrivals | None) -> bool:
    """Whether the run ends before a whole day whose peak may be too much."""
    if law is None or law.kind != "diurnal" or top is None:
        return False
    least = top.utilisation * (1 + SURE * load.error / load.utilisation)
    return least >= 1 and float(load.arrived[-1]) < WHOLE * law.period
