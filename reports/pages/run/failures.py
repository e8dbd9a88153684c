"""Builds the section on failures and impatient clients: attempts, lost work, time to recover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import fleet
from reports.frame.content import Plot, to_json
from reports.frame.formats import show
from reports.frame.run_directory import known
from reports.pages.run import tables
from sim.findings import Cell, Column, Table

MOST_OUTAGES = 20
"""Rows of the table of outages."""


def text(summary: Mapping[str, Any]) -> str:
    """The cost of failures, in sentences; empty where clients wait and replicas do not fail."""
    return str(known(summary, "infersim.failures.text") or "")


def facts(summary: Mapping[str, Any]) -> Table:
    """Attempts, lost work, availability; no row where there is nothing of the kind."""
    return tables.facts(summary, "failures", "Attempts and lost work", tables.lines("failures"))


def outages(summary: Mapping[str, Any]) -> Table:
    """A row for each of the first outages: when, how many requests it hit, and when requests were
    served again as before."""
    columns = (
        Column("Replica", numeric=False, definition="outages"),
        Column("From (s)"),
        Column("Until (s)"),
        Column("Requests lost", definition="lost"),
        Column("Recovered after (s)", definition="recovery"),
    )
    rows = []
    for each in (known(summary, "infersim.failures.outages") or [])[:MOST_OUTAGES]:
        name = f"{each['pool']} {each['replica']}"
        until, recovered = each["until_s"], each["recovered_after_s"]
        rows.append(
            (
                Cell(name, name),
                Cell(*show(each["since_s"], "number")),
                Cell("-", None) if until is None else Cell(*show(until, "number")),
                Cell(*show(each["lost"], "count")),
                Cell("not in this run", None)
                if recovered is None
                else Cell(*show(recovered, "number")),
            )
        )
    return Table("outages", "Outages", columns, tuple(rows))


def attempts(summary: Mapping[str, Any]) -> Plot:
    """Requests, attempts and good answers over the run."""
    title = "Requests, attempts and good answers over time"
    found = known(summary, "infersim.failures") or {}
    if not (found.get("course") or {}).get("time_s"):
        return Plot("attempts", title, None, "No client gives up, and no replica fails.", None)
    limited = bool(known(summary, "infersim.verdict.limits"))
    answers = "answers within the SLO" if limited else "answers"
    drawn = fleet.attempts(found["course"], found["outages"], answers=answers)
    told = (
        f"Attempts are requests as they are sent, again included; {answers} count when they are "
        "complete. Shaded: a replica is gone. Attempts that stay above the requests after an "
        "outage are retries that keep the fleet too busy to answer in time."
    )
    return Plot("attempts", title, "attempts", told, to_json(drawn))
