"""Records what a run does: one packed row per plan and one per request, no objects.

Rows are C structs appended to a bytearray: a million requests cost memory in the hundreds of
megabytes and no garbage collection. numpy reads them afterwards without a copy. Times in seconds.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import (
    ACCEPTED,
    CHECKED,
    COMPUTING,
    DELIVERED,
    DRAFTED,
    FILLING,
    IDLE,
    OTHERS,
    OTHERS_REQUESTS,
    SEEN,
    SEEN_GROWING,
    SHARED,
    WAITED,
)
from sim.memory.host import KINDS, Move
from sim.request import NEVER, Request
from sim.schedulers.roles import HandedOver

COMPLETED, REJECTED, UNFINISHED, GAVE_UP = range(4)
"""What became of a request; of the last, its client waits no longer (``sim.loop.clients``)."""

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


PLAN = np.dtype([(name, kind.__metadata__[0]) for name, kind in PlanRow.__annotations__.items()])
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
        ("request", "i8"),  # id
        ("left", "i8"),  # tokens of its prompt that had been in the cache of the GPU, and were not
        ("new", "i8"),  # tokens of texts that others may share, and that were never there
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


def plan_rows_of(
    windows: int,
    *,
    ranks: bool = False,
    stages: bool = False,
    drafts: bool = False,
    cached: bool = False,
) -> np.dtype[np.void]:
    """Rows of plans of a model with that many windows (``sim.specs.window``), on data ``ranks``, in
    the ``stages`` of a pipeline, where tokens are drafted (``drafts``), or where some pool has a
    prefix cache (``cached``).

    >>> plan_rows_of(0) is PLAN, plan_rows_of(2)["seen"].shape, plan_rows_of(0, ranks=True)[OTHERS]
    (True, (2,), dtype('int32'))
    """
    if not (windows or ranks or stages or drafts or cached):
        return PLAN
    seen = [(SEEN, "i8", (windows,)), (SEEN_GROWING, "i8", (windows,)), (FILLING, "i8")]
    others, staged = [(OTHERS, "i4")], [(WAITED, "f8"), (COMPUTING, "f8")]
    drafted = [(DELIVERED, "i8"), (ACCEPTED, "i8"), (CHECKED, "i4"), (DRAFTED, "i4")]
    met, kept = [(OTHERS_REQUESTS, "i4")], [(SHARED, "i8"), (IDLE, "i8")]
    more = [*(seen if windows else []), *(others if ranks else []), *(staged if stages else [])]
    more += [*(drafted if drafts else []), *(met if drafts and ranks else [])]
    more += kept if cached else []
    return np.dtype([*PLAN.descr, *more])


def packer(row: np.dtype[np.void]) -> Callable[..., bytes]:
    """What packs one value a column into the bytes of such a ``row``.

    >>> np.frombuffer(packer(GAP)(0.5, 3), GAP).tolist()
    [(0.5, 3)]
    """
    kinds: Any = row.fields
    codes = [CODES[kinds[name][0].str[1:]] for name in row.names or ()]
    return struct.Struct("=" + "".join(codes)).pack


pack_plan = packer(PLAN)
pack_others = struct.Struct("=i").pack
pack_stages = struct.Struct("=dd").pack
pack_drafts = struct.Struct("=qqii").pack
pack_cached = struct.Struct("=qq").pack
pack_chunk = packer(CHUNK)
_pack_request = packer(REQUEST)
_pack_absence = packer(ABSENCE)
_pack_gap = packer(GAP)
_pack_move = packer(MOVE)
_pack_lookup = packer(LOOKUP)
_pack_handed = packer(HANDED)
_pack_held = packer(HELD)


class Recorder:
    """Collects the rows of one run, of all its replicas.

    ``plans`` takes rows made by ``pack_plan``, ``chunks`` by ``pack_chunk``; the replica appends
    positions to them directly, slower writers a ``PlanRow``. Where the model has ``windows``, what
    ``pack_seen`` makes follows each row of a plan; with data ``ranks``, so does ``pack_others``:
    the tokens of the other ranks in the pass; with ``stages`` of a pipeline, ``pack_stages``: what
    the batch waited for others, and what the stages computed it (s); with ``drafts``,
    ``pack_drafts``: the tokens that decoding sequences got, the drafts that were accepted, and
    those checked and made of each sequence, with ``ranks`` besides ``pack_others`` once more: the
    requests for which the other ranks draft; with a prefix cache (``cached``), ``pack_cached``:
    tokens that several requests hold, and that no request holds.
    """

    def __init__(
        self,
        windows: int = 0,
        *,
        ranks: bool = False,
        stages: bool = False,
        drafts: bool = False,
        cached: bool = False,
    ) -> None:
        self.ranks, self.drafts, self.cached = ranks, drafts, cached
        self.plan_row = plan_rows_of(
            windows, ranks=ranks, stages=stages, drafts=drafts, cached=cached
        )
        self.pack_seen = struct.Struct(f"={2 * windows + 1}q").pack
        self.reasons: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Let go of all rows; those who have asked for them keep theirs. What took part in a run
        knows its recorder, and is only found to be garbage some runs later."""
        self.plans = bytearray()
        self.chunks = bytearray()
        self._requests = bytearray()
        self._gaps = bytearray()
        self._absences = bytearray()
        self._moves = bytearray()
        self._lookups = bytearray()
        self._handed = bytearray()
        self._held = bytearray()

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
        """What ``request`` missed in a prefix cache when it was first admitted, in tokens."""
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

    def plan_rows(self) -> NDArray[np.void]:
        """One structured row (``plan_rows_of``) per plan, in the order in which they ended."""
        return np.frombuffer(self.plans, dtype=self.plan_row)

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
        return np.frombuffer(self.chunks, dtype=CHUNK), np.frombuffer(self._absences, ABSENCE)

    def lookup_rows(self) -> NDArray[np.void]:
        """Structured rows (``LOOKUP``) of the requests that prefix caches admitted."""
        return np.frombuffer(self._lookups, dtype=LOOKUP)

    def move_rows(self) -> NDArray[np.void]:
        """Structured rows (``MOVE``) of what went between GPUs and hosts, as it was begun."""
        return np.frombuffer(self._moves, dtype=MOVE)
