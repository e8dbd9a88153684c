"""Plans how much of a verification fits the time there is. Seconds.

Where time is short, this is dropped, in this order: first calibrations and runs become shorter, to
the least that is useful; then repeats are dropped down to one; then traces, the closed loop before
the Poisson arrivals before the burst; then disciplines, request-level batching before static before
continuous. What is dropped comes back if the machine turns out to be faster than expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sim.schedulers import ChunkedPrefill, RequestLevel, Static

CALIBRATION, RUN = 45.0, 20.0
"""Lengths of one calibration and one run when there is time enough."""

TRACES_DROPPED = ("closed", "poisson", "burst")
BATCHINGS_DROPPED = (RequestLevel.name, Static.name, ChunkedPrefill.name)
"""In the order in which they are dropped; the last stays. A closed loop shows least that a burst
does not, and request-level batching is what fewest engines do."""

RESERVE = 0.05
"""Share of the time that is not planned with: a shared machine is slower for a while."""

AIM = 0.8
"""Share of the time left that calibrations and runs are made longer for; the shortest that are
useful may take all of it. What is not needed after all goes to later ones."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What this machine takes: the shortest useful calibration, what comes with each calibration
    (fits, host terms, anchors), and by trace the shortest run."""

    calibration: float
    around: float
    runs: Mapping[str, float]


EXPECTED = Costs(9.0, 8.0, {"burst": 6.0, "closed": 6.0, "poisson": 12.0})
"""The default model on two cores of a Xeon, until this machine has shown what it takes."""


def slower(costs: Costs, times: float) -> Costs:
    """The costs of a machine that takes this many ``times`` as long."""
    runs = {name: times * seconds for name, seconds in costs.runs.items()}
    return Costs(times * costs.calibration, times * costs.around, runs)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: everything in ``total`` seconds, infinite where only the rest counts.

    ``calibration`` and ``run`` are lengths that were given; None where they follow from ``total``.
    """

    total: float
    traces: Sequence[str]
    batchings: Sequence[str]
    repeats: int
    calibration: float | None = None
    run: float | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """What is left to do: ``traces`` under ``batchings``, ``repeats`` runs of each, with these
    lengths of a calibration and of the runs of each trace, which take ``seconds`` in all."""

    traces: tuple[str, ...]
    batchings: tuple[str, ...]
    repeats: int
    calibration: float = 0.0
    runs: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Begun:
    """How far the first of the traces left has come: calibrations and runs made. Its ``batchings``
    and the length of a ``run`` are fixed before the first run. ``finished`` is the number of traces
    before it."""

    calibrations: int = 0
    runs: int = 0
    batchings: tuple[str, ...] = ()
    run: float | None = None
    finished: int = 0


def fit(left: float, wish: Wish, costs: Costs, begun: Begun | None = None) -> Version:
    """The first version, in the order in which things are dropped, that fits in ``left`` seconds,
    with calibrations and runs as long as they may be; the smallest if none fits.

    >>> day = Wish(600.0, ("burst",), ("static", "continuous"), 3)
    >>> [fit(left, day, EXPECTED).repeats for left in (600.0, 110.0, 90.0, 1.0)]
    [3, 3, 2, 1]
    """
    begun = begun or Begun()
    found = [_sized(version, left, wish, costs, begun) for version in versions(wish, begun)]
    return next((version for version, fits in found if fits), found[-1][0])


def least_total(wish: Wish, costs: Costs) -> float:
    """Seconds of the smallest version there is, from the beginning."""
    return fit(0.0, wish, costs).seconds / (1 - RESERVE)


def usable(total: float) -> float:
    """The part of ``total`` that is planned with."""
    return (1 - RESERVE) * total


def versions(wish: Wish, begun: Begun) -> Iterator[Version]:
    """Everything, and then less and less, without the lengths.

    >>> two = Wish(60.0, ("burst", "closed"), ("static", "continuous"), 2)
    >>> for one in versions(two, Begun()):
    ...     print(one.repeats, *one.traces, *one.batchings)
    2 burst closed static continuous
    1 burst closed static continuous
    1 burst static continuous
    1 burst continuous
    """
    traces, batchings = tuple(wish.traces), begun.batchings or tuple(wish.batchings)
    for repeats in range(wish.repeats, 0, -1):
        yield Version(traces, batchings, repeats)
    begun_trace = traces[:1] if begun.calibrations else ()
    for name in TRACES_DROPPED:
        last = len(traces) == 1 and not begun.finished
        if name in traces and name not in begun_trace and not last:
            traces = tuple(other for other in traces if other != name)
            yield Version(traces, batchings, 1)
    for name in BATCHINGS_DROPPED[:-1]:
        if name in batchings and len(batchings) > 1 and not begun.batchings:
            batchings = tuple(other for other in batchings if other != name)
            yield Version(traces, batchings, 1)


def _sized(
    version: Version, left: float, wish: Wish, costs: Costs, begun: Begun
) -> tuple[Version, bool]:
    """The version with calibrations and runs as long as they may be within ``left``, and whether it
    fits with the shortest ones."""
    least, most = (_lengths(version, wish, costs, begun, end) for end in (0, 1))
    short, long = (_seconds(version, lengths, costs, begun) for lengths in (least, most))
    aim = AIM * left
    share = 1.0 if long <= aim else 0.0 if short >= aim else (aim - short) / (long - short)
    calibration = least[0] + share * (most[0] - least[0])
    runs = {name: low + share * (most[1][name] - low) for name, low in least[1].items()}
    seconds = _seconds(version, (calibration, runs), costs, begun)
    sized = replace(version, calibration=calibration, runs=runs, seconds=seconds)
    return sized, short <= left


def _lengths(
    version: Version, wish: Wish, costs: Costs, begun: Begun, end: int
) -> tuple[float, dict[str, float]]:
    """The shortest (``end`` 0) or longest (1) calibration, and run of each trace."""
    calibration = (costs.calibration, max(costs.calibration, wish.calibration or CALIBRATION))
    if wish.calibration is not None:
        calibration = (calibration[1], calibration[1])
    runs = {}
    for number, name in enumerate(version.traces):
        shortest, longest = costs.runs[name], max(costs.runs[name], wish.run or RUN)
        fixed = begun.run if number == 0 and begun.run is not None else None
        if fixed is None and wish.run is not None:
            fixed = longest
        runs[name] = (shortest, longest)[end] if fixed is None else fixed
    return calibration[end], runs


def _seconds(
    version: Version, lengths: tuple[float, Mapping[str, float]], costs: Costs, begun: Begun
) -> float:
    """What is left to do: all of it less what the first trace has behind it."""
    calibration, runs = lengths
    one, kinds = calibration + costs.around, len(version.batchings)
    made = math.ceil(begun.runs / kinds)
    total = -begun.calibrations * one
    for number, name in enumerate(version.traces):
        repeats = version.repeats if number else max(version.repeats, made)
        total += (repeats + 1) * one + repeats * kinds * runs[name]
    return total - begun.runs * runs[version.traces[0]] if version.traces else 0.0
