"""Systems whose capacity is known without the verdict: by arithmetic, or by an offline run.

``System`` makes scenarios whose traffic is a chosen share of that. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sim

MEAN = 200
"""Tokens of a mean answer: long enough that its being a whole number hardly matters."""

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "ideal",
    "max_model_len": 16384,
    "scheduler": {"max_num_seqs": 1},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 1.0},
        "prompt_tokens": {"kind": "fixed", "value": 16},
        "output_tokens": {"kind": "fixed", "value": MEAN},
    },
    "run": {"requests": 1000},
}


class System:
    """``BASE`` with ``changes``. Its capacity, unless given, is measured by a burst of ``burst``
    requests, ``tokens`` of output each on average."""

    def __init__(
        self,
        changes: Mapping[str, Any],
        *,
        capacity: float | None = None,
        burst: int = 2000,
        tokens: float = MEAN,
    ) -> None:
        self.scenario = sim.load_scenario(BASE).override(dict(changes))
        self._given = capacity
        self._burst = burst
        self._tokens = tokens

    @cached_property
    def capacity(self) -> float:
        """Requests per second; of a burst, those of its middle, counted in the tokens that come
        out, so that it does not matter which requests happen to end there."""
        if self._given is not None:
            return self._given
        offline = {
            "workload.arrivals": {"kind": "burst"},
            "run.requests": self._burst,
            "router": "round-robin",  # equal parts: no replica is done before the others
            "scheduler.order": "fcfs",
        }
        record = sim.simulate(self.scenario.override(offline)).record
        end = 0.8 * float(record.requests["finish"].max())
        plans = record.plans
        middle = plans[(plans["start"] >= 0.05 * end) & (plans["end"] <= end)]
        tokens = float((middle["decode"] * middle["iterations"].astype(float)).sum())
        tokens += float(middle["admitted"].sum())  # each has its first token from its prefill
        seconds = float((middle["end"] - middle["start"]).sum()) / record.replicas
        return tokens / seconds / self._tokens

    def at(self, utilisation: float, requests: int, seed: int = 1) -> sim.Scenario:
        """Its own arrivals, at a rate of that share of the capacity."""
        rate = utilisation * self.capacity
        return self.scenario.override(
            {"workload.arrivals.rate": rate, "run.requests": requests, "seed": seed}
        )

    def under(self, arrivals: Mapping[str, Any], requests: int, seed: int = 1) -> sim.Scenario:
        """Other arrivals: rates are shares of the capacity, times shares of what ``requests`` take
        at the capacity."""
        law = dict(arrivals)
        for key, value in arrivals.items():
            if key.endswith("rate"):
                law[key] = value * self.capacity
            elif key != "kind":
                law[key] = value * requests / self.capacity
        return self.scenario.override(
            {"workload.arrivals": law, "run.requests": requests, "seed": seed}
        )


def judged(scenario: sim.Scenario) -> dict[str, Any]:
    """The verdict of a run."""
    verdict: dict[str, Any] = sim.simulate(scenario).summary["infersim"]["verdict"]
    return verdict


def exponential(directory: Path) -> dict[str, Any]:
    """Answers of exponential length: 2,000 quantiles of the law, as whole tokens from 1 on."""
    places = (np.arange(2000) + 0.5) / 2000
    lengths = np.maximum(1, np.rint(-MEAN * np.log1p(-places))).astype(int)
    path = directory / "exponential.csv"
    path.write_text("\n".join(map(str, lengths.tolist())) + "\n", encoding="utf-8")
    return {"kind": "empirical", "path": str(path)}


def service_times(law: Mapping[str, Any]) -> NDArray[np.float64]:
    """Seconds that a single seat takes for each of the lengths in the file of ``law``."""
    path = Path(law["path"])
    rows = "".join(f"0,16,{length}\n" for length in path.read_text(encoding="utf-8").split())
    trace = write_trace(path.with_name("each-once.csv"), rows)
    scenario = sim.load_scenario(BASE | {"workload": {"trace": {"path": str(trace)}}, "run": {}})
    requests = sim.simulate(scenario).record.requests
    times: NDArray[np.float64] = requests["finish"] - requests["scheduled"]
    return times


def write_trace(path: Path, rows: str) -> Path:
    """A trace in the project's own format; ``rows`` are arrival (s), prompt and output tokens."""
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows, encoding="utf-8")
    return path


def bursts(
    requests: int, utilisation: float, service: float, seed: int, size: int = 30
) -> NDArray[np.float64]:
    """Arrivals whose rate jumps between two values, one six times the other, scaled so that
    requests that take ``service`` s of capacity each are exactly that ``utilisation``.

    The fast rate holds for a third of the time, for ``size`` requests on average.
    """
    random = np.random.default_rng(seed)
    clock, times, fast = 0.0, np.zeros(1), False
    while len(times) < requests:
        lasting = random.exponential(size / 6 if fast else size / 3)
        count = random.poisson((6 if fast else 1) * lasting)
        times = np.append(times, np.sort(clock + random.uniform(0, lasting, count)))
        clock, fast = clock + lasting, not fast
    times = times[:requests]
    scaled: NDArray[np.float64] = times / times[-1] * (requests - 1) * service / utilisation
    return scaled
