"""Compares runs that are on disk: paired by repetition, or request by request, or not at all.

Which of these it is follows from the directories, and is stated. Times in seconds in the tables,
metrics as in ``summary.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from sim.errors import UsageError, shorten
from sim.metrics.repetitions import CONFIDENCE, headlines
from sim.metrics.states import State
from sim.planning.contrast.contrast import Contrast, ContrastColumn, Values, contrasts
from sim.planning.contrast.facts import facts_of
from sim.planning.contrast.paired import Difference, bootstrap, difference
from sim.planning.points.figures import FIGURES, figures_at, held, own_figures, while_coming
from sim.planning.points.footnote_words import notes_of, sure_of_all
from sim.planning.points.wording import at_slo, slo_keys
from sim.results.run_directory import MANIFEST
from sim.results.run_result import REPETITIONS, REQUESTS, SUMMARY
from sim.results.stored import read_object, read_summary, read_table
from sim.version import version

LATENCIES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2el_s"}
TRAFFIC = ["prompt_tokens", "output_tokens"]
NEEDED = ("request_id", *TRAFFIC, "arrival_s", "status", "warmup", *LATENCIES.values())


@dataclass(frozen=True, eq=False)
class ContrastRun:
    """A run directory: its figures, its requests by id, its repetitions by seed if it has any."""

    path: Path
    complete: bool
    summary: dict[str, Any]
    figures: dict[str, float | None]
    requests: pd.DataFrame
    repetitions: pd.DataFrame | None


def read_run(path: Path) -> ContrastRun:
    """The run in a directory; UsageError if there is none, or what is in it is no run's."""
    for name in (MANIFEST, SUMMARY, REQUESTS):
        if not (path / name).is_file():
            raise UsageError(f"{path}: is no complete run directory ({name} is missing)")
    manifest = read_object(path / MANIFEST)
    summary = read_summary(path / SUMMARY)
    requests = read_table(path / REQUESTS, NEEDED).set_index("request_id", drop=False)
    try:
        figures = headlines(summary) | held(summary) | while_coming(summary)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path / SUMMARY}: has no entry {error}") from None
    complete = manifest.get("status") == "complete"
    return ContrastRun(path, complete, summary, figures, requests, _repetitions(path / REPETITIONS))


def _repetitions(path: Path) -> pd.DataFrame | None:
    """The table of repetitions by their seeds, None where there is none."""
    if not path.exists():
        return None
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: cannot be read as a table ({shorten(reason)})") from None
    seeds = table.get("seed")
    if seeds is None or not is_integer_dtype(seeds) or seeds.duplicated().any():
        raise UsageError(f"{path}: seed: expected a whole number in each row, all different")
    for figure in FIGURES:
        if figure.key in table and not is_numeric_dtype(table[figure.key]):
            raise UsageError(f"{path}: {figure.key}: expected numbers, or nothing")
    return table.replace([np.inf, -np.inf], np.nan).set_index("seed")


def compare_runs(paths: Sequence[Path]) -> dict[str, Any]:
    """The comparison of run directories as plain data; the first is the base."""
    if len(paths) < 2:
        raise UsageError("one run alone cannot be compared; give two or more")
    runs = [read_run(path) for path in paths]
    labels, slo = _labels(paths), slo_keys([run.summary for run in runs])
    seeds = _common_seeds(runs)
    same = all(_same_traffic(runs[0], run) for run in runs[1:])
    contrast: Contrast | None = None
    by: str | None = None
    if len(seeds) > 1:
        columns = [
            _repeated(label, run, seeds, slo) for label, run in zip(labels, runs, strict=True)
        ]
        by = "repetition"
    else:
        columns = [_single(label, run, slo) for label, run in zip(labels, runs, strict=True)]
        if same:
            contrast, by = _by_request(runs), "request"
    notes = [f"{run.path} is not complete." for run in runs if not run.complete]
    told = [(label, run.summary) for label, run in zip(labels, runs, strict=True)]
    simulated = [run.summary for run in runs if _state(run) != State.OBSERVED]
    notes += [] if same else ["The runs did not meet the same traffic."]
    notes += [*notes_of(told), *sure_of_all(simulated)]
    return {
        "command": "compare",
        "infersim": version(),
        "name": f"{len(runs)} runs",
        "axes": [],
        "paired_by": by,
        "pairing": _pairing(by, len(seeds)),
        "same_traffic": same,
        "seeds": seeds,
        **contrasts(columns, contrast, slo),
        "notes": notes,
    }


def _pairing(by: str | None, seeds: int) -> str:
    """How differences were formed, in a sentence."""
    sure = f"± is the {CONFIDENCE:.0%} interval"
    if by == "repetition":
        return f"{seeds} repetitions under the same seeds; {sure} of paired differences by t"
    if by == "request":
        return (
            f"the same traffic once: latencies differ request by request; {sure} of a bootstrap "
            "of blocks of requests, too narrow near saturation; the other figures have none"
        )
    return "differences of single figures: neither repetitions nor traffic are shared, so no ±"


def _labels(paths: Sequence[Path]) -> list[str]:
    """Names of the directories, or whole paths if two have the same name."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _common_seeds(runs: Sequence[ContrastRun]) -> list[int]:
    """Seeds of the repetitions that all runs have, in the order of the first."""
    tables = [run.repetitions for run in runs if run.repetitions is not None]
    if len(tables) < len(runs):
        return []
    return [int(seed) for seed in tables[0].index if all(seed in t.index for t in tables)]


def _same_traffic(one: ContrastRun, other: ContrastRun) -> bool:
    """Equal requests; when they arrived is a matter of the clock, or of closed-loop users."""
    if len(one.requests) != len(other.requests):
        return False
    mine, theirs = one.requests.sort_index(), other.requests.sort_index()
    return bool(mine[TRAFFIC].equals(theirs[TRAFFIC])) and bool(
        mine["arrival_s"].equals(theirs["arrival_s"]) or _closed(one) == _closed(other) is True
    )


def _closed(run: ContrastRun) -> bool:
    """Whether users waited for their answers before they asked again."""
    return bool(run.summary["infersim"]["verdict"]["state"] == State.CLOSED_LOOP)


def _repeated(
    label: str, run: ContrastRun, seeds: Sequence[int], slo: Mapping[str, str]
) -> ContrastColumn:
    assert run.repetitions is not None
    table = run.repetitions.loc[list(seeds)]
    values = {
        figure.key: [None if np.isnan(value) else float(value) for value in table[figure.key]]
        for figure in (*figures_at(slo), *own_figures(table.columns))
        if figure.key in table
    }
    return _column(label, values, run)


def _single(label: str, run: ContrastRun, slo: Mapping[str, str]) -> ContrastColumn:
    values = {key: [value] for key, value in (run.figures | at_slo(run.summary, slo)).items()}
    return _column(label, values, run)


def _column(label: str, values: Values, run: ContrastRun) -> ContrastColumn:
    own = run.summary["infersim"]
    slo, facts = (own["verdict"].get("slo_state"),), facts_of([run.summary])
    bands = own.get("bands")  # of an observed run there are none: they are about it
    return ContrastColumn(label, {}, values, None, 0, (_state(run),), bands, slo, facts)


def _state(run: ContrastRun) -> str:
    return str(run.summary["infersim"]["verdict"]["state"])


def _by_request(runs: Sequence[ContrastRun]) -> Contrast:
    """Latencies over the requests that both runs completed, after the warm-up of both."""
    whole = [run.figures for run in runs]

    def contrast(key: str, one: int, other: int) -> Difference:
        rank, _, rest = key.partition("_")
        column = LATENCIES.get(rest.removesuffix("_ms"))
        if column is None:
            return difference([whole[one].get(key)], [whole[other].get(key)])
        pairs = _pairs(runs[one].requests, runs[other].requests, column)
        return bootstrap(*pairs, None if rank == "mean" else float(rank[1:]), scale=1e3)

    return contrast


def _pairs(one: pd.DataFrame, other: pd.DataFrame, column: str) -> tuple[Any, Any]:
    """A latency (s) of the requests that count in both runs, by id."""
    wanted = ["status", "warmup", column]
    both = (
        one[wanted]
        .merge(other[wanted], left_index=True, right_index=True, suffixes=("", "_other"))
        .sort_index()
    )
    counted = (both["status"] == "completed") & (both["status_other"] == "completed")
    counted &= ~both["warmup"].astype(bool) & ~both["warmup_other"].astype(bool)
    counted &= both[column].notna() & both[f"{column}_other"].notna()
    found = both[counted]
    return found[column].to_numpy(float), found[f"{column}_other"].to_numpy(float)
