"""Builds the tables of a run's page: latencies in milliseconds, shares in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.latency_cdf import sample
from reports.frame.formats import Kind, ShownValue, show
from reports.frame.run_directory import known, pick
from reports.pages.run.missing import count, is_observed, plus_minus
from reports.pages.run.slo import SloLimit, digits, limits, shown_limit
from sim.findings import Cell, Column, Table
from sim.metrics.terms.definitions import DEFINITIONS, METRICS, path_of
from sim.metrics.terms.metric import Metric


def lines(*tables: str) -> Sequence[Metric]:
    """The metrics of ``tables``, in their order."""
    return [metric for table in tables for metric in METRICS if metric.table == table]


_STATISTICS = {"mean": "mean", "std": "std", "median": "p50", "p90": "p90", "p95": "p95"}

_STATISTICS |= {"p99": "p99"}


def facts(summary: Mapping[str, Any], name: str, caption: str, metrics: Sequence[Metric]) -> Table:
    """A table ``Metric | Value | Unit`` with one row per line."""
    columns = (Column("Metric", numeric=False), Column("Value"), Column("Unit", numeric=False))
    rows = []
    for metric in metrics:
        detail, path = metric.detail, path_of(metric.key)
        value = known(summary, path) if metric.optional else pick(summary, path)
        if value is None and (metric.optional or is_observed(summary)):
            continue
        title = DEFINITIONS[metric.definition].title + (f", {detail}" if detail else "")
        shown = _beside(show(value, metric.kind), summary, path, metric.kind)
        unit = "" if metric.kind in ("ms", "s") else metric.unit
        if metric.kind == "share":
            unit = "%"
        if metric.kind == "usd":
            unit = metric.title or unit
        rows.append((Cell(title, title, metric.definition), Cell(*shown), Cell(unit, unit)))
    return Table(name, caption, columns, tuple(rows))


def throughput(summary: Mapping[str, Any]) -> Table:
    """Requests and tokens per second, in all and of one user; requests within the SLO where there
    is one."""
    shown = [m for m in lines("throughput") if m.definition != "goodput" or limits(summary)]
    made = facts(summary, "throughput", "Throughput", shown)
    tpot = pick(summary, "median_tpot_ms")
    if not tpot:
        return made
    speed = Cell(*show(1e3 / tpot, "number"))
    title = "Output speed of one user, median"
    row = (Cell(title, title, "tpot"), speed, Cell("tokens/s", "tokens/s"))
    return made._replace(rows=(*made.rows, row))


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
    """The costs of the run, stated and derived: by the token, the request and the hour."""
    made = facts(summary, "cost-table", "Cost", lines("cost"))
    usd, hourly = (pick(summary, f"infersim.cost.{key}") for key in ("usd", "usd_per_gpu_hour"))
    completed, rate = pick(summary, "completed"), pick(summary, "request_throughput")
    good = pick(summary, "request_goodput")
    kept = completed * good / rate if good and rate else None
    within = [("per 1,000 requests within the SLO", _over(1000 * usd, kept))]
    derived = [
        ("per 1,000 requests", _over(1000 * usd, completed)),
        *(within if limits(summary) else ()),
        ("of the fleet, per hour", hourly * pick(summary, "infersim.gpus")),
    ]
    rows = [_fact("cost", detail, show(value, "usd"), "USD") for detail, value in derived]
    rows.append(_fact("cost", "of one GPU hour", show(hourly, "usd"), "USD"))
    return made._replace(rows=(*made.rows[:2], *rows, *made.rows[2:]))


def energy(summary: Mapping[str, Any]) -> Table:
    """The energy of the run, by the token and in all, and what a GPU draws; of runs of before, what
    they know of it."""
    there = [m for m in lines("energy") if known(summary, path_of(m.key)) is not None]
    return facts(summary, "energy", "Energy", there)


def _over(amount: float, by: float | None) -> float | None:
    return amount / by if by else None


def _fact(definition: str, detail: str, shown: ShownValue, unit: str) -> tuple[Cell, ...]:
    title = f"{DEFINITIONS[definition].title}, {detail}"
    return (Cell(title, title, definition), Cell(*shown), Cell(unit, unit))


def latencies(
    summary: Mapping[str, Any], requests: pd.DataFrame, charts: Mapping[str, Any]
) -> Table:
    """Mean, deviation and percentiles of every latency, with its limit.

    The ends of a distribution are those of the requests, which a page of several repetitions does
    not have together. An observed run has no row of what was not recorded.
    """
    further = count(summary) == 1
    stated = {
        name: [f"{statistic}_{name}_ms" for statistic in _STATISTICS]
        for name in ("ttft", "tpot", "itl", "e2el")
    }
    of_queue = [f"infersim.queue_ms.{p}" for p in ("mean", "p50", "p90", "p95", "p99")]
    rows = []
    for name, paths in (stated | {"queue": [of_queue[0], None, *of_queue[1:]]}).items():
        if is_observed(summary) and all(p is None or pick(summary, p) is None for p in paths):
            continue
        limit = None if name == "queue" else shown_limit(summary, name)
        title, *cells = _latency_row(summary, name, paths, limit)
        if further:
            ends = _ends(name, requests, charts)
            for place, value in zip(_PLACES, ends, strict=True):
                cells.insert(place, Cell(*show(value, "ms")))
        rows.append((title, *cells))
    titles = list(_STATISTICS.values())
    for place, end in zip(_PLACES, _ENDS, strict=True) if further else ():
        titles.insert(place, end)
    columns = (
        Column("Latency", numeric=False),
        *(Column(title, definition="percentile", unit="ms") for title in titles),
        Column("Limit", definition="slo", unit="ms"),
        Column("Within limit (%)", definition="attainment"),
    )
    return Table("latency", "Latency of completed requests", columns, tuple(rows))


_ENDS = {"min": 0.0, "p75": 75.0, "p99.9": 99.9, "max": 100.0}
"""Points of a distribution that the summary does not state -> percentile."""

_PLACES = (2, 4, 8, 9)
"""Where each of them stands among the others."""


def _ends(name: str, requests: pd.DataFrame, charts: Mapping[str, Any]) -> list[float | None]:
    """The percentiles of ``_ENDS`` (ms), of gaps between the points that are drawn of them."""
    if name == "itl":
        curve = charts.get("itl")
        if not curve or not curve["ms"]:
            return [None] * len(_ENDS)
        found = np.interp([rank / 100 for rank in _ENDS.values()], curve["share"], curve["ms"])
        return [float(each) for each in found]
    values = sample(requests, name)
    if not values.size:
        return [None] * len(_ENDS)
    return [1e3 * float(each) for each in np.percentile(values, list(_ENDS.values()))]


def requests(summary: Mapping[str, Any]) -> Sequence[Metric]:
    """The counts of requests; a real engine's record says which failed, not which it rejected."""
    if not is_observed(summary):
        return lines("requests")
    found = lines("requests")
    return [m._replace(definition="failed") if m.definition == "rejected" else m for m in found]


def rejections(summary: Mapping[str, Any]) -> Table:
    """How many requests were rejected for which reason."""
    reasons = pick(summary, "infersim.requests.rejected_reasons") or {}
    rows = tuple((Cell(str(r), str(r)), Cell(*show(n, "count"))) for r, n in reasons.items())
    if is_observed(summary):
        columns = (Column("Failed because", False), Column("Requests"))
        return Table("rejections", "Failed requests", columns, rows)
    columns = (Column("Rejected because", False, "rejected"), Column("Requests"))
    return Table("rejections", "Rejected requests", columns, rows)


def replicas(summary: Mapping[str, Any]) -> Table:
    """The requests sent to each replica, and its prefix cache's finds; no row of one alone."""
    found = (known(summary, "infersim.routing") or {}).get("replicas", [])
    cached = any("hit_rate" in each for each in found)
    columns = [
        Column("Replica", numeric=False),
        Column("Requests", definition="balance"),
        Column("Tokens", definition="balance"),
    ]
    if cached:
        columns.append(Column("Prefix hits (%)", definition="prefix_hits"))
    rows = []
    for each in found:
        number = str(each["replica"])
        row = [Cell(number, number)]
        row += [Cell(*show(each[key], "count")) for key in ("requests", "tokens")]
        if cached:
            row.append(Cell(*show(each.get("hit_rate"), "share")))
        rows.append(tuple(row))
    return Table("replicas", "Replicas", tuple(columns), tuple(rows))


def _latency_row(
    summary: Mapping[str, Any], name: str, paths: Sequence[str | None], limit: SloLimit | None
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


def _beside(shown: ShownValue, summary: Mapping[str, Any], path: str, kind: Kind) -> ShownValue:
    """A figure with its interval behind it, if the run has repetitions."""
    return shown._replace(text=f"{shown.text} {plus_minus(summary, path, kind)}".rstrip())
