"""Learns how far each cause puts predictions off, from rows whose causes are known.

The logarithm of measured over predicted is taken to have the spread that
``sim.metrics.bands.bands`` gives, with tails as heavy as Student's t with ``FREEDOM`` degrees of
freedom. Spreads are those that make the errors likeliest, held near what was known before
(``BEFORE``): causes that no measurement shows keep that. Rows of a source err together, so that a
hundred of them count as a few. Everything is done again without each source, by which that source
is judged.

On top, errors in some settings (a quantity, of models with experts or without, rates of models with
many, first tokens by what is known of clients, token times of workers apart) are larger or smaller
as a whole. Finer settings (engines, GPUs) were tried: with some fifty sources they make bands
wider, or let more sources fall out of them. So does any set of rows smaller than a quantity for
which bands are made to hold nine of ten. Other tails than ``FREEDOM`` change nothing: how wide
bands are follows from errors.

What two rows of a source share cancels in their ratio. How far their errors are correlated
(``Spreads.shared``) is the most at which nine of ten of their ratios are still in the 90 % band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.scoring.predict import Scored
from sim.catalog.spreads import SHARED, Spreads
from sim.metrics.bands.bands import CAUSES

Floats = NDArray[np.float64]

FREEDOM = 4.0
"""Tails: with 4, one error in a hundred is beyond 4.6 times the scale (of a normal law: 2.6)."""

TRUST = 0.6
"""How far, in its logarithm, a spread may usually be from ``BEFORE``: a factor of 1.8."""

TRUST_OF_SCALES = 1.0
"""How far, in its logarithm, a scale of a setting may usually be from 1."""

LEAST = 1e-6
"""Square of the least spread of a row."""

ROWS_COUNT = 0.1
"""Rows of one source and quantity count together as their number to this power: hardly more than
one, since what puts one of them off puts off the others."""

ROWS_JUDGE = 0.5
"""The power where it is decided how wide bands must be to hold nine of ten: rows of one source
count as the root of their number. That is halfway, in logarithms, between one vote for each source
(0), by which bands would hold few of the rows of large sources, and one for each row (1), by which
the largest source, a fifth of the rows, would decide alone: nine of ten is said both of rows and of
sources to come."""

QUANTITY_SOURCES = 8
"""Sources of a quantity from which on its own bands are made to hold nine of ten. Of fewer than
that nine tenths are all of them but at most one, so that the widest would set the band alone; those
of a quantity with fewer keep the multiple of all rows."""

CORRELATIONS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""How far errors of one origin may be correlated, tried in this order."""

HELD = 0.9
"""Share of measurements, and of their ratios, that 90 % bands are to hold."""

BEFORE: Mapping[str, tuple[float, str]] = {
    "prompts": (0.08, "hold-out p90 of 10 to 20 % of the kernels of measured GPUs"),
    "decodes": (0.08, "the same"),
    "unmeasured": (0.20, "15 to 30 % between measured GPUs (sim/cost/trust.py)"),
    "data sheet": (0.25, "the same, and none was measured"),
    "experts": (0.23, "mean error over expert kernels (sim/cost/trust.py)"),
    "host": (0.20, "range that fits of vLLM's host time gave"),
    "host estimate": (0.35, "twice that"),
    "older release": (0.10, "3 to 8 % from one release to the next, of which there are many"),
    "estimate, first token": (0.35, "as of its host time"),
    "estimate, tokens": (0.15, "between releases of an engine, whose kernels were timed in one"),
    "links": (0.20, "hold-out p90 of all-reduces, 10 to 24 %"),
    "open links": (0.70, "a factor of two: whether cards reach each other"),
    "memory": (0.15, "blocks that engines report differ by 10 to 30 % from the arithmetic"),
    "front end": (0.40, "10 to 17 ms of vLLM around 12"),
    "crowding": (
        1.0,
        "the one that was measured is about that slow (sim/metrics/bands/crowding.py)",
    ),
    "crowding, tokens": (0.50, "as many as are outside, of a pass that grows by half with them"),
    "hand-over": (0.70, "a factor of two: one measurement of a block is published"),
    "mixing": (0.10, "no measurement; small where the client is known"),
    "open mixing": (0.40, "how many prompts meet a batch of decodes depends on the client"),
    "admission": (0.25, "order of admission differs between engines"),
    "open admission": (0.50, "a burst at the start or not"),
    "admission at a rate": (0.10, "arrival law and order of admission"),
    "lengths": (0.40, "spread of lengths of which the mean is known"),
    "lengths, closed": (0.15, "they change who shares a pass, not how long a queue grows"),
    "lengths, rates": (0.10, "the same: only the mean matters to throughput"),
    "open client": (0.50, "nine of ten measurements within the range of the plausible ways"),
    "open client, tokens": (0.20, "the same; tokens follow the mean batch, which differs less"),
    "arrivals": (0.05, "500 Poisson arrivals take 4 to 5 % more or less time than on average"),
    "tail": (0.15, "percentiles come of few requests"),
    "gaps": (0.15, "what a client calls a gap"),
    "lengths, long gaps": (0.40, "the spread of lengths of which the mean is known"),
    "left out, first token": (0.15, "10 to 20 ms in 100, as of the front end"),
    "left out, rates": (0.05, "as of whole runs"),
    "left out, tokens": (0.05, "the same"),
    "run, first token": (0.08, "3 to 8 % between releases of an engine"),
    "run, rates": (0.05, "the same"),
    "run, tokens": (0.05, "the same"),
}
"""A spread for each cause before any row is seen, and why."""


class Sample(NamedTuple):
    """Rows to learn from: the ``error`` of each (logarithm of measured over predicted), the squares
    of the ``weights`` of the causes (a column each), its ``source``, that and its quantity, the
    number of its conditions (rows of one run have the same), and its setting."""

    error: Floats
    weights: Floats
    source: NDArray[np.str_]
    group: NDArray[np.str_]
    conditions: NDArray[np.int64]
    setting: NDArray[np.str_]

    def of(self, rows: NDArray[np.bool_]) -> Sample:
        """Some of the rows."""
        error, weights, source, group, conditions, setting = self
        some = error[rows], weights[rows], source[rows], group[rows]
        return Sample(*some, conditions[rows], setting[rows])


def teaching(rows: Sequence[Scored]) -> list[Scored]:
    """The ``rows`` that can be learnt from."""
    return [row for row in rows if row.error is not None and row.causes and row.source]


def sample(rows: Sequence[Scored]) -> Sample:
    """The part of ``rows`` that can be learnt from."""
    known = teaching(rows)
    numbers: dict[object, int] = {}
    return Sample(
        np.array([np.log(float(row.measured or 0) / float(row.predicted or 0)) for row in known]),
        np.array([[_weight(row, name) ** 2 for name in CAUSES] for row in known]),
        np.array([row.source for row in known]),
        np.array([f"{row.source}, {row.quantity}" for row in known]),
        np.array([numbers.setdefault(row.known, len(numbers)) for row in known]),
        np.array([row.setting for row in known]),
    )


def _weight(row: Scored, cause: str) -> float:
    """The weight of a cause on the side on which the measurement lies."""
    larger = float(row.measured or 0) > float(row.predicted or 0)
    return row.causes_of_side[larger].get(cause, 0.0)


class Law(NamedTuple):
    """The spread of each cause, and what each setting multiplies spreads by."""

    causes: Floats
    scales: Mapping[str, float]

    def of(self, rows: Sample) -> Floats:
        """The spread of each row."""
        scale = np.array([self.scales.get(str(name), 1.0) for name in rows.setting])
        found: Floats = scale * np.sqrt(rows.weights @ self.causes**2 + LEAST)
        return found


def learn(rows: Sample) -> Spreads:
    """The spreads that ``rows`` show, with multiples by which bands hold these rows themselves."""
    law = _law(rows)
    return _with_multiples(law, np.abs(rows.error) / law.of(rows), rows)


def learn_left_out(rows: Sample) -> tuple[Spreads, dict[str, Spreads]]:
    """The spreads that ``rows`` show, and those without each source. The multiples are those by
    which bands hold sources that were left out when the spreads were learnt: bands hold rows that
    they were learnt from more often than others. Those of ``without`` leave out their source from
    that too."""
    laws, sizes = {}, np.empty(len(rows.error))
    for name in np.unique(rows.source):
        own = rows.source == name
        laws[str(name)] = law = _law(rows.of(~own))
        sizes[own] = np.abs(rows.error[own]) / law.of(rows.of(own))
    without = {}
    for name, law in laws.items():
        others = rows.source != name
        without[name] = _with_multiples(law, sizes[others], rows.of(others))
    return _with_multiples(_law(rows), sizes, rows), without


def _law(rows: Sample) -> Law:
    """The spreads and scales that make the errors of ``rows`` likeliest."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import

    before = np.log([BEFORE[name][0] for name in CAUSES])
    settings = [str(name) for name in np.unique(rows.setting) if name]
    within = np.stack([rows.setting == name for name in settings or [""]], axis=1).astype(float)
    within = within[:, : len(settings)]
    counts, causes = _counts(rows), len(before)
    squares = rows.error**2

    def badness(logarithms: Floats) -> tuple[float, Floats]:
        scales = np.exp(2 * logarithms[:causes])
        factors = np.exp(2 * within @ logarithms[causes:])
        variance = factors * (rows.weights @ scales + LEAST)
        ratio = squares / variance
        apart = (logarithms[:causes] - before) / TRUST
        off = logarithms[causes:] / TRUST_OF_SCALES
        tail = (FREEDOM + 1) / 2
        value = counts @ (np.log(variance) / 2 + tail * np.log1p(ratio / FREEDOM))
        slope = counts * (0.5 - tail * ratio / (FREEDOM + ratio)) / variance
        of_causes = 2 * scales * (rows.weights.T @ (slope * factors)) + apart / TRUST
        of_scales = 2 * within.T @ (slope * variance) + off / TRUST_OF_SCALES
        gradient = np.concatenate([of_causes, of_scales])
        return float(value + ((apart**2).sum() + (off**2).sum()) / 2), gradient

    start = np.concatenate([before, np.zeros(len(settings))])
    found = np.exp(minimize(badness, start, jac=True, method="L-BFGS-B").x)
    return Law(found[:causes], dict(zip(settings, map(float, found[causes:]), strict=True)))


def _with_multiples(law: Law, sizes: Floats, rows: Sample) -> Spreads:
    """The spreads with what half and nine tenths of the ``sizes`` of ``rows``, their errors in
    spreads, do not exceed."""
    counts = _counts(rows, ROWS_JUDGE)
    half, ninety = (_quantile(sizes, counts, share) for share in (0.5, HELD))
    named = dict(zip(CAUSES, map(_three_digits, law.causes), strict=True))
    own = _of_quantities(sizes, counts, rows)
    scales = {
        name: _three_digits(value * own.get(_quantity(name), ninety) / ninety)
        for name, value in law.scales.items()
    }
    spreads = Spreads(named, _three_digits(half), _three_digits(ninety), scales=scales)
    return spreads._replace(shared=_shared(rows, spreads))


def _quantity(setting: str) -> str:
    """The quantity of a setting (``sim.metrics.bands.bands.setting``)."""
    return setting.partition(", ")[0]


def _of_quantities(sizes: Floats, counts: Floats, rows: Sample) -> dict[str, float]:
    """The 90 % quantile of the ``sizes`` of each quantity, of those with enough sources."""
    quantities = np.array([_quantity(str(name)) for name in rows.setting])
    found = {}
    for quantity in np.unique(quantities[rows.setting != ""]):
        mine = quantities == quantity
        if len(np.unique(rows.source[mine])) >= QUANTITY_SOURCES:
            found[str(quantity)] = _quantile(sizes[mine], counts[mine], HELD)
    return found


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def pairs(rows: Sample) -> NDArray[np.int64]:
    """Rows to be compared, a pair in each column: of one source and quantity, under other
    conditions. Each with the next one, and with the one half of the group further on."""
    found: list[NDArray[np.int64]] = [np.empty((2, 0), dtype=np.int64)]
    for group in np.unique(rows.group):
        members = np.flatnonzero(rows.group == group)
        for step in {1, len(members) // 2} - {0}:
            found.append(np.stack([members[:-step], members[step:]]))
    each = np.concatenate(found, axis=1)
    return each[:, rows.conditions[each[0]] != rows.conditions[each[1]]]


def _shared(rows: Sample, spreads: Spreads) -> float:
    """The correlation of the errors of two rows of a source."""
    one, other = pairs(rows)
    if not len(one):
        return SHARED
    apart = np.abs(rows.error[one] - rows.error[other])
    causes = np.array([spreads.of[name] for name in CAUSES]) ** 2
    scale = np.array([spreads.scale(str(name)) for name in rows.setting])
    weights = rows.weights * scale[:, None] ** 2
    both = weights[one] + weights[other]
    common = 2 * np.sqrt(weights[one] * weights[other])
    counts = _counts(rows)[one]
    for shared in CORRELATIONS:
        reach = spreads.ninety * np.sqrt((both - shared * common) @ causes + LEAST)
        if counts @ (apart <= reach) >= HELD * counts.sum():
            return shared
    return CORRELATIONS[-1]


def sources_of_causes(rows: Sample) -> dict[str, int]:
    """In how many sources each cause has a part in the errors."""
    return {
        name: len(np.unique(rows.source[column > 0]))
        for name, column in zip(CAUSES, rows.weights.T, strict=True)
    }


def _counts(rows: Sample, power: float = ROWS_COUNT) -> Floats:
    """The weight of each row: all of a group together weigh their number to the ``power``, less
    than one each."""
    _, place, size = np.unique(rows.group, return_inverse=True, return_counts=True)
    found: Floats = size.astype(np.float64) ** (power - 1)
    return found[place]


def _quantile(values: Floats, counts: Floats, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])
