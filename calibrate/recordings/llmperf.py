"""Reads results of llmperf (ray-project): ``*_summary.json`` or ``*_individual_responses.json``.

Seconds. The summary is one flat object, ``results_ttft_s_quantiles_p50`` and the like
(token_benchmark_ray.py). Single responses have latencies and lengths, but not when they were sent,
and are summed up here; the summary next to them has the model and the number of clients. Its
``inter_token_latency_s`` counts the first token with the others and is left out; TPOT is known from
single responses alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calibrate.recordings.clients import day, time, tokens
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, summed
from calibrate.recordings.stated import Floats, Stated
from calibrate.recordings.summaries import Summary, arrivals, count, distribution, length, rates
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import json_reason, listed, shown
from sim.workload.traces.text import whole

SINGLE, SUMMARY = "individual_responses", "summary"
CLIENTS = "num_concurrent_requests"
LATENCIES = {"ttft": "ttft_s", "e2el": "end_to_end_latency_s"}
LENGTHS = ("number_input_tokens", "number_output_tokens")
RANKS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def _read(path: Path, choice: RecordingChoice) -> Recording:
    text = whole(path)
    if text.lstrip().startswith("["):
        return _of_responses(path, text)
    found = document(path)
    if f"results_{LATENCIES['ttft']}_mean" not in found:
        raise TraceError(
            f"{path}: neither single responses nor a summary of llmperf; it has {listed(found)}"
        )
    known = dict[str, float]()
    for ours, theirs in LATENCIES.items():
        start = f"results_{theirs}_"
        stated = {name.removeprefix(start).removeprefix("quantiles_"): value
                  for name, value in found.items() if name.startswith(start)}  # fmt: skip
        known |= distribution(stated, ours, 1e3)
    known |= rates(found, {"output_throughput": "results_mean_output_throughput_token_per_s"})
    known |= rates(found, {"request_throughput": "results_num_completed_requests_per_min"}, 1 / 60)
    failed = found.get("results_number_errors")
    lengths = [length(str(path), found, f"results_{name}_mean") for name in LENGTHS]
    summary = Summary(
        metrics=known,
        completed=count(path, found, "results_num_completed_requests", least=1),
        failed=failed if type(failed) is int else 0,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        arrivals=arrivals("inf", 1.0, found[CLIENTS]) if found.get(CLIENTS) else None,
    )
    return _recording(path, summary, found)


def _of_responses(path: Path, text: str) -> Recording:
    """The metrics of single responses."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not JSON: {json_reason(error)}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise TraceError(f"{path}: not a list of responses, as llmperf writes it")
    places = {f"{path}: [{number}]": row for number, row in enumerate(rows)}
    served = {at: row for at, row in places.items() if row.get("error_code") is None}
    if not served:
        raise TraceError(f"{path}: none of the {len(rows):,} requests was served")
    first, last = (
        np.array([time(at, row, name) for at, row in served.items()]) for name in LATENCIES.values()
    )
    prompts, outputs = (
        np.array([tokens(at, row, name) for at, row in served.items()]) for name in LENGTHS
    )
    more = outputs > 1
    known = _statistics(first, "ttft") | _statistics(last, "e2el")
    known |= _statistics((last - first)[more] / (outputs[more] - 1), "tpot")
    beside = path.with_name(path.name.replace(SINGLE, SUMMARY))
    found = document(beside) if beside != path and beside.is_file() else {}
    summary = Summary(
        metrics=known,
        completed=len(served),
        failed=len(rows) - len(served),
        prompt_tokens=float(prompts.mean()),
        output_tokens=float(outputs.mean()),
        arrivals=arrivals("inf", 1.0, found[CLIENTS]) if found.get(CLIENTS) else None,
    )
    return _recording(path, summary, found, [beside] if found else [])


def _statistics(seconds: Floats, name: str) -> dict[str, float]:
    if not len(seconds):
        return {}
    ranks = {rank: float(np.percentile(seconds, share)) for rank, share in RANKS.items()}
    return distribution({"mean": float(seconds.mean()), **ranks}, name, 1e3)


def _recording(
    path: Path, summary: Summary, found: Mapping[str, object], beside: list[Path] | None = None
) -> Recording:
    model, made = found.get("model"), found.get("timestamp")
    told = f"{CLIENTS} is {shown(found.get(CLIENTS))}"
    stated = Stated(
        model=model if isinstance(model, str) else None,
        gpu=None,
        engine=None,
        unclear={} if summary.arrivals else {"workload.arrivals": told},
        conditions={"client": "llmperf"},
    )
    date = day(made) if type(made) is int and made > 0 else None
    return summed(path, summary, stated, date=date, beside=beside or [])


FORMAT = RecordingFormat(
    name="llmperf",
    layout="*_summary.json or *_individual_responses.json of llmperf",
    read=_read,
    marks=("results_ttft_s_mean", "ttft_s end_to_end_latency_s"),
)
