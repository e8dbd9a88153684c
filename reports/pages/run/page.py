"""Renders the report of a run as one HTML page, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import pandas as pd

from reports.frame.formats import phrase
from reports.frame.page import fill
from reports.frame.run_directory import known, pick
from reports.pages.run import failures, groups, head, machine, response, slo, tables, traffic
from reports.pages.run.missing import Absent, absent, is_observed
from reports.pages.run.verdict import verdict
from sim.findings import Table
from sim.metrics.terms.definitions import DEFINITIONS
from sim.results.trail_files import Trail

SECTIONS: Mapping[str, str] = {
    "verdict": "Verdict",
    "key-figures": "Key figures",
    "limits": "SLO",
    "latency": "Latency",
    "parts": "Parts of latency",
    "timeline": "Timeline",
    "slots": "Slots",
    "memory": "Memory",
    "time": "Time by operator",
    "roofline": "Roofline",
    "cost": "Cost",
    "workload": "Workload",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

TOPICS: Mapping[str, Sequence[str]] = {
    "Answer": ("verdict", "key-figures", "limits", "failures"),
    "Response": ("latency", "parts"),
    "Machine": ("timeline", "slots", "memory", "time", "roofline"),
    "Money": ("cost",),
    "Sources": ("workload", "provenance", "definitions"),
}
"""What a reader looks for -> the sections that have it."""

WHERE_REPLICAS_FAIL = {"limits": {"failures": "Failures"}}
"""Sections after another one that stand only where replicas fail or clients give up."""


def render(
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    scenario_yaml: str,
    charts: Mapping[str, Any],
    trail: Trail | None = None,
    made: Mapping[str, str] | None = None,
) -> str:
    """The page; see ``reports.render``."""
    parts, part_tables = response.parts(summary, requests)
    gpu, gpu_table = machine.whole_gpu(summary, timeseries)
    listed = [*_tables(summary, requests, charts), *part_tables, machine.operator_table(summary)]
    listed += [] if gpu_table is None else [gpu_table]
    plots = [
        slo.use_plot(summary, requests),
        slo.attained_plot(summary),
        failures.attempts(summary),
        machine.whole_run(summary, requests, timeseries, charts),
        *machine.pool_courses(charts),
        machine.batch_slots(summary, requests, timeseries, trail),
        gpu,
        machine.cache_over_time(summary, requests, timeseries),
        machine.operator_shares(summary),
        machine.operating_points(summary, charts),
    ]
    distributions = response.distributions(summary, requests, charts)
    by_class = groups.plots(summary, requests)
    courses, prompts = response.over_time(summary, requests), response.by_prompt(summary, requests)
    densities = response.densities(requests)
    figures = [*plots, *parts, *courses, prompts, *distributions, *by_class, *densities]
    drawn = {figure.name: figure.spec is not None for figure in figures}
    left_out = absent(summary, drawn, [figure.title for figure in figures])
    failed = failures.text(summary)
    return fill(
        "report.html.j2",
        _sections(summary, left_out, bool(failed)),
        DEFINITIONS,
        TOPICS,
        header=head.header(summary, requests),
        verdict=verdict(summary),
        cards=head.cards(summary),
        plainly_met=slo.plainly_met(summary),
        first_limit=slo.sentence(summary, requests),
        failures=failed,
        plots={plot.name: plot for plot in plots},
        distributions=[each for each in distributions if each.name not in left_out.figures],
        parts=[each for each in parts if each.name not in left_out.figures],
        by_class=by_class,
        courses=[each for each in courses if each.name not in left_out.figures],
        prompts=prompts,
        densities=densities,
        absent=left_out,
        workload=traffic.workload(requests),
        bounds=head.bounds(summary),
        tables={table.name: table for table in listed if table.rows},
        part_tables=part_tables,
        scenario_yaml=scenario_yaml,
        provenance=_provenance(summary, made or {}),
    )


def _sections(summary: Mapping[str, Any], left_out: Absent, failed: bool) -> dict[str, str]:
    """The sections that the page has: anchor -> heading, in order."""
    judged = bool(slo.limits(summary))
    sections: dict[str, str] = {}
    for name, title in SECTIONS.items():
        gone = name in left_out.sections or (name == "limits" and not judged)
        sections |= {} if gone else {name: title}
        sections |= WHERE_REPLICAS_FAIL.get(name, {}) if failed else {}
    return sections


def _tables(
    summary: Mapping[str, Any], requests: pd.DataFrame, charts: Mapping[str, Any]
) -> list[Table]:
    """The tables of figures; some may be empty."""
    made = [
        tables.latencies(summary, requests, charts),
        tables.throughput(summary),
        tables.facts(summary, "requests", "Requests and tokens", tables.requests(summary)),
        tables.rejections(summary),
        tables.own_metrics(summary),
        tables.facts(summary, "sessions", "Sessions", tables.lines("sessions")),
        tables.facts(summary, "kv-cache", "KV cache", tables.lines("memory")),
        tables.facts(summary, "batch", "Batch and utilisation", tables.lines("batch", "use")),
        tables.replicas(summary),
    ]
    if pick(summary, "infersim.cost") is not None:
        made.append(tables.costs(summary))
    if pick(summary, "infersim.energy") is not None:
        made.append(tables.energy(summary))
    return [
        *made,
        groups.pools_table(summary, DEFINITIONS),
        groups.classes_table(summary, DEFINITIONS),
        slo.limits_table(summary, requests),
        failures.facts(summary),
        failures.outages(summary),
        response.slowest(requests),
    ]


def _provenance(summary: Mapping[str, Any], made: Mapping[str, str]) -> dict[str, Any]:
    """Where the numbers come from, when and how they were made, how far to trust them."""
    band = pick(summary, "infersim.error_band")
    energy = pick(summary, "infersim.energy")
    chance = str(known(summary, "infersim.precision.text") or "")
    notes = [str(note) for note in pick(summary, "infersim.notes") or [] if str(note) != chance]
    measured = band["measured"] if band and "measured" in band else None
    return {
        "date": made.get("date", ""),
        "command": made.get("command", ""),
        "shown": _shown(summary),
        "measured": "" if measured is None else phrase(measured, "share"),
        "chance": chance,
        "version": str(pick(summary, "infersim.version")),
        "seed": str(pick(summary, "infersim.seed")),
        "observed": is_observed(summary),
        "profile": str(pick(summary, "infersim.provenance") or "not stated"),
        "band": str(band["text"]) if band else "",
        "notes": notes,
        "price": str(known(summary, "infersim.cost.text") or ""),
        "energy_note": str(energy["note"] or "") if energy else "",
    }


def _shown(summary: Mapping[str, Any]) -> list[str]:
    """The commands that print the values of the catalogue behind a run, each with its source."""
    own = pick(summary, "infersim")
    pools = own.get("pools") or [own]
    names = [own["model"], *(pool.get("gpu") for pool in pools), own["engine"]]
    told = dict.fromkeys(str(name) for name in names if name and "/" not in str(name))
    return [] if is_observed(summary) else [f"infersim show {quote(name)}" for name in told]
