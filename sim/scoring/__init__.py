"""How good are predictions? Published measurements, each beside what the simulator makes of it.

table, published     what a row says, and what its notes add
names, conditions    the same in the catalogue's words and in numbers, or why not
presets, drivers     engine and scenario that repeat the measurement
predict, figures     runs, and which figure stands beside which
replay               logs of single requests
errors, document     errors by group; one JSON document, a page of text
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.errors import TraceError
from sim.scoring.predict import Progress, Scored, score
from sim.scoring.replay import is_log, score_log
from sim.scoring.table import read_table

__all__ = ["Scored", "score_all"]


def score_all(
    paths: Sequence[Path], *, jobs: int = -1, progress: Progress | None = None
) -> list[Scored]:
    """Every row of the tables (CSV files) and logs (folders) at ``paths`` beside its prediction.

    ``jobs`` processes work side by side; -1 is one for each core. Raises TraceError for a file that
    is neither.
    """
    rows, logs = [], []
    for path in paths:
        if is_log(path):
            logs.append(path)
        elif path.is_dir():
            raise TraceError(f"{path}: is a folder without a requests.jsonl")
        else:
            rows += read_table(path)
    found = score(rows, jobs=jobs, progress=progress)
    for path in logs:
        found += score_log(path)
    return found
