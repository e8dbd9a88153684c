"""Records what a run does: one packed row per plan and one per request, no objects.

Rows are C structs appended to a bytearray: a million requests cost memory in the hundreds of
megabytes and no garbage collection. numpy reads them afterwards without a copy. Times in seconds.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import COMPUTING, FILLING, OTHERS, SEEN, SEEN_GROWING, WAITED
from sim.request import NEVER, Request

COMPLETED, REJECTED, UNFINISHED = 0, 1, 2

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


def plan_rows_of(windows: int, *, ranks: bool = False, stages: bool = False) -> np.dtype[np.void]:
    """Rows of plans of a model with so many windows (``sim.specs.window``), on data ``ranks``, or
    in the ``stages`` of a pipeline.

    >>> plan_rows_of(0) is PLAN, plan_rows_of(2)["seen"].shape, plan_rows_of(0, ranks=True)[OTHERS]
    (True, (2,), dtype('int32'))
    """
    if not windows and not ranks and not stages:
        return PLAN
    seen = [(SEEN, "i8", (windows,)), (SEEN_GROWING, "i8", (windows,)), (FILLING, "i8")]
    others, staged = [(OTHERS, "i4")], [(WAITED, "f8"), (COMPUTING, "f8")]
    more = [*(seen if windows else []), *(others if ranks else []), *(staged if stages else [])]
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
pack_chunk = packer(CHUNK)
_pack_request = packer(REQUEST)
_pack_absence = packer(ABSENCE)
_pack_gap = packer(GAP)


class Recorder:
    """Collects the rows of one run, of all its replicas.

    ``plans`` takes rows made by ``pack_plan``, ``chunks`` by ``pack_chunk``; the replica appends
    positions to them directly, slower writers a ``PlanRow``. Where the model has ``windows``, what
    ``pack_seen`` makes follows each row of a plan; with data ``ranks``, so does ``pack_others``:
    the tokens of the other ranks in the pass; with ``stages`` of a pipeline, ``pack_stages``: what
    the batch waited for others, and what the stages computed it (s).
    """

    def __init__(self, windows: int = 0, *, ranks: bool = False, stages: bool = False) -> None:
        self.ranks = ranks
        self.plan_row = plan_rows_of(windows, ranks=ranks, stages=stages)
        self.pack_seen = struct.Struct(f"={2 * windows + 1}q").pack
        self.plans = bytearray()
        self.chunks = bytearray()
        self.reasons: list[str] = []
        self._requests = bytearray()
        self._gaps = bytearray()
        self._absences = bytearray()

    def reject(self, request: Request, reason: str) -> None:
        """``request`` can never be served."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.close(request, -1, 0, NEVER, REJECTED, self.reasons.index(reason))

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
