"""Measures a device from beginning to end.

Anchors (one product, one attention) are timed at the start, at the end and a dozen times between,
so that a drift of the device shows. Between them points come from the plan until a share of the
time is used; the rest goes to a second pass over them, or some of them, which says how well the
machine agrees with itself. Whatever happens at a point (no memory, no kernel, an error) is recorded
and the next one comes. Seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchPoint, BenchWork, Family, UnsupportedError
from calibrate.bench.heads import first_line
from calibrate.device import Device
from calibrate.measurement_store import MeasurementStore, now
from calibrate.measurements import Measurement, Purpose, Status, kernel_name
from calibrate.plan import CalibrationPlan
from calibrate.timing import KernelTimer, KernelTiming
from sim.errors import InfersimError
from sim.rng import stream

ANCHORED = ("gemm", "decode_attention")
ANCHOR_EVERY = 1 / 12
"""Share of the budget after which anchors are timed again."""

ANCHOR_LONGEST = 1 / 500
"""Share of the budget that one call of an anchor may take."""

MEMORY_SHARE = 0.9
"""Share of the free memory that a point may take."""


class DeviceLostError(InfersimError):
    """The device does not compute any more; all measurements so far are saved."""


class Machine(Protocol):
    """The suite's needs of a device in addition to the timer."""

    def room(self) -> float:
        """Bytes that a point could have."""
        ...

    def clock_mhz(self) -> float | None:
        """The clock now, if it can be read."""
        ...

    def responds(self) -> bool:
        """Whether it still computes."""
        ...

    def prepare(self, family: Family, point: BenchPoint) -> BenchWork:
        """Make a point ready."""
        ...

    def release(self) -> None:
        """Give all memory back."""
        ...


class Bench:
    """A device with its pool of operands."""

    def __init__(self, device: Device, arena: Arena) -> None:
        self._device, self._arena = device, arena

    def room(self) -> float:
        """The memory that is free, or in the pools and could be; some is left to libraries."""
        return MEMORY_SHARE * (self._device.free_memory() + self._arena.held)

    def clock_mhz(self) -> float | None:
        """The device's clock."""
        return self._device.clock_mhz()

    def responds(self) -> bool:
        """A small sum comes out right."""
        return self._device.responds()

    def prepare(self, family: Family, point: BenchPoint) -> BenchWork:
        """Operands from the pool."""
        return replace(family.prepare(point, self._arena), rows=point.rows)

    def release(self) -> None:
        """Empty the pools."""
        self._arena.release()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a suite has come: points measured, seconds used of the budget, and what comes."""

    measured: int
    used: float
    budget: float
    point: BenchPoint


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class SuitePace:
    """The ``first_pass`` is the share of the budget for new points; anchors, one of each
    ``anchored`` operator, are timed after each ``anchor_every`` of the budget."""

    first_pass: float = 0.85
    anchor_every: float = ANCHOR_EVERY
    anchored: Collection[str] = ANCHORED


class Suite:
    """One run over a device: a plan, the families it asks, a timer, a store for what comes of it.

    ``owners`` maps each operator to the family that prepares its points, ``clock`` counts seconds.
    """

    def __init__(
        self,
        plan: CalibrationPlan,
        owners: Mapping[str, Family],
        machine: Machine,
        timer: KernelTimer,
        store: MeasurementStore,
        *,
        pace: SuitePace | None = None,
        report: Report = lambda progress: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._owners = plan, owners
        self._machine, self._timer, self._store = machine, timer, store
        self._report, self._clock = report, clock
        self._pace = pace or SuitePace()
        self._start, self._measured, self._anchored = 0.0, 0, 0.0
        self._anchors: dict[str, BenchPoint] = {}

    def run(self) -> None:
        """Measure what the plan offers within its budget.

        DeviceLostError if the device stops answering; KeyboardInterrupt passes. Both leave all that
        was measured in the store.
        """
        self._start = self._clock()
        first_pass = self._pace.first_pass * self._plan.budget
        while (point := self._plan.next(first_pass - self._used())) is not None:
            row = self._measure(point, "")
            if self._is_anchor(row):
                self._anchors[point.operator] = point
                self._measure(point, "anchor")
            self._look_at_anchors()
        self._second_pass()
        self._repeat_anchors()

    def _is_anchor(self, row: Measurement) -> bool:
        """The first point of an operator worth anchoring, unless it takes long."""
        if row.operator not in self._pace.anchored or row.operator in self._anchors:
            return False
        return row.seconds is not None and row.seconds < ANCHOR_LONGEST * self._plan.budget

    def _look_at_anchors(self) -> None:
        """Time them if that was last done long ago."""
        if self._used() - self._anchored > self._pace.anchor_every * self._plan.budget:
            self._repeat_anchors()

    def _repeat_anchors(self) -> None:
        self._anchored = self._used()
        for point in self._anchors.values():
            self._measure(point, "anchor")

    def _second_pass(self) -> None:
        """Measure some points once more, drawn at random, as long as there is time."""
        table, plan = self._store.table, self._plan
        again = {row.key for row in table.of("again")}
        rows = [row for row in table.usable() if row.key not in again]
        spare = sum(plan.cost(point) for point in self._anchors.values())
        for index in stream(0, "second pass").permutation(len(rows)):
            left = plan.budget - spare - self._used()
            if left <= 0:
                return
            point = plan.known(rows[index].key)
            if point is not None and plan.cost(point) <= left:
                self._measure(point, "again")
                self._look_at_anchors()

    def _measure(self, point: BenchPoint, purpose: Purpose) -> Measurement:
        """Time a point, record what came of it, and let the plan learn from it."""
        self._report(Progress(self._measured, self._used(), self._plan.budget, point))
        start = self._clock()
        row = self._attempt(point, purpose)
        self._store.add(row)
        self._measured += 1
        if not purpose:
            self._plan.took(point, self._clock() - start)
        if row.status == "out-of-memory":
            self._machine.release()
        if row.status == "failed" and not self._machine.responds():
            raise DeviceLostError(
                f"the device stopped answering after {point.operator} {row.message}; "
                f"{self._measured} points are saved in {self._store.path}, --resume continues there"
            )
        return row

    def _attempt(self, point: BenchPoint, purpose: Purpose) -> Measurement:
        """One line for the table, whatever happens."""
        room = self._machine.room()
        if point.memory > room:
            message = f"needs {point.memory:.3g} bytes, {room:.3g} are free"
            return self._row(point, purpose, "out-of-memory", message=message)
        kernel = ""
        try:
            work = self._machine.prepare(self._owners[point.operator], point)
            kernel = work.kernel
            try:
                timing = self._timer.measure(work, self._plan.rates.timing)
            finally:
                if work.release is not None:
                    work.release()
        except Exception as error:
            return self._row(point, purpose, kind_of(error), kernel, first_line(error))
        return self._row(point, purpose, "noisy" if timing.noisy else "ok", kernel, "", timing)

    def _row(
        self,
        point: BenchPoint,
        purpose: Purpose,
        status: Status,
        kernel: str = "",
        message: str = "",
        timing: KernelTiming | None = None,
    ) -> Measurement:
        return Measurement(
            operator=point.operator,
            precision=point.precision,
            kernel=kernel_name(point.variant, kernel),
            shape=point.shape,
            seconds=None if timing is None else timing.seconds,
            low=None if timing is None else timing.low,
            high=None if timing is None else timing.high,
            repeats=0 if timing is None else timing.repeats,
            status=status,
            message=message if timing is None else f"timed by {timing.mode}",
            clock_mhz=self._machine.clock_mhz(),
            at=now(),
            purpose=purpose,
        )

    def _used(self) -> float:
        return self._clock() - self._start


def kind_of(error: Exception) -> Status:
    """The meaning of an error at a point.

    PyTorch reports memory and missing kernels as RuntimeErrors of its own kinds or by their words.

    >>> kind_of(RuntimeError("CUDA out of memory. Tried to allocate")), kind_of(ValueError("x"))
    ('out-of-memory', 'failed')
    >>> kind_of(RuntimeError("addmm not implemented for 'Float8_e4m3fn'"))
    'unsupported'
    """
    words = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in words or "can't allocate" in words:
        return "out-of-memory"
    if isinstance(error, UnsupportedError | NotImplementedError):
        return "unsupported"
    signs = ("not implemented", "not supported", "unsupported", "requires compute capability")
    return "unsupported" if any(sign in words for sign in signs) else "failed"
