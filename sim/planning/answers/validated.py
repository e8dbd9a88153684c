"""Defines the rows of a validation, which ``infersim validate-run`` makes and lays out twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ErrorRow(NamedTuple):
    """One metric of both sides: its ``error``, the ``noise`` of repeated observations (None without
    any), and whether it is within its band (None without one)."""

    figure: str
    unit: str
    observed: float
    predicted: float
    error: float
    noise: float | None
    within_band: bool | None


class RegimeRow(NamedTuple):
    """Iterations of one kind, or all: their number, their share of the observed time, medians and
    sums of both sides (s), and the errors of a typical one and of the sum."""

    name: str
    iterations: int
    share: float
    observed: float
    predicted: float
    busy_observed: float
    busy_predicted: float
    typical: float
    error: float


class LevelRow(NamedTuple):
    """One figure of batches or memory, on both sides; None where it was not observed."""

    name: str
    kind: str
    observed: float | None
    predicted: float | None


class ValidatedRows(NamedTuple):
    """All rows: ``whole`` is of all iterations, None where they were not recorded; no ``levels``
    where none was observed."""

    errors: tuple[ErrorRow, ...]
    regimes: tuple[RegimeRow, ...]
    whole: RegimeRow | None
    levels: tuple[LevelRow, ...]


def rows_of(document: Mapping[str, Any]) -> ValidatedRows:
    """The rows of a validation's document."""
    iterations = document["iterations"]
    levels = tuple(LevelRow(**row) for row in document["composition"]["levels"])
    return ValidatedRows(
        tuple(ErrorRow(**row) for row in document["figures"]),
        tuple(RegimeRow(**row) for row in (iterations or {}).get("regimes", ())),
        None if iterations is None else RegimeRow(**iterations["all"]),
        levels if any(level.observed is not None for level in levels) else (),
    )
