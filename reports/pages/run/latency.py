"""Builds the latency section: the distributions, and what latencies consist of, band by band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports.figures import latency_cdf, latency_parts
from reports.figures.latency_parts import PARTS, TITLES, Bands, Of, bands
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase, show
from reports.frame.run_directory import pick
from reports.pages.run.missing import reason
from reports.pages.run.slo import shown_limit
from sim.findings import Cell, Column, Table

NOT_RECORDED = "An observed run does not tell what the latency of a request consisted of."


def distributions(
    summary: Mapping[str, Any], requests: pd.DataFrame, charts: Mapping[str, Any]
) -> list[Plot]:
    """TTFT, TPOT, ITL, E2EL and queue time as cumulative distributions."""
    plots = [_cdf(summary, requests, name) for name in latency_cdf.TITLES]
    return [*plots[:2], _itl(summary, charts), *plots[2:]]


def _cdf(summary: Mapping[str, Any], requests: pd.DataFrame, name: str) -> Plot:
    title = latency_cdf.TITLES[name]
    count = latency_cdf.sample(requests, name).size
    if not count:
        note = f"No completed request has a {title}, so there is nothing to draw."
        return Plot(f"cdf-{name}", title, name, note, None)
    limit = shown_limit(summary, name)
    drawn = latency_cdf.figure(
        requests,
        name,
        limit_s=limit.limit_ms / 1e3 if limit else None,
        target=limit.target if limit else None,
    )
    caption = f"{phrase(count, 'count')} completed request{'s' if count > 1 else ''}"
    if requests["warmup"].any():
        caption += " after the warm-up"
    is_log = drawn.layout.xaxis.type == "log"
    return Plot(f"cdf-{name}", title, name, f"{caption}.", to_json(drawn), is_log)


def _itl(summary: Mapping[str, Any], charts: Mapping[str, Any]) -> Plot:
    stated = latency_cdf.stated(summary)
    curve = charts.get("itl")
    if curve is None or None in stated.values():
        if "itl" in charts and pick(summary, "infersim.requests.completed"):
            note = "No gap between two tokens is known, so there is nothing to draw."
        else:
            note = reason(summary, "The gaps between tokens were not recorded.")
        return Plot("cdf-itl", latency_cdf.ITL_TITLE, "itl", note, None)
    drawn = latency_cdf.itl(curve, stated)
    note = "Every gap between two tokens of a request, over the whole run."
    is_log = drawn.layout.xaxis.type == "log"
    return Plot("cdf-itl", latency_cdf.ITL_TITLE, "itl", note, to_json(drawn), is_log)


def parts(summary: Mapping[str, Any], requests: pd.DataFrame) -> tuple[list[Plot], list[Table]]:
    """The parts of TTFT and of E2EL, each as a figure and as a table."""
    plots, listed = [], []
    for of in PARTS:
        found = bands(requests, of)
        title = f"What {latency_cdf.TITLES[of]} consists of"
        if found is None:
            note = reason(summary, NOT_RECORDED)
            plots.append(Plot(f"parts-{of}", title, "latency_parts", note, None))
            continue
        drawn = latency_parts.figure(found, of)
        count = sum(found.counts)
        caption = (
            f"{phrase(count, 'count')} requests, sorted by {latency_cdf.TITLES[of]}. A bar is the "
            "mean over the requests between two percentiles; its parts add up to it. Parts that no "
            "request has are left out."
        )
        plots.append(
            Plot(
                *(f"parts-{of}", title, "latency_parts", caption, to_json(drawn)),
                kind="tall",
                shares=True,
            )
        )
        listed.append(_table(found, of))
    return plots, listed


def _table(found: Bands, of: Of) -> Table:
    """A row for each part and one for their sum; a column for each band and one for all."""
    title = latency_cdf.TITLES[of]
    columns = (
        Column(f"Part of {title}", False, "latency_parts"),
        *(Column(label, definition="band", unit="ms") for label in found.labels),
        Column("all", definition="band", unit="ms"),
    )
    rows = [
        (Cell(TITLES[name], TITLES[name]), *map(_ms, [*found.parts[name], found.mean[name]]))
        for name in PARTS[of]
    ]
    whole = [*found.whole, sum(found.mean.values())]
    rows.append((Cell(title, title, of), *map(_ms, whole)))
    caption = f"Parts of {title}: means of the requests between two percentiles"
    return Table(f"parts-{of}", caption, columns, tuple(rows))


def _ms(seconds: float) -> Cell:
    return Cell(*show(seconds * 1e3, "ms"))
