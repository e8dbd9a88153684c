"""Records what a run does: one packed row per plan and one per request, no objects.

Rows are C structs appended to a bytearray: a million requests cost memory in the hundreds of
megabytes and no garbage collection. numpy reads them afterwards without a copy. Times in seconds.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from sim.request import Request

COMPLETED, REJECTED, UNFINISHED = 0, 1, 2

PLAN = np.dtype(
    [
        ("start", "f8"),
        ("end", "f8"),
        ("gap", "f8"),  # duration of the first iteration
        ("slope", "f8"),  # by how much each further iteration is longer
        ("prefill_attention", "f8"),  # seconds of the first iteration spent on it
        ("pairs", "f8"),  # query-key pairs of prefill attention
        ("context", "i8"),  # KV tokens held by the computed sequences, before the first iteration
        ("held", "i8"),  # KV tokens filled, after the first iteration
        ("reserved", "i8"),  # KV tokens' worth of memory taken, in the first iteration
        ("reserved_end", "i8"),  # the same in the last
        ("iterations", "i4"),
        ("decode", "i4"),  # sequences that get a token
        ("computed", "i4"),  # sequences the decode kernels run over
        ("stalled", "i4"),  # of ``decode``: those whose first gap is longer than ``gap``
        ("prefill_seqs", "i4"),
        ("prefill_tokens", "i4"),
        ("admitted", "i4"),
        ("preemptions", "i4"),
        ("running", "i4"),
        ("waiting", "i4"),  # left in the queue by the plan
        ("finished", "i4"),  # requests that got their last token at the end
        ("replica", "i4"),
    ]
)
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

pack_plan = struct.Struct("=6d4q12i").pack
_pack_request = struct.Struct("=q4d8i").pack
pack_chunk = struct.Struct("=4i").pack
_pack_absence = struct.Struct("=qdi").pack
_pack_gap = struct.Struct("=dq").pack


class Recorder:
    """Collects the rows of one run, of all its replicas.

    ``plans`` takes rows made by ``pack_plan``, ``chunks`` by ``pack_chunk``; the replica appends to
    them directly.
    """

    def __init__(self) -> None:
        self.plans = bytearray()
        self.chunks = bytearray()
        self.reasons: list[str] = []
        self._requests = bytearray()
        self._gaps = bytearray()
        self._absences = bytearray()

    def finish(self, request: Request, replica: int, finish: float) -> None:
        """``request`` got its last token at ``finish``."""
        self._requests += _pack_request(
            request.id,
            request.arrival,
            request.scheduled,
            request.first_token,
            finish,
            request.prompt_tokens,
            request.output_tokens,
            request.generated,
            request.preemptions,
            replica,
            COMPLETED,
            -1,
            request.traffic_class.index,
        )

    def reject(self, request: Request, reason: str) -> None:
        """``request`` can never be served."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        self._close(request, -1, 0, REJECTED, self.reasons.index(reason))

    def leave_unfinished(self, request: Request, replica: int, generated: int) -> None:
        """The run ended with ``request`` queued or in the batch, ``generated`` tokens delivered."""
        self._close(request, replica, generated, UNFINISHED, -1)

    def _close(
        self, request: Request, replica: int, generated: int, status: int, reason: int
    ) -> None:
        nan = float("nan")
        self._requests += _pack_request(
            request.id,
            request.arrival,
            request.scheduled,
            request.first_token,
            nan,
            request.prompt_tokens,
            request.output_tokens,
            generated,
            request.preemptions,
            replica,
            status,
            reason,
            request.traffic_class.index,
        )

    def long_gap(self, gap: float, count: int) -> None:
        """``count`` sequences waited ``gap`` for a token: longer than the iteration that made
        it."""
        self._gaps += _pack_gap(gap, count)

    def thrown_out(self, request: Request, time: float) -> None:
        """``request`` was preempted at ``time``."""
        self._absences += _pack_absence(request.id, time, 1)

    def caught_up(self, request: Request, time: float) -> None:
        """All that ``request`` had before it was preempted is computed again at ``time``."""
        self._absences += _pack_absence(request.id, time, 0)

    def plan_rows(self) -> NDArray[np.void]:
        """One structured row (``PLAN``) per plan, in the order in which the plans ended."""
        return np.frombuffer(self.plans, dtype=PLAN)

    def request_rows(self) -> NDArray[np.void]:
        """One structured row (``REQUEST``) per request, in order of arrival."""
        rows = np.frombuffer(self._requests, dtype=REQUEST)
        return rows[np.argsort(rows["id"], kind="stable")]

    def gap_rows(self) -> NDArray[np.void]:
        """Structured rows (``GAP``) of the gaps that ``long_gap`` noted."""
        return np.frombuffer(self._gaps, dtype=GAP)

    def trail_rows(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Structured rows (``CHUNK``, ``ABSENCE``): what was prefilled in which plan, and which
        request was out of the batch, both in order of time.
        """
        return np.frombuffer(self.chunks, dtype=CHUNK), np.frombuffer(self._absences, ABSENCE)
