"""Reads the points of a sweep, and chooses those that matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.planning.answers.cells import Document
from sim.planning.points.figures import is_open, meets
from sim.planning.points.wording import at_slo, slo_keys, spoken, state_word

MOST_RUNS = 4
"""Points of which a run is kept, with its page."""


class SweptPoint(NamedTuple):
    """A point with figures: its place among all, what it was set to, and what tables and figures
    have of it. ``latency`` has those at the percentiles that the SLO judges, in milliseconds."""

    place: int
    label: str
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    latency: Mapping[str, float | None]
    meets: bool
    is_open: bool

    @property
    def own(self) -> Mapping[str, Any]:
        """The ``infersim`` entry of its summary."""
        found: Mapping[str, Any] = self.summary["infersim"]
        return found

    @property
    def verdict(self) -> Mapping[str, Any]:
        """How the fleet holds the traffic, and what the SLO says."""
        found: Mapping[str, Any] = self.own["verdict"]
        return found

    @property
    def state(self) -> str:
        """The state of the fleet in a word."""
        return state_word(self.verdict)

    @property
    def cost(self) -> Mapping[str, float]:
        """Dollars per million tokens; empty without a price."""
        return self.own["cost"] or {}

    @property
    def joules(self) -> float | None:
        """Energy of an output token; None where it is not known."""
        found: float | None = (self.own.get("energy") or {}).get("joules_per_output_token")
        return found

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Metrics of the user's own."""
        return self.own.get("metrics") or {}

    @property
    def output(self) -> float:
        """Output tokens per second; 0 where nothing was served."""
        return self.summary["output_throughput"] or 0.0


def served(document: Document) -> list[SweptPoint]:
    """The points with figures, in their order."""
    rows = [(place, row) for place, row in enumerate(document["results"]) if row["summary"]]
    keys = _keys([row["summary"] for _, row in rows])
    return [
        SweptPoint(
            place,
            spoken(row["label"]),
            row["settings"],
            row["summary"],
            {name: at_slo(row["summary"], keys)[key] for name, key in keys.items()},
            meets(row["summary"]),
            is_open(row["summary"]),
        )
        for place, row in rows
    ]


def _keys(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """``slo_keys`` without the median TTFT, which tables have anyway, as a further one."""
    return {n: key for n, key in slo_keys(summaries).items() if n != "ttft_p50"}


def ranks(points: Sequence[SweptPoint]) -> dict[str, str]:
    """The title of each latency at the percentiles that the SLO judges."""
    split = {name: key.split("_") for name, key in _keys([p.summary for p in points]).items()}
    return {name: f"{metric.upper()} {rank}" for name, (rank, metric, _) in split.items()}


def best(points: Sequence[SweptPoint]) -> SweptPoint:
    """The one that serves most within the SLO, or most if none meets it."""
    return max([p for p in points if p.meets] or points, key=lambda point: point.output)


def courses(points: Sequence[SweptPoint], load: str) -> list[list[SweptPoint]]:
    """The points that share all values but the ``load``, by their load."""
    found: dict[str, list[SweptPoint]] = {}
    for point in points:
        others = {key: value for key, value in point.settings.items() if key != load}
        found.setdefault(str(others), []).append(point)
    return [sorted(each, key=lambda point: point.settings[load]) for each in found.values()]


def chosen(document: Document) -> list[int]:
    """The points whose runs are kept: where the SLO is met last and missed first along the load, of
    as many combinations of the other values as there is room for, or the last of all where neither
    is known; without a load that of the headline."""
    points, load = served(document), document["load"]
    if load is None:
        return [best(points).place] if points else []
    found: list[int] = []
    for course in courses(points, load):
        met = [point for point in course if point.meets]
        missed = [point for point in course if point.verdict["slo_met"] is False]
        found += [point.place for point in [*met[-1:], *missed[:1]] or course[-1:]]
    return sorted(found[:MOST_RUNS])
