"""Provides the SLO part of a summary, complete for run directories of older versions too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reports.frame.formats import MISSING, show
from reports.frame.run_directory import known, pick
from sim.metrics.states import DoubtKind, is_apart, too_short_for
from sim.metrics.words.slo_text import limit_title
from sim.units import show_share, show_time


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
    so_far, left_open = (
        too_short_for(doubts),
        DoubtKind.UNFINISHED in doubts,
    )
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
