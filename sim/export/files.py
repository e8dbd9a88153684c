"""Writes each export to its files, which appear whole or not at all.

For ``vllm bench sweep plot`` that is a folder per combination of settings (here: per run) with
``run=0.json``, one result of ``vllm bench serve`` with its settings next to the metrics, and
``summary.json``, the list of those results; over all of them ``summary.csv``. The plots read every
``summary.json`` below the folder. Keys are those of vLLM 0.32, of a result saved without
``--save-detailed`` and summed up by ``--percentile-metrics ttft,tpot,itl,e2el``, which is how its
sweeps are run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.errors import InfersimError, UsageError
from sim.export import bench, perfetto, pictures
from sim.export.bench import SIMULATED_BY, document, seen
from sim.export.source import ExportSource, ExportWindow
from sim.results.whole_file import write_whole
from sim.scenario.pools import only
from sim.units import show_time

Written = tuple[list[Path], list[str]]
"""The files of an export, and what should be known of them."""


def write_perfetto(source: ExportSource, target: Path, window: ExportWindow | None) -> Written:
    """One trace; it has an event per line."""
    trace, shown = perfetto.document(source, window)
    events = ",\n".join(_compact(event) for event in trace.pop("traceEvents"))
    rest = _compact(trace)[1:]
    _write(target, f'{{"traceEvents":[\n{events}\n],{rest}\n')
    notes = []
    if window is None and shown.window.end < shown.end:
        start, end = (show_time(time) for time in shown.window)
        notes.append(
            f"{start} to {end} of {show_time(shown.end)} are shown; --window START:END chooses"
        )
    if shown.vague:
        notes.append(
            f"of {shown.vague:,} requests it is not known when they were preempted: their time is "
            "'unknown', or counted as decode"
        )
    return [target], notes


def write_bench(source: ExportSource, target: Path, window: ExportWindow | None) -> Written:
    """One result of ``vllm bench serve``."""
    chosen = source.arriving(window)
    seen = bench.seen(chosen)
    _write(target, _compact(bench.document(chosen, seen)))
    notes = []
    if seen.how["preempted"]:
        notes.append(
            f"of {seen.how['preempted']:,} requests it is not known when they were preempted: "
            "their long gap is put where it may have been"
        )
    if seen.how["even"]:
        notes.append(
            f"of {seen.how['even']:,} requests only the first and the last token are known: their "
            "gaps are all the same"
        )
    return [target], notes


def write_sweep(
    sources: Sequence[ExportSource], target: Path, window: ExportWindow | None
) -> Written:
    """A folder of results as ``vllm bench sweep serve`` leaves it."""
    import pandas as pd  # noqa: PLC0415 - only this needs it

    chosen = [source.arriving(window) for source in sources]
    rows = [swept_row(source) for source in chosen]
    written = []
    for name, row in zip(swept_folders(chosen), rows, strict=True):
        for file, content in (("run=0.json", row), ("summary.json", [row])):
            path = target / name / file
            _write(path, json.dumps(content, indent=4, allow_nan=False) + "\n")
            written.append(path)
    table = target / "summary.csv"
    _write(table, pd.DataFrame.from_records(rows).to_csv())
    return [*written, table], []


def write_csv(source: ExportSource, target: Path, window: ExportWindow | None) -> Written:
    """The two tables of a run in a folder; numbers with every digit, nothing where there is
    none. A window chooses requests by arrival, and plans that touch it."""
    chosen, plans = source.arriving(window), source.timeseries
    if window is not None:
        plans = plans[(plans["start_s"] < window.end) & (plans["end_s"] > window.start)]
    tables = {"requests.csv": chosen.requests, "timeseries.csv": plans}
    for name, frame in tables.items():
        _write(target / name, frame.to_csv(index=False, lineterminator="\n"))
    maker = bench.label(bench.simulated_by(source))
    notes = [] if maker is None else [f"these tables are {maker}; CSV has no place to say so"]
    return [target / name for name in tables], notes


def write_pictures(page: Path, target: Path) -> Written:
    """A picture of each figure of ``page`` in a folder."""
    made, notes = pictures.pictures(page)
    for name, picture in made:
        _write_bytes(target / name, picture)
    if not made:
        notes.append(f"{page}: has no figure, so nothing was written")
    return [target / name for name, _ in made], notes


def write_deployment(text: str, target: Path) -> Written:
    """One file that starts a deployment."""
    _write(target, text)
    return [target], []


def check_target(target: Path, *, folder: bool, force: bool) -> None:
    """Raise UsageError unless an export may be written to ``target``, a file or a ``folder``."""
    try:
        if folder:
            _check_folder(target, force)
            return
        if target.is_dir():
            raise UsageError(f"{target}: a directory; name the file to write")
        if not target.absolute().parent.is_dir():
            raise UsageError(f"{target}: no such folder: {target.absolute().parent}")
        if target.exists() and not force:
            raise UsageError(f"{target}: exists already; --force overwrites it")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from None


def _check_folder(target: Path, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: is a file; name a folder to write to")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise UsageError(f"{target}: is not empty; --force writes into it all the same")


def _write(path: Path, text: str) -> None:
    _write_bytes(path, text.encode())


def _write_bytes(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda partial: partial.write_bytes(content))
    except OSError as error:
        raise InfersimError(f"{path}: cannot be written ({error.strerror or error})") from None


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


SWEPT_METRICS = ("ttft", "tpot", "itl", "e2el")
DETAILS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
"""Lists that vLLM leaves out of a result that is not detailed; the other lists it keeps."""

NOT_IN_A_ROW = (*DETAILS, SIMULATED_BY)
"""A mapping has no place in a table; ``backend`` and ``label`` say what made a row."""


def swept_row(source: ExportSource) -> dict[str, Any]:
    """The result of one run with its settings, a row of a sweep."""
    result = document(source, seen(source), SWEPT_METRICS)
    kept = {key: value for key, value in result.items() if key not in NOT_IN_A_ROW}
    return kept | {"run_number": 0} | _settings(source)


def swept_folders(sources: Sequence[ExportSource]) -> list[str]:
    """A folder for each run: its own name, with a number where two have the same.

    They are made of the settings' name, as in vLLM, where ``SERVE--`` begins what is set on the
    server.
    """
    found: list[str] = []
    for source in sources:
        name, number = source.name, 2
        while f"SERVE--{name}" in found:
            name, number = f"{source.name}-{number}", number + 1
        found.append(f"SERVE--{name}")
    return found


def _settings(source: ExportSource) -> dict[str, Any]:
    """The server's settings by vLLM's names, of a fleet with one pool.

    ``data_parallel_size`` counts the copies of the model, so that the three sizes multiply to the
    number of GPUs.
    """
    scenario, own = source.scenario, source.summary["infersim"]
    pool: Mapping[str, Any] = only(scenario["fleet"])
    tensor, pipeline = int(pool["tensor_parallel"]), int(pool["pipeline_parallel"])
    return {
        "_benchmark_name": source.name,
        "gpu": str(own["gpu"]),
        "batching": str(own["batching"]),
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "data_parallel_size": int(own["gpus"]) // (tensor * pipeline),
        "max_num_seqs": scenario["scheduler"]["max_num_seqs"],
        "max_num_batched_tokens": scenario["scheduler"]["max_num_batched_tokens"],
        "block_size": scenario["kv_cache"]["block_size"],
        "gpu_memory_utilization": scenario["kv_cache"]["gpu_memory_utilization"],
    }
