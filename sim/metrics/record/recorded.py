"""Holds what a run leaves behind, simulated or real, with the latencies of its requests.

Columns of one value a request or a plan; times in seconds. Definitions are those of ``vllm bench
serve``; the metrics of ``sim.metrics`` and the tables of a run directory are made of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.loop.attempt_rows import CANCELLED, LOST, OUTCOMES, TIMED_OUT, UNAVAILABLE, AttemptRows
from sim.loop.recorder import COMPLETED, GAVE_UP, REJECTED, UNFINISHED
from sim.loop.session_rows import SessionRows
from sim.metrics.record.blocks import durations
from sim.pools import PreparedPool, front_end_of, per_prompt_token_of
from sim.request import TrafficClass
from sim.scenario import Scenario

Floats = NDArray[np.float64]

STEADY = ("poisson", "gamma", "constant")
"""Arrivals of one rate, so that there is a usual state to reach."""


@dataclass(frozen=True)
class Recorded:
    """Everything a run leaves behind; the columns of ``plans``, ``requests`` and ``gaps`` are those
    of ``sim.loop.recorder``. ``end`` is the simulated time at which it stopped (s), ``offered``
    the number of requests the traffic held, arrived or not, ``events`` how many SimPy scheduled,
    ``traffic_notes`` what was said of the traffic when it was read, ``classes`` those it has;
    ``trail`` has the chunks and absences of ``sim.loop.recorder``, None where not recorded;
    ``observed`` is whether a real engine served it, so that no cost model timed its iterations;
    ``moves`` are the transfers between GPUs and hosts, ``lookups`` what was missed in prefix
    caches, ``held`` when replicas that are scaled were there, ``handed`` the requests that went
    from a pool that prefills to one that decodes, None where not recorded; ``sessions`` says which
    requests belong to one conversation, None where there are none; ``attempts`` which came to
    nothing, None where clients do not give up and replicas do not fail."""

    scenario: Scenario
    pools: tuple[PreparedPool, ...]
    plans: PlanRows
    requests: NDArray[np.void]
    gaps: NDArray[np.void]
    reasons: list[str]
    end: float
    offered: int
    events: int
    interrupted: bool
    traffic_notes: tuple[str, ...] = ()
    classes: tuple[TrafficClass, ...] = ()
    trail: tuple[NDArray[np.void], NDArray[np.void]] | None = None
    observed: bool = False
    handed: NDArray[np.void] | None = None
    held: NDArray[np.void] | None = None
    moves: NDArray[np.void] | None = None
    lookups: NDArray[np.void] | None = None
    sessions: SessionRows | None = None
    attempts: AttemptRows | None = None

    @property
    def front_end(self) -> float:
        """Seconds that a request of no tokens spends before it is in the queue of a replica."""
        return front_end_of(self.pools)

    def passing(self, rows: NDArray[np.void]) -> Floats:
        """Seconds that requests spend before they are in the queue of a replica."""
        each = per_prompt_token_of(self.pools)
        return np.asarray(self.front_end + each * rows["prompt_tokens"].astype(np.float64))

    def reached(self, rows: NDArray[np.void]) -> Floats:
        """When requests were there (s); what they wait for a thread of the front end counts as
        their queue."""
        return np.asarray(rows["arrival"] + self.passing(rows))

    @property
    def steady_rate(self) -> float | None:
        """Requests, or sessions, that come per second by a law of one rate; None for others."""
        law = self.scenario.workload.arrivals
        if law is not None and law.kind in ("poisson", "gamma", "constant"):
            return law.rate
        return None

    @property
    def accepted(self) -> NDArray[np.void]:
        """The rows of the requests that were not rejected; all of them, not copied, if none was."""
        rejected = self.requests["status"] == REJECTED
        return self.requests[~rejected] if rejected.any() else self.requests

    @cached_property
    def completed(self) -> NDArray[np.bool_]:
        """The requests that were served to the end."""
        return np.asarray(self.requests["status"] == COMPLETED)

    @property
    def queue(self) -> Floats:
        """Seconds in the scheduler's queue before the first iteration; NaN if it never came."""
        return np.asarray(self.requests["scheduled"] - self.reached(self.requests))

    @property
    def ttft(self) -> Floats:
        """Time to first token (s); NaN for requests that got none."""
        return np.asarray(self.requests["first_token"] - self.requests["arrival"])

    @property
    def e2el(self) -> Floats:
        """End-to-end latency (s); NaN for requests that were not completed."""
        return np.asarray(self.requests["finish"] - self.requests["arrival"])

    @property
    def tpot(self) -> Floats:
        """Time per output token after the first (s); NaN for one-token and unfinished requests."""
        steps = self.requests["output_tokens"] - 1.0
        steps[steps == 0] = np.nan
        return (self.e2el - self.ttft) / steps

    def latency(self, metric: str) -> Floats:
        """The latencies (s) called ``metric``: ttft, tpot or e2el."""
        found: Floats = getattr(self, metric)
        return found

    @property
    def cached(self) -> bool:
        """Whether any pool has a prefix cache."""
        return any(pool.settings.kv_cache.enable_prefix_caching for pool in self.pools)

    @cached_property
    def within_slo(self) -> NDArray[np.bool_]:
        """The requests that were completed with every limit of a request held (inclusive)."""
        held = self.completed.copy()
        for metric, limit in self.scenario.slo.of_request.items():
            latency = self.latency(metric)
            held &= np.isnan(latency) | (latency <= limit)
        return held

    @cached_property
    def lost(self) -> NDArray[np.bool_]:
        """The requests that were lost with a replica, or found none, and were not sent again."""
        return self._gave_up(LOST, UNAVAILABLE)

    @cached_property
    def timed_out(self) -> NDArray[np.bool_]:
        """The requests that were given up after their clients had waited for too long."""
        return self._gave_up(TIMED_OUT)

    def _gave_up(self, *outcomes: int) -> NDArray[np.bool_]:
        """The requests that were given up after a last attempt with one of these ``outcomes``."""
        words = [OUTCOMES[outcome] for outcome in outcomes]
        numbers = [at for at, reason in enumerate(self.reasons) if reason in words]
        rows = self.requests
        return np.asarray((rows["status"] == GAVE_UP) & np.isin(rows["reason"], numbers))

    def undecided(
        self,
        limits: Mapping[str, float],
        ended: NDArray[np.bool_],
        at: float | NDArray[np.float64],
    ) -> NDArray[np.bool_]:
        """Which of the requests that ``ended`` at some time (s) without their last token had broken
        none of ``limits`` (metric -> seconds) until then, whatever would have come later."""
        lasted = at - self.requests["arrival"]
        started = ~np.isnan(self.ttft)
        steps = np.maximum(self.requests["output_tokens"] - 1.0, 1.0)
        least = {
            "ttft": np.where(started, self.ttft, lasted),
            "tpot": np.where(started, (lasted - self.ttft) / steps, 0.0),
            "e2el": lasted,
        }
        open_ = ended.copy()
        for metric, limit in limits.items():
            open_ &= least[metric] <= limit
        return open_

    def set_aside(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """The requests that are neither within ``limits`` (metric -> seconds) nor beyond them,
        since their clients went away before one had passed."""
        gone = np.zeros(len(self.requests), dtype=bool)
        if self.attempts is None:
            return gone
        rows = self.attempts.failed[self.attempts.failed["outcome"] == CANCELLED]
        if not len(rows):
            return gone
        places = np.searchsorted(self.requests["id"], rows["request"])
        at = np.zeros(len(self.requests))
        gone[places], at[places] = True, rows["ended"]
        return self.undecided(limits, gone, at)

    @cached_property
    def duration(self) -> float:
        """Seconds from the first arrival to the last token, or until the last client gave up, or to
        the end of an unfinished run."""
        if not len(self.requests):
            return 0.0
        start = float(self.requests["arrival"].min())
        if self.interrupted or (self.requests["status"] == UNFINISHED).any():
            return self.end - start
        ended = [self.requests["finish"][self.completed]]
        if self.attempts is not None:
            ended.append(self.attempts.failed["ended"])
        return float(np.max(np.concatenate(ended), initial=start)) - start

    @property
    def durations(self) -> Floats:
        """Seconds that each plan took."""
        return durations(self.plans)

    @property
    def replicas(self) -> int:
        """Replicas of the fleet."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def ranks(self) -> int:
        """Data ranks of all replicas, or the batches that they have in flight at once; where those
        have none, the replicas."""
        return sum(pool.ranks for pool in self.pools)

    @property
    def gpus(self) -> int:
        """GPUs of the whole fleet."""
        return sum(pool.gpus for pool in self.pools)
