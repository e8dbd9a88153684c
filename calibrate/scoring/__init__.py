"""Compares published measurements with their predictions: how good predictions are.

table                what a row says
facts                what is known of a measurement apart from its table (facts.yaml)
names, conditions    the scenario that repeats the measurement, or why there is none
presets, engines/    its engine: a preset of the catalogue, or a file of an old release
workers, twins       prefill and decode apart, and the splits that sources publish (splits.yaml)
predict, figures     runs, and which metric is compared with which
replay, log_meta     logs of single requests, and the conditions they state
errors, document     errors by group; every row as one JSON document
evidence             what all rows show, as calibrate/evidence.json
report, trust_page   pages of that: errors; whether bands held, and what to do with predictions
pages, whole_runs    all pages of the evidence written anew, with the README and the catalogue
learning             how far each cause puts predictions off; spreads_file writes it down
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrate.scoring.log_meta import Given
from calibrate.scoring.names import has_experts
from calibrate.scoring.predict import Progress, Scored, score
from calibrate.scoring.replay import is_log, score_log
from calibrate.scoring.table import read_table
from sim.errors import TraceError, UsageError

__all__ = ["Given", "Scored", "score_all"]


def score_all(
    paths: Sequence[Path],
    *,
    jobs: int = -1,
    progress: Progress | None = None,
    given: Given | None = None,
    dense: bool = False,
) -> list[Scored]:
    """Every row of the tables (CSV files) and logs (folders) at ``paths`` next to its prediction,
    or with ``dense`` those of models without experts.

    ``jobs`` processes work side by side; -1 is one for each core. ``given`` goes before what logs
    state. Raises TraceError for a file that is neither, UsageError for something given without a
    log.
    """
    rows, logs = [], []
    for path in paths:
        if is_log(path):
            logs.append(path)
        elif path.is_dir():
            raise TraceError(f"{path}: is a folder without a requests.jsonl")
        else:
            rows += read_table(path)
    if dense:
        rows = [row for row in rows if not has_experts(row["model"])]
    if given is not None and any(each is not None for each in given) and not logs:
        raise UsageError(
            "--model, --gpu and --num-gpu-blocks are for logs of requests; none is given"
        )
    found = score(rows, jobs=jobs, progress=progress)
    for path in logs:
        found += score_log(path, given or Given())
    return found
