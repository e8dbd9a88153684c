"""Builds the head of a run's report: its set-up, the key figures, what the busy time waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.frame import theme
from reports.frame.content import Share
from reports.frame.formats import Kind, phrase, show, split
from reports.frame.page import question
from reports.frame.run_directory import known, pick
from reports.pages.run import slo
from reports.pages.run.missing import count as repetition_count
from reports.pages.run.missing import explanation, is_measured, is_observed, plus_minus
from sim.findings import Card
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.terms.definitions import bound_name
from sim.units import HOURS_OF, PER_OUTPUT_TOKENS, PER_TOKENS, between, dollars, show_number


def header(summary: Mapping[str, Any], requests: pd.DataFrame) -> dict[str, Any]:
    """Name, description and set-up of the run, for the head of the page."""
    gpus = fleet_text(pick(summary, "infersim")).replace(" x ", " \u00d7 ")
    batching = str(pick(summary, "infersim.batching"))
    formats = known(summary, "infersim.formats")
    return {
        "name": str(pick(summary, "infersim.scenario") or "unnamed run"),
        **question(
            str(pick(summary, "infersim.scenario") or "unnamed run"),
            "observed run" if is_observed(summary) else "predicted run",
            _asked(summary, requests),
            str(pick(summary, "infersim.description") or ""),
            on=gpus,
        ),
        "batching": batching,
        "policy": batching if batching in theme.POLICIES else "other",
        "brand": "measured, not predicted" if is_measured(summary) else "predicted, not measured",
        "interrupted": bool(pick(summary, "infersim.interrupted")),
        "repetitions": repetition_count(summary),
        "repetitions_text": explanation(summary),
        "setup": [
            ("Model", str(pick(summary, "infersim.model"))),
            *([("Formats", str(formats))] if formats else ()),
            ("GPU", gpus),
            ("Engine", str(pick(summary, "infersim.engine"))),
            ("Batching", batching),
            _when(summary),
        ],
    }


def _asked(summary: Mapping[str, Any], requests: pd.DataFrame) -> Mapping[str, Any] | None:
    """The traffic asked of the fleet; of a record, which names a trace, the traffic in it."""
    asked: Mapping[str, Any] | None = known(summary, "infersim.asked")
    arrivals = requests["arrival_s"].to_numpy(float)
    arrivals = arrivals[np.isfinite(arrivals)]
    if asked is None or not is_observed(summary) or not arrivals.size:
        return asked
    means = [requests[name].mean() for name in ("prompt_tokens", "output_tokens")]
    span = float(arrivals.max() - arrivals.min())
    rate = f" at {show_number((arrivals.size - 1) / span)} requests/s" if span > 0 else " at once"
    return {
        **asked,
        "traffic": f"{phrase(arrivals.size, 'count')} requests{rate}",
        "lengths": f"prompts {means[0]:,.0f}, answers {means[1]:,.0f} tokens (mean)",
    }


def _when(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The day of a run that was taken in from a record; the seed of any other."""
    own = pick(summary, "infersim")
    if "observed_on" not in own:
        return "Seed", str(pick(summary, "infersim.seed"))
    return "Observed", str(own["observed_on"] or "date not recorded")


def cards(summary: Mapping[str, Any]) -> list[Card]:
    """The six numbers that most readers look for, each with its limit and its band."""
    limited = bool(slo.limits(summary))
    cost = pick(summary, "infersim.cost")
    total = pick(summary, "total_token_throughput")
    per_token = pick(cost, "usd_per_million_tokens") if cost else None
    output = pick(cost, "usd_per_million_output_tokens") if cost else None
    goodput, requests = pick(summary, "request_goodput"), pick(summary, "request_throughput")
    return [
        _latency_card(summary, "ttft"),
        _latency_card(summary, "tpot"),
        Card(
            "output_throughput",
            "Output throughput",
            show(pick(summary, "output_throughput"), "number").text,
            "tokens/s",
            _lines(
                _between(summary, "output_throughput"),
                _given(total, "number", "with prompts"),
                band(summary, "output_throughput"),
            ),
        ),
        Card(
            "request_throughput",
            "Request throughput",
            show(requests, "number").text,
            "requests/s",
            _lines(
                _between(summary, "request_throughput"),
                _given(goodput, "number", "within the SLO") if limited else "",
            ),
        ),
        Card(
            "queue",
            "Queue time p99",
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
                "" if cost is None else band(summary, "usd_per_million_tokens", "usd"),
                "" if cost is None else _by_time(summary),
            ),
        ),
    ]


def _by_time(summary: Mapping[str, Any]) -> str:
    """Dollars of an hour and a month; nothing of a fleet of several prices, or that scales."""
    own = pick(summary, "infersim")
    hour = own["cost"]["usd_per_gpu_hour"]
    if "scaling" in own or not isinstance(hour, int | float):
        return ""
    hour *= own["gpus"]
    return f"{dollars(hour)} USD per hour, {hour * HOURS_OF['month']:,.0f} a month"


def _latency_card(summary: Mapping[str, Any], name: str) -> Card:
    """The percentile that the SLO limits, judged; the p99 without a limit."""
    limit = slo.shown_limit(summary, name)
    rank = "p99" if limit is None else limit.rank
    stated = known(summary, f"{rank}_{name}_ms")
    value = stated if limit is None or stated is not None else limit.value_ms
    between = _between(summary, f"{rank}_{name}_ms", "ms")
    parts = [between, _median(pick(summary, f"median_{name}_ms"))]
    if stated is not None:
        parts.append(band(summary, f"{rank}_{name}_ms", "ms"))
    if limit is not None:
        text = f"limit {slo.milliseconds(limit.limit_ms)}"
        told = {"good": ", kept", "bad": ", missed", "warn": ", too close to call"}
        kept_so_far = limit.so_far and limit.tone == "warn" and not limit.left_open
        missed = limit.missed or (value is not None and value > limit.limit_ms)
        if limit.crossed and limit.tone == "warn" and value is not None:
            text += f", {'missed' if missed else 'kept'} at the predicted times"
        else:
            text += ", kept so far" if kept_so_far else told.get(limit.tone, "")
        if missed and value is not None and value <= limit.limit_ms:
            text += f": only {slo.percent(limit.attainment, limit.target)} within it"
        parts.insert(2, text)
    tone = "neutral" if limit is None else limit.tone
    title = f"{name.upper()} {rank}"
    return Card(name, title, *split(show(value, "ms")), _lines(*parts), tone)


def _given(number: float | None, kind: Kind, what: str) -> str:
    return "" if number is None else f"{phrase(number, kind)} {what}"


def _median(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"p50 {phrase(milliseconds, 'ms')}"


def band(summary: Mapping[str, Any], key: str, kind: Kind = "number") -> str:
    """Between which values nine of ten real runs lie; of a run that states no bands, the metric
    ``at_ends``."""
    if is_measured(summary):
        return ""  # how far predictions are off says nothing of a measurement
    found = (known(summary, "infersim.bands.figures") or {}).get(key)
    if found is None:
        return at_ends(summary, key, kind) if key in summary else ""
    low, high = found["band90"]
    most = None if high is None else show(high, kind).text
    return f"{between(show(low, kind).text, most)} in nine of ten runs"


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
    """The waits in the busy time, in a fixed order; empty when nothing ran."""
    shares = pick(summary, "infersim.bound_by") or {}
    ordered = [*theme.BOUNDS, *sorted(set(shares) - set(theme.BOUNDS))]
    return [
        Share(
            bound_name(name),
            100 * share,
            phrase(share, "share"),
            name if name in theme.BOUNDS else "host",
        )
        for name in ordered
        if (share := shares.get(name))
    ]
