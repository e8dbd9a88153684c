"""Writes a profile as one mapping of plain data, and reads it back.

Calibration writes it, into a GPU file of its own, which is YAML, or into the catalogue, as JSON,
which is read ten times as fast; the cost model reads it.
Numbers are in SI units without a unit, errors are shares, and every number has as many digits as it
means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite, prod

import yaml

from sim.catalog.fields import Fields
from sim.specs.profile import KernelFit, KnownShapes, Profile, Residual, Score

_KERNEL_KEYS = (
    "kernel",
    "form",
    "parameters",
    "intervals",
    "ranges",
    "holdout",
    "drift",
    "regimes",
    "residual",
    "known",
)
_DIGITS = 5


def to_document(profile: Profile) -> dict[str, object]:
    """``profile`` as a mapping that YAML can hold."""
    return {
        "source": profile.source,
        "date": profile.date,
        "facts": dict(profile.facts),
        "kernels": {
            operator: {precision: _fit_document(fit) for precision, fit in fits.items()}
            for operator, fits in profile.kernels.items()
        },
    }


def from_document(fields: Fields) -> Profile:
    """The profile that ``fields`` hold.

    Raises UsageError, naming file and key, for whatever is unknown, missing or no number.
    """
    fields.only(["source", "date", "facts", "kernels"])
    kernels = fields.inner("kernels")
    facts = fields.inner("facts")
    return Profile(
        source=" ".join(fields.text("source").split()),
        date=str(fields.value("date")),
        facts={key: str(facts.value(key)) for key in facts},
        kernels={operator: _fits(kernels.inner(operator)) for operator in kernels},
    )


def to_yaml(document: Mapping[str, object]) -> str:
    """``document`` as YAML: mappings line by line, lists of numbers in one line."""
    return yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def to_json(document: Mapping[str, object]) -> str:
    """``document`` as JSON in the same lines, except those of long lists.

    >>> print(to_json({"kernel": "k", "ranges": {"m": [1.0, 16.0]}}), end="")
    {
     "kernel": "k",
     "ranges": {"m": [1.0, 16.0]}
    }
    """
    return f"{_json(document, 1)}\n"


def _json(value: object, depth: int) -> str:
    if not isinstance(value, Mapping) or _in_one_line(value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    entries = (f"{json.dumps(key)}: {_json(inner, depth + 1)}" for key, inner in value.items())
    inside, outside = "\n" + depth * " ", "\n" + (depth - 1) * " "
    return "{" + inside + f",{inside}".join(entries) + outside + "}"


def _in_one_line(mapping: Mapping[str, object]) -> bool:
    """Whether a mapping has nothing but numbers."""
    return bool(mapping) and all(isinstance(v, int | float | list) for v in mapping.values())


class _Dumper(yaml.SafeDumper):
    """Lists, and mappings of numbers alone, go into one line."""


def _represent_list(dumper: yaml.SafeDumper, value: list[object]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


def _represent_mapping(dumper: yaml.SafeDumper, value: dict[str, object]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=_in_one_line(value))


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(dict, _represent_mapping)


def _fit_document(fit: KernelFit) -> dict[str, object]:
    document: dict[str, object] = {"kernel": fit.kernel} if fit.kernel else {}
    if fit.form:
        document["form"] = fit.form
    document["parameters"] = {name: _short(value) for name, value in fit.parameters.items()}
    if fit.intervals:
        document["intervals"] = {name: _pair(pair) for name, pair in fit.intervals.items()}
    document["ranges"] = {name: _pair(pair) for name, pair in fit.ranges.items()}
    document["holdout"] = _score_document(fit.holdout)
    if fit.drift:
        document["drift"] = round(fit.drift, 4)
    if fit.regimes:
        document["regimes"] = {name: _score_document(s) for name, s in fit.regimes.items()}
    if fit.residual is not None:
        axes = {name: [_short(v) for v in knots] for name, knots in fit.residual.axes.items()}
        values = [round(value, 3) for value in fit.residual.values]
        document["residual"] = {"axes": axes, "values": values}
    if fit.known is not None:
        document["known"] = _known_document(fit.known)
    return document


def _known_document(known: KnownShapes) -> dict[str, object]:
    """Tables of two digits, in one line each after the numbers that make up their shape."""
    return {
        "names": list(known.names),
        "axes": {name: [_short(v) for v in knots] for name, knots in known.axes.items()},
        "holdout": _score_document(known.holdout),
        "tables": [
            [_whole(v) for v in (*shape, *(round(value, 2) for value in values))]
            for shape, values in known.values.items()
        ],
    }


def _fits(fields: Fields) -> dict[str, KernelFit]:
    return {precision: _fit(fields.inner(precision)) for precision in fields}


def _fit(fields: Fields) -> KernelFit:
    fields.only(_KERNEL_KEYS)
    parameters = fields.inner("parameters")
    regimes = fields.inner("regimes") if fields.has("regimes") else None
    return KernelFit(
        parameters={name: parameters.number(name) for name in parameters},
        ranges=_pairs(fields.inner("ranges")),
        holdout=_score(fields.inner("holdout")),
        intervals=_pairs(fields.inner("intervals")) if fields.has("intervals") else {},
        regimes={n: _score(regimes.inner(n)) for n in regimes} if regimes is not None else {},
        residual=_residual(fields.inner("residual")) if fields.has("residual") else None,
        kernel=fields.text("kernel") if fields.has("kernel") else "",
        form=fields.text("form") if fields.has("form") else "",
        drift=_share(fields, "drift") if fields.has("drift") else 0.0,
        known=_known(fields.inner("known")) if fields.has("known") else None,
    )


def _known(fields: Fields) -> KnownShapes:
    fields.only(["names", "axes", "holdout", "tables"])
    names, tables = fields.value("names"), fields.value("tables")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise fields.error("names", "expected a list of names")
    axes = _axes(fields.inner("axes"))
    length = len(names) + prod(len(knots) for knots in axes.values())
    if not isinstance(tables, list) or not all(_numbers_of(row, length) for row in tables):
        raise fields.error("tables", f"expected lists of {length} numbers: a shape and its grid")
    rows = [tuple(map(float, row)) for row in tables]
    values = {row[: len(names)]: row[len(names) :] for row in rows}
    return KnownShapes(tuple(names), axes, values, _score(fields.inner("holdout")))


def _numbers_of(row: object, length: int) -> bool:
    return isinstance(row, list) and len(row) == length and _finite(row)


def _share(fields: Fields, key: str) -> float:
    value = fields.number(key)
    if value < 0:
        raise fields.error(key, f"expected a share of at least 0, found {value:g}")
    return value


def _score(fields: Fields) -> Score:
    fields.only(["median", "p90", "bias", "points"])
    return Score(
        fields.number("median"), fields.number("p90"), fields.number("bias"), fields.count("points")
    )


def _score_document(score: Score) -> dict[str, object]:
    return {
        "median": round(score.median, 4),
        "p90": round(score.p90, 4),
        "bias": round(score.bias, 4),
        "points": score.points,
    }


def _residual(fields: Fields) -> Residual:
    fields.only(["axes", "values"])
    knots = _axes(fields.inner("axes"))
    values = _numbers(fields, "values")
    expected = prod(len(axis) for axis in knots.values())
    if len(values) != expected:
        raise fields.error("values", f"expected {expected} numbers, one for each knot of the grid")
    return Residual(knots, values)


def _axes(axes: Fields) -> dict[str, tuple[float, ...]]:
    """The ascending knots of each axis of a table."""
    knots = {name: _numbers(axes, name) for name in axes}
    for name, values in knots.items():
        if not values or any(left >= right for left, right in pairwise(values)):
            raise axes.error(name, "expected ascending numbers")
    return knots


def _pairs(fields: Fields) -> dict[str, tuple[float, float]]:
    pairs = {}
    for name in fields:
        numbers = _numbers(fields, name)
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            raise fields.error(name, "expected two numbers, the smaller first")
        pairs[name] = numbers[0], numbers[1]
    return pairs


def _numbers(fields: Fields, key: str) -> tuple[float, ...]:
    value = fields.value(key)
    if not isinstance(value, list) or not _finite(value):
        raise fields.error(key, "expected a list of numbers")
    return tuple(map(float, value))


def _finite(values: list[object]) -> bool:
    """Whether there is nothing but numbers in a list."""
    return {int, float}.issuperset(map(type, values)) and all(map(isfinite, values))  # type: ignore[arg-type]


def _pair(pair: tuple[float, float]) -> list[float]:
    return [_short(pair[0]), _short(pair[1])]


def _whole(value: float) -> float:
    """Whole numbers without a point: they are most of a table of two digits."""
    return int(value) if value == int(value) else value


def _short(value: float) -> float:
    """Without the digits that no measurement has; whole numbers stay exact.

    >>> _short(0.123456789), _short(131072.0)
    (0.12346, 131072.0)
    """
    return value if value == int(value) else float(f"{value:.{_DIGITS}g}")
