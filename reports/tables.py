"""Builds the tables of a run's page.

A table is plain data here (text to read, number to sort by and to copy); it becomes HTML in
``templates/tables.html.j2``. Latencies in milliseconds, shares in percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.definitions import DEFINITIONS
from reports.formats import Kind, Shown, show
from reports.repetitions import plus_minus
from reports.run_directory import known, pick
from reports.sections.missing import is_observed
from reports.slo import Limit, digits, limits, shown_limit
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS


class Column(NamedTuple):
    """A heading; ``definition`` is the key of the definition that it links to, ``prose`` text that
    may take several lines, ``unit`` that of the values that are copied, where cells show others."""

    title: str
    numeric: bool = True
    definition: str | None = None
    prose: bool = False
    unit: str = ""


class Cell(NamedTuple):
    """What to read, what to sort by (None comes last), the width of a bar, 0..1, if any, and what
    is shown under the pointer."""

    text: str
    value: float | str | None
    definition: str | None = None
    bar: float | None = None
    hint: str = ""


class Table(NamedTuple):
    """Rows under a caption; ``name`` is unique on the page."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Line(NamedTuple):
    """A fact: which definition, where in the summary, how to write it; ``detail``: mean, peak."""

    definition: str
    path: str
    kind: Kind = "number"
    unit: str = ""
    detail: str = ""


THROUGHPUT = (
    Line("request_throughput", "request_throughput", unit="requests/s"),
    Line("goodput", "request_goodput", unit="requests/s"),
    Line("output_throughput", "output_throughput", unit="tokens/s"),
    Line("total_throughput", "total_token_throughput", unit="tokens/s"),
    Line("duration", "duration", "s"),
)
REQUESTS = (
    Line("submitted", "infersim.requests.submitted", "count"),
    Line("completed", "infersim.requests.completed", "count"),
    Line("rejected", "infersim.requests.rejected", "count"),
    Line("unfinished", "infersim.requests.unfinished", "count"),
    Line("one_token", "infersim.requests.one_token", "count"),
    Line("warmup", "infersim.requests.warmup", "count"),
    Line("input_tokens", "total_input_tokens", "count", "tokens"),
    Line("output_tokens", "total_output_tokens", "count", "tokens"),
)
MEMORY = (
    Line("kv_tokens", "infersim.kv_cache.tokens", "count", "tokens"),
    Line("kv_blocks", "infersim.kv_cache.num_gpu_blocks", "count", "blocks"),
    Line("block_size", "infersim.kv_cache.block_size", "count", "tokens"),
    Line("max_model_len", "infersim.kv_cache.max_model_len", "count", "tokens"),
    Line("max_concurrency", "infersim.kv_cache.max_concurrency", unit="requests"),
    Line("kv_used", "infersim.kv_cache.mean_used", "share", "%", "mean"),
    Line("kv_used", "infersim.kv_cache.peak_used", "share", "%", "peak"),
    Line("kv_reserved", "infersim.kv_cache.mean_reserved", "share", "%", "mean"),
    Line("fragmentation", "infersim.kv_cache.fragmentation", "share", "%"),
    Line("preemptions", "infersim.preemptions", "count"),
)
BATCH = (
    Line("iterations", "infersim.batch.iterations", "count"),
    Line("iteration_time", "infersim.batch.mean_iteration_ms", "ms"),
    Line("running", "infersim.batch.mean_running", unit="requests", detail="mean"),
    Line("running", "infersim.batch.peak_running", "count", "requests", "peak"),
    Line("waiting", "infersim.batch.mean_waiting", unit="requests", detail="mean"),
    Line("waiting", "infersim.batch.peak_waiting", "count", "requests", "peak"),
    Line("decode_batch", "infersim.batch.mean_decode_batch", unit="sequences", detail="mean"),
    Line("decode_batch", "infersim.batch.peak_decode_batch", "count", "sequences", "peak"),
    Line("busy", "infersim.utilisation.busy", "share", "%"),
    Line("mfu", "infersim.utilisation.mfu", "share", "%"),
    Line("mbu", "infersim.utilisation.mbu", "share", "%"),
)
COST = (
    Line("cost", "infersim.cost.usd_per_million_output_tokens", "usd", PER_OUTPUT_TOKENS),
    Line("cost", "infersim.cost.usd_per_million_tokens", "usd", PER_TOKENS),
    Line("cost", "infersim.cost.usd", "usd", "USD", "of the whole duration"),
    Line("gpus", "infersim.gpus", "count"),
)
ENERGY = (Line("energy", "infersim.energy.joules_per_output_token", unit="J", detail="per token"),)

_STATISTICS = {"mean": "mean", "std": "std", "median": "p50", "p90": "p90", "p95": "p95"}
_STATISTICS |= {"p99": "p99"}


def facts(summary: Mapping[str, Any], name: str, caption: str, lines: Sequence[Line]) -> Table:
    """A table ``Metric | Value | Unit`` with one row per line."""
    columns = (Column("Metric", numeric=False), Column("Value"), Column("Unit", numeric=False))
    rows = []
    for line in lines:
        title = DEFINITIONS[line.definition].title + (f", {line.detail}" if line.detail else "")
        shown = _beside(show(pick(summary, line.path), line.kind), summary, line.path, line.kind)
        unit = Cell(line.unit, line.unit)
        rows.append((Cell(title, title, line.definition), Cell(*shown), unit))
    return Table(name, caption, columns, tuple(rows))


def own_metrics(summary: Mapping[str, Any]) -> Table:
    """The user's own metrics, one a row; none without any."""
    columns = (Column("Metric", numeric=False), Column("Value"))
    rows = []
    for name, value in (known(summary, "infersim.metrics") or {}).items():
        spread = known(summary, "infersim.repetitions.intervals") or {}
        half = (spread.get(f"metrics.{name}") or {}).get("half_width")
        shown = show(value, "number")
        text = f"{shown.text} ± {show(half, 'number').text}" if half else shown.text
        rows.append((Cell(name, name), Cell(text, shown.value)))
    return Table("own-metrics", "Metrics of your own", columns, tuple(rows))


def costs(summary: Mapping[str, Any]) -> Table:
    """What the run costs, stated and derived: by the token, the request and the hour."""
    made = facts(summary, "cost-table", "Cost", COST)
    usd, hourly = (pick(summary, f"infersim.cost.{key}") for key in ("usd", "usd_per_gpu_hour"))
    completed, rate = pick(summary, "completed"), pick(summary, "request_throughput")
    good = pick(summary, "request_goodput")
    kept = completed * good / rate if good and rate else None
    within = [("per 1,000 requests within all limits", _over(1000 * usd, kept))]
    whose = known(summary, "infersim.cost.text")
    derived = [
        ("per 1,000 requests", _over(1000 * usd, completed)),
        *(within if limits(summary) else ()),
        ("of the fleet, per hour", hourly * pick(summary, "infersim.gpus")),
        (f"of one GPU hour ({whose})" if whose else "of one GPU hour", hourly),
    ]
    rows = [_fact("cost", detail, show(value, "usd"), "USD") for detail, value in derived]
    return made._replace(rows=(*made.rows[:2], *rows, *made.rows[2:]))


def energy(summary: Mapping[str, Any]) -> Table:
    """The energy of the run, by the token and in all, and what the GPUs draw on average."""
    made = facts(summary, "energy", "Energy", ENERGY)
    joules = pick(summary, "infersim.energy.joules_per_output_token")
    total = joules * pick(summary, "total_output_tokens")
    duration, completed = pick(summary, "duration"), pick(summary, "completed")
    rows = (
        _fact("energy", "per request", show(_over(total, completed), "number"), "J"),
        _fact("energy", "of the whole duration", show(total / 3.6e6, "number"), "kWh"),
        _fact("power", "all GPUs", show(_over(total, duration), "number"), "W"),
    )
    return made._replace(rows=(*made.rows, *rows))


def _over(amount: float, by: float | None) -> float | None:
    return amount / by if by else None


def _fact(definition: str, detail: str, shown: Shown, unit: str) -> tuple[Cell, ...]:
    title = f"{DEFINITIONS[definition].title}, {detail}"
    return (Cell(title, title, definition), Cell(*shown), Cell(unit, unit))


def latencies(summary: Mapping[str, Any]) -> Table:
    """Mean, deviation and percentiles of every latency, with its limit."""
    rows = []
    for name in ("ttft", "tpot", "itl", "e2el"):
        paths = [f"{statistic}_{name}_ms" for statistic in _STATISTICS]
        rows.append(_latency_row(summary, name, paths, shown_limit(summary, name)))
    of_queue = [f"infersim.queue_ms.{p}" for p in ("mean", "p50", "p90", "p95", "p99")]
    rows.append(_latency_row(summary, "queue", [of_queue[0], None, *of_queue[1:]], None))
    columns = (
        Column("Latency", numeric=False),
        *(Column(title, definition="percentile", unit="ms") for title in _STATISTICS.values()),
        Column("Limit", definition="slo", unit="ms"),
        Column("Within limit (%)", definition="attainment"),
    )
    return Table("latency", "Latency of completed requests", columns, tuple(rows))


def requests(summary: Mapping[str, Any]) -> tuple[Line, ...]:
    """The counts of requests; a real engine's record says which failed, not which it rejected."""
    if not is_observed(summary):
        return REQUESTS
    failed = Line("failed", "infersim.requests.rejected", "count")
    return tuple(failed if line.definition == "rejected" else line for line in REQUESTS)


def rejections(summary: Mapping[str, Any]) -> Table:
    """How many requests were rejected for which reason."""
    reasons = pick(summary, "infersim.requests.rejected_reasons") or {}
    rows = tuple((Cell(str(r), str(r)), Cell(*show(n, "count"))) for r, n in reasons.items())
    if is_observed(summary):
        columns = (Column("Failed because", False), Column("Requests"))
        return Table("rejections", "Failed requests", columns, rows)
    columns = (Column("Rejected because", False, "rejected"), Column("Requests"))
    return Table("rejections", "Rejected requests", columns, rows)


def _latency_row(
    summary: Mapping[str, Any], name: str, paths: Sequence[str | None], limit: Limit | None
) -> tuple[Cell, ...]:
    cells = [
        Cell(*show(None, "ms"))
        if path is None
        else Cell(*_beside(show(pick(summary, path), "ms"), summary, path, "ms"))
        for path in paths
    ]
    shown = show(limit.limit_ms if limit else None, "ms")
    if limit is not None and limit.name != name:
        shown = shown._replace(text=f"{limit.rank} {shown.text}")
    cells.append(Cell(*shown))
    attained = show(limit.attainment if limit else None, "share")
    if limit is not None and attained.value is not None:
        attained = attained._replace(text=digits(limit.attainment, limit.target))
    path = f"infersim.verdict.limits.{limit.name if limit else name}.attainment"
    cells.append(Cell(*_beside(attained, summary, path, "share")))
    title = DEFINITIONS[name].title
    return (Cell(title, title, name), *cells)


def _beside(shown: Shown, summary: Mapping[str, Any], path: str, kind: Kind) -> Shown:
    """A figure with its interval behind it, if the run has repetitions."""
    return shown._replace(text=f"{shown.text} {plus_minus(summary, path, kind)}".rstrip())
