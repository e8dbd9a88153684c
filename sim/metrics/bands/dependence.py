"""Says what each latency of a run is made of, and how its figures follow when a part takes longer.

A recorded pass becomes a time again by the cost model that timed it (``CostModel.operators``), part
by part. A latency is the sum of what the request's replica spent on each part meanwhile, so that
making a part longer stretches the run's own passes: the same ones in the same order, at other
times. Where requests come whatever the fleet does, a request that waits carries the lengthening of
all passes since the queue was last empty: near saturation a little slower is much later. Seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.cost import Batches
from sim.metrics.latency.percentiles import PERCENTILES
from sim.metrics.record.attribution import is_of_experts
from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.recorded import Floats
from sim.metrics.record.run_record import RunRecord
from sim.scenario.sections.arrivals import ClosedArrivals

TIMES = ("prompts", "decodes", "unmeasured", "experts", "links", "host")
"""Parts of the time of a pass: kernels of passes with prompts and of passes without, in shapes that
were measured; kernels in others; experts; collectives; the host."""

FRONT_END, MEMORY = "front end", "memory"

PARTS = (*TIMES, FRONT_END, MEMORY)
"""The parts that a figure depends on: parts of the time, and the number of KV blocks."""

LATENCIES = ("ttft", "tpot", "e2el")

FULL = 0.9
"""Share of the KV blocks taken from which on memory is what keeps requests waiting."""

RATES = ("request_throughput", "output_throughput", "total_token_throughput")
RANKS = tuple(f"p{rank}" for rank in PERCENTILES)

STEP = 0.01
"""By how much a part is made longer to see how a percentile follows."""

Dependence = Mapping[str, float]
"""By part of ``PARTS``: by how many percent a figure grows where the part grows by one."""


@dataclass(frozen=True)
class Spending:
    """The cumulative busy time of one replica: ``start`` and ``end`` of its passes, in order, and
    the seconds ``done`` on each part of ``TIMES`` by the end of each, a row each. ``empty`` is the
    last end of a pass, up to each one's, after which its queue was empty."""

    start: Floats
    end: Floats
    done: Floats
    empty: Floats

    def until(self, times: Floats) -> Floats:
        """Time spent by each of ``times``, a row for each part."""
        ended = np.searchsorted(self.end, times, side="right")
        now = np.minimum(ended, len(self.end) - 1)
        took = self.end[now] - self.start[now]
        ran = np.clip(times - self.start[now], 0.0, took)
        share = np.divide(ran, took, out=np.zeros_like(ran), where=(ended == now) & (took > 0))
        found = np.empty((len(self.done), len(times)))
        for row, done in zip(found, self.done, strict=True):
            before = np.where(ended > 0, done[ended - 1], 0.0)
            row[:] = before + (done[now] - before) * share
        return found

    def began(self, times: Floats) -> Floats:
        """When the queue was last empty before each of ``times``."""
        ended = np.searchsorted(self.end, times, side="right")
        return self.empty[np.maximum(ended - 1, 0)]


class Dependences:
    """The passes of a run, taken apart."""

    def __init__(self, run: RunRecord) -> None:
        self._run = run
        arrivals = run.scenario.workload.arrivals
        self._adapts = arrivals is not None and arrivals.kind in ("closed", "burst")
        self._busy = np.zeros(len(TIMES))
        self._held, self._held_fixed = 0.0, 0.0
        self._open, self._grows = 0.0, 0.0
        self._gaps, self._gap_time = np.zeros(len(TIMES)), 0.0
        self._spendings: dict[int, Spending] = {}
        for part in run.parts:
            self._take_apart(part)
        busy = float(self._busy.sum())
        self._memory = self._held / busy if busy else 0.0
        self._fixed = self._held_fixed / self._held if self._held else 0.0
        self.feedback = 1.0 if self._adapts else self._by_arrivals()

    def _take_apart(self, part: PoolRun) -> None:
        """Add up what the passes of a pool spent, and keep what each of its replicas did by when. A
        large run has millions of passes: little of them is held twice."""
        seconds, fixed = taken_apart(part)
        plans = part.plans
        self._busy += seconds.sum(axis=1)
        self._add_up_fixed(part, fixed)
        decodes = plans["decode"].astype(np.float64)
        self._gaps += [(row * decodes).sum() for row in seconds]
        self._gap_time += float((decodes * (plans["end"] - plans["start"])).sum())
        for number in np.unique(plans["replica"]).tolist():
            rows = np.flatnonzero(plans["replica"] == number)
            rows = rows[np.argsort(plans["start"][rows], kind="stable")]
            end = plans["end"][rows]
            left = np.where(plans["waiting"][rows] == 0, end, -np.inf)
            self._spendings[number] = Spending(
                plans["start"][rows],
                end,
                np.stack([np.cumsum(row[rows]) for row in seconds]),
                np.maximum.accumulate(left),
            )

    def _add_up_fixed(self, part: PoolRun, fixed: Floats) -> None:
        """Add up the time in which requests wait for memory, and how much of it does not grow with
        the batch; the time until the last arrival, and how much of it grows with a batch that has
        room."""
        plans, durations = part.plans, part.durations
        full = (plans["waiting"] > 0) & (plans["reserved_end"] > FULL * part.pool.kv_tokens)
        full &= plans["running"] < part.pool.limits.max_num_seqs
        self._held += float(durations[full].sum())
        self._held_fixed += float(fixed[full].sum())
        coming = plans["start"] < self._last_arrival
        self._open += float(durations[coming].sum())
        coming &= plans["waiting"] == 0
        self._grows += float((durations - fixed)[coming].sum())

    @cached_property
    def _last_arrival(self) -> float:
        return float(self._run.requests["arrival"].max(initial=0.0))

    def _by_arrivals(self) -> float:
        """By how many percent passes take longer if each is made longer by one, where requests come
        whatever the fleet does. By Little's law as many more of them are in flight as each stays
        longer, so that the share of a pass that grows with the batch grows once more, and so on:
        1 / (1 - share). A batch behind which requests wait is as large as it can be, and requests
        in flight are those that came less those that finished: if few finish before the last one
        comes, they hardly depend on the passes."""
        if not self._open:
            return 1.0
        again = self._open / max(self._open - self._grows, 1e-3 * self._open)
        done = self._run.requests["finish"][self._run.completed] <= self._last_arrival
        return 1.0 + (again - 1.0) * float(done.mean()) if len(done) else 1.0

    @cached_property
    def _counted(self) -> np.ndarray:
        run = self._run
        return np.flatnonzero(run.completed & ~run.warmup)

    def _stretched(self, rows: np.ndarray, since: str, until: str) -> Floats:
        """By how much longer it takes between two times of some requests, for each part that takes
        twice as long: what their replicas spent on it."""
        requests = self._run.requests[rows]
        start, end = requests[since].astype(np.float64), requests[until]
        found = np.zeros((len(TIMES), len(rows)))
        for number, spending in self._spendings.items():
            mine = requests["replica"] == number
            begin = start[mine]
            if since == "arrival" and not self._adapts:
                waited = requests["scheduled"][mine]
                begin = np.minimum(begin, np.maximum(spending.began(waited), spending.start[0]))
            found[:, mine] = spending.until(end[mine]) - spending.until(begin)
        return found * self.feedback

    def latency(self, name: str) -> dict[str, Dependence]:
        """How mean and percentiles of a latency (of ``LATENCIES``) depend on each part, by their
        keys in the summary."""
        run, rows = self._run, self._counted
        if name == "tpot":
            rows = rows[run.requests["output_tokens"][rows] > 1]
        if not len(rows):
            return {}
        values = run.latency(name)[rows]
        since, until = {
            "ttft": ("arrival", "first_token"),
            "tpot": ("first_token", "finish"),
            "e2el": ("arrival", "finish"),
        }[name]
        parts = self._stretched(rows, since, until)
        if name == "tpot":
            parts = parts / (run.requests["output_tokens"][rows] - 1.0)
        before = np.zeros(len(rows)) if name == "tpot" else run.passing(run.requests[rows])
        parts = np.vstack([parts, before])
        waits = run.queue[rows] if name != "tpot" else np.zeros(len(rows))
        memory = self._by_memory(name, float(waits.sum()) / max(float(values.sum()), 1e-30))
        base = _statistics(values)
        grown = [(_statistics(values + STEP * part) - base) / STEP for part in parts]
        return {
            f"{rank}_{name}_ms": _dependence([*(each[at] / base[at] for each in grown), memory])
            for at, rank in enumerate(("mean", "median", *RANKS))
            if base[at] > 0
        }

    def _by_memory(self, name: str, waiting: float) -> float:
        """By how many percent a latency grows with one percent more KV blocks."""
        longer = self._memory * (1 - self._fixed)
        if name == "tpot":
            return longer
        return (1 - waiting) * longer - waiting * self._memory * self._fixed

    def figures(self) -> dict[str, Dependence]:
        """How every headline figure depends on each part, by its key in the summary; ``capacity``
        is what full batches serve."""
        found = {key: each for name in LATENCIES for key, each in self.latency(name).items()}
        rate, gap = self.throughput(), self.gaps()
        found |= dict.fromkeys(RATES, rate)
        found |= {f"{rank}_itl_ms": gap for rank in ("mean", "median", *RANKS)}
        return found | {"capacity": self.capacity()}

    def capacity(self) -> Dependence:
        """How what full batches serve depends on each part: as the busy time does."""
        busy = float(self._busy.sum())
        shares = self._busy / busy if busy else np.zeros(len(TIMES))
        return _dependence([*(-shares), 0.0, self._memory * self._fixed])

    def throughput(self) -> Dependence:
        """How requests and tokens per second depend on each part: with arrivals at a rate only as
        far as the last request is late."""
        run = self._run
        served = np.flatnonzero(run.completed)
        if not len(served) or run.duration <= 0:
            return _dependence([0.0] * len(PARTS))
        last = served[[int(np.argmax(run.requests["finish"][served]))]]
        if self._adapts:
            spending = self._spendings[int(run.requests["replica"][last[0]])]
            spent = spending.until(run.requests["finish"][last].astype(np.float64))[:, 0]
        else:
            spent = self._stretched(last, "arrival", "finish")[:, 0]
        shares = np.minimum(spent / run.duration, 1.0)
        bound = float(shares.sum())
        memory = self._memory * self._fixed * min(1.0, bound)
        arrivals = run.scenario.workload.arrivals
        rounds = 1.0
        if isinstance(arrivals, ClosedArrivals):  # each client sends one request after the other
            rounds = max(1.0, len(served) / arrivals.concurrency)
        front = -rounds * float(run.passing(run.requests[served]).mean()) / run.duration
        return _dependence([*(-shares), front, memory])

    def gaps(self) -> Dependence:
        """How the mean gap between tokens depends on each part."""
        if not self._gap_time:
            return _dependence([0.0] * len(PARTS))
        shares = self.feedback * self._gaps / self._gap_time
        return _dependence([*shares, 0.0, self._by_memory("tpot", 0.0)])


def _statistics(values: Floats) -> Floats:
    """Mean, median and percentiles."""
    return np.array([values.mean(), *np.percentile(values, (50, *PERCENTILES))])


def _dependence(by_part: Iterable[float]) -> Dependence:
    return {name: float(value) for name, value in zip(PARTS, by_part, strict=True)}


def seconds_by_part(part: PoolRun) -> Floats:
    """The seconds of each plan of a pool by part of ``TIMES``, a row each; they add up to its
    duration."""
    return taken_apart(part)[0]


def taken_apart(part: PoolRun) -> tuple[Floats, Floats]:
    """The seconds of each plan of a pool by part of ``TIMES``, a row each, which add up to its
    duration; and those that would be the same with a larger batch: reads of weights, latencies,
    and the host's time of an iteration."""
    plans, cost = part.plans, part.pool.cost
    durations = np.maximum(part.durations, 0.0)
    found, fixed = np.zeros((len(TIMES), len(plans))), np.zeros(len(plans))
    prompts, decodes, unmeasured, experts, links, host = found
    for block in blocks(len(plans)):
        rows = plans[block]
        batches = Batches.of(rows)
        with_prompts = rows["prefill_seqs"] > 0
        for ran in cost.operators(batches, each=True):
            o = ran.operator
            often = 1.0 if ran.by == "prompts" else batches.times
            weights = o.memory * np.greater(o.memory, o.compute) if o.per_batch else 0.0
            fixed[block] += ran.each(weights + o.latency) * often
            seconds = ran.each(o.roof + o.latency) * often
            links[block] += ran.each(o.communication) * often
            if is_of_experts(o.name):
                experts[block] += seconds
                continue
            known = seconds * ran.each(o.measured)
            prompts[block] += known * with_prompts
            decodes[block] += known * ~with_prompts
            unmeasured[block] += seconds - known
        fixed[block] += part.pool.deployment.engine.per_iteration * batches.times
    kernels = found.sum(axis=0)
    found *= np.where(kernels > durations, durations / np.maximum(kernels, 1e-30), 1.0)
    host[:] = durations - np.minimum(kernels, durations)
    return found, np.minimum(fixed, durations)
