"""Sets metrics side by side in columns: differences to the first, the best of each metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.catalog.spreads import PARTS
from sim.metrics.bands.ratio_bands import Bands, alike_in, error_of, place_of, ratio_band
from sim.metrics.bands.trust import trust
from sim.metrics.latency.intervals import Z95
from sim.planning.contrast.paired import Difference, difference
from sim.planning.points.figures import (
    ARRIVING,
    COMING,
    HELD,
    OF_FLEETS,
    PointFigure,
    best_of,
    figures_at,
    own_figures,
)

Values = Mapping[str, Sequence[float | None]]
"""A figure's key -> its value in each repetition."""

Contrast = Callable[[str, int, int], Difference]
"""The difference of a figure between the variant of one number and that of another."""


@dataclass(frozen=True)
class ContrastColumn:
    """One side of the comparison: its figures, repetition by repetition, or why there are none;
    ``bands`` are those of one of its runs (``infersim.bands``)."""

    label: str
    settings: dict[str, object]
    values: Values
    error: str | None
    exit_code: int
    states: tuple[str, ...]
    bands: Bands | None = None
    slo: tuple[str | None, ...] = ()
    """Whether each repetition met its SLO, as its verdict has it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the variant (``facts_of``)."""

    def mean(self, key: str) -> float | None:
        """The mean of a figure over the repetitions in which it is defined."""
        known = [value for value in self.values.get(key, ()) if value is not None]
        return math.fsum(known) / len(known) if known else None


def contrasts(
    columns: Sequence[ContrastColumn],
    contrast: Contrast | None = None,
    slo: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The variants and figures of a comparison as plain data.

    ``contrast`` says how two of them differ, by default by the pairs of their repetitions; ``slo``
    has the key of each latency at the percentile that the SLO judges (``latencies``). The base
    is the first variant with figures. Best of a figure are the variant with the best mean
    (``first``) and those that are not distinguishable from it; none if that is all of them.
    ``to_first`` has what ``differences`` has, against ``first``: the difference, and how far it
    can be trusted (``trusted``). ``errors`` of a variant are the parts of its bands that put the
    base off alike, and those that do not.
    """
    differ, slo = contrast or _by_repetition(columns), slo or {}

    def apart(key: str, one: int, other: int) -> dict[str, Any]:
        found = differ(key, one, other)
        return found.document() | trusted(key, found, columns[one].bands, columns[other].bands)

    served = [index for index, column in enumerate(columns) if column.error is None]
    base = served[0] if served else None
    figures = []
    for figure in _figures(columns, slo):
        means = [column.mean(figure.key) for column in columns]
        if base is None or all(mean is None for mean in means):
            continue
        against = [
            None if index == base or index not in served else apart(figure.key, index, base)
            for index in range(len(columns))
        ]
        first = best_of(means, figure.better)
        behind = [
            None
            if first is None or index == first or means[index] is None
            else apart(figure.key, index, first)
            for index in range(len(columns))
        ]
        figures.append(
            {
                **figure._asdict(),
                "means": means,
                "first": first,
                "best": _best(first, means, behind),
                "differences": against,
                "to_first": behind,
            }
        )
    bands = None if base is None else columns[base].bands
    variants = [
        _variant(column, slo) | {"errors": errors(column.bands, bands)} for column in columns
    ]
    return {"base": base, "variants": variants, "figures": figures, "latencies": dict(slo)}


def _figures(columns: Sequence[ContrastColumn], slo: Mapping[str, str]) -> list[PointFigure]:
    """The compared figures: the usual metrics, rates while requests come where all have them,
    replicas held, dollars and energy where those or their scaling differ, and the user's own."""
    scaled = any(key.startswith("autoscaling") for column in columns for key in column.settings)
    differ = len({column.mean(HELD.key) for column in columns}) > 1
    served = [column for column in columns if column.error is None]
    coming = {
        each.key.removeprefix(COMING): each
        for each in ARRIVING
        if served and all(column.mean(each.key) is not None for column in served)
    }
    usual = []
    for figure in figures_at(slo):
        if figure.key in coming:
            whole = figure._replace(title=f"{figure.title} over the whole run")
            usual += [coming[figure.key], whole]
        else:
            usual.append(figure)
    return [
        *usual,
        *(OF_FLEETS if scaled or differ else []),
        *own_figures(key for column in columns for key in column.values),
    ]


def _by_repetition(columns: Sequence[ContrastColumn]) -> Contrast:
    def apart(key: str, one: int, other: int) -> Difference:
        mine, theirs = columns[one].values.get(key, ()), columns[other].values.get(key, ())
        none = [None] * max(len(mine), len(theirs))  # of a metric that one of them lacks
        return difference(list(mine) or none, list(theirs) or none)

    return apart


def _best(
    first: int | None, means: Sequence[float | None], behind: Sequence[dict[str, Any] | None]
) -> list[int]:
    """The variant with the best mean, and those that are not distinguishable from it."""
    known = [index for index, mean in enumerate(means) if mean is not None]
    good = [
        index
        for index, apart in enumerate(behind)
        if index == first or (apart is not None and not apart["certain"])
    ]
    return [] if len(good) == len(known) > 1 else good


def _variant(column: ContrastColumn, latencies: Mapping[str, str]) -> dict[str, Any]:
    states, slo = Counter(column.states), Counter(column.slo)
    return {
        "label": column.label,
        "settings": column.settings,
        "error": column.error,
        "exit_code": column.exit_code,
        "state": states.most_common(1)[0][0] if states else None,
        "states": dict(states),
        "slo": slo.most_common(1)[0][0] if slo else None,
        **column.facts,
        "values": {
            figure.key: list(column.values[figure.key])
            for figure in _figures([column], latencies)
            if figure.key in column.values
        },
    }


NO_TRUST: dict[str, Any] = {"band50": None, "band90": None, "parts": {}, "trust": None}
"""Of a difference of which nothing is known but itself."""


def trusted(key: str, apart: Difference, mine: Bands | None, base: Bands | None) -> dict[str, Any]:
    """Trust in the ratio of ``key`` between a variant and the base, which have these bands:
    ``band50`` and ``band90`` of the ratio that measurements would find ([low, high]; high is None
    where the slower end is overloaded), what each part comes to alone at 90 % (``parts``), and
    ``trust``, how sure it is which of both is larger; all None where that is not known."""
    one, other = (error_of(each, key.removeprefix(COMING)) for each in (mine, base))
    relative = apart.relative
    if one is None or other is None or not relative or relative <= -1:
        return NO_TRUST
    ratio, half = 1 + relative, apart.relative_half_width or 0.0
    chance = math.log1p(half / ratio) / Z95
    found = ratio_band(ratio, one, other, chance)
    return {
        "band50": list(found.band50),
        "band90": list(found.band90),
        "parts": dict(found.parts),
        "trust": trust(
            decided=apart.certain, at_band=_excludes(found.band90), at_half=_excludes(found.band50)
        ),
    }


def _excludes(band: tuple[float, float | None]) -> bool:
    """Whether both variants cannot be equal."""
    low, high = band
    return low > 1 or (high is not None and high < 1)


def errors(mine: Bands | None, base: Bands | None) -> dict[str, list[str]] | None:
    """Parts of the bands in which a variant errs as the base does (``shared``), and the others
    (``own``); None where that is not known."""
    if not mine or not base or "place" not in mine or "place" not in base:
        return None
    alike = alike_in(place_of(mine), place_of(base))
    return {"shared": alike, "own": [part for part in PARTS if part not in alike]}
