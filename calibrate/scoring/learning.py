"""Learns how far figures lie from their predictions, from rows whose predictions are known.

Errors (logarithms of measured over predicted) are summed up by place and kind of figure, as
``sim.catalog.spreads`` explains. The sizes of what errors have in common are those that make the
medians of the rows likeliest. Errors have longer tails than a normal law, so that the number of
spreads to which bands reach is not taken from one: it is the quantile of errors that were left out
in three ways, layout by layout, release by release of deployments with several, and deployment by
deployment. Figures of a deployment count as the root of their number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from calibrate.scoring.predict import Scored
from sim.catalog.spreads import (
    GROUPS,
    NORMAL,
    PARTS,
    SOURCES,
    UNSTATED,
    ComparedFigures,
    Deployed,
    Floats,
    Learnt,
    Multiples,
    UsualError,
    covariance,
    manner,
    noise,
    release_of,
    scaled_errors,
)

LEAST = 0.01
"""The least distance of figures of a place from each other: some have one figure alone."""

USUAL = 10
"""Figures as many as which the usual distance within a kind counts in that of a place."""

FEW = 5
"""Figures from which on a place counts fully in what is learnt of a kind."""

EIGHTY = 1.2816
"""Standard deviations within which eight tenths of a normal law lie."""

START = 0.5
"""The size of each part before any row is seen, in units of what is within; a factor of e more or
less is usual."""


class Figure(NamedTuple):
    """A published figure: its ``error``, and what it is learnt as."""

    error: float
    place: Deployed
    kind: str
    layout: tuple[str, ...]

    @property
    def group(self) -> str:
        """The group of its quantity (``GROUPS``)."""
        return GROUPS[self.kind.partition(", ")[0]]


def figures(rows: Iterable[Scored]) -> list[Figure]:
    """The figures of ``rows`` that can be learnt from."""
    return [
        Figure(
            float(np.log(row.measured / row.predicted)),
            row.at.place._replace(release=release_of(row.layout[0] or UNSTATED)),
            row.kind,
            row.layout,
        )
        for row in rows
        if row.at is not None and row.measured and row.predicted
    ]


def learn(known: Sequence[Figure]) -> Learnt:
    """What the figures show."""
    first = _learnt(list(map(_summed_up, _by_key(known).values())), None)
    return _with_multiples(first, known)


def _by_key(known: Iterable[Figure]) -> dict[tuple[Deployed, str], list[Figure]]:
    return _grouped(known, lambda each: (each.place, each.kind))


def _summed_up(figures: Sequence[Figure]) -> ComparedFigures:
    """The figures of one place and kind, which lie as far apart as they do."""
    errors = np.array([each.error for each in figures])
    centre = float(np.median(errors))
    apart = float(np.quantile(np.abs(errors - centre), 0.8)) / EIGHTY
    layouts = len({each.layout for each in figures})
    first = figures[0]
    return ComparedFigures(
        first.place, first.kind, len(figures), layouts, centre, max(apart, LEAST)
    )


def _learnt(
    own: Sequence[ComparedFigures], common: Mapping[str, float] | None, origin: str = ""
) -> Learnt:
    """What figures show by a normal law, each place and kind by its ``own`` alone at first;
    ``common`` are the sizes of the parts, None to learn them."""
    kinds = _kinds(own)
    rows = tuple(
        row._replace(within=_pooled(row.figures, row.within, USUAL, kinds[row.kind].within))
        for row in own
    )
    sizes = common or _sizes(rows, kinds)
    return Learnt(origin, kinds, sizes, dict.fromkeys(GROUPS, NORMAL), 0.0, rows)


def _kinds(rows: Sequence[ComparedFigures]) -> dict[str, UsualError]:
    """The usual error of each group, the median over places, and for each kind how far figures of a
    place lie apart, held near that of its group."""
    found: dict[str, UsualError] = {}
    groups = _grouped(rows, lambda row: GROUPS[row.kind.partition(", ")[0]])
    for group, members in groups.items():
        found[group] = usual = _usual(members)
        for name, of in _grouped(members, lambda row: row.kind).items():
            within = _pooled(_weights(of).sum(), _usual(of).within, SOURCES, usual.within)
            found[name] = UsualError(usual.centre, within)
    return found


def _usual(rows: Sequence[ComparedFigures]) -> UsualError:
    weight = _weights(rows)
    centre = _quantile(np.array([row.centre for row in rows]), weight, 0.5)
    within = np.exp(np.average(np.log([row.within for row in rows]), weights=weight**2))
    return UsualError(centre, float(within))


def _weights(rows: Sequence[ComparedFigures]) -> Floats:
    return np.array([min(row.figures, FEW) / FEW for row in rows])


def _pooled(count: float, own: float, more: float, usual: float) -> float:
    """The mean of two distances, in their logarithms."""
    return float(np.exp((count * np.log(own) + more * np.log(usual)) / (count + more)))


def _sizes(rows: Sequence[ComparedFigures], kinds: Mapping[str, UsualError]) -> dict[str, float]:
    """The sizes of the parts that make the medians of the rows likeliest."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import

    groups = list(_grouped(rows, lambda row: GROUPS[row.kind.partition(", ")[0]]).values())
    of_parts = np.eye(len(PARTS))
    known = [
        (
            [covariance(of, of_parts[part]) for part in range(len(PARTS))],
            np.diag(noise(of, kinds)),
            scaled_errors(of, kinds),
        )
        for of in groups
    ]

    def badness(logarithms: Floats) -> float:
        squares = np.exp(2 * logarithms)
        found = ((logarithms - np.log(START)) ** 2).sum() / 2
        for alike, own, errors in known:
            matrix = own + sum(size * each for size, each in zip(squares, alike, strict=True))
            lower = np.linalg.cholesky(matrix)
            found += (np.linalg.solve(lower, errors) ** 2).sum() / 2
            found += np.log(np.diag(lower)).sum()
        return float(found)

    start = np.full(len(PARTS), np.log(START))
    sizes = np.exp(minimize(badness, start, method="L-BFGS-B").x)
    return {part: _digits(size) for part, size in zip(PARTS, sizes, strict=True)}


def _with_multiples(first: Learnt, known: Sequence[Figure]) -> Learnt:
    """``first`` with the numbers of spreads that hold half and nine tenths of what is left out."""
    releases = left_out(known, lambda each: each.place, first.common)
    releases[[group is None for group in _releases(known)]] = np.nan
    layouts = left_out(known, lambda each: (each.place, each.layout), first.common)
    deployments = left_out(known, lambda each: each.place.deployment, first.common)
    errors = np.concatenate([layouts, releases, deployments])
    ready = replace(first, multiples=_multiples([*known, *known, *known], errors))
    return replace(ready, shared=_shared(ready, known))


def left_out(
    known: Sequence[Figure],
    key: Callable[[Figure], Hashable],
    common: Mapping[str, float],
) -> Floats:
    """The error of each figure beyond what is expected of it, in expected spreads, where all
    figures with the same ``key`` were left out when that was learnt; NaN where none was left."""
    found = np.full(len(known), np.nan)
    by = _by_key(known)
    rows = {which: _summed_up(of) for which, of in by.items()}
    for members in _grouped(range(len(known)), lambda index: key(known[index])).values():
        its = key(known[members[0]])
        rest = dict(rows)
        for which in _by_key(known[index] for index in members):
            del rest[which]
            if left := [each for each in by[which] if key(each) != its]:
                rest[which] = _summed_up(left)
        without = _learnt(list(rest.values()), common)
        for index in members if rest else ():
            each = known[index]
            expected = without.expected(each.place, each.kind)
            found[index] = (each.error - expected.centre) / expected.spread
    return found


def _multiples(known: Sequence[Figure], errors: Floats) -> dict[str, Multiples]:
    """The multiples of each group, and of each manner in which requests come, held near those of
    its group."""
    weights, sizes = weights_of(known), np.abs(errors)
    judged = np.flatnonzero(~np.isnan(sizes)).tolist()

    def held(members: Sequence[int], usual: Multiples | None) -> Multiples:
        deployments = len({known[index].place.deployment for index in members})
        own = (_quantile(sizes[members], weights[members], share) for share in (0.5, 0.9))
        found = Multiples(*own)
        both = zip(found, usual or found, strict=True)
        return Multiples(*(_digits(_pooled(deployments, x, MANY, y)) for x, y in both))

    found = dict.fromkeys(GROUPS.values(), NORMAL)
    for group, members in _grouped(judged, lambda index: known[index].group).items():
        found[group] = held(members, None)
        for name, of in _grouped(members, lambda index: manner(known[index].kind)).items():
            found[name] = held(of, found[group])
    return found


MANY = 8
"""Deployments as many as which what is usual counts in the multiples of others: nine tenths of
fewer are all of them but at most one."""


def weights_of(known: Sequence[Figure]) -> Floats:
    """The weight of each figure: those of a deployment and group count as the root of their number,
    halfway between one vote for each deployment and one for each figure."""
    keys = [(each.place.deployment, each.group) for each in known]
    counts = Counter(keys)
    return np.array([counts[key] ** -0.5 for key in keys])


def pairs(known: Sequence[Figure]) -> list[tuple[int, int]]:
    """Figures of one place and kind in other layouts or at other loads, to be compared: each with
    the next one, and with the one half of the group further on."""
    found = []
    for members in _grouped(range(len(known)), lambda i: (known[i].place, known[i].kind)).values():
        for step in {1, len(members) // 2} - {0}:
            found += list(zip(members[:-step], members[step:], strict=True))
    return found


SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""How far errors within a place may be shared by two figures, tried in this order."""


def _shared(ready: Learnt, known: Sequence[Figure]) -> float:
    """The most that errors within a place may be shared at which nine of ten ratios of two figures
    lie in their 90 % band."""
    weights = weights_of(known)
    apart, reach, counts = [], [], []
    for one, other in pairs(known):
        mine, theirs = known[one], known[other]
        expected = ready.expected(mine.place, mine.kind)
        apart.append(abs(mine.error - theirs.error))
        reach.append(expected.multiples.ninety * expected.within * 2**0.5)
        counts.append(weights[one])
    size, wide, count = map(np.array, (apart, reach, counts))
    for share in SHARES:
        if count @ (size <= wide * (1 - share) ** 0.5) >= 0.9 * count.sum():
            return share
    return SHARES[-1]


class LeftOutCoverage(NamedTuple):
    """Of ``figures`` of a ``quantity``, all with the same ``left_out`` (engine, GPU, ...) judged by
    what was learnt without them: the shares in the 50 % and the 90 % band (in %), and half of the
    median width of the latter (in % of the prediction)."""

    left_out: str
    quantity: str
    figures: int
    covered50: float
    covered90: float
    half_width90: float


Groups = Sequence[Hashable]
"""The group of each figure that is left out together with it; None for figures that never are."""


def _by(key: Callable[[Figure], Hashable]) -> Callable[[Sequence[Figure]], Groups]:
    return lambda known: [key(each) for each in known]


def _releases(known: Sequence[Figure]) -> Groups:
    """Each release of a deployment of which several were measured is a group."""
    of = Counter(place.deployment for place in {each.place for each in known})
    return [each.place if of[each.place.deployment] > 1 else None for each in known]


def newest(known: Sequence[Figure]) -> Groups:
    """The newest releases of each engine, with a quarter of its figures or more, are one group:
    older ones say what is expected of newer ones."""
    found: list[Hashable] = [None] * len(known)
    for members in _grouped(range(len(known)), lambda index: known[index].place.engine).values():
        releases = {known[index].layout[0] for index in members}
        left = len(members) / NEWEST
        for release in sorted(releases, key=_numbers, reverse=True)[:-1]:
            of_it = [index for index in members if known[index].layout[0] == release]
            for index in of_it:
                found[index] = "newest"
            left -= len(of_it)
            if left <= 0:
                break
    return found


NEWEST = 4
"""One of so many figures of an engine is of its newest releases."""


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


LEFT_OUT: Mapping[str, Callable[[Sequence[Figure]], Groups]] = {
    "layouts of a deployment": _by(lambda each: (each.place, each.layout)),
    "releases of a deployment": _releases,
    "deployments": _by(lambda each: each.place.deployment),
    "GPUs": _by(lambda each: each.place.gpu),
    "engines": _by(lambda each: each.place.engine),
    "model families": _by(lambda each: each.place.family),
    "newest releases": newest,
}
"""What is left out in turn."""

NEAR = ("layouts of a deployment", "releases of a deployment", "deployments")
"""What is left out so often that the numbers of spreads are those of all: they were learnt from the
same figures left out in the same way."""


def coverages(known: Sequence[Figure]) -> list[LeftOutCoverage]:
    """How far bands hold what was left out, by quantity. Everything is learnt without it, the
    number of spreads too; figures of a quantity that nothing is left of are not judged."""
    found = []
    every = learn(known)
    for name, groups_of in LEFT_OUT.items():
        groups, judged = groups_of(known), []
        for group in dict.fromkeys(group for group in groups if group is not None):
            rest = [each for each, its in zip(known, groups, strict=True) if its != group]
            multiples = learn(rest) if rest and name not in NEAR else every
            own = _learnt(list(map(_summed_up, _by_key(rest).values())), multiples.common)
            for each, its in zip(known, groups, strict=True):
                if its == group and each.group in own.kinds:
                    judged.append(_judged(each, own, multiples))
        found += list(_held(name, judged))
    return found


class JudgedFigure(NamedTuple):
    """A figure, the ends of its 90 % band and half of the width of its 50 % band."""

    figure: Figure
    low: float
    high: float
    half: float


def _judged(figure: Figure, own: Learnt, judging: Learnt) -> JudgedFigure:
    expected = own.expected(figure.place, figure.kind)
    reach = judging.multiples_of(figure.kind)
    width = reach.ninety * expected.spread
    low, high = expected.centre - width, expected.centre + width
    return JudgedFigure(figure, low, high, reach.half * expected.spread)


def _held(name: str, judged: Sequence[JudgedFigure]) -> Iterable[LeftOutCoverage]:
    groups = _grouped(judged, lambda each: each.figure.group)
    for quantity, members in ({"all": list(judged)} | groups if judged else {}).items():
        errors, low, high, half = (
            np.array(column)
            for column in (
                [each.figure.error for each in members],
                [each.low for each in members],
                [each.high for each in members],
                [each.half for each in members],
            )
        )
        inside = (low <= errors) & (errors <= high)
        middle = np.abs(errors - (low + high) / 2) <= half
        yield LeftOutCoverage(
            name,
            quantity,
            len(members),
            100 * float(middle.mean()),
            100 * float(inside.mean()),
            float(np.median(50 * (np.exp(np.minimum(high, 30)) - np.exp(low)))),
        )


Item = TypeVar("Item")
Name = TypeVar("Name", bound=Hashable)


def _grouped(items: Iterable[Item], key: Callable[[Item], Name]) -> dict[Name, list[Item]]:
    found: dict[Name, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _quantile(values: Floats, counts: Floats, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(counts[order])
    at = min(int(np.searchsorted(reached, share * reached[-1])), len(values) - 1)
    return float(values[order][at])


def _digits(value: float) -> float:
    return float(f"{value:.3g}")
