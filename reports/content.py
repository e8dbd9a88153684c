"""Defines the parts that pages are made of, and builds the head of a run's report.

Plain data for the templates. The content of the sections is in ``sections``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup

from reports import slo, theme
from reports.asked import question
from reports.formats import Kind, phrase, show, split
from reports.repetitions import count as repetition_count
from reports.repetitions import explanation, plus_minus
from reports.run_directory import known, pick
from reports.sections.missing import is_measured, is_observed
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS


class Plot(NamedTuple):
    """A figure on the page; ``spec`` is Plotly JSON, None when there is nothing to draw."""

    name: str
    title: str
    definition: str | None
    caption: str
    spec: Markup | None
    log_axis: bool | None = None  # whether its time axis is logarithmic; None: no choice offered
    kind: str = ""  # what the style calls its size; the name without
    shares: bool = False  # whether its stacked bars can be shown as shares of the whole


class Card(NamedTuple):
    """One number, large; ``tone`` colours it when it meets or misses a limit."""

    definition: str
    label: str
    value: str
    unit: str
    details: tuple[str, ...]
    tone: str = "neutral"


class Share(NamedTuple):
    """One part of a stacked bar, in percent of the whole."""

    name: str
    percent: float
    text: str
    color: str  # the key of ``theme.BOUNDS`` whose colour it has


def header(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Name, description and set-up of the run, for the head of the page."""
    gpus = pick(summary, "infersim.gpus")
    batching = str(pick(summary, "infersim.batching"))
    return {
        "name": str(pick(summary, "infersim.scenario") or "unnamed run"),
        **question(
            str(pick(summary, "infersim.scenario") or "unnamed run"),
            "observed run" if is_observed(summary) else "predicted run",
            known(summary, "infersim.asked"),
            str(pick(summary, "infersim.description") or ""),
            on=f"{phrase(gpus, 'count')} × {pick(summary, 'infersim.gpu')}",
        ),
        "batching": batching,
        "policy": batching if batching in theme.POLICIES else "other",
        "brand": "measured, not predicted" if is_measured(summary) else "predicted, not measured",
        "interrupted": bool(pick(summary, "infersim.interrupted")),
        "repetitions": repetition_count(summary),
        "repetitions_text": explanation(summary),
        "setup": [
            ("Model", str(pick(summary, "infersim.model"))),
            ("GPU", f"{phrase(gpus, 'count')} × {pick(summary, 'infersim.gpu')}"),
            ("Engine", str(pick(summary, "infersim.engine"))),
            ("Batching", batching),
            _when(summary),
        ],
    }


def _when(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The day of a run that was taken in from a record; the seed of any other."""
    own = pick(summary, "infersim")
    if "observed_on" not in own:
        return "Seed", str(pick(summary, "infersim.seed"))
    return "Observed", str(own["observed_on"] or "date not recorded")


def cards(summary: Mapping[str, Any]) -> list[Card]:
    """The six numbers that most readers look for."""
    limited = bool(slo.limits(summary))
    cost = pick(summary, "infersim.cost")
    total = pick(summary, "total_token_throughput")
    per_token = pick(cost, "usd_per_million_tokens") if cost else None
    output = pick(cost, "usd_per_million_output_tokens") if cost else None
    goodput, requests = pick(summary, "request_goodput"), pick(summary, "request_throughput")
    return [
        Card(
            "output_throughput",
            "Output throughput",
            show(pick(summary, "output_throughput"), "number").text,
            "tokens/s",
            _lines(
                _between(summary, "output_throughput"),
                _given(total, "number", "with prompts"),
                at_ends(summary, "output_throughput"),
            ),
        ),
        Card(
            "request_throughput",
            "Request throughput",
            show(requests, "number").text,
            "requests/s",
            _lines(
                _between(summary, "request_throughput"),
                _given(goodput, "number", "within limits") if limited else "",
            ),
        ),
        _latency_card(summary, "ttft"),
        _latency_card(summary, "tpot"),
        Card(
            "queue",
            "Queue time, p99",
            *split(show(pick(summary, "infersim.queue_ms.p99"), "ms")),
            _lines(
                _between(summary, "infersim.queue_ms.p99", "ms"),
                _median(pick(summary, "infersim.queue_ms.p50")),
            ),
        ),
        Card(
            "cost",
            "Cost",
            show(per_token, "usd").text,
            PER_TOKENS,
            _lines(
                _between(summary, "infersim.cost.usd_per_million_tokens", "usd"),
                "no price given"
                if cost is None
                else f"{show(output, 'usd').text} {PER_OUTPUT_TOKENS}",
            ),
        ),
    ]


def _latency_card(summary: Mapping[str, Any], name: str) -> Card:
    """The percentile that the SLO limits, judged; the p99 without a limit."""
    limit = slo.shown_limit(summary, name)
    rank = "p99" if limit is None else limit.rank
    stated = known(summary, f"{rank}_{name}_ms")
    value = stated if limit is None or stated is not None else limit.value_ms
    between = _between(summary, f"{rank}_{name}_ms", "ms")
    parts = [between, _median(pick(summary, f"median_{name}_ms"))]
    if stated is not None:
        parts.append(at_ends(summary, f"{rank}_{name}_ms", "ms"))
    if limit is not None:
        text = f"limit {slo.milliseconds(limit.limit_ms)}"
        told = {"good": ", kept", "bad": ", missed", "warn": ", too close to call"}
        text += told.get(limit.tone, "")
        if limit.tone == "bad" and value is not None and value <= limit.limit_ms:
            text += f": only {slo.percent(limit.attainment, limit.target)} within it"
        parts.insert(2, text)
    tone = "neutral" if limit is None else limit.tone
    title = f"{name.upper()}, {rank}"
    return Card(name, title, *split(show(value, "ms")), _lines(*parts), tone)


def _given(number: float | None, kind: Kind, what: str) -> str:
    return "" if number is None else f"{phrase(number, kind)} {what}"


def _median(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"p50 {phrase(milliseconds, 'ms')}"


def at_ends(summary: Mapping[str, Any], key: str, kind: Kind = "number") -> str:
    """A metric of the summary with iterations faster and slower by the error band; empty where
    those were not simulated."""
    ends = known(summary, "infersim.ends")
    if ends is None:
        return ""
    low, high = sorted((ends["faster"][key] or 0.0, ends["slower"][key] or 0.0))
    error = phrase(round(ends["error"], 2), "share")
    span = f"{show(low, kind).text} to {show(high, kind).text}"
    return f"{span} if iterations are {error} off"


def _between(summary: Mapping[str, Any], path: str, kind: Kind = "number") -> str:
    half = plus_minus(summary, path, kind)
    return half and f"{half} by chance (95 %)"


def _lines(*parts: str) -> tuple[str, ...]:
    return tuple(part for part in parts if part)


def bounds(summary: Mapping[str, Any]) -> list[Share]:
    """What the busy time was spent waiting for, in a fixed order; empty when nothing ran."""
    shares = pick(summary, "infersim.bound_by") or {}
    ordered = [*theme.BOUNDS, *sorted(set(shares) - set(theme.BOUNDS))]
    return [
        Share(name, 100 * share, phrase(share, "share"), name if name in theme.BOUNDS else "host")
        for name in ordered
        if (share := shares.get(name))
    ]


def to_json(figure: go.Figure) -> Markup:
    """Plotly JSON that cannot end, or open a comment in, the script element it stands in."""
    return Markup(str(figure.to_json()).replace("<", "\\u003c"))
