"""Reads results of AIPerf: ``profile_export.jsonl``, or the summary ``profile_export_aiperf.json``.

The JSON lines have a record per request (``metadata``, ``metrics``, ``error``), as AIPerf
0.13 writes them: times in Unix nanoseconds, each metric with its unit. The summary is that of its
schema 1.0 to 1.5; next to the lines it supplies the model. A folder stands for the lines in it, or
else for the summary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.recordings import clients
from calibrate.recordings.clients import SeenClient, mapping, reason, tokens
from calibrate.recordings.recording import (
    Recording,
    RecordingChoice,
    RecordingFormat,
    in_order,
    summed,
)
from calibrate.recordings.stated import Stated
from calibrate.recordings.summaries import Summary, arrivals, distribution, length, rates
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import json_blocks, listed, shown

LINES, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"

PACKED = (".gz", ".zst")
"""Endings of names that say how a file is packed, not what it is."""

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
"""Seconds in each unit of time that a metric may have."""

MILLISECONDS = {"ttft": "time_to_first_token", "e2el": "request_latency", "itl":
                "inter_chunk_latency", "tpot": "inter_token_latency"}  # fmt: skip
"""Our names of latencies -> AIPerf's; its inter-token latency is one mean per request."""

RATES = {
    "request_throughput": "request_throughput",
    "output_throughput": "output_token_throughput",
    "total_token_throughput": "total_token_throughput",
    "duration": "benchmark_duration",
}


def _read(path: Path, choice: RecordingChoice) -> Recording:
    if path.is_dir():
        found = next((path / name for name in (LINES, SUMMARY) if (path / name).is_file()), None)
        if found is None:
            raise TraceError(f"{path}: is a folder without {LINES} and {SUMMARY}")
        path = found
    kind = next((each for each in reversed(path.suffixes) if each not in PACKED), "")
    if kind == ".csv":
        raise TraceError(
            f"{path}: AIPerf's CSV has no single requests; give {LINES} of the same folder, or "
            f"{SUMMARY}"
        )
    if kind == ".jsonl":
        return _of_lines(path)
    return _of_summary(path)


def _of_lines(path: Path) -> Recording:
    """The single requests."""
    seen, gaps, later_turns = [], [], 0
    for block in json_blocks(path, ["metadata", "metrics"], ["error"]):
        rows = zip(block.places, *(block.columns[n] for n in ("metadata", "metrics", "error")),
                   strict=True)  # fmt: skip
        for line, metadata, metrics, error in rows:
            place = f"{path}:{line}"
            row = {"metadata": metadata, "metrics": metrics}
            about, values = mapping(place, row, "metadata"), mapping(place, row, "metrics")
            if about.get("benchmark_phase") == "warmup":
                continue
            later_turns += bool(about.get("turn_index"))
            seen.append(_seen(place, about, values, error))
            gaps.append(None if error is not None else _gaps(values))
    if not seen:
        raise TraceError(f"{path}: has no request of the profiling phase")
    requests = clients.columns(path, seen)
    ranked, _ = in_order(requests)
    beside = path.with_name(SUMMARY)
    summary = document(beside) if beside.is_file() else {}
    served = [each for each, one in zip(gaps, seen, strict=True) if one.failure is None]
    known = [each for each in served if each is not None]
    notes = list[str]()
    if later_turns:
        notes.append(
            f"{later_turns:,} requests are later turns of a conversation; their prompts include "
            "the history, and are predicted without a prefix cache unless it is switched on."
        )
    return Recording(
        files=(path, *([beside] if beside.is_file() else [])),
        requests=ranked,
        gaps=np.array([gap for each in known for gap in each])
        if len(known) == len(served)
        else None,
        samples=None,
        stated=_stated(str(beside), summary, {}),
        ttft=clients.TTFT,
        front_end="server",
        notes=tuple(notes),
        date=clients.day(float(requests.arrivals.min())),
    )


def _seen(
    place: str, about: Mapping[str, object], values: Mapping[str, object], error: object
) -> SeenClient:
    start = about.get("request_start_ns")
    if type(start) is not int or start < 0:
        raise TraceError(
            f"{place}: request_start_ns is {shown(start)}; allowed: nanoseconds from 0"
        )
    sent = start / 1e9
    if error is not None or about.get("was_cancelled"):
        told = error if isinstance(error, dict) else {}
        why = told.get("message") or told.get("type") or error
        return SeenClient(sent, sent, sent, 0, 0, reason(why))
    if "time_to_first_token" not in values:
        raise TraceError(
            f"{place}: no time_to_first_token: the answers were not streamed; run `aiperf profile` "
            "with --streaming to measure TTFT"
        )
    first, last = (
        sent + _seconds(place, values, n) for n in ("time_to_first_token", "request_latency")
    )
    if last < first:
        raise TraceError(f"{place}: request_latency is less than time_to_first_token")
    counts = {
        name: mapping(place, values, name).get("value")
        for name in ("input_sequence_length", "output_sequence_length")
    }
    prompt, output = (tokens(place, counts, name) for name in counts)
    return SeenClient(sent, first, first if output == 1 else last, prompt, output, None)


def _seconds(place: str, values: Mapping[str, object], name: str) -> float:
    """A metric that is a time; TraceError for a unit that is none."""
    metric = mapping(place, values, name)
    value, unit = metric.get("value"), metric.get("unit")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf or unit not in SECONDS:  # type: ignore[operator]
        raise TraceError(
            f"{place}: {name} is {shown(metric)}; allowed: a value from 0 with a unit of "
            f"{', '.join(SECONDS)}"
        )
    return float(value) * SECONDS[str(unit)]  # type: ignore[arg-type]


def _gaps(values: Mapping[str, object]) -> list[float] | None:
    """The times between pieces of an answer, where the record has them (s)."""
    metric = values.get("inter_chunk_latency")
    if not isinstance(metric, dict) or metric.get("unit") not in SECONDS:
        return [] if _tokens_of(values) == 1 else None
    found = metric.get("value")
    if not isinstance(found, list) or not all(isinstance(gap, int | float) for gap in found):
        return None
    return [float(gap) * SECONDS[metric["unit"]] for gap in found]


def _tokens_of(values: Mapping[str, object]) -> object:
    metric = values.get("output_sequence_length")
    return metric.get("value") if isinstance(metric, dict) else None


def _of_summary(path: Path) -> Recording:
    """The metrics alone."""
    found = document(path)
    if "request_latency" not in found or "request_count" not in found:
        raise TraceError(
            f"{path}: neither {LINES} nor a summary of AIPerf ({SUMMARY}); it has {listed(found)}"
        )
    place = str(path)
    came = _arrivals(place, found)
    told = {} if came is not None else {"workload.arrivals": "input_config has no rate or clients"}
    start = found.get("start_time")
    try:
        date = datetime.fromisoformat(str(start)).date().isoformat()
    except ValueError:
        date = None
    return summed(
        path,
        exported(place, found, came),
        _stated(place, found, told),
        notes=[f"{LINES} of the same run has the single requests."],
        date=date,
    )


def exported(place: str, found: Mapping[str, object], came: dict[str, Any] | None) -> Summary:
    """The metrics of a summary of AIPerf, or of GenAI-Perf before it, whose requests ``came`` so;
    the count is unknown where it is not stated."""

    def average(name: str) -> object:
        return mapping(place, found, name).get("avg")

    counted, failed = average("request_count"), average("error_request_count")
    means = [
        length(f"{place}: {name}", mapping(place, found, name), "avg")
        for name in ("input_sequence_length", "output_sequence_length")
    ]
    return Summary(
        metrics=_metrics(place, found),
        completed=None if counted is None else tokens(place, {"request_count": counted},
                                                      "request_count"),
        failed=int(failed) if isinstance(failed, int | float) else 0,
        prompt_tokens=means[0],
        output_tokens=means[1],
        arrivals=came,
    )  # fmt: skip


def _metrics(place: str, found: Mapping[str, object]) -> dict[str, float]:
    """Latencies (ms) and throughputs by their keys in ``summary.json``."""
    known: dict[str, float] = {}
    for ours, theirs in MILLISECONDS.items():
        block = mapping(place, found, theirs)
        factor = SECONDS.get(str(block.get("unit")), math.nan) * 1e3
        known |= distribution(block, ours, factor) if math.isfinite(factor) else {}
    for ours, theirs in RATES.items():
        known |= rates(mapping(place, found, theirs), {ours: "avg"})
    return known


def _arrivals(place: str, found: Mapping[str, object]) -> dict[str, Any] | None:
    """How requests came, of the older (``loadgen``) and the newer (``phases``) settings."""
    asked = mapping(place, found, "input_config")
    load: Mapping[str, object] = mapping(place, asked, "loadgen")
    phases = asked.get("phases")
    if isinstance(phases, list):
        mine = [each for each in phases if isinstance(each, dict)]
        named = (each for each in mine if "profiling" in (each.get("name"), each.get("kind")))
        load = next(named, load)
    rate = load.get("request_rate") or load.get("rate")
    constant = "constant" in (load.get("arrival_pattern"), load.get("request_rate_mode"),
                              load.get("type"))  # fmt: skip
    if rate is not None:
        made = arrivals(rate, 1.0, None)
        return {"kind": "constant", "rate": float(rate)} if made and constant else made  # type: ignore[arg-type]
    return arrivals("inf", 1.0, load["concurrency"]) if load.get("concurrency") else None


def _stated(place: str, summary: Mapping[str, object], unclear: Mapping[str, str]) -> Stated:
    """The model by the summary, and the client's release."""
    asked = mapping(place, summary, "input_config")
    models = mapping(place, asked, "models").get("items")
    first = models[0] if isinstance(models, list) and models else None
    names = mapping(place, asked, "endpoint").get("model_names")
    model = first.get("name") if isinstance(first, dict) else None
    if model is None and isinstance(names, list) and names:
        model = names[0]
    return Stated(
        model=model if isinstance(model, str) else None,
        gpu=None,
        engine=None,
        unclear=unclear,
        conditions={"client": "aiperf", "client_version": summary.get("aiperf_version")},
    )


FORMAT = RecordingFormat(
    name="aiperf",
    layout="AIPerf's profile_export.jsonl, or a folder with it; or profile_export_aiperf.json",
    read=_read,
    marks=("aiperf_version", "metadata metrics"),
)
