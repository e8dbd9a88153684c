"""Turns ``KEY=VALUES`` into axes, and into the points of the grid that they span.

``VALUES`` is a range ``a:b:n`` (n values from a to b, both included, evenly apart), ``log:a:b:n``
(each the same factor above the one before), or a list as YAML writes it, without its brackets:
``static,continuous``, ``100ms,1s``, ``null,{kind: fixed, value: 64}``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.errors import InfeasibleError, UsageError, shorten
from sim.planning.points.points import Point, Settings, numbered, show
from sim.scenario import Scenario
from sim.scenario.text.parsing import BrokenYamlError, parse
from sim.setup import prepare

MOST_POINTS = 100_000
"""More are not a question but a mistake: at twenty a second they would take an hour and a half."""

_RANGE = re.compile(r"(log:)?([^:,]+):([^:,]+):([^:,]+)")
_MEANT_AS_RANGE = re.compile(r"(log:|[-+.]?[0-9][-+.0-9eE]*:)[^,]*")
_DIGITS = 12
"""Significant digits of a value in a range: 0.1 + 0.2 is meant to be 0.3."""


@dataclass(frozen=True)
class Axis:
    """A dotted key of the scenario and the values that it is to have."""

    key: str
    values: tuple[object, ...]

    @property
    def numeric(self) -> bool:
        """Whether every value is a number."""
        return all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in self.values
        )


def read_axes(texts: Sequence[str], option: str = "--sweep") -> list[Axis]:
    """The axes of these ``KEY=VALUES``; UsageError, which names ``option``, for what is none."""
    axes = [_axis(text, option) for text in texts]
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"{option} {key}: is given twice; list all of its values in one")
    size = math.prod(len(axis.values) for axis in axes)
    if size > MOST_POINTS:
        raise UsageError(f"{size:,} points are more than {MOST_POINTS:,}; {option} fewer values")
    return axes


def points(axes: Sequence[Axis]) -> list[Point]:
    """Every combination of the axes' values; the last axis changes fastest.

    >>> grid = points(read_axes(["seed=1:3:3", "engine=vllm,sglang"]))
    >>> len(grid), grid[1].label
    (6, 'seed=1, engine=sglang')
    """
    return list(numbered(_combinations(axes)))


def check_values(scenario: Scenario, axes: Sequence[Axis]) -> None:
    """Raise UsageError for values that no point of the grid can have, before anything is simulated.

    Such a value is misspelt, out of range, or names something (a GPU, a policy of one's own) that
    cannot be had. What is valid and does not fit passes, and so do two values that only exclude
    each other: these are points that fail, each with its reason.
    """
    mistakes = []
    for axis in axes:
        found = [_mistake(scenario, _with_value(axes, axis, value)) for value in axis.values]
        wrong = [error for error in found if error is not None]
        mistakes += wrong[:1] if len(wrong) == len(found) else wrong
    if mistakes:
        raise type(mistakes[0])("\n".join(dict.fromkeys(map(str, mistakes))))


def _with_value(axes: Sequence[Axis], axis: Axis, value: object) -> Iterator[Settings]:
    """The points at which one axis has that value."""
    return _combinations([Axis(axis.key, (value,)) if each is axis else each for each in axes])


def _mistake(scenario: Scenario, candidates: Iterator[Settings]) -> UsageError | None:
    """The mistake in the first of these points, unless one of them could be simulated or does not
    fit."""
    first: UsageError | None = None
    for settings in candidates:
        try:
            prepare(scenario.override(settings))
        except InfeasibleError:
            return None
        except UsageError as error:
            first = first or error
        else:
            return None
    return first


def _combinations(axes: Sequence[Axis]) -> Iterator[Settings]:
    for values in itertools.product(*(axis.values for axis in axes)):
        yield {axis.key: value for axis, value in zip(axes, values, strict=True)}


def _axis(text: str, option: str) -> Axis:
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise UsageError(
            f"{option} {shorten(text)}: is KEY=VALUES, such as workload.arrivals.rate=2:40:10 or "
            "scheduler.batching=static,continuous"
        )
    values = _values(f"{option} {shorten(text)}", written)
    for index, value in enumerate(values):
        if any(_same(value, other) for other in values[:index]):
            raise UsageError(f"{option} {shorten(text)}: {shorten(show(value))} is given twice")
    return Axis(key, tuple(values))


def _same(one: object, other: object) -> bool:
    """Equal, and not merely as 1, 1.0 and True are."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _values(where: str, written: str) -> list[object]:
    """The values of a range or a list."""
    if _MEANT_AS_RANGE.fullmatch(written):
        return list(_range(where, written))
    try:
        parsed = parse(f"[{written}]", "")
    except BrokenYamlError as error:
        raise UsageError(f"{where}: {error.problem.message}") from None
    if parsed.problems:
        raise UsageError(f"{where}: {parsed.problems[0].message}")
    if not isinstance(parsed.data, list) or not parsed.data:
        raise UsageError(f"{where}: has no values")
    for value in parsed.data:
        if isinstance(value, str) and _MEANT_AS_RANGE.fullmatch(value):
            raise UsageError(f"{where}: a range stands alone, not in a list")
    return parsed.data


def _range(where: str, written: str) -> list[float | int]:
    """The numbers of ``a:b:n`` or ``log:a:b:n``."""
    match = _RANGE.fullmatch(written)
    if match is None:
        raise UsageError(f"{where}: a range is a:b:n or log:a:b:n, such as 2:40:10")
    logarithmic = match[1] is not None
    try:
        low, high, count = float(match[2]), float(match[3]), int(match[4])
    except ValueError:
        raise UsageError(
            f"{where}: a range is two numbers and how many values they are to have, such as 2:40:10"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"{where}: a range has finite ends")
    if count < 2 or low == high:
        raise UsageError(f"{where}: a range has at least 2 values, and ends that differ")
    if count > MOST_POINTS:
        raise UsageError(f"{where}: {count:,} values are more than {MOST_POINTS:,}")
    if logarithmic and (low <= 0 or high <= 0):
        raise UsageError(f"{where}: the ends of a logarithmic range are above 0")
    return [_between(low, high, i / (count - 1), logarithmic) for i in range(count)]


def _between(low: float, high: float, share: float, logarithmic: bool) -> float | int:
    """The number that far between two others, whole if it is as good as whole."""
    if share in (0.0, 1.0):
        exact = high if share else low
    elif logarithmic:
        exact = low * math.exp(share * math.log(high / low))
    else:
        exact = low + share * (high - low)
    rounded = float(f"{exact:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
