"""The result of a run: figures, tables, and the run directory they are written to."""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.metrics.summary import RunRecord, summarise
from sim.recorder import COMPLETED, REJECTED

if TYPE_CHECKING:
    import pandas as pd

STATUSES = {COMPLETED: "completed", REJECTED: "rejected"}
SUMMARY, REQUESTS, TIMESERIES = "summary.json", "requests.parquet", "timeseries.parquet"
TIMESERIES_COLUMNS = {
    "replica": "replica",
    "start_s": "start",
    "end_s": "end",
    "iterations": "iterations",
    "decode_seqs": "decode",
    "decode_context": "context",
    "prefill_seqs": "prefill_seqs",
    "prefill_tokens": "prefill_tokens",
    "running": "running",
    "waiting": "waiting",
    "kv_used_tokens": "held",
    "kv_reserved_tokens": "reserved",
    "preemptions": "preemptions",
}


class Result:
    """What one run brought. ``record`` holds the raw rows, everything else is made from them."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.scenario = record.scenario
        self.interrupted = record.interrupted

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures, as in ``summary.json``."""
        return summarise(self.record)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, in order of arrival; times in seconds."""
        import pandas as pd  # noqa: PLC0415 - takes longer to import than many runs take

        return pd.DataFrame(self._request_columns())

    @cached_property
    def timeseries(self) -> pd.DataFrame:
        """One row per plan, a run of ``iterations`` iterations over one batch; times in seconds."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self._timeseries_columns())

    def save(self, directory: Path | str) -> Path:
        """Write the run directory ``directory``, new or empty, and return its path.

        ``summary.json`` and the tables come first and ``manifest.json`` says ``complete`` last, so
        a directory without that is one whose writing was cut short.
        """
        directory = Path(directory)
        check_free(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
        manifest = self._manifest()
        _write_json(directory / "manifest.json", manifest | {"status": "incomplete"})
        _write_json(directory / SUMMARY, self.summary)
        _write_parquet(directory / REQUESTS, self._request_columns())
        _write_parquet(directory / TIMESERIES, self._timeseries_columns())
        resolved = self.scenario.to_yaml()
        (directory / "resolved.yaml").write_text(resolved, encoding="utf-8")
        source = self.scenario.source_text
        (directory / "scenario.yaml").write_text(source or resolved, encoding="utf-8")
        _write_json(directory / "manifest.json", manifest)
        return directory

    def _request_columns(self) -> dict[str, NDArray[Any]]:
        run, rows = self.record, self.record.requests
        names = [STATUSES.get(code, "unfinished") for code in range(3)]
        reasons = np.array([*run.reasons, None], dtype=object)
        return {
            "request_id": rows["id"],
            "arrival_s": rows["arrival"],
            "prompt_tokens": rows["prompt_tokens"],
            "output_tokens": rows["output_tokens"],
            "generated_tokens": rows["generated"],
            "status": np.array(names, dtype=object)[rows["status"]],
            "reason": reasons[rows["reason"]],
            "replica": rows["replica"],
            "scheduled_s": rows["scheduled"],
            "first_token_s": rows["first_token"],
            "finish_s": rows["finish"],
            "queue_s": run.queue,
            "ttft_s": run.ttft,
            "tpot_s": run.tpot,
            "e2el_s": run.e2el,
            "preemptions": rows["preemptions"],
            "warmup": run.warmup,
            "slo_met": run.within_slo,
        }

    def _timeseries_columns(self) -> dict[str, NDArray[Any]]:
        return {name: self.record.plans[column] for name, column in TIMESERIES_COLUMNS.items()}

    def _manifest(self) -> dict[str, Any]:
        resolved = self.scenario.to_yaml()
        return {
            "infersim": version("infersim"),
            "python_packages": {name: _version(name) for name in ("numpy", "simpy", "pyarrow")},
            "created": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seed": self.scenario.seed,
            "scenario_sha256": sha256(resolved.encode()).hexdigest(),
            "profile": self.summary["infersim"]["provenance"],
            "status": "interrupted" if self.interrupted else "complete",
        }


def check_free(directory: Path) -> None:
    """Raise UsageError unless ``directory`` is an empty folder, or nothing yet."""
    try:
        occupied = directory.exists() and any(directory.iterdir())
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
    if occupied:
        raise UsageError(f"{directory} is not empty; a run never overwrites another")


def new_run_directory(root: Path, name: str) -> Path:
    """``root/<time>-<name>-<id>``: a folder name that no earlier run has."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
    time = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return root / f"{time}-{plain or 'run'}-{secrets.token_hex(3)}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _write_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _write_parquet(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    arrays = {
        name: pa.array(values, pa.string() if values.dtype == object else None)
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), path, compression="zstd")
