"""Provides the errors of predictions of whole runs, engine by engine, on published measurements.

The numbers are those of ``calibrate/VALIDATION.md``; ``whole_runs.yaml`` holds them for the
program, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml

_FILE = Path(__file__).with_name("whole_runs.yaml")


class WholeRunError(NamedTuple):
    """The error of one metric (``of``) over the ``rows`` of a ``kind`` of measurement: median and
    90th percentile of its absolute value, in percent of the measurement. ``in_sample``: the
    catalogue was adjusted to these very rows."""

    kind: str
    of: str
    rows: int
    median: float
    p90: float
    in_sample: bool = False


@cache
def whole_run_errors(engine: str) -> tuple[WholeRunError, ...]:
    """The errors of runs of this engine preset; none where no published run was predicted."""
    entry = Fields(str(_FILE), read_yaml(_FILE))
    if not entry.has(engine):
        return ()
    return tuple(
        WholeRunError(
            row.text("kind"),
            row.text("of"),
            row.count("rows"),
            row.number("median"),
            row.number("p90"),
            row.flag("in_sample", absent=False),
        )
        for row in entry.mappings(engine)
    )


def whole_runs_text(engine: str) -> str:
    """What is known of whole runs of this engine preset, in a sentence.

    >>> whole_runs_text("ideal")
    'No published run of ideal was compared with its prediction.'
    """
    errors = [each for each in whole_run_errors(engine) if not each.in_sample]
    if not errors:
        return f"No published run of {engine} was compared with its prediction."
    kinds = dict.fromkeys(error.kind for error in errors)
    parts = [f"{kind}: {_of_kind([e for e in errors if e.kind == kind])}" for kind in kinds]
    return (
        f"Whole published runs of {engine} were predicted with these errors (median / p90): "
        f"{'; '.join(parts)}."
    )


def _of_kind(errors: Sequence[WholeRunError]) -> str:
    return ", ".join(f"{e.of} {e.median:.0f} / {e.p90:.0f} %" for e in errors)
