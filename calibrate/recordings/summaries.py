"""Builds records from results that only sum a run up and have no single requests.

The metrics are under the keys of ``summary.json``, which are vLLM's. The scenario of such a run
draws its requests from laws: arrivals as stated, lengths all equal to the stated mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.recordings.stated import Floats, Integers, Requests
from sim.errors import TraceError
from sim.workload.traces.bailian import BLOCK_TOKENS
from sim.workload.traces.rows import shown

DRAWN = "traffic.jsonl"
"""The file next to the scenario that has the requests drawn."""

RANKS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
DURATION = "duration"
PER_SECOND = (
    *("request_throughput", "request_goodput"),
    *("output_throughput", "total_token_throughput"),
)
RATES = (DURATION, *PER_SECOND)
METRICS = (*RATES, *(f"{rank}_{name}_ms" for name in LATENCIES for rank in RANKS))
"""The metrics that a summary may state."""


@dataclass(frozen=True, eq=False)
class DrawnTraffic:
    """Requests that stand for those of a run: seconds since the first, tokens, and the share of
    each prompt that begins like others (``alike``)."""

    arrivals: Floats
    prompt_tokens: Integers
    output_tokens: Integers
    alike: float = 0.0

    def write(self, path: Path) -> None:
        """Write them as a trace in Bailian's format, whose blocks say what is alike."""
        fresh = 0
        most = int(self.prompt_tokens.max(initial=0)) // BLOCK_TOKENS + 1
        rows = zip(
            self.arrivals.tolist(), self.prompt_tokens.tolist(), self.output_tokens.tolist(),
            strict=True,
        )  # fmt: skip
        with path.open("w", encoding="ascii") as file:
            for number, (arrival, prompt, output) in enumerate(rows):
                blocks = -(-prompt // BLOCK_TOKENS)
                shared = round(self.alike * prompt / BLOCK_TOKENS)
                own = range(most + fresh, most + fresh + blocks - shared)
                fresh += blocks - shared
                row = {"chat_id": number, "parent_chat_id": -1, "turn": 1, "timestamp": arrival}
                row |= {"input_length": prompt, "output_length": output}
                if self.alike:
                    row["hash_ids"] = [*range(shared), *own]
                file.write(f"{json.dumps(row)}\n")


EACH, UNKNOWN = 10, 1000
"""Requests of each client, or of all, where a record does not count them."""


@dataclass(frozen=True)
class Summary:
    """``metrics`` by their keys in ``summary.json``; mean lengths in tokens; ``completed`` is None
    where the file does not say how many requests there were, ``arrivals`` (as a scenario has them)
    where it does not say how they were sent; ``drawn`` are requests that stand for those of the
    run, where more than means is known; ``state`` is that of the servers, as far as it is known."""

    metrics: Mapping[str, float]
    completed: int | None
    failed: int
    prompt_tokens: float
    output_tokens: float
    arrivals: Mapping[str, Any] | None
    drawn: DrawnTraffic | None = None
    state: Mapping[str, float] = field(default_factory=dict)

    @property
    def simulated(self) -> int:
        """How many requests the scenario has."""
        if self.drawn is not None:
            return len(self.drawn.arrivals)
        clients = (self.arrivals or {}).get("concurrency", UNKNOWN // EACH)
        return self.completed or EACH * int(clients)

    def workload(self) -> dict[str, Any]:
        """The traffic of a scenario that stands for the run."""
        if self.drawn is not None:
            return {"trace": {"path": DRAWN, "format": "bailian"}}
        lengths = {
            f"{side}_tokens": {"kind": "fixed", "value": max(1, round(mean))}
            for side, mean in (("prompt", self.prompt_tokens), ("output", self.output_tokens))
        }
        return {**({} if self.arrivals is None else {"arrivals": dict(self.arrivals)}), **lengths}

    def assumptions(self) -> list[str]:
        """The assumptions of the scenario."""
        lengths = (round(self.prompt_tokens), round(self.output_tokens))
        counted = (
            f"The record does not say how many requests there were: {self.simulated:,} are assumed."
        )
        return [
            *([] if self.completed is not None else [counted]),
            "The record is a summary without single requests. Assumed: every request has the mean "
            f"length, {lengths[0]:,} prompt and {lengths[1]:,} output tokens (others: --set "
            "workload.prompt_tokens.kind=..., workload.output_tokens.kind=...); arrivals are drawn "
            "anew, so that chance in them is part of the error.",
        ]


def no_requests() -> Requests:
    """Columns without a row."""
    times = np.zeros(0)
    tokens = np.zeros(0, dtype=np.int64)
    return Requests(times, times, times, times, tokens, tokens, ())


def arrivals(rate: object, burstiness: object, concurrency: object) -> dict[str, Any] | None:
    """How requests came, as a scenario has it, from a client's settings; None if they are unclear.

    >>> arrivals("inf", 1.0, 8), arrivals(4.0, 0.25, None)
    ({'kind': 'closed', 'concurrency': 8}, {'kind': 'gamma', 'rate': 4.0, 'cv': 2.0})
    """
    if rate in ("inf", math.inf):
        if isinstance(concurrency, int) and concurrency > 0:
            return {"kind": "closed", "concurrency": concurrency}
        return {"kind": "burst"}
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < math.inf:
        return None
    shape = burstiness if isinstance(burstiness, int | float) and burstiness > 0 else 1.0
    if shape == 1:
        return {"kind": "poisson", "rate": float(rate)}
    return {"kind": "gamma", "rate": float(rate), "cv": float(shape) ** -0.5}


ALSO = {f"{rank}_e2el_ms": f"{rank}_e2e_latency_ms" for rank in RANKS} | {
    "total_token_throughput": "total_throughput"
}
"""Names of metrics in SGLang's ``bench_serving`` that differ from vLLM's."""

SUMS = {
    "request_throughput": ("completed",),
    "output_throughput": ("total_output_tokens",),
    "total_token_throughput": ("total_input_tokens", "total_output_tokens"),
}
"""The totals divided by the duration where a rate is not stated."""


def metrics(found: Mapping[str, object]) -> dict[str, float]:
    """The metrics of ``found`` that are positive numbers, under vLLM's names or SGLang's; a median
    is the p50, and a rate that is not stated follows from counts and the duration."""
    known: dict[str, float] = {}
    for key in METRICS:
        for name in (key, ALSO.get(key, key)):
            if _positive(value := found.get(name)):
                known.setdefault(key, float(value))  # type: ignore[arg-type]
    for rate, counted in SUMS.items():
        counts = [found.get(name) for name in counted]
        if rate not in known and "duration" in known and all(map(_positive, counts)):
            known[rate] = sum(map(float, counts)) / known["duration"]  # type: ignore[arg-type]
    return known | _medians(known)


def distribution(found: Mapping[str, object], name: str, factor: float = 1.0) -> dict[str, float]:
    """The metrics of the latency ``name`` (ms): what ``found`` states of its mean, deviation and
    percentiles, by any of the names that clients have for them, times ``factor``."""
    known = {
        f"{rank}_{name}_ms": float(found[theirs]) * factor  # type: ignore[arg-type]
        for theirs, rank in STATISTICS.items()
        if _positive(found.get(theirs))
    }
    return known | _medians(known)


STATISTICS = {
    **{rank: rank for rank in RANKS},
    **{"avg": "mean", "average": "mean", "std_dev": "std", "stddev": "std"},
}
"""Names of statistics in results -> ours."""


def _medians(known: Mapping[str, float]) -> dict[str, float]:
    """Medians and p50, which are the same, where one of them is known."""
    found = {}
    for name in LATENCIES:
        median, p50 = f"median_{name}_ms", f"p50_{name}_ms"
        if median in known or p50 in known:
            found[median] = known.get(median, known.get(p50, 0.0))
            found[p50] = known.get(p50, found[median])
    return found


def rates(
    found: Mapping[str, object], names: Mapping[str, str], factor: float = 1.0
) -> dict[str, float]:
    """The metrics that ``found`` has under other ``names``, as far as they are positive, times
    ``factor``."""
    stated = {ours: found.get(theirs) for ours, theirs in names.items()}
    return {ours: float(value) * factor for ours, value in stated.items() if _positive(value)}  # type: ignore[arg-type]


def length(place: str, found: Mapping[str, object], name: str) -> float:
    """A mean length in tokens; TraceError, which begins with ``place``, for anything else."""
    value = found.get(name)
    if not _positive(value) or value < 1:  # type: ignore[operator]
        raise TraceError(f"{place}: {name} is {shown(value)}; allowed: a number from 1")
    return float(value)  # type: ignore[arg-type]


def count(path: Path, found: Mapping[str, object], name: str, *, least: int) -> int:
    """A whole number of ``found``; TraceError for anything else."""
    value = found.get(name)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < least:  # type: ignore[operator]
        raise TraceError(f"{path}: {name} is {shown(value)}; allowed: a whole number from {least}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf  # type: ignore[operator]
