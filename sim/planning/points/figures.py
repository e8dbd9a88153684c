"""Lists the metrics of a run that are compared, and reads whether it met its SLO.

Keys are those of ``summary.json``; one with a dot is a path below ``infersim``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from sim.metrics.own import PREFIX
from sim.metrics.states import SloState, State
from sim.metrics.terms.definitions import METRICS


class PointFigure(NamedTuple):
    """One figure of a summary."""

    key: str
    title: str
    unit: str
    better: Literal["higher", "lower"] | None


FIGURES = tuple(
    PointFigure(m.key, m.title, "1/s" if m.unit.endswith("/s") else m.unit, m.better)
    for m in METRICS
    if m.compared
)


def figures_at(slo: Mapping[str, str]) -> list[PointFigure]:
    """``FIGURES``, with latencies at the percentiles of the SLO (``slo_keys``) before their p99.

    >>> [figure.title for figure in figures_at({"ttft": "p95_ttft_ms"}) if "TTFT" in figure.title]
    ['TTFT mean', 'TTFT p95', 'TTFT p99']
    """
    found = []
    for figure in FIGURES:
        for key in slo.values():
            rank, _, latency = key.partition("_")
            if figure.key == f"p99_{latency}" != key:
                found.append(figure._replace(key=key, title=figure.title.replace("p99", rank)))
        found.append(figure)
    return found


COMING = "while_arriving."
"""Before the key of a rate: that over the time in which requests come, without the end of a run."""

ARRIVING = tuple(
    figure._replace(key=f"{COMING}{figure.key}")
    for figure in FIGURES
    if figure.key in ("request_goodput", "output_throughput")
)
"""Rates while requests come, which do not depend on the length of a run that keeps up."""


def while_coming(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """``ARRIVING`` of a run, by their keys; none where requests wait for answers."""
    found = summary["infersim"].get("while_arriving")
    return (
        {each.key: found.get(each.key.removeprefix(COMING)) for each in ARRIVING} if found else {}
    )


HELD = PointFigure("replicas_held", "Replicas held", "", None)
"""Replicas on average over a run, those that start or end included: what is paid for."""

DOLLARS = PointFigure("cost.usd", "Cost (USD)", "USD", "lower")
KWH = PointFigure("energy.kwh", "Energy (kWh)", "kWh", "lower")
"""The cost and energy of a whole run: comparable where fleets serve the same traffic."""

OF_FLEETS = (HELD, DOLLARS, KWH)
"""Further figures for fleets that differ in how many replicas they hold."""


def held(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """``OF_FLEETS`` of a run, by their keys: replicas of its fleet, of scaled pools those held."""
    own = summary["infersim"]
    if "replicas" not in own:
        return {}
    scaled = own.get("scaling", ())
    fixed = own["replicas"] - sum(pool["max"] for pool in scaled)
    return {
        HELD.key: fixed + sum(pool["mean_replicas"] for pool in scaled),
        DOLLARS.key: (own.get("cost") or {}).get("usd"),
        KWH.key: (own.get("energy") or {}).get("kwh"),
    }


def own_figures(keys: Iterable[str]) -> list[PointFigure]:
    """A user's own metrics among ``keys``; it is unknown which way they are better.

    >>> own_figures(["duration", "metrics.fairness"])
    [PointFigure(key='metrics.fairness', title='fairness', unit='', better=None)]
    """
    own = [key for key in dict.fromkeys(keys) if key.startswith(PREFIX)]
    return [PointFigure(key, key.removeprefix(PREFIX), "", None) for key in own]


def best_of(
    values: Iterable[float | None], better: Literal["higher", "lower"] | None
) -> int | None:
    """The index of the best value, the first of equals; None if none is defined, or no way is
    better.

    >>> best_of([3.0, None, 2.0], "lower"), best_of([None], "lower")
    (2, None)
    """
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if not known or better is None:
        return None
    sign = 1 if better == "higher" else -1
    return max(known, key=lambda pair: (sign * pair[1], -pair[0]))[0]


def slo_state(verdict: Mapping[str, Any]) -> SloState | None:
    """Whether the run met its SLO; None without an SLO, or without a request to judge by."""
    found: SloState | None = verdict["slo_state"]
    return found


def meets(summary: Mapping[str, Any] | None) -> bool:
    """Whether a run met its SLO beyond doubt and was not overloaded."""
    if summary is None:
        return False
    verdict = summary["infersim"]["verdict"]
    return slo_state(verdict) == SloState.MET and verdict["state"] != State.OVERLOADED


def is_open(summary: Mapping[str, Any] | None) -> bool:
    """Whether it is open whether a run was within its SLO: by chance, or because it is short."""
    return summary is not None and slo_state(summary["infersim"]["verdict"]) == SloState.OPEN
