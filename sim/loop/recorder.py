"""Records what a run does: one packed row per plan and one per request, no objects.

Rows are C structs appended to a bytearray: a million requests cost memory in the hundreds of
megabytes and no garbage collection. numpy reads them afterwards without a copy. Times in seconds.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import BLOCK, KeptRows, PlanRows
from sim.iteration import Part
from sim.memory.host import KINDS, Move
from sim.request import NEVER, Request
from sim.schedulers import Chunk, Plan, Scheduler
from sim.schedulers.roles import HandedOver

COMPLETED, REJECTED, UNFINISHED, GAVE_UP = range(4)
"""Outcomes of a request; after the last, its client waits no longer (``sim.loop.clients``)."""

Real = Annotated[float, "f8"]
Long = Annotated[int, "i8"]
Short = Annotated[int, "i4"]

CODES = {"f8": "d", "i8": "q", "i4": "i"}
"""How ``struct`` calls NumPy's types."""


class PlanRow(NamedTuple):
    """The columns of a plan. Made by name only where time does not matter."""

    start: Real
    end: Real
    gap: Real  # duration of the first iteration
    slope: Real  # by how much each further iteration is longer
    prefill_attention: Real  # seconds of the first iteration spent on it
    pairs: Real  # query-key pairs of prefill attention
    context: Long  # KV tokens held by the computed sequences, before the first iteration
    held: Long  # KV tokens filled, after the first iteration
    reserved: Long  # KV tokens' worth of memory taken, in the first iteration
    reserved_end: Long  # the same in the last
    iterations: Short
    decode: Short  # sequences that get a token
    computed: Short  # sequences the decode kernels run over
    stalled: Short  # of ``decode``: those whose first gap is longer than ``gap``
    prefill_seqs: Short
    prefill_tokens: Short
    admitted: Short
    preemptions: Short
    running: Short
    waiting: Short  # left in the queue by the plan
    finished: Short  # requests that got their last token at the end
    replica: Short


KINDS_OF_PLAN = get_type_hints(PlanRow, include_extras=True)  # texts where the module is compiled
PLAN = np.dtype([(name, kind.__metadata__[0]) for name, kind in KINDS_OF_PLAN.items()])
REQUEST = np.dtype(
    [
        ("id", "i8"),
        ("arrival", "f8"),
        ("scheduled", "f8"),
        ("first_token", "f8"),
        ("finish", "f8"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("generated", "i4"),
        ("preemptions", "i4"),
        ("replica", "i4"),
        ("status", "i4"),
        ("reason", "i4"),  # index into ``Recorder.reasons``, or -1
        ("class", "i4"),  # index into the classes of the traffic, or -1
    ]
)
GAP = np.dtype([("gap", "f8"), ("count", "i8")])
CHUNK = np.dtype(
    [
        ("plan", "i4"),  # its row among the plans
        ("request", "i4"),  # id
        ("tokens", "i4"),
        ("context", "i4"),  # tokens of the request that were computed before
    ]
)
ABSENCE = np.dtype(
    [
        ("request", "i8"),  # id
        ("time", "f8"),
        ("out", "i4"),  # 1: preempted, 0: caught up again
    ]
)

LOOKUP = np.dtype(
    [
        ("request", "i4"),  # id
        ("left", "i4"),  # tokens of its prompt that had been in the cache of the GPU, and were not
        ("new", "i4"),  # tokens of texts that others may share, and that were never there
    ]
)
HELD = np.dtype(
    [
        ("replica", "i4"),
        ("since", "f8"),  # it was started
        ("until", "f8"),  # it was given back, or the run ended
    ]
)
HANDED = np.dtype(
    [
        ("request", "i8"),  # id
        ("source", "i4"),  # number of the replica that prefilled it
        ("target", "i4"),  # of the one that decodes it
        ("tokens", "i4"),  # of its prompt
        ("prefilled", "f8"),  # its prompt was complete
        ("taken", "f8"),  # its blocks were there
        ("sent", "f8"),  # its KV began to go over the link
        ("arrived", "f8"),  # it could be used
    ]
)
MOVE = np.dtype(
    [
        ("kind", "i4"),  # index into ``sim.memory.host.KINDS``
        ("replica", "i4"),
        ("request", "i8"),  # id
        ("start", "f8"),
        ("end", "f8"),
        ("blocks", "i8"),
    ]
)


class InFlight:
    """A plan that runs, and what its row says (``PlanRow``) beyond what the plan does.

    Columns of single features are there, too: ``seen`` through windows, ``cached`` tokens (of
    several requests, and of none), the tokens of ``others`` in the pass and the ``others_requests``
    for which they draft, for how long (s) the batch ``waited`` and stages were ``computing`` it.
    """

    __slots__ = (
        "attention",
        "cached",
        "computing",
        "end",
        "finished",
        "gap",
        "held",
        "iterations",
        "number",
        "others",
        "others_requests",
        "pairs",
        "plan",
        "reserved",
        "reserved_end",
        "seen",
        "slope",
        "stalled",
        "start",
        "tokens",
        "waited",
        "waiting",
    )

    plan: Plan

    def __init__(self, number: int) -> None:
        self.number = number  # of its replica, data rank or place in flight
        self.start = self.end = self.gap = self.slope = self.attention = self.pairs = 0.0
        self.held = self.reserved = self.reserved_end = self.iterations = 0
        self.stalled = self.tokens = self.waiting = self.finished = 0
        self.seen: tuple[int, ...] = ()
        self.cached = (0, 0)
        self.others = self.others_requests = 0
        self.waited = self.computing = 0.0


Field = tuple[str, str] | tuple[str, str, tuple[int]]
"""Name, type, and where a value is several numbers, how many, of a NumPy column."""


Read = Callable[[InFlight, Scheduler], Sequence[float]]
"""Returns values of columns, in order, for a plan that ends and its scheduler."""


class Columns(NamedTuple):
    """Columns that a feature adds to the rows of plans: their ``fields``, as NumPy describes them,
    and the function that ``read``s their values."""

    fields: Sequence[Field]
    read: Read


def together(reads: Sequence[Read]) -> Read | None:
    """Returns the function that reads all columns; None without any."""
    if len(reads) < 2:
        return reads[0] if reads else None
    first, others = reads[0], together(reads[1:])
    assert others is not None
    return lambda flight, scheduler: (*first(flight, scheduler), *others(flight, scheduler))


def packer(row: np.dtype[np.void]) -> Callable[..., bytes]:
    """Returns what packs the values of all columns into the bytes of such a ``row``.

    >>> np.frombuffer(packer(GAP)(0.5, 3), GAP).tolist()
    [(0.5, 3)]
    >>> len(packer(np.dtype([("each", "i8", (2,)), ("all", "i4")]))(1, 2, 3))
    20
    """
    kinds: Any = row.fields
    codes = ""
    for name in row.names or ():
        kind = kinds[name][0]
        codes += CODES[kind.base.str[1:]] * (kind.itemsize // kind.base.itemsize)
    return struct.Struct("=" + codes).pack


_pack_plan = packer(PLAN)
_pack_chunk = packer(CHUNK)
_pack_request = packer(REQUEST)
_pack_absence = packer(ABSENCE)
_pack_gap = packer(GAP)
_pack_move = packer(MOVE)
_pack_lookup = packer(LOOKUP)
_pack_handed = packer(HANDED)
_pack_held = packer(HELD)


class Recorder:
    """Collects the rows of one run, of all its replicas.

    The row of a plan has the columns of ``PlanRow``, and behind them those that features add, in
    that order.
    """

    def __init__(self, columns: Sequence[Columns] = ()) -> None:
        self.plan_row = PLAN
        if columns:
            fields: Any = [field for each in columns for field in each.fields]
            self.plan_row = np.dtype([*PLAN.descr, *fields])
        self._read = together([each.read for each in columns])
        self._pack_more = packer(np.dtype(self.plan_row.descr[len(PLAN.descr) :]))
        self._row_bytes = self.plan_row.itemsize
        self._block_bytes = BLOCK * self._row_bytes
        self.reasons: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Let go of all rows; those who have asked for them keep theirs. What took part in a run
        knows its recorder, and is only found to be garbage some runs later."""
        self._plans = bytearray()
        self._kept = KeptRows(self.plan_row)  # those before them
        self._before = 0  # how many those are
        self._behind = False  # rows may stand behind others that ended later
        self._chunks = bytearray()
        self._requests = bytearray()
        self._gaps = bytearray()
        self._absences = bytearray()
        self._moves = bytearray()
        self._lookups = bytearray()
        self._handed = bytearray()
        self._held = bytearray()

    def plan(self, flight: InFlight, scheduler: Scheduler) -> None:
        """Take down a plan of ``scheduler`` that has ended."""
        plan = flight.plan
        self._plans += _pack_plan(
            flight.start,
            flight.end,
            flight.gap,
            flight.slope,
            flight.attention,
            flight.pairs,
            plan.context,
            flight.held,
            flight.reserved,
            flight.reserved_end,
            flight.iterations,
            plan.decode,
            plan.sequences,
            flight.stalled,
            len(plan.chunks),
            flight.tokens,
            plan.admitted,
            plan.preempted,
            plan.running,
            flight.waiting,
            flight.finished,
            flight.number,
        )
        if self._read is not None:
            self._plans += self._pack_more(*self._read(flight, scheduler))

    def take(self, rows: bytes | bytearray) -> None:
        """Take down plans whose rows are packed, and which may have ended before others that were
        taken down."""
        self._plans += rows
        self._behind = True

    def row(self, row: PlanRow, more: Sequence[float]) -> None:
        """Take down a plan whose row was made by name, with ``more`` columns of features."""
        self._plans += _pack_plan(*row) + self._pack_more(*more)

    def chunks(self, chunks: Sequence[Chunk], end: float) -> int:
        """Take down the parts of prompts in the plan that is taken down next, which ran until
        ``end``; returns their tokens."""
        number, tokens = self._next_plan(), 0
        for chunk in chunks:
            request, size, context = chunk.request, chunk.tokens, chunk.context
            tokens += size
            self._chunks += _pack_chunk(number, request.id, size, context)
            # a preempted request whose prefill is complete again has waited long for its token
            if request.generated and context + size >= request.tokens_to_prefill():
                self.long_gap(end - request.last_token, 1)
                self.caught_up(request, end)
        return tokens

    def part(self, request: int, part: Part) -> None:
        """Take down a part of the prompt of the ``request`` with that id, computed in the plan that
        is taken down next."""
        number = self._next_plan()
        self._chunks += _pack_chunk(number, request, part.tokens, part.context)

    def _next_plan(self) -> int:
        """The number of the plan that is taken down next. Rows before it are kept in less memory as
        soon as they are many, unless some may have to move."""
        if len(self._plans) >= self._block_bytes and not self._behind:
            self._keep()
        return self._before + len(self._plans) // self._row_bytes

    def _keep(self) -> None:
        self._kept.add(np.frombuffer(self._plans, dtype=self.plan_row))
        self._before = len(self._kept)
        self._plans = bytearray()

    def reject(self, request: Request, reason: str) -> None:
        """``request`` can never be served."""
        self.close(request, -1, 0, NEVER, REJECTED, self.reason(reason))

    def reason(self, text: str) -> int:
        """The index of a reason for which a request was not served."""
        if text not in self.reasons:
            self.reasons.append(text)
        return self.reasons.index(text)

    def close(
        self,
        request: Request,
        replica: int,
        generated: int,
        finish: float = NEVER,
        status: int = COMPLETED,
        reason: int = -1,
    ) -> None:
        """``request`` got the last of its ``generated`` tokens at ``finish``; or, with another
        status, the run ended before that."""
        self._requests += _pack_request(
            request.id,
            request.arrival,
            request.scheduled,
            request.first_token,
            finish,
            request.prompt_tokens,
            request.output_tokens,
            generated,
            request.preemptions,
            replica,
            status,
            reason,
            request.traffic_class.index,
        )

    def leave_unfinished(self, request: Request, replica: int, generated: int) -> None:
        """The run ended with ``request`` queued or in the batch, ``generated`` tokens delivered."""
        self.close(request, replica, generated, NEVER, UNFINISHED)

    def long_gap(self, gap: float, count: int) -> None:
        """``count`` sequences waited ``gap`` for a token: longer than the iteration that made
        it."""
        self._gaps += _pack_gap(gap, count)

    def preempted(self, request: Request, time: float) -> None:
        """``request`` was preempted at ``time``."""
        self._absences += _pack_absence(request.id, time, 1)

    def caught_up(self, request: Request, time: float) -> None:
        """All that ``request`` had before it was preempted is computed again at ``time``."""
        self._absences += _pack_absence(request.id, time, 0)

    def moved(self, replica: int, move: Move) -> None:
        """The link of a replica to its host was given a transfer."""
        kind = KINDS.index(move.kind)
        self._moves += _pack_move(kind, replica, move.request, move.start, move.end, move.blocks)

    def looked_up(self, request: Request, left: int, new: int) -> None:
        """Records the tokens of ``request`` that a prefix cache lacked at its first admission."""
        self._lookups += _pack_lookup(request.id, left, new)

    def handed_over(self, request: HandedOver) -> None:
        """The KV of ``request`` has arrived where it decodes."""
        r = request
        times = r.prefilled, r.taken, r.sent, r.arrived
        self._handed += _pack_handed(r.id, r.source, r.target, r.prompt_tokens, *times)

    def held(self, replica: int, since: float, until: float) -> None:
        """A replica that is started and stopped was held so long."""
        self._held += _pack_held(replica, since, until)

    def held_rows(self) -> NDArray[np.void]:
        """Structured rows (``HELD``) of replicas that were started and stopped."""
        return np.frombuffer(self._held, dtype=HELD)

    def handed_rows(self) -> NDArray[np.void]:
        """Structured rows (``HANDED``) of requests that went from one replica to another."""
        return np.frombuffer(self._handed, dtype=HANDED)

    def plan_rows(self) -> PlanRows:
        """One structured row per plan, in the order in which they ended."""
        if len(self._kept):
            self._keep()
            if not self._behind:
                return self._kept
        rows = self._kept.whole() if len(self._kept) else np.frombuffer(self._plans, self.plan_row)
        if self._behind and (np.diff(rows["end"]) < 0).any():
            order = np.lexsort((rows["replica"], rows["end"]))
            rows[:] = rows[order]
            chunks = np.frombuffer(self._chunks, dtype=CHUNK)
            chunks["plan"] = np.argsort(order)[chunks["plan"]]
        self._behind = False
        return rows

    def request_rows(self) -> NDArray[np.void]:
        """One structured row (``REQUEST``) per request, in order of arrival: sorted where they
        were noted, so that there is no second copy of them, and none can be added."""
        rows = np.frombuffer(self._requests, dtype=REQUEST)
        order = np.argsort(rows["id"], kind="stable")
        for name in rows.dtype.names or ():
            rows[name] = rows[name][order]
        return rows

    def gap_rows(self) -> NDArray[np.void]:
        """Structured rows (``GAP``) of the gaps that ``long_gap`` noted."""
        return np.frombuffer(self._gaps, dtype=GAP)

    def trail_rows(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Structured rows (``CHUNK``, ``ABSENCE``): what was prefilled in which plan, and which
        request was out of the batch, both in order of time.
        """
        return np.frombuffer(self._chunks, dtype=CHUNK), np.frombuffer(self._absences, ABSENCE)

    def lookup_rows(self) -> NDArray[np.void]:
        """Structured rows (``LOOKUP``) of the requests that prefix caches admitted."""
        return np.frombuffer(self._lookups, dtype=LOOKUP)

    def move_rows(self) -> NDArray[np.void]:
        """Structured rows (``MOVE``) of what went between GPUs and hosts, as it was begun."""
        return np.frombuffer(self._moves, dtype=MOVE)
