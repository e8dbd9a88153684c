"""Writes a run as the result that ``vllm bench serve --save-result --save-detailed`` would write.

One JSON object with the keys of vLLM 0.32, in its order, and its definitions: lists in seconds, one
entry per request in order of arrival; summaries in milliseconds, of all completed requests (vLLM
knows no warm-up). Requests that failed have empty entries, 0 output tokens, and the reason under
``errors``.

Of a simulated run the client is next to the engine: nothing is queued before it is sent. A law of
arrivals states its rate, and its burstiness as vLLM does (1 / cv²; 1 where there is none); traces
state the rate at which they came. A simulated run says so: in ``backend``, in ``label``, and in
``simulated_by``, a key that vLLM does not have; ``infersim observe --from`` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.export.source import ExportSource, columns
from sim.trails.tokens import How, token_times
from sim.version import version

Floats = NDArray[np.float64]

METRICS = ("ttft", "tpot", "itl")
"""Metrics summarised unless ``--percentile-metrics`` says otherwise."""

PERCENTILES = (99,)
"""The percentiles that are printed unless ``--metric-percentiles`` says otherwise."""

MOST_TOKENS = 30_000_000
"""More are not written: a file of them is above half a gigabyte."""

BACKEND = "openai"
"""The client's own default."""

SIMULATED = "simulated by infersim"
"""The backend of a result that no engine produced."""

SIMULATED_BY = "simulated_by"
"""The key of a simulated result that says what made it: ``name``, ``version``, ``scenario``."""


ROUNDING = 1e-6
"""Seconds by which times of tokens that were inferred may run back: their rounding."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """The client's view, an entry per request. ``gaps`` are those between its tokens; a request
    that failed has 0 tokens and a reason. ``how`` counts how surely token times are known."""

    start: Floats
    ttft: Floats
    latency: Floats
    gaps: Sequence[Floats]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    errors: Sequence[str]
    how: Mapping[How, int]

    @property
    def served(self) -> NDArray[np.bool_]:
        """The requests that did not fail."""
        return self.output_tokens > 0


JOINT = ("ttft", "tpot", "e2el")
"""Limits that a request keeps or breaks; those of a percentile are no matter of a single one."""


def seen(source: ExportSource) -> SeenRequest:
    """The requests of ``source`` as their clients saw them; UsageError if they have too many
    tokens for a file."""
    rows = source.requests.sort_values("arrival_s", kind="stable", ignore_index=True)
    done = (rows["status"] == "completed").to_numpy()
    tokens = np.where(done, rows["output_tokens"], 0).astype(np.int64)
    if tokens.sum() > MOST_TOKENS:
        raise UsageError(
            f"{source.path}: {tokens.sum():,} token times are too many for one JSON file (at most "
            f"{MOST_TOKENS:,}); choose some requests by --window START:END"
        )
    gaps: list[Floats] = [np.empty(0)] * len(rows)
    how: dict[How, int] = {"exact": 0, "preempted": 0, "even": 0}
    found = token_times(columns(rows[done]), columns(source.timeseries), source.courses)
    arrival = rows["arrival_s"].to_numpy(float)
    for row, (times, known) in zip(np.flatnonzero(done).tolist(), found, strict=True):
        gaps[row] = np.diff(times)
        how[known] += 1
        if not (times[0] >= arrival[row] and (gaps[row] >= -ROUNDING).all()):  # nor where NaN
            raise UsageError(
                f"{source.path}: the tokens of request {rows['request_id'][row]} do not follow its "
                "arrival and each other: requests.parquet and timeseries.parquet are not as a run "
                "left them"
            )
    reasons = zip(rows["status"], rows["reason"], strict=True)
    return SeenRequest(
        start=arrival,
        ttft=np.where(done, rows["first_token_s"] - arrival, 0.0),
        latency=np.where(done, rows["finish_s"] - arrival, 0.0),
        gaps=gaps,
        prompt_tokens=rows["prompt_tokens"].to_numpy(np.int64),
        output_tokens=tokens,
        errors=["" if state == "completed" else str(why or state) for state, why in reasons],
        how=how,
    )


def document(
    source: ExportSource, requests: SeenRequest, metrics: Sequence[str] = METRICS
) -> dict[str, Any]:
    """The JSON object, with summaries of ``metrics`` (of ttft, tpot, itl, e2el)."""
    return {
        **_setup(source, requests),
        **_totals(source, requests),
        **_details(requests),
        **_peaks(requests),
        "rtfx": 0.0,
        **_summaries(requests, metrics),
        **({} if (maker := simulated_by(source)) is None else {SIMULATED_BY: maker}),
    }


def simulated_by(source: ExportSource) -> dict[str, str] | None:
    """The tool that made a simulated run; None for one that a real engine served.

    An imported prediction stays one, whatever the directory it is in is called.
    """
    if source.observed:
        found = source.summary["infersim"].get(SIMULATED_BY)
        return dict(found) if isinstance(found, Mapping) else None
    own = source.summary["infersim"]
    made = str(own.get("version") or version())
    return {"name": "infersim", "version": made, "scenario": str(own["scenario"])}


def label(maker: Mapping[str, str] | None) -> str | None:
    """The label of a result, which names the program and the scenario of a simulated one."""
    if maker is None:
        return None
    return f"simulated by {maker['name']} {maker['version']}, scenario {maker['scenario']}"


def _setup(source: ExportSource, requests: SeenRequest) -> dict[str, Any]:
    """The settings of the benchmark: what was sent, and to which server."""
    model = source.summary["infersim"]["model"]
    rate, burstiness, concurrency = _arrivals(source, requests)
    maker = simulated_by(source)
    return {
        "date": _date(source),
        "endpoint_type": BACKEND,
        "backend": BACKEND if maker is None else SIMULATED,
        "label": label(maker),
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": len(requests.start),
        "request_rate": rate,
        "burstiness": burstiness,
        "max_concurrency": concurrency,
    }


def _date(source: ExportSource) -> str:
    """When the run was made, as vLLM writes it."""
    made = source.manifest.get("created")
    try:
        return datetime.fromisoformat(str(made)).strftime("%Y%m%d-%H%M%S")
    except ValueError:
        return "19700101-000000"


def _arrivals(source: ExportSource, requests: SeenRequest) -> tuple[float | str, float, int | None]:
    """``request_rate``, ``burstiness`` and ``max_concurrency``."""
    workload = source.scenario.get("workload")
    law = workload.get("arrivals") if isinstance(workload, Mapping) else None
    told = law if isinstance(law, Mapping) else {}
    kind = told.get("kind")
    if kind == "closed":
        return "inf", 1.0, int(told["concurrency"])
    if kind in ("poisson", "constant", "gamma"):
        cv = float(told["cv"]) if kind == "gamma" else 1.0
        return float(told["rate"]), cv**-2, None
    span = float(np.ptp(requests.start)) if len(requests.start) else 0.0
    if kind == "burst" or span == 0:
        return "inf", 1.0, None
    return (len(requests.start) - 1) / span, 1.0, None


def _totals(source: ExportSource, requests: SeenRequest) -> dict[str, Any]:
    served = requests.served
    finish = (requests.start + requests.latency)[served]
    duration = float(finish.max() - requests.start.min()) if served.any() else 0.0
    each = 1 / duration if duration else 0.0
    prompts = int(requests.prompt_tokens[served].sum())
    outputs, completed = int(requests.output_tokens.sum()), int(served.sum())
    good = _good(source, requests)
    return {
        "duration": duration,
        "completed": completed,
        "failed": len(served) - completed,
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        "request_throughput": completed * each,
        "request_goodput": None if good is None else good * each,
        "output_throughput": outputs * each,
        "total_token_throughput": (prompts + outputs) * each,
    }


def _good(source: ExportSource, requests: SeenRequest) -> int | None:
    """How many requests kept every limit; None without limits."""
    limits = {
        name: limit["limit_ms"]
        for name, limit in source.summary["infersim"]["verdict"]["limits"].items()
        if name in JOINT and limit.get("limit_ms") is not None
    }
    if not limits:
        return None
    kept = requests.served
    measured = {"ttft": requests.ttft, "tpot": _tpot(requests), "e2el": requests.latency}
    for name, limit in limits.items():
        kept = kept & (measured[name] <= limit / 1e3)
    return int(kept.sum())


def _tpot(requests: SeenRequest) -> Floats:
    """Seconds per token after the first; 0 where there is none."""
    steps = requests.output_tokens - 1
    many = steps > 0
    return np.where(many, (requests.latency - requests.ttft) / np.where(many, steps, 1), 0.0)


def _details(requests: SeenRequest) -> dict[str, Any]:
    count = len(requests.start)
    return {
        "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": requests.output_tokens.tolist(),
        "ttfts": requests.ttft.tolist(),
        "itls": [gaps.tolist() for gaps in requests.gaps],
        "latencies": requests.latency.tolist(),
        "start_times": requests.start.tolist(),
        "queue_times": [0.0] * count,
        "generated_texts": [""] * count,
        "errors": list(requests.errors),
    }


def _peaks(requests: SeenRequest) -> dict[str, Any]:
    """The most tokens in any second since the first request was sent, and the most requests that
    any such second touches."""
    served = np.flatnonzero(requests.served)
    if not served.size:
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    start = requests.start[served] - requests.start[served].min()
    first, finish = start + requests.ttft[served], start + requests.latency[served]
    seconds = int(np.ceil(finish.max())) + 1
    tokens = np.zeros(seconds, dtype=np.int64)
    for row, begin in zip(served.tolist(), first.tolist(), strict=True):
        times = begin + np.concatenate([[0.0], np.cumsum(requests.gaps[row])])
        low, counts = int(times[0]), np.bincount(times.astype(np.int64) - int(times[0]))
        tokens[low : low + len(counts)] += counts[: seconds - low]
    change = np.zeros(seconds + 1, dtype=np.int64)
    np.add.at(change, start.astype(np.int64), 1)
    np.add.at(change, finish.astype(np.int64) + 1, -1)
    return {
        "max_output_tokens_per_s": float(tokens.max()),
        "max_concurrent_requests": int(np.cumsum(change).max()),
    }


def _summaries(requests: SeenRequest, metrics: Sequence[str]) -> dict[str, float]:
    """Mean, median, deviation (ddof 0) and percentiles in milliseconds; 0 where there is nothing,
    as vLLM has it."""
    served = requests.served
    samples = {
        "ttft": requests.ttft[served],
        "tpot": _tpot(requests)[requests.output_tokens > 1],
        "itl": np.concatenate([np.empty(0), *requests.gaps]),
        "e2el": requests.latency[served],
    }
    found: dict[str, float] = {}
    for name in metrics:
        values = samples[name] * 1e3 if samples[name].size else np.zeros(1)
        found[f"mean_{name}_ms"] = float(np.mean(values))
        found[f"median_{name}_ms"] = float(np.median(values))
        found[f"std_{name}_ms"] = float(np.std(values))
        ranks = np.percentile(values, PERCENTILES)
        found |= {f"p{p}_{name}_ms": float(v) for p, v in zip(PERCENTILES, ranks, strict=True)}
    return found
