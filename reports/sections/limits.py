"""Are the latency limits kept, how sure is that, and which breaks first?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.content import Plot, to_json
from reports.definitions import DEFINITIONS
from reports.figures import attainment
from reports.figures.attainment import Attained
from reports.figures.latency_cdf import sample
from reports.formats import phrase, show
from reports.run_directory import known, pick
from reports.tables import Cell, Column, Table, limits

VERDICT = "infersim.verdict"


def attained(summary: Mapping[str, Any]) -> list[Attained]:
    """Each limit and, if there are several, all of them together; those that could be judged."""
    found = [
        _of(summary, DEFINITIONS[name].title, f"{VERDICT}.limits.{name}.attainment")
        for name, limit in limits(summary).items()
        if limit.attainment is not None
    ]
    if len(found) > 1:
        found.append(_of(summary, "all limits", f"{VERDICT}.attainment"))
    return found


def _of(summary: Mapping[str, Any], title: str, path: str) -> Attained:
    """The share at ``path``, with its interval if the run directory states one."""
    base = path if path == f"{VERDICT}.attainment" else path.removesuffix("attainment")
    joint = "_" if base == path else ""
    low, high = (known(summary, f"{base}{joint}{end}") for end in ("low", "high"))
    return Attained(title, pick(summary, path), low, high)


def plot(summary: Mapping[str, Any]) -> Plot:
    """The share of requests that keeps each limit, with its interval."""
    title = "Share of requests within each limit"
    found = attained(summary)
    if not found:
        note = "No limits were set: give the scenario an slo (ttft, tpot, attainment)."
        if limits(summary):
            note = "No request could be judged."
        return Plot("attainment", title, "attainment", note, None)
    target = pick(summary, f"{VERDICT}.target")
    caption = (
        "Circle: kept; cross: missed; diamond: the interval leaves open which. The bars are 95 % "
        "intervals (Wilson), neighbouring requests counted as fewer independent ones."
    )
    if any(each.low is None for each in found):
        caption = "No interval: an older version wrote this run directory."
    elif known(summary, "infersim.repetitions") is not None:
        caption += " Where the repetitions differ, they are intervals of their mean."
    drawn = attainment.figure(found, target)
    return Plot("attainment", title, "attainment", caption, to_json(drawn), kind="own")


def table(summary: Mapping[str, Any], requests: pd.DataFrame) -> Table:
    """Each limit: the share within it with its bounds, and how close the wanted share comes."""
    target = pick(summary, f"{VERDICT}.target")
    given = limits(summary)
    rows = []
    for name, limit in given.items():
        if limit.attainment is None or target is None:
            continue
        title = DEFINITIONS[name].title
        each = _of(summary, title, f"{VERDICT}.limits.{name}.attainment")
        latency = _latency(requests, name, target)
        used = None if latency is None else latency / limit.limit_ms
        shares = [show(share, "share") for share in (each.share, each.low, each.high)]
        numbers = [show(value, "number") for value in (latency, limit.limit_ms)]
        cells = [Cell(*shown) for shown in (*shares, *numbers, show(used, "share"))]
        rows.append((Cell(title, title, name), *cells))
    wanted = "" if target is None else f"{100 * target:.6g} % keep (ms)"
    columns = (
        Column("Limit", False, "slo"),
        Column("Within (%)", definition="attainment"),
        Column("from", definition="wilson"),
        Column("to", definition="wilson"),
        Column(wanted, definition="used_up"),
        Column("Limit (ms)", definition="slo"),
        Column("Used up (%)", definition="used_up"),
    )
    return Table("limits", "The limits, one by one", columns, tuple(rows))


def _latency(requests: pd.DataFrame, name: str, share: float) -> float | None:
    """The latency (ms) that this share of the completed requests keeps."""
    values = sample(requests, name)
    return float(np.quantile(values, share)) * 1e3 if values.size else None


def sentence(summary: Mapping[str, Any], requests: pd.DataFrame) -> str:
    """Which limit breaks first, and by how much; empty without limits that could be judged."""
    first = pick(summary, f"{VERDICT}.first_limit")
    target = pick(summary, f"{VERDICT}.target")
    given = limits(summary)
    if first is None or target is None or first not in given:
        return ""
    title, limit = DEFINITIONS[first].title, given[first].limit_ms
    latency = _latency(requests, first, target)
    if latency is None:
        return f"{title} breaks first."
    kept = phrase(latency, "number", "ms")
    told = f"{phrase(target, 'share')} of the completed requests keep {kept}"
    told += f", and the limit is {phrase(limit, 'number', 'ms')}"
    word = "is broken first" if latency > limit else "is closest to its limit"
    return f"{title} {word}: {told}."
