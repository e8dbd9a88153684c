"""Reads the ``benchmarks.json`` of guidellm, one benchmark of those it holds.

Reports of guidellm 0.3 to 0.7 (schema versions 1 and 2 in ``metadata``): a list of
``benchmarks``, each with ``requests`` as ``successful``, ``incomplete`` and ``errored`` (times are
Unix seconds), and ``metrics`` that sum them up. Tokens between the first and the last one have no
times of their own. ``--sample-requests`` may have kept a part of the requests only: then the
metrics alone are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrate.recordings import clients
from calibrate.recordings.clients import SeenClient, mapping, reason, time, tokens
from calibrate.recordings.entries import RecordingEntry, chosen, note
from calibrate.recordings.recording import (
    Recording,
    RecordingChoice,
    RecordingFormat,
    in_order,
    summed,
)
from calibrate.recordings.stated import Stated
from calibrate.recordings.summaries import Summary, distribution, length, rates
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import listed, shown

GROUPS = ("successful", "errored", "incomplete")

CUT_OFF = "failed: cut off when the benchmark ended"


def _read(path: Path, choice: RecordingChoice) -> Recording:
    report = document(path)
    benchmarks = report.get("benchmarks")
    if not isinstance(benchmarks, list) or not all(isinstance(b, dict) for b in benchmarks):
        raise TraceError(
            f"{path}: no list 'benchmarks': this is not a report of guidellm; it writes one with "
            f"`--outputs json`; this file has {listed(report)}"
        )
    if not benchmarks:
        raise TraceError(f"{path}: benchmarks is an empty list: nothing was measured")
    taken = chosen(path, benchmarks, choice.entry, "benchmark")
    place = f"{path}: benchmarks[{taken.number - 1}]"
    kept = _kept(place, taken.found)
    stated = _stated(place, report, taken.found)
    start = taken.found.get("start_time")
    date = clients.day(start) if isinstance(start, float) and start > 0 else None
    notes = [*note(taken, "benchmark")]
    total = _total(place, taken.found)
    if total is not None and len(kept["successful"]) < total:
        return _summary(path, taken, stated, date, notes, len(kept["successful"]))
    seen = [
        _seen(f"{place}.requests.{group}[{number}]", each, group)
        for group in GROUPS
        for number, each in enumerate(kept[group])
    ]
    if not seen:
        raise TraceError(f"{place}: has no requests; run guidellm without --sample-requests")
    ranked, _ = in_order(clients.columns(path, seen))
    return Recording(
        files=(path,),
        requests=ranked,
        gaps=None,
        samples=None,
        stated=stated,
        ttft=clients.TTFT,
        front_end="server",
        notes=tuple(notes),
        date=date,
    )


def _kept(place: str, found: Mapping[str, object]) -> dict[str, list[dict[str, Any]]]:
    """The single requests by what became of them."""
    requests = mapping(place, found, "requests")
    kept = {}
    for group in GROUPS:
        each = requests.get(group) or []
        if not isinstance(each, list) or not all(isinstance(one, dict) for one in each):
            raise TraceError(f"{place}: requests.{group} is {shown(each)}; allowed: a list of them")
        kept[group] = each
    return kept


def _total(place: str, found: Mapping[str, object]) -> int | None:
    """How many requests were served, sampled or not; None where nothing says it."""
    metrics = mapping(place, found, "metrics")
    for holder, name in ((metrics, "request_totals"), (found, "request_totals"),
                         (found, "total_count")):  # fmt: skip
        count = mapping(place, holder, name).get("successful")
        if isinstance(count, int):
            return count
    return None


def _seen(place: str, found: dict[str, Any], group: str) -> SeenClient:
    start = "request_start_time" if "request_start_time" in found else "start_time"
    sent = time(place, found, start)
    if group != "successful":
        info = mapping(place, found, "info")
        why = reason(found.get("error") or info.get("error")) if group == "errored" else CUT_OFF
        return SeenClient(sent, sent, sent, 0, 0, why)
    outputs = tokens(place, found, "output_tokens")
    if found.get("time_to_first_token_ms") is None:
        raise TraceError(
            f"{place}: no time_to_first_token_ms: the answers were not streamed; run guidellm with "
            "streaming to measure TTFT"
        )
    first = sent + time(place, found, "time_to_first_token_ms") / 1e3
    rest = (
        time(place, found, "inter_token_latency_ms") / 1e3 * (outputs - 1) if outputs > 1 else 0.0
    )
    return SeenClient(
        sent, first, first + rest, tokens(place, found, "prompt_tokens"), outputs, None
    )


def _stated(place: str, report: Mapping[str, object], found: Mapping[str, object]) -> Stated:
    """The model, and what the report states of the client."""
    config, worker = mapping(place, found, "config"), mapping(place, found, "worker")
    backend = mapping(place, config, "backend")
    asked = mapping(place, report, "args").get("model") or mapping(
        place, mapping(place, mapping(place, report, "config"), "spec"), "backend"
    ).get("model")
    model = backend.get("model") or worker.get("backend_model") or asked
    metadata = report.get("metadata")
    version = metadata.get("guidellm_version") if isinstance(metadata, dict) else None
    conditions = {"client": "guidellm", "client_version": version}
    conditions |= {"strategy": dict(_strategy(place, found))}
    return Stated(
        model=model if isinstance(model, str) else None,
        gpu=None,
        engine=None,
        conditions=conditions,
    )


def _strategy(place: str, found: Mapping[str, object]) -> Mapping[str, object]:
    holder = "config" if "config" in found else "args"
    return mapping(place, mapping(place, found, holder), "strategy")


def _arrivals(strategy: Mapping[str, object]) -> dict[str, Any] | None:
    """How requests came, as a scenario has it; None for a strategy that is not known."""
    kind, rate = strategy.get("type_") or strategy.get("kind"), strategy.get("rate")
    streams = strategy.get("streams") or strategy.get("max_concurrency")
    if kind == "synchronous":
        return {"kind": "closed", "concurrency": 1}
    if kind in ("concurrent", "throughput") and type(streams) is int and streams > 0:
        return {"kind": "closed", "concurrency": streams}
    if kind == "throughput":
        return {"kind": "burst"}
    if kind in ("constant", "poisson") and isinstance(rate, int | float) and rate > 0:
        return {"kind": str(kind), "rate": float(rate)}
    return None


def _summary(
    path: Path, taken: RecordingEntry, stated: Stated, date: str | None, notes: list[str], kept: int
) -> Recording:
    """The metrics alone, of a report that has a sample of the requests."""
    place = f"{path}: benchmarks[{taken.number - 1}]"
    found = mapping(place, taken.found, "metrics")
    total = _total(place, taken.found) or 0

    def part(name: str) -> Mapping[str, object]:
        return mapping(place, mapping(place, found, name), "successful")

    known = {
        **distribution(part("time_to_first_token_ms"), "ttft"),
        **_percentiles(place, part("time_to_first_token_ms"), "ttft"),
        **distribution(part("request_latency"), "e2el", 1e3),
        **_percentiles(place, part("request_latency"), "e2el", 1e3),
        **rates(part("inter_token_latency_ms"), {"mean_itl_ms": "mean"}),
        **rates(taken.found, {"duration": "duration"}),
    }
    for theirs, ours in (("requests_per_second", "request_throughput"),
                         ("output_tokens_per_second", "output_throughput"),
                         ("tokens_per_second", "total_token_throughput")):  # fmt: skip
        known |= rates(part(theirs), {ours: "mean"})
    came = _arrivals(_strategy(place, taken.found))
    lengths = [
        length(f"{place}.metrics.{name}", part(name), "mean")
        for name in ("prompt_token_count", "output_token_count")
    ]
    summary = Summary(known, total, 0, lengths[0], lengths[1], came)
    unclear = {} if came is not None else {"workload.arrivals": "the strategy is not a known one"}
    sampled = f"The report has {kept:,} of {total:,} requests (--sample-requests)."
    return summed(
        path, summary, replace(stated, unclear=unclear), notes=(*notes, sampled), date=date
    )


def _percentiles(
    place: str, found: Mapping[str, object], name: str, factor: float = 1.0
) -> dict[str, float]:
    return distribution(mapping(place, found, "percentiles"), name, factor)


FORMAT = RecordingFormat(
    name="guidellm",
    layout="the benchmarks.json of guidellm, with all requests or a sample of them",
    read=_read,
    marks=("benchmarks",),
    several=True,
)
