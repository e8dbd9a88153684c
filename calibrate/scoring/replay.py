"""Compares a log of single requests with its prediction: the same requests, again.

A log is a folder with ``requests.jsonl`` (``sim.workload.request_log``) and ``meta.json`` (the
engine's settings and its GPU). Intervals are only taken within one clock. The engine's times begin
when a request is queued, so that nothing of a server in front is in them.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.published_names import Unrepresentable
from calibrate.scoring.conditions import Conditions, written
from calibrate.scoring.figures import Quantity, ScoredFigure, predicted
from calibrate.scoring.lengths import Lengths
from calibrate.scoring.log_meta import Given, LogMeta, read_meta, representable
from calibrate.scoring.predict import Predicted, Scored, outcome
from calibrate.scoring.table import NEEDED, OPTIONAL, UNITS, Row
from sim import catalog
from sim.catalog.engine_release import preset_of
from sim.errors import TraceError
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.workload.request_log import META, REQUESTS, Floats, RequestLog, read

_NOTHING = Given()

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


def score_log(path: Path, given: Given = _NOTHING) -> list[Scored]:
    """Every metric of the log in the folder ``path`` with its prediction; ``given`` goes before
    what the log states. Raises TraceError for a log that cannot be read, or that lacks what is not
    given."""
    meta = read_meta(path / META, given)
    log, arrived, assumed = _requests(path / REQUESTS)
    measured = _measured(log)
    try:
        known, document = _document(meta, given, log, assumed)
    except Unrepresentable as reason:
        return [
            Scored(_row(path, meta, name, value), None, "", None, value, None, str(reason))
            for name, value in measured.items()
        ]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        _write_trace(trace, log, arrived)
        document["workload"] = {"trace": {"path": str(trace)}}
        ran = outcome(lambda: simulate(load_scenario(document)), known)
    return [_scored(_row(path, meta, name, value), known, value, ran) for name, value in
            measured.items()]  # fmt: skip


def _scored(row: Row, known: Conditions, value: float, ran: Predicted | str) -> Scored:
    figure, engine = _figure(row["metric"]), known.engine
    if isinstance(ran, str):
        return Scored(row, known, engine, figure.quantity, value, None, ran)
    found = predicted(figure, ran.figures)
    assert found is not None, "a log that was served has every latency"
    if figure.quantity != "tpot":  # the engine's own times have no server in front
        found -= catalog.engine(engine).front_end
    return Scored(row, known, engine, figure.quantity, value, found, "", figure.key, ran.at)


def _figure(metric: str) -> ScoredFigure:
    quantity, rank = metric.split("_")
    return ScoredFigure(quantity, f"{rank}_{quantity}_ms", UNITS["ms"])  # type: ignore[arg-type]


def _row(path: Path, meta: LogMeta, metric: str, value: float) -> Row:
    """The metric as if it stood in a table."""
    cells = dict.fromkeys((*NEEDED, *OPTIONAL), "")
    cells |= {
        "engine": "vLLM",
        "engine_version": meta.version,
        "gpu": meta.published_gpu or "",
        "n_gpus": str(meta.gpus),
        "tp": str(meta.tensor_parallel),
        "model": meta.published_model or "",
        "weight_dtype": meta.weights,
        "kv_dtype": meta.kv_cache,
        "arrival": "replay of a log",
        "metric": metric,
        "value": repr(value),
        "unit": "s",
    }
    return Row(path.name, 0, cells)


def _requests(path: Path) -> tuple[RequestLog, Floats, tuple[str, ...]]:
    """The log, when its requests arrived (s, of one clock), and what is assumed of that; all of
    them must have been served."""
    log = read(path)
    if not log.served.all():
        failed = int((~log.served).sum())
        raise TraceError(f"{path}: {failed:,} requests failed, which a simulation cannot repeat")
    if log.arrived is not None:
        return log, log.arrived, ()
    told = "no row has an arrival_time: requests arrive when the engine's core took them up"
    return log, log.queued, (told,)


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


def _document(
    meta: LogMeta, given: Given, log: RequestLog, assumed: tuple[str, ...]
) -> tuple[Conditions, dict[str, Any]]:
    """The scenario of the log without its trace. Raises Unrepresentable."""
    lengths = log.prompt_tokens + log.output_tokens
    longest = meta.max_model_len or int(lengths.max())
    if meta.max_model_len is None:
        assumed = (*assumed, f"max_model_len is not stated: {longest:,}, the longest request")
    gpu, model, weights = meta.gpu(given), meta.model(given), representable(meta.weights)
    found = preset_of("vllm", meta.version)
    assert found is not None
    document = {
        "version": 1,
        "name": "replay",
        "model": model,
        "precision": {"weights": weights, "activations": weights, "kv_cache": meta.kv_cache},
        "fleet": {"gpu": gpu, "tensor_parallel": meta.tensor_parallel},
        "engine": found.preset,
        "max_model_len": longest,
        "scheduler": {
            "max_num_seqs": meta.max_num_seqs,
            "max_num_batched_tokens": meta.max_num_batched_tokens,
        },
        "kv_cache": {"num_gpu_blocks": meta.num_gpu_blocks, "block_size": meta.block_size},
        "run": {"warmup": 0},
    }
    known = Conditions(
        driver="replay",
        version=meta.version,
        gpu=gpu,
        gpus=meta.tensor_parallel,
        model=model,
        prompt=Lengths(int(log.prompt_tokens.min()), int(log.prompt_tokens.max())),
        output=Lengths(int(log.output_tokens.min()), int(log.output_tokens.max())),
        size=None,
        scenario=written(document),
        assumed=(*meta.assumed, *assumed),
    )
    return known, document


def _write_trace(path: Path, log: RequestLog, arrived: Floats) -> None:
    order = np.argsort(arrived, kind="stable")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        for at in order:
            tokens = int(log.prompt_tokens[at]), int(log.output_tokens[at])
            table.writerow([f"{arrived[at] - arrived[order[0]]:.6f}", *tokens])
