"""Finds runs of workers apart that are published as one condition and are not of one setting.

Some publications have a condition several times and leave out which run drafted tokens. Token times
of one setting move by 3 to 8 % from release to release; those that differ by more are of different
ones. Nothing but which of them is the slowest is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from calibrate.scoring.table import Row

SLOWEST = "slowest"
"""The column that is added where settings differ: ``yes`` or ``no``."""

APART = 1.15
"""Token times of one condition that differ by more are not those of one setting."""

_OUTCOME = ("metric", "value", "unit", "notes", "source_path", "source_commit", "completeness")


def marked(rows: Sequence[Row]) -> list[Row]:
    """``rows``, with a further cell where runs of one condition are of different settings.

    A record is the rows of one run, which stand in consecutive lines.
    """
    token_times: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["tp"].upper().startswith("P") and row["metric"].lower().startswith("tpot"):
            token_times[_condition(row)].append(row)
    known: dict[tuple[str, int], str] = {}
    for runs in token_times.values():
        slowest = max(each.value for each in runs)
        if slowest <= APART * min(each.value for each in runs):
            continue
        for each in runs:
            known[each.file, each.line] = "yes" if slowest <= APART * each.value else "no"
    return [_of_run(row, known) for row in rows]


def _of_run(row: Row, known: dict[tuple[str, int], str]) -> Row:
    """``row`` with what is known of the run that it belongs to: its own line, or the next."""
    if not row["tp"].upper().startswith("P"):
        return row
    ours = row["metric"].lower().startswith("tpot")
    found = known.get((row.file, row.line if ours else row.line + 1))
    return replace(row, cells={**row.cells, SLOWEST: found}) if found else row


def _condition(row: Row) -> tuple[str, ...]:
    """All that two runs of one condition have in common."""
    cells = row.cells
    return tuple(cells[column] for column in sorted(cells) if column not in _OUTCOME)
