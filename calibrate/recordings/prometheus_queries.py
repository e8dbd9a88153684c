"""Asks a Prometheus server about a window of time: counters, gauges and histograms."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import TraceError

Floats = NDArray[np.float64]

TIMEOUT = 60.0
"""Seconds that an answer may take."""

WIDEST = 3.0
"""How many times its beginning a bucket may end at, whose values are kept apart."""


class Prometheus:
    """Answers of the server at ``url`` about the ``window`` (s) before ``until`` (Unix s), of the
    series that ``select`` matches."""

    def __init__(self, url: str, window: float, until: float, select: str) -> None:
        self.url, self.window, self.until, self.select = url, window, until, select
        self._match = f"{{{select}}}" if select else ""

    def series(self, name: str, labels: str = "") -> str:
        """The selector of a metric."""
        inside = ",".join(part for part in (self._match.strip("{}"), labels) if part)
        return f"{name}{{{inside}}}" if inside else name

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query at the end of the window."""
        return self._get("query", {"query": query, "time": repr(self.until)})

    def over(self, query: str, step: float) -> list[tuple[float, float]]:
        """Times and values of a query of one series, every ``step`` seconds of the window."""
        asked = {"query": query, "start": repr(self.until - self.window + step)}
        asked |= {"end": repr(self.until), "step": f"{step:g}"}
        found = self._get("query_range", asked)
        return [(float(t), float(v)) for t, v in found[0]["values"]] if found else []

    def number(self, query: str) -> float | None:
        """The value of a query of one series; None where there is none."""
        found = self.ask(query)
        value = float(found[0]["value"][1]) if found else math.nan
        return value if math.isfinite(value) else None

    def increase(self, name: str) -> float | None:
        """By how much a counter rose in the window, over all servers."""
        return self.number(f"sum(increase({self.series(name)}[{self.window:.0f}s]))")

    def histogram(self, names: Sequence[str]) -> Buckets | None:
        """The first of ``names`` that rose in the window; None where none did."""
        for name in names:
            rows = self.ask(
                f"sum by (le) (increase({self.series(f'{name}_bucket')}[{self.window:.0f}s]))"
            )
            bounds = sorted(
                (float(row["metric"]["le"].replace("+Inf", "inf")), float(row["value"][1]))
                for row in rows
                if "le" in row["metric"]
            )
            if bounds and bounds[-1][1] > 0:
                total = self.increase(f"{name}_sum")
                count = self.increase(f"{name}_count")
                mean = total / count if total is not None and count else None
                return Buckets(
                    np.array([bound for bound, _ in bounds]),
                    np.array([seen for _, seen in bounds]),
                    mean,
                )
        return None

    def _get(self, way: str, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        address = f"{self.url}/api/v1/{way}?{urllib.parse.urlencode(asked)}"
        if not address.startswith(("http://", "https://")):
            raise TraceError(f"{self.url}: expected the address of a Prometheus, http://HOST:9090")
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")[:200]
            raise TraceError(f"{self.url}: refused {asked['query']}: {said}") from None
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.url}: no Prometheus answers there ({error})") from None
        if not isinstance(found, dict) or found.get("status") != "success":
            raise TraceError(f"{self.url}: no Prometheus answers there ({str(found)[:200]})")
        result: list[dict[str, Any]] = found["data"]["result"]
        return result


class Buckets(NamedTuple):
    """Values up to each of ``bounds`` (the last has no end), and their ``mean`` where known."""

    bounds: Floats
    seen: Floats
    mean: float | None

    def quantile(self, share: float) -> float:
        """The value below which a ``share`` of all lie, evenly spread in each bucket.

        >>> ends = np.array([1.0, 2.0, math.inf])
        >>> Buckets(ends, np.array([5.0, 10.0, 10.0]), 1.2).quantile(0.9)
        1.8
        """
        return float(self.at(np.array([share]))[0])

    def knows(self, share: float) -> bool:
        """Whether the bucket of a quantile is narrow enough to say it: its end is no more than
        ``WIDEST`` times its beginning.

        >>> Buckets(np.array([1.0, 2.0, 9.0]), np.array([5.0, 10.0, 11.0]), None).knows(0.7)
        True
        >>> Buckets(np.array([1.0, 2.0, 9.0]), np.array([5.0, 10.0, 11.0]), None).knows(0.4)
        False
        """
        counts = np.maximum.accumulate(self.seen)
        place = int(np.searchsorted(counts, share * counts[-1]))
        if place == 0 or not math.isfinite(self.bounds[place]):
            return False
        return bool(self.bounds[place] <= WIDEST * self.bounds[place - 1])

    def at(self, shares: Floats) -> Floats:
        """The values of several shares; those beyond the last bound are that bound."""
        counts = np.append(0.0, np.maximum.accumulate(self.seen))
        finite = self.bounds[np.isfinite(self.bounds)]
        ends = np.append(0.0, np.where(np.isfinite(self.bounds), self.bounds, finite[-1]))
        wanted = shares * counts[-1]
        place = np.clip(np.searchsorted(counts, wanted), 1, len(counts) - 1)
        inside = np.maximum(counts[place] - counts[place - 1], 1e-300)
        part = (wanted - counts[place - 1]) / inside
        found: Floats = ends[place - 1] + part * (ends[place] - ends[place - 1])
        return found
