"""Renders the parts of a report as one HTML page.

Everything is inside the page: styles, scripts, plotly.js, data. Text passes through jinja2's
autoescape, figures travel as JSON that cannot end its script element, and a
Content-Security-Policy lets only the page's own scripts run and nothing be fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import content, tables, theme
from reports.bundle import plotly_js, script_digest
from reports.definitions import DEFINITIONS, Definition
from reports.formats import phrase
from reports.run_directory import known, pick
from reports.sections import latency, limits, memory, moments, traffic, work
from reports.sections.missing import absent, is_observed
from reports.verdict import verdict

SECTIONS: Mapping[str, str] = {
    "verdict": "Verdict",
    "key-figures": "Key figures",
    "limits": "Latency limits",
    "latency": "Latency",
    "parts": "Where latency goes",
    "timeline": "Timeline",
    "slots": "Slot chart",
    "memory": "Memory and batch",
    "time": "Where the time goes",
    "roofline": "Roofline",
    "workload": "Workload",
    "cost": "Cost and energy",
    "scenario": "Scenario",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

TEMPLATES = Path(__file__).with_name("templates")


def render(
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    scenario_yaml: str,
    charts: Mapping[str, Any],
) -> str:
    """The page; see ``reports.render``."""
    parts, part_tables = latency.parts(summary, requests)
    gpu, gpu_table = memory.whole_gpu(summary, timeseries)
    listed = [
        *_tables(summary),
        limits.table(summary, requests),
        *part_tables,
        work.operator_table(summary),
        *([] if gpu_table is None else [gpu_table]),
    ]
    plots = [
        limits.plot(summary),
        moments.whole_run(summary, requests, timeseries),
        moments.batch_slots(summary, requests, timeseries),
        gpu,
        memory.cache_over_time(summary, requests, timeseries),
        work.operators(summary),
        work.operating_points(summary, charts),
    ]
    distributions = latency.distributions(summary, requests, charts)
    figures = [*plots, *parts, *distributions]
    drawn = {figure.name: figure.spec is not None for figure in figures}
    left_out = absent(summary, drawn, [figure.title for figure in figures])
    return fill(
        "report.html.j2",
        {name: title for name, title in SECTIONS.items() if name not in left_out.sections},
        DEFINITIONS,
        header=content.header(summary),
        verdict=verdict(summary),
        cards=content.cards(summary),
        first_limit=limits.sentence(summary, requests),
        plots={plot.name: plot for plot in plots},
        distributions=[each for each in distributions if each.name not in left_out.figures],
        parts=[each for each in parts if each.name not in left_out.figures],
        absent=left_out,
        workload=traffic.workload(requests),
        bounds=content.bounds(summary),
        tables={table.name: table for table in listed if table.rows},
        part_tables=part_tables,
        scenario_yaml=scenario_yaml,
        provenance=_provenance(summary),
    )


def fill(
    template: str,
    sections: Mapping[str, str],
    definitions: Mapping[str, Definition],
    **content: Any,
) -> str:
    """A page of ``content`` as ``template`` (which extends ``base.html.j2``) lays it out.

    ``sections`` maps anchors to headings in their order; ``content`` must have ``provenance`` with
    the program's ``version``.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        **_frame(), sections=sections, definitions=definitions, **content
    )


def _frame() -> dict[str, Any]:
    """What every page has, whatever it reports: scripts, styles, colours."""
    scripts = {name: (TEMPLATES / f"{name}.js").read_text("utf-8") for name in ("head", "page")}
    library = plotly_js()
    digests = [*map(script_digest, scripts.values()), library.digest]
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(digests)}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return {
        "content_policy": Markup("; ".join(policy)),
        "scripts": {name: Markup(text) for name, text in scripts.items()},
        "library": Markup(library.packed),
        "fonts": {"text": Markup(theme.FONT_STACK), "mono": Markup(theme.MONO_STACK)},
        "colors": {side: Markup(theme.css_variables(side)) for side in ("light", "dark")},
        "dark_twins": theme.dark_twins(),
    }


def _tables(summary: Mapping[str, Any]) -> list[tables.Table]:
    """The tables of figures; some may be empty."""
    made = [
        tables.latencies(summary),
        tables.facts(summary, "throughput", "Throughput", tables.THROUGHPUT),
        tables.facts(summary, "requests", "Requests and tokens", tables.requests(summary)),
        tables.rejections(summary),
        tables.own_metrics(summary),
        tables.facts(summary, "kv-cache", "KV cache", tables.MEMORY),
        tables.facts(summary, "batch", "Batch and utilisation", tables.BATCH),
    ]
    if pick(summary, "infersim.cost") is not None:
        made.append(tables.costs(summary))
    if pick(summary, "infersim.energy") is not None:
        made.append(tables.energy(summary))
    return made


def _provenance(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Where the numbers come from and how far to trust them."""
    band = pick(summary, "infersim.error_band")
    energy = pick(summary, "infersim.energy")
    notes = [str(note) for note in pick(summary, "infersim.notes") or []]
    measured = band["measured"] if band and "measured" in band else None
    return {
        "measured": "" if measured is None else phrase(measured, "share"),
        "chance": str(known(summary, "infersim.precision.text") or ""),
        "version": str(pick(summary, "infersim.version")),
        "seed": str(pick(summary, "infersim.seed")),
        "observed": is_observed(summary),
        "profile": str(pick(summary, "infersim.provenance") or "not stated"),
        "band": str(band["text"]) if band else "",
        "notes": notes,
        "energy_note": str(energy["note"] or "") if energy else "",
    }
