"""Records each iteration of the engine.

The same rows as the simulator's (``sim.loop.recorder``), so that everything made from those can be
made from these; and in addition which requests were in the iteration, and how long each phase took.
Seconds since the start of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calibrate.engine.executor import Pass
from calibrate.engine.verified import VerifiedBatch
from sim.iteration import Part
from sim.loop.drafts import DRAFTS
from sim.loop.recorder import PlanRow, Recorder
from sim.loop.windowed import behind_windows, windowed_columns
from sim.schedulers import Plan, Scheduler


class Phases(NamedTuple):
    """Where the time of an iteration went, s.

    ``schedule`` includes what the iteration before left to do and taking in arrivals, ``prepare``
    is blocks and tensors, ``forward`` the pass and sampling; ``finish`` is what the iteration
    leaves to the next one to wait for.
    """

    schedule: float
    prepare: float
    forward: float
    finish: float


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration.

    ``decodes`` are the requests that decoded, ``prefills`` have (request, tokens before, tokens),
    ``padded`` counts slots that were computed for no request, ``served`` are requests that got a
    token, ``preempted`` those that lost their memory for it. ``seen`` is how much of their context
    the decodes saw through each window of the model. Where tokens are drafted, ``accepted`` has how
    many drafts of each of ``decodes`` were right, of the ``drafts`` that were checked, and
    ``gained`` the tokens that it got.
    """

    start: float
    end: float
    phases: Phases
    decodes: tuple[int, ...]
    prefills: tuple[tuple[int, int, int], ...]
    padded: int
    served: tuple[int, ...]
    preempted: tuple[int, ...]
    seen: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    drafts: tuple[int, ...] = ()
    gained: tuple[int, ...] = ()


class _Row(NamedTuple):
    """The state that must be noted before ``complete`` changes it."""

    start: float
    end: float
    stalled: int
    reserved: int
    held: int
    windows: tuple[int, ...]  # what is recorded of them
    drafted: tuple[int, int, int, int] | None  # what ``DRAFTS`` has of them


class IterationCounts(NamedTuple):
    """The columns of ``PlanRow`` that count requests and tokens of one iteration."""

    context: int
    held: int
    reserved: int
    decode: int
    computed: int
    stalled: int
    admitted: int
    preemptions: int
    running: int
    waiting: int
    finished: int


class Log:
    """``recorder`` has the simulator's rows, ``iterations`` the rest; the model has that many
    ``windows``; with ``drafts`` tokens are drafted."""

    def __init__(self, windows: int = 0, *, drafts: bool = False) -> None:
        columns = [windowed_columns(windows)] if windows else []
        self.recorder = Recorder([*columns, DRAFTS] if drafts else columns)
        self.iterations: list[Iteration] = []
        self._windows = windows

    def begin(
        self,
        plan: Plan,
        scheduler: Scheduler,
        start: float,
        end: float,
        done: Pass | None = None,
    ) -> _Row:
        """``plan`` ran from ``start`` to ``end``, of which the scheduler does not know yet.

        ``done`` is what that brought, needed where tokens are drafted.
        """
        stalled = 0
        batch = scheduler.decoding
        if plan.decode and batch.last_end != start:
            for since, members in batch.stalled(start):
                self.recorder.long_gap(end - since, members)
                stalled += members
        for request in scheduler.preempted:
            self.recorder.preempted(request, start)
        scheduler.preempted.clear()
        for chunk in plan.chunks:
            request = chunk.request
            complete = chunk.context + chunk.tokens >= request.tokens_to_prefill()
            if request.generated and complete:  # it has waited since before it was preempted
                self.recorder.long_gap(end - request.last_token, 1)
                self.recorder.caught_up(request, end)
        held = plan.held
        windows: tuple[int, ...] = ()
        if self._windows:
            held, windows = behind_windows(scheduler.kv, plan, batch)
        drafted = None
        if done is not None and done.gained is not None and done.accepted is not None:
            assert isinstance(batch, VerifiedBatch)
            gained, each = sum(done.gained.values()), batch.speculation.num_tokens
            drafted = gained, sum(done.accepted.values()), each if plan.decode else 0, each
            held += gained  # the plan could not know
        return _Row(start, end, stalled, scheduler.kv.reserved, held, windows, drafted)

    def end(self, plan: Plan, row: _Row, waiting: int, finished: int) -> None:
        """The scheduler has been updated; the plan left ``waiting`` requests in the queue."""
        self.write(
            row.start,
            row.end,
            [(chunk.request.id, chunk) for chunk in plan.chunks],
            IterationCounts(
                context=plan.context,
                held=row.held,
                reserved=row.reserved,
                decode=plan.decode,
                computed=plan.sequences,
                stalled=row.stalled,
                admitted=plan.admitted,
                preemptions=plan.preempted,
                running=plan.running,
                waiting=waiting,
                finished=finished,
            ),
            (*row.windows, *(row.drafted or ())),
        )

    def write(
        self,
        start: float,
        end: float,
        prompts: Sequence[tuple[int, Part]],
        counts: IterationCounts,
        further: Sequence[int] = (),
    ) -> None:
        """Add the row of a plan that ran once, and those of its ``prompts``, each with the number
        of its request; ``further`` are the columns of windows and drafts."""
        for request, part in prompts:
            self.recorder.part(request, part)
        parts = [part for _, part in prompts]
        row = PlanRow(
            start=start,
            end=end,
            gap=end - start,
            slope=0.0,
            prefill_attention=0.0,
            pairs=sum(part.pairs for part in parts),
            reserved_end=counts.reserved,
            iterations=1,
            prefill_seqs=len(parts),
            prefill_tokens=sum(part.tokens for part in parts),
            replica=0,
            **counts._asdict(),
        )
        self.recorder.row(row, further)

    def iteration(self, done: Pass, row: _Row, phases: Phases, preempted: tuple[int, ...]) -> None:
        """Records the engine's work from the start to the end of ``row``."""
        served = set(done.served)
        decoded = [span.request for span in done.spans if not span.prompt]
        decodes = tuple(request for request in decoded if request in served)
        accepted, gained = done.accepted or {}, done.gained or {}
        checked = {span.request: len(span.tokens) - 1 for span in done.spans if not span.prompt}
        self.iterations.append(
            Iteration(
                start=row.start,
                end=row.end,
                phases=phases,
                decodes=decodes,
                prefills=tuple((s.request, s.start, s.count) for s in done.spans if s.prompt),
                padded=len(decoded) - len(decodes),
                served=done.served,
                preempted=preempted,
                seen=row.windows[: self._windows],
                accepted=tuple(accepted[request] for request in decodes if accepted),
                drafts=tuple(checked[request] for request in decodes if accepted),
                gained=tuple(gained[request] for request in decodes if gained),
            )
        )

    def close(self, scheduler: Scheduler) -> None:
        """The run is over; requests that ``scheduler`` still has are unfinished."""
        for request in (*scheduler.waiting, *scheduler.members()):
            delivered = request.generated + scheduler.steps(request)
            self.recorder.leave_unfinished(request, 0, delivered)

    def token_times(self) -> dict[int, list[float]]:
        """When each request got each of its tokens."""
        times: dict[int, list[float]] = defaultdict(list)
        for iteration in self.iterations:
            several = dict(zip(iteration.decodes, iteration.gained, strict=False))
            for request in iteration.served:
                times[request] += [iteration.end] * several.get(request, 1)
        return dict(times)
