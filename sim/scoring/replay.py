"""What does a log of single requests say, and how is it predicted? The same requests, again.

A log is a folder with ``requests.jsonl`` (``sim.workload.request_log``) and ``meta.json`` (the
engine's settings and its GPU). Intervals are only taken within one clock. The engine's times begin
when a request is queued, so that nothing of a server in front is in them.
"""

from __future__ import annotations

import csv
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sim import catalog
from sim.errors import TraceError
from sim.scenario import load_scenario
from sim.scoring.conditions import Conditions, Lengths
from sim.scoring.figures import UNITS, Figure, Quantity
from sim.scoring.names import Unrepresentable, gpu_name, model_name
from sim.scoring.predict import Scored, outcome
from sim.scoring.table import NEEDED, OPTIONAL, Row
from sim.simulation import simulate
from sim.workload.request_log import META, REQUESTS, Floats, RequestLog, read
from sim.workload.traces.rows import json_row

METRICS: tuple[tuple[Quantity, str], ...] = (
    ("ttft", "mean"),
    ("ttft", "p50"),
    ("ttft", "p90"),
    ("tpot", "mean"),
    ("tpot", "p50"),
    ("tpot", "p90"),
    ("e2el", "mean"),
    ("e2el", "p50"),
    ("e2el", "p90"),
)


def is_log(path: Path) -> bool:
    """Whether ``path`` is a folder with a log of requests."""
    return path.is_dir() and (path / REQUESTS).exists()


def score_log(path: Path) -> list[Scored]:
    """Every metric of the log in the folder ``path`` beside its prediction. Raises TraceError for a
    log that cannot be read."""
    meta = _meta(path / META)
    log, arrived = _requests(path / REQUESTS)
    measured = _measured(log)
    try:
        known, document = _document(meta, log)
    except Unrepresentable as reason:
        return [
            Scored(_row(path, meta, name, value), None, "", None, value, None, str(reason))
            for name, value in measured.items()
        ]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        _write_trace(trace, log, arrived)
        document["workload"] = {"trace": {"path": str(trace)}}
        summary = outcome(lambda: simulate(load_scenario(document)))
    return [_scored(_row(path, meta, name, value), known, value, summary) for name, value in
            measured.items()]  # fmt: skip


def _scored(row: Row, known: Conditions, value: float, summary: dict[str, Any] | str) -> Scored:
    figure = _figure(row["metric"])
    if isinstance(summary, str):
        return Scored(row, known, "vllm", figure.quantity, value, None, summary)
    predicted = float(summary[figure.key]) * figure.factor
    if figure.quantity != "tpot":  # the engine's own times have no server in front
        predicted -= catalog.engine("vllm").front_end
    return Scored(row, known, "vllm", figure.quantity, value, predicted, "")


def _figure(metric: str) -> Figure:
    quantity, rank = metric.split("_")
    return Figure(quantity, f"{rank}_{quantity}_ms", UNITS["ms"])  # type: ignore[arg-type]


def _row(path: Path, meta: dict[str, Any], metric: str, value: float) -> Row:
    """The metric as if it stood in a table."""
    cells = dict.fromkeys((*NEEDED, *OPTIONAL), "")
    cells |= {
        "engine": "vLLM",
        "engine_version": str(meta["vllm_version"]),
        "gpu": str(meta["hardware"]["device_name"]),
        "n_gpus": str(meta["hardware"]["device_count"]),
        "tp": str(meta["engine_kwargs"]["tensor_parallel_size"]),
        "model": str(meta["model"]),
        "weight_dtype": str(meta["engine_kwargs"]["dtype"]),
        "kv_dtype": str(meta["engine_kwargs"]["kv_cache_dtype"]),
        "arrival": "replay of a log",
        "metric": metric,
        "value": repr(value),
        "unit": "s",
    }
    return Row(path.name, 0, cells)


def _meta(path: Path) -> dict[str, Any]:
    found = json_row(path, 1, path.read_text(encoding="utf-8") if path.exists() else "")
    wanted = ("model", "vllm_version", "engine_kwargs", "hardware", "kv_cache")
    missing = [key for key in wanted if key not in found]
    if missing:
        raise TraceError(f"{path}: lacks {', '.join(missing)}")
    return found


def _requests(path: Path) -> tuple[RequestLog, Floats]:
    """The log, and when its requests arrived (s, Unix time); all of them must have been served."""
    log = read(path)
    if log.arrived is None:
        raise TraceError(f"{path}: no row has an arrival_time, without which nothing is replayed")
    if not log.served.all():
        failed = int((~log.served).sum())
        raise TraceError(f"{path}: {failed:,} requests failed, which a simulation cannot repeat")
    return log, log.arrived


def _measured(log: RequestLog) -> dict[str, float]:
    """The figures of the log, seconds, by metric."""
    several = log.output_tokens > 1
    streamed = log.last_token - log.first_token
    times = {
        "ttft": log.first_token - log.queued,
        "tpot": streamed[several] / (log.output_tokens[several] - 1),
        "e2el": log.last_token - log.queued,
    }
    found = {}
    for quantity, rank in METRICS:
        values = times[quantity]
        mean = rank == "mean"
        value = np.mean(values) if mean else np.percentile(values, float(rank[1:]))
        found[f"{quantity}_{rank}"] = float(value)
    return found


def _document(meta: dict[str, Any], log: RequestLog) -> tuple[Conditions, dict[str, Any]]:
    """The scenario of the log but for its trace. Raises Unrepresentable."""
    settings, cache = meta["engine_kwargs"], meta["kv_cache"]
    known = Conditions(
        driver="replay",
        engine="vLLM",
        version=str(meta["vllm_version"]),
        gpu=gpu_name(str(meta["hardware"]["device_name"])),
        gpus=int(settings["tensor_parallel_size"]),
        model=model_name(str(meta["model"])),
        weights="bf16",
        kv_cache="bf16",
        tensor_parallel=int(settings["tensor_parallel_size"]),
        prompt=Lengths(int(log.prompt_tokens.min()), int(log.prompt_tokens.max())),
        output=Lengths(int(log.output_tokens.min()), int(log.output_tokens.max())),
        size=None,
        rate=None,
        requests=len(log.prompt_tokens),
        memory_fraction=None,
        max_num_batched_tokens=int(settings["max_num_batched_tokens"]),
    )
    if cache.get("enable_prefix_caching"):
        known = replace(known, assumed=("its prefix cache is left out",))
    document = {
        "version": 1,
        "name": "replay",
        "model": known.model,
        "fleet": {"gpu": known.gpu, "tensor_parallel": known.tensor_parallel},
        "engine": "vllm",
        "max_model_len": int(settings["max_model_len"]),
        "scheduler": {
            "max_num_seqs": int(settings["max_num_seqs"]),
            "max_num_batched_tokens": known.max_num_batched_tokens,
        },
        "kv_cache": {
            "num_gpu_blocks": int(cache["num_gpu_blocks"]),
            "block_size": int(cache["block_size"]),
        },
        "run": {"warmup": 0},
    }
    return known, document


def _write_trace(path: Path, log: RequestLog, arrived: Floats) -> None:
    order = np.argsort(arrived, kind="stable")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        for at in order:
            tokens = int(log.prompt_tokens[at]), int(log.output_tokens[at])
            table.writerow([f"{arrived[at] - arrived[order[0]]:.6f}", *tokens])
