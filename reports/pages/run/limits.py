"""Builds the section on the SLO: the share within each limit, its interval, what breaks first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.figures import slo_bars
from reports.figures.latency_cdf import sample
from reports.figures.slo_bars import AttainedLimit, LimitUse
from reports.frame.content import Plot, to_json
from reports.frame.formats import NARROW_SPACE, show
from reports.frame.run_directory import known, pick
from reports.pages.run.slo import SloLimit, digits, judged, limits, milliseconds, percent
from sim.findings import Cell, Column, Table
from sim.metrics.states import is_apart
from sim.metrics.words.slo_text import UNSERVED
from sim.units import TWICE, number

VERDICT = "infersim.verdict"


def attained(summary: Mapping[str, Any]) -> list[AttainedLimit]:
    """Each limit and, if several hold together, all of those; as far as they could be judged."""
    given = [limit for limit in limits(summary).values() if limit.attainment is not None]
    found = [
        AttainedLimit(limit.title, limit.attainment, limit.low, limit.high, limit.target)
        for limit in given
        if limit.attainment is not None
    ]
    if sum(not is_apart(limit.name) for limit in given) > 1:
        verdict = judged(summary)
        keys = ("attainment", "attainment_low", "attainment_high", "target")
        found.append(AttainedLimit("whole SLO", *(verdict[key] for key in keys)))
    return found


def plot(summary: Mapping[str, Any]) -> Plot:
    """The share of requests that keeps each limit, with its interval."""
    title = "Share of requests within each limit"
    found = attained(summary)
    if not found:
        note = "There is no SLO: give the scenario an slo (ttft, tpot, e2el or ttft_p95 ...)."
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
    if any(limit.so_far for limit in limits(summary).values()):
        caption += " They are of the requests so far: a longer run may miss what they keep."
    drawn = slo_bars.attainment(found, target)
    return Plot("attainment", title, "attainment", caption, to_json(drawn), kind="own")


def plainly_met(summary: Mapping[str, Any]) -> bool:
    """Whether all requests that a target allows for are spared: then how far each latency is from
    its limit says more than the share within it."""
    found = attained(summary)
    return bool(found) and all(limit.tone == "good" for limit in limits(summary).values())


def limit_uses(summary: Mapping[str, Any], requests: pd.DataFrame) -> list[LimitUse]:
    """The limits that could be judged and whose latency is known, in the order of the scenario."""
    found = []
    for limit in limits(summary).values():
        latency = _promised(limit, requests)
        if latency is not None and limit.tone in ("good", "warn", "bad"):
            name = limit.title if is_apart(limit.name) else f"{limit.title} {limit.rank}"
            told = f"{milliseconds(latency)} of {milliseconds(limit.limit_ms)}"
            found.append(LimitUse(f"{name} ", told, latency / limit.limit_ms, limit.tone))
    return found


def use(summary: Mapping[str, Any], requests: pd.DataFrame) -> Plot:
    """The latency at the percentile that each limit is for, as a share of the limit."""
    title = "Latency at the percentile of the SLO"
    found = limit_uses(summary, requests)
    if not found:
        return Plot("limit-use", title, "used_up", "No latency could be judged.", None)
    note = "Bars that go beyond are cut." if any(u.share > slo_bars.LONGEST for u in found) else ""
    return Plot("limit-use", title, "used_up", note, to_json(slo_bars.limit_use(found)), kind="own")


def table(summary: Mapping[str, Any], requests: pd.DataFrame) -> Table:
    """Each limit: the share within it with its bounds, and the wanted percentile next to it."""
    rows = []
    for limit in limits(summary).values():
        if limit.attainment is None or limit.target is None:
            continue
        latency = _promised(limit, requests)
        used = None if latency is None else latency / limit.limit_ms
        shares = [
            show(share, "share")._replace(text=digits(share, limit.target))
            for share in (limit.attainment, limit.low, limit.high)
        ]
        reached = show(latency, "ms")
        reached = reached._replace(text=f"{percent(limit.target)}: {reached.text}")
        cells = [Cell(*shown) for shown in (*shares, reached, show(limit.limit_ms, "ms"))]
        rows.append((Cell(limit.title, limit.title, limit.metric), *cells, _used(used)))
    columns = (
        Column("Limit", False, "slo"),
        Column("Within (%)", definition="attainment"),
        Column("from", definition="wilson"),
        Column("to", definition="wilson"),
        Column("Wanted share is within", definition="used_up", unit="ms"),
        Column("Limit", definition="slo", unit="ms"),
        Column("Of the limit", definition="used_up", unit="%"),
    )
    return Table("limits", "The limits, one by one", columns, tuple(rows))


def _used(share: float | None) -> Cell:
    """A latency as a share of its limit, as a multiple from twice on."""
    shown = show(share, "share")
    if share is None or shown.value is None:
        return Cell(*shown)
    if share >= TWICE:
        return Cell(f"{number(share)}x the limit", shown.value)
    return Cell(f"{shown.text}{NARROW_SPACE}%", shown.value)


def _promised(limit: SloLimit, requests: pd.DataFrame) -> float | None:
    """The latency (ms) at the wanted percentile; of completed requests where the run directory is
    of an older version, which does not state it."""
    if limit.value_ms is not None or limit.target is None:
        return limit.value_ms
    values = sample(requests, limit.metric)
    judged_requests = int((~requests["warmup"].astype(bool)).sum())
    served_enough = values.size >= limit.target * judged_requests
    return float(np.quantile(values, limit.target)) * 1e3 if values.size and served_enough else None


def sentence(summary: Mapping[str, Any], requests: pd.DataFrame) -> str:
    """Which limit breaks first, and by how much; empty without limits that could be judged."""
    verdict = judged(summary)
    first, given = verdict["first_limit"], limits(summary)
    if first is None:
        return ""
    if first not in given:
        return f"The SLO is missed first by requests that {UNSERVED[first]}."
    limit = given[first]
    word = "is closest to its limit" if verdict["slo_met"] else "breaks first"
    latency = _promised(limit, requests)
    wanted = milliseconds(limit.limit_ms)
    if latency is None:
        return f"{limit.title} {word}: more requests than may were not served within {wanted}."
    share = percent(limit.target)
    return (
        f"{limit.title} {word}: {share} of requests are within {milliseconds(latency)}, the limit "
        f"is {wanted}."
    )
