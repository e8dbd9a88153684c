"""Runs the data ranks of one engine in lock-step: one SimPy process for all of them.

Each rank has a scheduler and a KV cache of its own, but the tokens of all of them meet in the
experts of every layer. So all start each iteration together, and it lasts as long as that of the
rank which takes longest; a rank without requests runs a dummy batch of one token.

While every rank only decodes and nothing can change a batch, the next k iterations are one leap, as
for a replica (``sim.loop.replica``). Which rank takes longest may change as contexts grow: a run of
iterations ends where it does, and where the line of any rank ends, with leaps and without.

A rank with a prompt makes all others wait for it. With a ``prefill_schedule_interval`` prompts meet
in every so many iterations, counted from the last time that all ranks were idle (vLLM 0.32); with
an ``attention_dp_timeout_iters`` they wait for each other (``sim.loop.prefill_gate``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import simpy

from sim.growth.leaps import OTHERS, OTHERS_REQUESTS
from sim.growth.sampled import Sampled
from sim.growth.steady import SteadyRun
from sim.iteration import PassConditions, Timer
from sim.loop.clock import SCHEDULING, Process, due_now
from sim.loop.engine import Engine
from sim.loop.prefill_gate import PrefillGate
from sim.loop.recorder import Columns
from sim.loop.replica import Replica
from sim.request import Request
from sim.routers.data_parallel import score
from sim.schedulers import Plan

DUMMY_TOKENS = 1
"""Tokens of the batch of a rank that has nothing to do (vLLM's ``execute_dummy_batch``)."""

Others = tuple[int, int]
"""Tokens that the other ranks have in the pass, and the requests for which they draft."""

RANKS = Columns([(OTHERS, "i4")], lambda flight, _: (flight.others,))
"""Tokens of the other data ranks in the pass."""

DRAFTING_RANKS = Columns([(OTHERS_REQUESTS, "i4")], lambda flight, _: (flight.others_requests,))
"""Requests for which the other data ranks draft."""


class SharedRun(SteadyRun):
    """A run of decode iterations of several ranks, as long as the rank that takes longest.

    ``runs`` has what each rank that works would run alone, by its number.
    """

    __slots__ = ("runs",)

    def __init__(self, start: float, runs: dict[int, SteadyRun]) -> None:
        most, first, step = longest([(run.left(), run.first, run.step) for run in runs.values()])
        super().__init__(start, 1, 0, (most, first, step))
        self.runs = runs

    def continued_by(self, start: float, ranks: Sequence[Rank]) -> bool:
        """Whether an iteration that starts now over what those have planned is this run's next."""
        runs = self.runs
        if not self.continues(start, 1, self.done) or len(ranks) != len(runs):
            return False
        return all(rank.index in runs and rank.goes_on(runs[rank.index], start) for rank in ranks)

    def advance(self, iterations: int, end: float) -> None:
        """The next ``iterations`` have run on all ranks, the last of them until ``end``."""
        super().advance(iterations, end)
        for run in self.runs.values():
            run.advance(iterations, end)


class Rank(Replica):
    """One data rank: a scheduler and its memory, whose iterations ``LockStep`` starts and ends."""

    whole: Engine
    """The engine that has it."""

    def _start(self) -> None:
        """Does nothing: a rank does not plan by itself."""

    def load(self) -> tuple[int, int]:
        """Tokens and requests of the plan in flight."""
        plan, batch = self.flight.plan, self.scheduler.decoding
        tokens, requests = plan.sequences * batch.width, plan.sequences
        for chunk in plan.chunks:
            tokens += chunk.tokens
            requests += 1
        return tokens, requests

    def count(self, change: int) -> None:
        """There are ``change`` requests more, of the whole engine, too."""
        super().count(change)
        self.whole.count(change)

    def plan(self, now: float) -> Plan | None:
        """Plan the next iteration; None if there is nothing to do."""
        plan = self.scheduler.schedule(now)
        if self.scheduler.preempted:
            self._note_preempted(now)
        if plan is not None:
            self.flight.plan, self.flight.start = plan, now
            self.flight.waiting = len(self.scheduler.waiting)
        return plan

    def alone(self, others: Others) -> float:
        """Seconds of the planned iteration, if no rank took longer."""
        flight, plan, timer = self.flight, self.flight.plan, self._among(others)
        if plan.chunks or timer.graph(1):  # without a graph, since others have prompts
            timed = timer.iteration(plan.sequences, plan.context, plan.chunks, plan.admitted)
            seconds, flight.attention, flight.pairs = timed
            return seconds
        flight.attention = flight.pairs = 0.0
        _, intercept, slope = timer.line(plan.sequences, plan.context)
        return intercept + slope * plan.context

    def _among(self, others: Others) -> Timer:
        """The timer of its iterations while the other ranks have so much to do."""
        self.flight.others, self.flight.others_requests = tokens, requests = others
        drafts = isinstance(self.scheduler.decoding, Sampled)
        return self._timer.under(PassConditions(tokens, requests if drafts else 0))

    def graph(self, sequences: int) -> int:
        """Sequences of the graph that is replayed where the rank with most has so many; else 0."""
        return self._timer.graph(sequences)

    def begin(self, now: float, others: Others) -> SteadyRun:
        """The run of decode iterations that is planned, as it would be alone."""
        plan, timer = self.flight.plan, self._among(others)
        line = timer.line(plan.sequences, plan.context)
        return self.scheduler.decoding.run(now, plan.sequences, plan.context, line)

    def goes_on(self, run: SteadyRun, now: float) -> bool:
        """Whether what is planned is the next iteration of ``run``."""
        return run.continues(now, self.flight.plan.sequences, self.flight.plan.context)

    def launch(self, run: SharedRun | None, iterations: int, seconds: float) -> None:
        """So many iterations begin, of ``run``, or else one that takes ``seconds``."""
        self._run, self._iterations = run, iterations
        if run is None:
            self.flight.gap, self.flight.slope = seconds, 0.0

    def shorten(self, iterations: int) -> None:
        """Fewer iterations are to run."""
        self._iterations = iterations


class LockStep(Engine):
    """One engine of several data ranks; routers see it as they see a replica."""

    ranks: Sequence[Rank]

    def __init__(self, env: simpy.Environment, ranks: Sequence[Rank], *, leap: bool) -> None:
        super().__init__(env, ranks[0].index)
        self.ranks, self.scheduler = ranks, ranks[0].scheduler
        for rank in ranks:
            rank.whole = self
        self._leap = leap
        self._launched = 0.0  # when the plans in flight, or the last ones, began
        self._working: list[Rank] = []  # those with a plan in flight
        self._schedulers = [rank.scheduler for rank in ranks]
        self._interval = ranks[0].scheduler.limits.prefill_schedule_interval
        self._steps = 0  # iterations since all ranks were idle
        limits = ranks[0].scheduler.limits
        self._gate: PrefillGate | None = None
        if timeout := limits.attention_dp_timeout_iters:
            self._gate = PrefillGate(timeout, limits.attention_dp_batching_wait_iters)
        self._next = 0  # the rank that comes first where several are alike
        self._alarm.start(self._process())

    @property
    def queued(self) -> int:
        """Requests that wait, on all ranks."""
        return sum(rank.queued for rank in self.ranks)

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of those."""
        return sum(rank.queued_prompt_tokens for rank in self.ranks)

    @property
    def kv_used(self) -> float:
        """Share of the KV caches of all ranks that is taken."""
        return sum(rank.kv_used for rank in self.ranks) / len(self.ranks)

    def submit(self, request: Request) -> None:
        """Take in a request that arrives now: on the rank that has least to do."""
        rank = self._choose()
        rank.count(1)
        self.wake(rank, rank.scheduler.submit(request))

    def _choose(self) -> Rank:
        """The rank with the lowest score: its requests, and more for those that wait where the KV
        cache fills up. Those that are alike take turns. vLLM scores with statistics that are up to
        100 ms old, this with what is true now."""
        count = len(self.ranks)
        best, least = 0, math.inf
        for turn in range(count):
            at = (self._next + turn) % count
            rank = self.ranks[at]
            waiting, requests = rank.queued, rank.outstanding
            found = score(requests, waiting, requests - waiting, rank.kv_used if waiting else 0.0)
            if found < least:
                best, least = at, found
        self._next = (best + 1) % count
        return self.ranks[best]

    def _process(self) -> Process:
        env, alarm = self._env, self._alarm
        completion, scheduling = self.index, SCHEDULING + self.index
        while True:
            now = env._now
            if self._interval > 1 or self._gate is not None:
                throttled = self._keeps_prompts()
                for scheduler in self._schedulers:
                    scheduler.throttled = throttled
            self._working = working = [rank for rank in self.ranks if rank.plan(now) is not None]
            if not working:
                self._idle = True
                self._steps = 0
                yield alarm.at(min(r.scheduler.wakeup(now) for r in self.ranks), scheduling)
                self._idle = False
                continue
            yield alarm.at(self._launch(now), completion)
            self._end(env._now)
            if due_now(env):  # others go first
                yield alarm.at(env._now, scheduling)

    def _keeps_prompts(self) -> bool:
        """Whether the iteration that is planned now leaves prompts to a later one."""
        if self._gate is not None:
            return self._gate.wait(self._schedulers)
        return self._steps % self._interval != 0

    def _until_prompts(self) -> float:
        """Iterations, with the one that was just planned, before prompts that it left out run."""
        if self._gate is not None:
            return self._gate.most(self._schedulers)
        if any(rank.scheduler.deferred for rank in self._working):
            return self._interval - self._steps % self._interval
        return math.inf

    def _launch(self, now: float) -> float:
        """Time the plans, and begin; when they end."""
        working = self._working
        self._launched = now
        plans, loads = [rank.flight.plan for rank in working], [rank.load() for rank in working]
        tokens, requests = zip(*loads, strict=True)
        idle = len(self.ranks) - len(working)
        total, drafting = sum(tokens) + DUMMY_TOKENS * idle, sum(requests) + idle
        others = [(total - own, drafting - n) for own, n in loads]
        if any(plan.chunks for plan in plans):
            self._run, self._iterations = None, 1
            seconds = max(rank.alone(rest) for rank, rest in zip(working, others, strict=True))
            for rank in working:
                rank.launch(None, 1, seconds)
            return now + seconds
        most = max(requests)
        if graph := working[0].graph(most):  # the same on every rank
            padded = max(tokens) // most * graph * (len(self.ranks) - 1)
            others = [(padded, drafted) for _, drafted in others]
        run = self._run
        if not isinstance(run, SharedRun) or not run.continued_by(now, working):
            runs = {
                rank.index: rank.begin(now, rest)
                for rank, rest in zip(working, others, strict=True)
            }
            self._run = run = SharedRun(now, runs)
        times = 1
        if self._leap and all(plan.stationary for plan in plans):
            left = run.left()
            times = min([rank.scheduler.repeats(left) for rank in working])
            times = self._until_woken(now, run, times)
            times = int(min(times, self._until_prompts()))
        self._iterations = times
        for rank in working:
            rank.launch(run, times, 0.0)
        return run.boundary(run.done + times)

    def _until_woken(self, now: float, run: SharedRun, times: int) -> int:
        """So many iterations, or fewer: until a rank that waits for company wants to be asked."""
        idle = [rank.scheduler for rank in self.ranks if rank not in self._working]
        wakeup = min((scheduler.wakeup(now) for scheduler in idle), default=math.inf)
        if wakeup == math.inf or times == 1:
            return times
        return run.first_boundary_from(wakeup, run.done + 1, run.done + times) - run.done

    def _began(self) -> float:
        return self._launched

    def _shorten(self, iterations: int) -> None:
        self._iterations = iterations
        for rank in self._working:
            rank.shorten(iterations)

    def account(self, end: float) -> None:
        """Record what is in flight on all ranks, which ran until ``end``."""
        iterations, self._iterations = self._iterations, 0
        self._steps += iterations
        if self._gate is not None:
            self._gate.go_on(iterations - 1)
        for rank in self._working:
            rank.account(end)
        self._working = []


def longest(lines: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The line of the rank that takes longest, as (iterations until another does or until any line
    ends, the first of them, by how much each further one is longer).

    >>> longest([(math.inf, 2.0, 0.0), (9, 1.0, 0.5)])  # the second is as long after two more
    (3, 2.0, 0.0)
    >>> longest([(math.inf, 2.0, 0.0), (2, 1.0, 0.5)])
    (2, 2.0, 0.0)
    """
    most = min(left for left, _, _ in lines)
    _, first, step = max(lines, key=lambda line: line[1:])
    for _, other, more in lines:
        if more > step:
            most = min(most, math.floor((first - other) / (more - step)) + 1)
    return most, first, step
