"""Lays out what ``infersim plan`` had found when it was interrupted."""

from __future__ import annotations

from sim.findings import Cell, Column, Findings, Heading, Headline, Lines, Table
from sim.planning.answers.cells import Document, latency_columns, slo_latencies, text
from sim.planning.answers.fleets import fleets_found, load_text, rejected
from sim.planning.points.wording import counted


def findings(document: Document) -> Findings:
    """The fleets that were sized, and the layouts that are missing."""
    sized, missing = document["sized"], document["missing"]
    title = f"Interrupted: {counted(len(sized), 'fleet')} of {document['layouts']:,} layouts found"
    doubt = (
        "A layout that is missing may be cheaper, and how sure each fleet is was not tried: run "
        "the plan again for the answer."
    )
    left = f"Missing: {'; '.join(missing)}." if missing else "Every layout was sized."
    columns = (
        Column("Fleet", False, fold=2),
        Column("GPUs"),
        Column("USD/h"),
        Column("USD/month", definition="plan_cost"),
        *latency_columns(document),
    )
    rows = tuple(
        (
            text(f"{counted(each['replicas'], 'replica')} of {each['layout']}"),
            Cell(f"{each['gpus']:,}", each["gpus"]),
            Cell(f"{each['usd_per_hour']:,.2f}", each["usd_per_hour"]),
            Cell(f"{each['usd_per_month']:,.0f}", each["usd_per_month"]),
            *slo_latencies(each),
        )
        for each in sized
    )
    caption = f"The cheapest first; latencies under {load_text(document['target'])} with headroom"
    return fleets_found(
        document,
        "fleets so far",
        Headline("warn", title, doubt),
        (
            Heading(
                "summary",
                "Summary",
                (Table("sized", caption, columns, rows), Lines((left,), "warn", brief=True)),
            ),
            rejected(document),
        ),
        ("Layouts", document["layouts"]),
    )
