"""Reads a window of a Prometheus server that scrapes vLLM's or SGLang's metrics.

What is kept are counters and histograms, no single requests: the traffic is drawn anew, as many
requests in each step of the window as had their first token in it, with lengths by the histograms
of prompts and answers, and of their texts as much alike as the prefix cache found. Latencies are
those of the histograms; between two bounds of a bucket values are taken to be spread evenly, as
Prometheus' own ``histogram_quantile`` takes them. Names of metrics as in vLLM
(``v1/metrics/loggers.py``) and SGLang (``srt/metrics/collector.py``).
"""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrate.recordings.prometheus_queries import Prometheus
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat
from calibrate.recordings.scenario import REPLICAS
from calibrate.recordings.stated import Floats, Integers, Stated
from calibrate.recordings.summaries import DrawnTraffic, Summary, no_requests
from sim.errors import TraceError
from sim.units import show_share, show_time
from sim.workload.traces.scaling import busiest

STEPS = 240
"""Steps of the window in which requests are counted, at most."""

LEAST_STEP = 5.0
"""Seconds: Prometheus looks at a server every few seconds at most."""

MOST = 500_000
"""Requests that are drawn at most: of a longer window those of its last part."""

ALIKE = 0.02
"""The share of prompts found in a prefix cache from which on texts are drawn alike."""

WINDOW = 3600.0
"""Seconds that are read where nothing is said."""


class MetricNames(NamedTuple):
    """The names of an engine's metrics, each with those of older releases."""

    engine: str
    ttft: tuple[str, ...]
    tpot: tuple[str, ...]
    itl: tuple[str, ...]
    e2el: tuple[str, ...]
    prompts: tuple[str, ...]
    outputs: tuple[str, ...]
    prompt_total: str
    output_total: str
    running: str
    waiting: str
    kv_used: tuple[str, ...]


ENGINES = (
    MetricNames(
        "vllm",
        ("vllm:time_to_first_token_seconds",),
        ("vllm:request_time_per_output_token_seconds",),
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("vllm:e2e_request_latency_seconds",),
        ("vllm:request_prompt_tokens",),
        ("vllm:request_generation_tokens",),
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ),
    MetricNames(
        "sglang",
        ("sglang:time_to_first_token_seconds",),
        (),
        ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        ("sglang:e2e_request_latency_seconds",),
        ("sglang:prompt_tokens_histogram",),
        ("sglang:generation_tokens_histogram",),
        "sglang:prompt_tokens_total",
        "sglang:generation_tokens_total",
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        ("sglang:token_usage",),
    ),
)


def _read(path: Path, choice: RecordingChoice) -> Recording:
    url = re.sub(r"^(https?):/+", r"\1://", str(path)).rstrip("/")
    window = WINDOW if choice.window is None else choice.window
    until = _moment(choice.until)
    asked = Prometheus(url, window, until, choice.select)
    names = next((each for each in ENGINES if asked.increase(f"{each.ttft[0]}_count")), None)
    if names is None:
        raise TraceError(
            f"{url}: neither vLLM nor SGLang served a request in the {show_time(window)} before "
            f"{_utc(until)}; another window: --window, --until; other series: --select"
        )
    short = _shortened(asked, names)
    window = asked.window
    model = _model(asked, names)
    metrics, notes = _metrics(asked, names)
    step = max(LEAST_STEP, window / STEPS)
    traffic, drawn = _traffic(asked, names, step, choice.seed)
    notes += [*short, *drawn]
    completed = round(asked.increase(f"{names.ttft[0]}_count") or 0)
    prompts = (asked.increase(names.prompt_total) or 0.0) / max(1, completed)
    outputs = (asked.increase(names.output_total) or 0.0) / max(1, completed)
    metrics |= {
        "duration": window,
        "request_throughput": completed / window,
        "output_throughput": outputs * completed / window,
        "total_token_throughput": (prompts + outputs) * completed / window,
    }
    settings, conditions = _server(asked, names)
    state = {key: value for key, value in conditions.items() if isinstance(value, float)}
    if traffic.alike:
        state["hit_rate"] = traffic.alike
    summary = Summary(
        metrics={key: value for key, value in metrics.items() if value > 0},
        completed=completed,
        failed=0,
        prompt_tokens=prompts,
        output_tokens=outputs,
        arrivals=None,
        drawn=traffic,
        state=state,
    )
    return Recording(
        files=(Path(urllib.parse.urlsplit(url).netloc),),
        requests=no_requests(),
        gaps=None,
        samples=None,
        stated=Stated(model, None, names.engine, settings=settings, conditions=conditions),
        ttft="TTFT is the server's own, from the arrival of a request to its first token.",
        front_end="server",
        notes=tuple(notes),
        date=_utc(until)[:10],
        summary=summary,
    )


def _shortened(asked: Prometheus, names: MetricNames) -> list[str]:
    """Cut the window down to the time that Prometheus has data of; the note on that."""
    step = max(LEAST_STEP, asked.window / STEPS)
    seen = asked.over(f"count({asked.series(names.running)})", step)
    if not seen:
        return []
    late = seen[0][0] - step - (asked.until - asked.window)
    if late <= 2 * step:
        return []
    asked.window -= late
    return [
        f"Prometheus has data of the last {show_time(asked.window)} of the window alone: rates are "
        "over that time."
    ]


def _moment(text: str | None) -> float:
    """The end of the window as Unix seconds; now where nothing is said."""
    if text is None:
        return datetime.now(UTC).timestamp()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(
            f"--until {text}: expected a date with time, such as 2026-11-28T18:00"
        ) from None
    return found.astimezone().timestamp()


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _model(asked: Prometheus, names: MetricNames) -> str | None:
    """The model that the servers name; TraceError for several."""
    found = asked.ask(f"count by (model_name) ({asked.series(names.running)})")
    models = sorted({row["metric"].get("model_name", "") for row in found} - {""})
    if len(models) > 1:
        raise TraceError(
            f"{asked.url}: serves {', '.join(models)}: choose one, "
            f"--select 'model_name=\"{models[0]}\"'"
        )
    return models[0] if models else None


def _metrics(asked: Prometheus, names: MetricNames) -> tuple[dict[str, float], list[str]]:
    """Latencies (ms) by the keys of a summary, and notes."""
    found: dict[str, float] = {}
    left_out: set[str] = set()
    for key in ("ttft", "tpot", "itl", "e2el"):
        histogram = asked.histogram(getattr(names, key))
        if histogram is None:
            continue
        known = [rank for rank in (50, 90, 95, 99) if histogram.knows(rank / 100)]
        ranks = {f"p{rank}": histogram.quantile(rank / 100) for rank in known}
        if histogram.mean is not None:
            ranks["mean"] = histogram.mean
        if 50 in known:
            ranks["median"] = ranks["p50"]
        found |= {f"{rank}_{key}_ms": 1e3 * value for rank, value in ranks.items()}
        left_out |= {f"{key.upper()} p{rank}" for rank in (50, 90, 95, 99) if rank not in known}
    notes = ["Percentiles are read off histograms, as evenly spread in each bucket."]
    if left_out:
        listed = ", ".join(sorted(left_out))
        notes.append(f"Left out, since their buckets are too wide to say: {listed}.")
    return found, notes


def _traffic(
    asked: Prometheus, names: MetricNames, step: float, seed: int
) -> tuple[DrawnTraffic, list[str]]:
    """Requests drawn by the counters of each step and the histograms of lengths, and notes."""
    first = asked.series(f"{names.ttft[0]}_count")
    curve = asked.over(f"sum(increase({first}[{step:g}s]))", step)
    times = np.array([time for time, _ in curve])
    counts = np.maximum(0.0, np.nan_to_num(np.array([count for _, count in curve])))
    total = asked.increase(f"{names.ttft[0]}_count") or 0.0
    if not len(counts) or not counts.sum():
        times, counts = np.array([asked.until]), np.array([total])
        step = asked.window
    draw = np.random.default_rng(seed)
    each = np.diff(np.rint(np.cumsum(counts * (total / counts.sum()))), prepend=0).astype(np.int64)
    starts = times - step - (asked.until - asked.window)
    arrivals = np.sort(np.repeat(starts, each) + step * draw.random(int(each.sum())))
    notes = [
        "The traffic is drawn anew: as many requests in each "
        f"{show_time(step)} as had their first token in it, with lengths by histograms."
    ]
    if len(arrivals) > MOST:
        notes.append(f"Of {len(arrivals):,} requests the last {MOST:,} are in the trace.")
        arrivals = arrivals[-MOST:]
    size = len(arrivals)
    prompts = _lengths(asked, names.prompts, names.prompt_total, total, size, draw, notes)
    outputs = _lengths(asked, names.outputs, names.output_total, total, size, draw, notes)
    notes += _busy_hour(asked, names, arrivals, prompts + outputs)
    arrivals = arrivals - arrivals[0] if size else arrivals
    found = _found(asked, names)
    if found >= ALIKE:
        notes.append(
            f"{show_share(found)} of the prompt tokens were found in the prefix cache: prompts are "
            "drawn so that as large a part of each begins alike."
        )
    return DrawnTraffic(arrivals, prompts, outputs, found if found >= ALIKE else 0.0), notes


def _busy_hour(
    asked: Prometheus, names: MetricNames, arrivals: Floats, tokens: Integers
) -> list[str]:
    """The hour in which most tokens came, and what the servers were like in it, in a note; none for
    a window that is not much longer."""
    if asked.window < 2 * WINDOW or not len(arrivals):
        return []
    of_it = arrivals[busiest(arrivals, tokens, WINDOW)]
    first = min(asked.until - WINDOW, asked.until - asked.window + float(of_it[0]))
    hour = Prometheus(asked.url, WINDOW, first + WINDOW, asked.select)
    times = [f"{len(of_it) / WINDOW:.3g} requests/s"]
    for name, histogram in (("TTFT", names.ttft), ("TPOT", names.tpot)):
        found = hour.histogram(histogram)
        if found is not None and found.knows(0.95):
            times.append(f"{name} p95 {show_time(found.quantile(0.95))}")
    return [f"Busy hour, from {_utc(first)}: {', '.join(times)} (workload.trace.busiest: 1h)."]


def _lengths(
    asked: Prometheus,
    names: Sequence[str],
    total: str,
    requests: float,
    size: int,
    draw: np.random.Generator,
    notes: list[str],
) -> Integers:
    """Lengths of ``size`` requests by a histogram, with its mean; all alike where there is none."""
    histogram = asked.histogram(names)
    if histogram is None:
        mean = (asked.increase(total) or 0.0) / max(1.0, requests)
        notes.append(f"No histogram of {total.rpartition(':')[2]}: all are {mean:.0f} tokens long.")
        return np.full(size, max(1, round(mean)), dtype=np.int64)
    lengths = histogram.at(draw.random(size))
    if histogram.mean is not None and size:
        lengths = lengths * (histogram.mean / max(1e-9, float(lengths.mean())))
    return np.maximum(1, np.rint(lengths)).astype(np.int64)


def _found(asked: Prometheus, names: MetricNames) -> float:
    """The share of prompt tokens that prefix caches found."""
    if names.engine == "sglang":
        share = asked.number(
            f"avg(avg_over_time({asked.series('sglang:cache_hit_rate')}[{asked.window:.0f}s]))"
        )
        return min(1.0, share or 0.0)
    for prefix in ("vllm:", "vllm:gpu_"):
        looked = asked.increase(f"{prefix}prefix_cache_queries_total")
        if looked:
            return min(1.0, (asked.increase(f"{prefix}prefix_cache_hits_total") or 0.0) / looked)
    return 0.0


def _server(asked: Prometheus, names: MetricNames) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings that the servers export, by the keys of a scenario, and the state that they were
    in."""
    settings: dict[str, Any] = {}
    servers = asked.number(f"count({asked.series(names.running)})")
    if servers is not None and servers > 1:
        settings[REPLICAS] = round(servers)
    rows = asked.ask(asked.series("vllm:cache_config_info"))
    info = rows[0]["metric"] if rows else {}
    if str(info.get("num_gpu_blocks", "")).isdecimal():
        settings["kv_cache.num_gpu_blocks"] = int(info["num_gpu_blocks"])
    if str(info.get("block_size", "")).isdecimal():
        settings["kv_cache.block_size"] = int(info["block_size"])
    cached = {"True": True, "False": False}.get(str(info.get("enable_prefix_caching")))
    if cached is not None:
        settings["kv_cache.enable_prefix_caching"] = cached
    window = f"[{asked.window:.0f}s]"
    state = {
        "mean_running": f"sum(avg_over_time({asked.series(names.running)}{window}))",
        "mean_waiting": f"sum(avg_over_time({asked.series(names.waiting)}{window}))",
        "peak_waiting": f"sum(max_over_time({asked.series(names.waiting)}{window}))",
    }
    conditions: dict[str, Any] = {key: asked.number(query) for key, query in state.items()}
    used = (
        asked.number(f"avg(avg_over_time({asked.series(name)}{window}))") for name in names.kv_used
    )
    conditions["mean_kv_used"] = next((share for share in used if share is not None), None)
    conditions |= {"window_s": asked.window, "until": _utc(asked.until)}
    preempted = asked.increase("vllm:num_preemptions_total")
    return settings, conditions | {"preemptions": preempted}


FORMAT = RecordingFormat(
    name="prometheus",
    layout="the address of a Prometheus server that scrapes vLLM or SGLang, http://HOST:9090",
    read=_read,
)
