"""Builds the sections on latency: distributions, parts, courses, the slowest requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.figures import latency_cdf, latency_parts, over_run
from reports.figures.latency_cdf import TITLES
from reports.figures.latency_parts import PARTS, Bands, Of, bands
from reports.figures.latency_parts import TITLES as PART_NAMES
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, phrase, show
from reports.frame.run_directory import pick
from reports.pages.run.missing import reason
from reports.pages.run.slo import shown_limit
from sim.findings import Cell, Column, Table
from sim.units import Scale, milliseconds, time_scale

NOT_RECORDED = "An observed run does not tell what the latency of a request consisted of."


def distributions(
    summary: Mapping[str, Any], requests: pd.DataFrame, charts: Mapping[str, Any]
) -> list[Plot]:
    """TTFT, TPOT, ITL, E2EL and queue time as cumulative distributions."""
    plots = [_cdf(summary, requests, name) for name in TITLES]
    return [*plots[:2], _itl(summary, charts), *plots[2:]]


def _cdf(summary: Mapping[str, Any], requests: pd.DataFrame, name: str) -> Plot:
    title = TITLES[name]
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
        title = f"What {TITLES[of]} consists of"
        if found is None:
            note = reason(summary, NOT_RECORDED)
            plots.append(Plot(f"parts-{of}", title, "latency_parts", note, None))
            continue
        drawn = latency_parts.figure(found, of)
        count = sum(found.counts)
        caption = (
            f"{phrase(count, 'count')} requests, sorted by {TITLES[of]}. A bar is the "
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
        listed.append(_parts_table(found, of))
    return plots, listed


def _parts_table(found: Bands, of: Of) -> Table:
    """A row for each part and one for their sum; a column for each band and one for all."""
    title = TITLES[of]
    columns = (
        Column(f"Part of {title}", False, "latency_parts"),
        *(Column(label, definition="band", unit="ms") for label in found.labels),
        Column("all", definition="band", unit="ms"),
    )
    rows = [
        (
            Cell(PART_NAMES[name], PART_NAMES[name]),
            *map(_ms, [*found.parts[name], found.mean[name]]),
        )
        for name in PARTS[of]
    ]
    whole = [*found.whole, sum(found.mean.values())]
    rows.append((Cell(title, title, of), *map(_ms, whole)))
    caption = f"Parts of {title}: means of the requests between two percentiles"
    return Table(f"parts-{of}", caption, columns, tuple(rows))


def _ms(seconds: float) -> Cell:
    return Cell(*show(seconds * 1e3, "ms"))


SLOWEST = 20
"""Requests of the table."""

PERCENTILE = 99.0
"""Drawn where no SLO asks for another."""


def over_time(summary: Mapping[str, Any], requests: pd.DataFrame) -> list[Plot]:
    """TTFT and TPOT over the run."""
    found = []
    for name in ("ttft", "tpot"):
        title = f"{TITLES[name]} over the run"
        limit = shown_limit(summary, name)
        rank = 100 * limit.target if limit and limit.target else PERCENTILE
        rank = min(rank, PERCENTILE)
        course = over_run.course(requests, name, rank)
        if course is None:
            note = reason(summary, "Too few requests to draw a course.")
            few = requests["status"].eq("completed").any()
            note = "Too few requests, or all at once: there is no course to draw." if few else note
            found.append(Plot(f"course-{name}", title, name, note, None))
            continue
        drawn = over_run.latency_over_time(
            course, name, rank, limit_s=limit.limit_ms / 1e3 if limit else None
        )
        note = f"Each point: {course.size:,} requests that arrived one after the other."
        found.append(Plot(f"course-{name}", title, name, note, to_json(drawn)))
    return found


def densities(requests: pd.DataFrame) -> list[Plot]:
    """Prompts and TTFT over the run, request by request; none of too few, or all at once."""
    done = requests[(requests["status"] == "completed") & (requests["ttft_s"] > 0)]
    arrivals = done["arrival_s"].to_numpy(float)
    if len(done) < over_run.FEWEST or arrivals.min() == arrivals.max():
        return []
    scale = time_scale(float(done["ttft_s"].median()))
    drawn = (
        ("prompt_tokens", "Prompts over the run", "input_tokens", "prompt", Scale("tokens", 1.0)),
        ("ttft_s", "Each TTFT over the run", "ttft", "TTFT", scale),
    )
    note = "Stronger: more requests that arrived then."
    found = []
    for column, title, definition, name, shown in drawn:
        values = shown.factor * done[column].to_numpy(float)
        figure = over_run.density(arrivals, np.maximum(values, 1e-3), name, shown.unit)
        found.append(Plot(f"density-{definition}", title, definition, note, to_json(figure)))
    return found


def by_prompt(summary: Mapping[str, Any], requests: pd.DataFrame) -> Plot:
    """TTFT against the length of the prompt."""
    title = "TTFT by length of the prompt"
    if not len(over_run.drawn(requests)):
        note = reason(summary, "No request has a TTFT.")
        return Plot("ttft-by-prompt", title, "ttft", note, None)
    limit = shown_limit(summary, "ttft")
    drawn = over_run.ttft_by_prompt(requests, limit_s=limit.limit_ms / 1e3 if limit else None)
    note = over_run.caption(requests) + (" Dashed: the limit." if limit else "")
    return Plot("ttft-by-prompt", title, "ttft", note, to_json(drawn))


def slowest(requests: pd.DataFrame) -> Table:
    """The requests with the longest TTFT, with its parts where they are known."""
    done = requests[(requests["status"] == "completed") & np.isfinite(requests["ttft_s"])]
    rows = done.sort_values("ttft_s", ascending=False, kind="stable").head(SLOWEST)
    parts = [
        name
        for name in PARTS["ttft"]
        if f"{name}_s" in rows and np.nan_to_num(rows[f"{name}_s"].to_numpy(float)).any()
    ]
    columns = (
        Column("Request", False),
        Column("Arrived (s)"),
        Column("Prompt"),
        Column("Answer"),
        Column("TTFT", definition="ttft", unit="ms"),
        *(Column(PART_NAMES[name].capitalize(), unit="ms") for name in parts),
        Column("TPOT", definition="tpot", unit="ms"),
        Column("E2EL", definition="e2el", unit="ms"),
        Column("Replica"),
    )
    cells = []
    for row in rows.to_dict("records"):
        number = int(row["request_id"])
        cells.append(
            (
                Cell(f"{number:,}", number),
                Cell(f"{row['arrival_s']:,.1f}", float(row["arrival_s"])),
                Cell(f"{row['prompt_tokens']:,}", int(row["prompt_tokens"])),
                Cell(f"{row['output_tokens']:,}", int(row["output_tokens"])),
                _time(row["ttft_s"]),
                *(_time(row[f"{name}_s"]) for name in parts),
                _time(row["tpot_s"]),
                _time(row["e2el_s"]),
                Cell(f"{row['replica']}", int(row["replica"])),
            )
        )
    return Table("slowest", "The longest TTFT, request by request", columns, tuple(cells))


def _time(seconds: float) -> Cell:
    if not np.isfinite(seconds):
        return Cell(MISSING, None)
    return Cell(milliseconds(1e3 * seconds), 1e3 * seconds)
