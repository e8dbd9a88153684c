"""Provides the SLO part of a summary, complete for run directories of older versions too.

Its section has the share within each limit, with its interval, and what breaks first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports.figures import slo_bars
from reports.figures.latency_cdf import sample
from reports.figures.slo_bars import AttainedLimit, LimitUse
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, NARROW_SPACE, show
from reports.frame.run_directory import known, pick
from sim.findings import Cell, Column, Table
from sim.metrics.states import DoubtKind, is_apart, too_short_for
from sim.metrics.words.slo_text import UNSERVED, limit_title
from sim.units import TWICE, number, show_share, show_time


class SloLimit(NamedTuple):
    """A latency limit: ``name`` is its key (``ttft``, or ``ttft_p95`` if judged apart), ``metric``
    what it limits. The share ``attainment`` of the requests is within it (bounds ``low``, ``high``,
    None if unknown), ``target`` is wanted, and ``value_ms`` is the latency at that percentile.
    ``so_far`` where a longer run may say otherwise, ``left_open`` where it is missed only by
    requests that were not finished when the run ended. ``band`` are the ends of the 90 % band of
    ``value_ms``, None where that is not known, an end of None beyond any latency."""

    name: str
    limit_ms: float
    attainment: float | None
    low: float | None = None
    high: float | None = None
    target: float | None = None
    value_ms: float | None = None
    so_far: bool = False
    left_open: bool = False
    band: tuple[float, float | None] | None = None

    @property
    def crossed(self) -> bool:
        """Whether the limit lies within the band of the latency."""
        if self.band is None:
            return False
        low, high = self.band
        return low <= self.limit_ms and (high is None or high > self.limit_ms)

    @property
    def missed(self) -> bool:
        """Whether fewer requests are within the limit than are wanted."""
        if self.attainment is None or self.target is None:
            return False
        return self.attainment < self.target

    @property
    def metric(self) -> str:
        """ttft, tpot or e2el."""
        return self.name.partition("_")[0]

    @property
    def title(self) -> str:
        """TTFT, or TTFT p95 if judged apart."""
        return limit_title(self.name)

    @property
    def rank(self) -> str:
        """The percentile that is wanted, such as p95; p99 where that is not known."""
        return "p99" if self.target is None else f"p{100 * self.target:.6g}"

    @property
    def tone(self) -> str:
        """good or bad; warn where the interval or the band leaves open which, or a longer run may
        say otherwise (``so_far``, ``left_open``); neutral where nothing is known.

        >>> SloLimit("ttft", 500.0, 0.95, 0.9, 0.97, 0.95).tone
        'warn'
        """
        if self.attainment is None or self.target is None:
            return "neutral"
        if self.low is not None and self.high is not None and self.low < self.target <= self.high:
            return "warn" if self.target < 1 else "good" if self.attainment == 1 else "bad"
        if self.attainment < self.target:
            return "warn" if self.left_open or self.crossed else "bad"
        return "warn" if self.so_far or self.crossed else "good"


def judged(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict with every key that is written today."""
    given = dict(pick(summary, "infersim.verdict"))
    met = known(given, "slo_met")
    state = {True: "met", False: "missed", None: None}[met]
    room = 0.0 if met is False else known(given, "headroom")
    older = {
        "slo_met": met,
        "slo_state": state,
        "requests_to_decide": None,
        "utilisation": None,
        "peak_utilisation": None,
        "slo_headroom": None if room is None or room < 0 else room,
        "attainment": None,
        "attainment_low": None,
        "attainment_high": None,
        "target": None,
    }
    return {**older, **given}


def limits(summary: Mapping[str, Any]) -> dict[str, SloLimit]:
    """The limits of the scenario by their keys; may be empty."""
    verdict = pick(summary, "infersim.verdict")
    doubts = set(known(verdict, "slo_doubts") or ())
    so_far, left_open = (too_short_for(doubts), DoubtKind.UNFINISHED in doubts)
    bands = known(summary, "infersim.bands.figures") or {}
    found = {}
    for name, entry in (pick(verdict, "limits") or {}).items():
        if entry is None or entry["limit_ms"] is None:
            continue
        keys = ("low", "high", "target", "value_ms")
        low, high, target, value = (known(entry, key) for key in keys)
        target = known(verdict, "target") if target is None else target
        share = entry["attainment"]
        made = SloLimit(name, entry["limit_ms"], share, low, high, target, value, so_far, left_open)
        band = bands.get(f"{made.rank}_{made.metric}_ms")
        found[name] = made if band is None else made._replace(band=tuple(band["band90"]))
    return found


def shown_limit(summary: Mapping[str, Any], metric: str) -> SloLimit | None:
    """The limit of a metric that tiles and figures show: the one that holds together with others,
    else of single percentiles the first that is not met, else the highest; None without any."""
    mine = [limit for limit in limits(summary).values() if limit.metric == metric]
    together = [limit for limit in mine if not is_apart(limit.name)]
    broken = [limit for limit in mine if limit.tone in ("bad", "warn")]
    return next(iter([*together, *broken, *reversed(mine)]), None)


def percent(share: float | None, target: float | None = None) -> str:
    """A share for a sentence, with the digits that tell it from ``target``.

    >>> percent(0.9866, 0.99)
    '98.66%'
    """
    if share is None:
        return "an unknown number"
    return show_share(share, target)


def digits(share: float | None, target: float | None) -> str:
    """A share for a table in percent: one decimal, or as many as tell it from ``target``.

    >>> digits(0.8861, 0.99), digits(0.98996, 0.99)
    ('88.6', '98.996')
    """
    if share is None:
        return MISSING
    text = show(share, "share").text
    if target is None or share == target or text != show(target, "share").text:
        return text
    return show_share(share, target).removesuffix("%")


def milliseconds(value: float) -> str:
    """A latency for a sentence."""
    return show_time(value / 1e3)


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


def attained_plot(summary: Mapping[str, Any]) -> Plot:
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
            found.append(LimitUse(name, told, latency / limit.limit_ms, limit.tone))
    return found


def use_plot(summary: Mapping[str, Any], requests: pd.DataFrame) -> Plot:
    """The latency at the percentile that each limit is for, as a share of the limit."""
    title = "Latency at the percentile of the SLO"
    found = limit_uses(summary, requests)
    if not found:
        return Plot("limit-use", title, "used_up", "No latency could be judged.", None)
    note = "Bars that go beyond are cut." if any(u.share > slo_bars.LONGEST for u in found) else ""
    return Plot("limit-use", title, "used_up", note, to_json(slo_bars.limit_use(found)), kind="own")


def limits_table(summary: Mapping[str, Any], requests: pd.DataFrame) -> Table:
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
