"""Times a call, and says how certain the time is.

A timing is the median of samples with its quartiles, in seconds per call. Samples are taken until
the median is known well enough or the time for the point is used up; none is discarded. A median
that stays uncertain is marked as noisy and left to the fit's robust loss.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, pairwise
from statistics import median, quantiles
from typing import Any, Protocol, cast

from calibrate.bench.base import BenchWork, Mode
from calibrate.device import Device
from calibrate.lazy_torch import torch

LEAST, MOST = 5, 200
"""Samples wanted at least, if there is time, and at most."""

FEWEST = 3
"""Samples taken whatever the time: a median of fewer says nothing about the spread."""

TOO_LONG = 5.0
"""Times its budget that a call may last before the warm-up itself must do as a sample."""

SETTLED, NOISY = 0.01, 0.05
"""Relative standard error of the median at which sampling stops, and above which it is noisy."""

SAMPLE = 100e-6
"""Seconds that one sample lasts at least: a thousand times the resolution of the clock."""

REPLAY = 500e-6
"""Seconds that one replay of a CUDA graph lasts at least, for its own launch not to count."""

SCRUBBED, POOLS = 8 * 2**20, 16
"""Bytes of a matrix whose product scrubs a core's caches, and how many such take turns."""

SCRUBBING = 16
"""Rows of such a product at most: more take longer, and leave no less behind."""

INNER = 512
"""Columns of such a matrix."""

UNTOUCHED = 20e-3
"""Seconds of a call from which on it does not matter what it finds in the caches."""

GRAPH_CALLS = 1024
"""Calls in one graph, or queued behind one another, at most."""


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """Seconds per call: median and quartiles of ``repeats`` samples, and how they were timed."""

    seconds: float
    low: float
    high: float
    repeats: int
    noisy: bool
    mode: str


class KernelTimer(Protocol):
    """Anything that can say how long a piece of work takes."""

    def measure(self, work: BenchWork, budget: float) -> KernelTiming:
        """Time ``work`` in about ``budget`` seconds, longer if its calls are long."""
        ...


def summary(samples: Sequence[float], mode: str) -> KernelTiming:
    """The timing that samples amount to.

    >>> t = summary([3.0, 1.0, 2.0], "host")
    >>> t.seconds, t.low, t.high, t.repeats, t.noisy
    (2.0, 1.5, 2.5, 3, True)
    """
    if len(samples) == 1:
        return KernelTiming(samples[0], samples[0], samples[0], 1, True, mode)
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return KernelTiming(middle, low, high, len(samples), uncertainty(samples) > NOISY, mode)


def uncertainty(samples: Sequence[float]) -> float:
    """Relative standard error of the median, from the quartiles (as if normally distributed)."""
    if len(samples) < FEWEST:
        return math.inf
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return 0.929 * (high - low) / math.sqrt(len(samples)) / middle if middle > 0 else math.inf


def sample(once: Callable[[], float], budget: float, now: Callable[[], float]) -> list[float]:
    """Samples of ``once`` until the median has settled or ``budget`` seconds have passed."""
    start, taken = now(), list[float]()
    while len(taken) < MOST:
        taken.append(once())
        if len(taken) >= LEAST and uncertainty(taken) <= SETTLED:
            break
        if len(taken) >= FEWEST and now() - start >= budget:
            break
    return taken


class CpuTimer:
    """Times calls on a CPU; work that reports its own seconds is only sampled.

    With several threads it is the wall clock that counts. With one thread it is the time the
    thread was really running, which is the same on an idle machine and does not count the turns
    of other programs on a shared one. ``clock`` counts nanoseconds; tests give their own.

    ``scrub``, where given, runs before each call of an operator, untimed, and leaves nothing of it
    in the core's own caches: neither operands nor code. In an engine the weights of a matrix have
    just streamed through them, and a small operator takes several times as long as in a loop of its
    own. It is given the rows of the pass that the operator belongs to.
    """

    def __init__(
        self,
        device: Device | None = None,
        clock: Callable[[], int] | None = None,
        scrub: Callable[[int], object] | None = None,
    ) -> None:
        alone = device is not None and device.facts.kind == "cpu" and device.facts.units == 1
        self._wall = clock or time.perf_counter_ns
        self._thread = clock or (time.thread_time_ns if alone else time.perf_counter_ns)
        self._mode = "thread time" if alone and clock is None else "wall clock"
        self._wait: Callable[[], None] = (lambda: None) if device is None else device.synchronise
        self._scrub = scrub
        self._reading = 0 if scrub is None else reading_time(self._thread)

    def measure(self, work: BenchWork, budget: float) -> KernelTiming:
        """Warm up once, make samples long enough for the clock, and take them in turn."""
        if work.mode == "reported":
            return self._reported(work, budget)
        turn = cycle(work.calls)
        first = self._run(turn, 1)
        if first > TOO_LONG * budget:
            return summary([first, self._run(turn, 1)], self._mode)
        if self._scrub is not None and work.mode == "device" and first < UNTOUCHED:
            taken = sample(lambda: self._run_cold(turn, work), budget, self._now)
            return summary(taken, f"{self._mode}, cold")
        second = self._run(turn, 1) if first < budget / 4 else first
        inner = max(1, min(GRAPH_CALLS, math.ceil(SAMPLE / max(second, 1e-9))))
        taken = sample(lambda: self._run(turn, inner) / inner, budget, self._now)
        return summary(taken, self._mode)

    def _reported(self, work: BenchWork, budget: float) -> KernelTiming:
        call = work.calls[0]
        call()

        def once() -> float:
            return cast(float, call())

        return summary(sample(once, budget, self._now), "reported")

    def _run(self, turn: cycle[Callable[[], object]], times: int) -> float:
        """Seconds that this many calls take, the device's part included."""
        clock = self._thread
        start = clock()
        for _, call in zip(range(times), turn, strict=False):
            call()
        self._wait()
        return max(clock() - start, 1) / 1e9

    def _run_cold(self, turn: cycle[Callable[[], object]], work: BenchWork) -> float:
        """Seconds of one call that finds the caches full of something else."""
        assert self._scrub is not None
        clock, call = self._thread, next(turn)
        self._scrub(work.rows)
        if work.before is not None:
            work.before()
        start = clock()
        call()
        return max(clock() - start - self._reading, 1) / 1e9

    def _now(self) -> float:
        return self._wall() / 1e9


def reading_time(clock: Callable[[], int]) -> int:
    """Nanoseconds that reading the clock takes itself: asking for a thread's time is a call of the
    system."""
    readings = [clock() for _ in range(101)]
    return int(median(after - before for before, after in pairwise(readings)))


def scrubber(streamed: float, most: int = SCRUBBING) -> Callable[[int], object]:
    """Multiplies so many rows, up to ``most``, by a matrix of ``streamed`` bytes, another one at
    every call, but of no more than ``SCRUBBED``: those do for any core's own cache. A product of
    several rows leaves less behind than one of a single row, since its library copies the weights
    into panels."""
    columns = max(1, int(min(streamed, SCRUBBED)) // (4 * INNER))
    matrices = cycle(torch.ones(POOLS * columns, INNER).split(columns))
    inputs = torch.ones(most, INNER)
    linear = torch.nn.functional.linear
    return lambda rows: linear(inputs[:rows], next(matrices))


Calls = Sequence[Callable[[], object]]
"""Calls that take turns."""


class CudaTimer:
    """Times what the device itself takes.

    ``device`` work is captured in a CUDA graph and replayed between two events, so that launches
    from Python do not count; what cannot be captured is queued behind a pause of the device, and
    the events then see the calls back to back. ``eager`` work is timed with events as it comes.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._host = CpuTimer(device)

    def measure(self, work: BenchWork, budget: float) -> KernelTiming:
        """Warm up, capture or queue, and sample."""
        if work.mode in ("host", "reported"):
            return self._host.measure(work, budget)
        calls, single = self._warm(work, budget)
        rounds = self._rounds(calls, single)
        if work.mode == "eager":
            return self._queued(calls, rounds, budget, "eager", pause=False)
        graph = self._captured(calls, rounds)
        if graph is None:
            return self._queued(calls, rounds, budget, "events", pause=True)
        count, replay = len(calls) * rounds, graph.replay
        replay()
        taken = sample(lambda: self._between(replay) / count, budget, time.perf_counter)
        return summary(taken, "graph")

    def _warm(self, work: BenchWork, budget: float) -> tuple[Calls, float]:
        """The calls that are timed, each of them made once (compilation, tuning, workspaces: a
        compiler at work within a capture would end it), and the seconds of one after that. Where
        one takes long, there are no more than ``budget`` seconds of them."""
        with self._aside():
            work.calls[0]()
        single = self._between(work.calls[0])
        calls = work.calls[: max(FEWEST, math.ceil(budget / single))]
        with self._aside():
            for call in calls:
                call()
        some = calls[:8]
        return calls, self._between(lambda: [call() for call in some]) / len(some)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """A stream of its own, as PyTorch asks for before a capture; waits for the end."""
        side, current = torch.cuda.Stream(self._device.index), torch.cuda.current_stream
        side.wait_stream(current(self._device.index))
        with torch.cuda.stream(side):
            yield
        current(self._device.index).wait_stream(side)
        self._device.synchronise()

    def _rounds(self, calls: Calls, single: float) -> int:
        """How often to go through all calls for one sample to last long enough."""
        once = max(single * len(calls), 1e-7)
        most = max(1, GRAPH_CALLS // len(calls))
        return max(1, min(most, math.ceil(REPLAY / once)))

    def _captured(self, calls: Calls, rounds: int) -> Any | None:
        """The calls as a graph, or None if one of them cannot be captured."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for _ in range(rounds):
                    for call in calls:
                        call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            self._device.synchronise()
            self._device.renew_generator()
            return None
        return graph

    def _queued(
        self, once_through: Calls, rounds: int, budget: float, mode: Mode | str, pause: bool
    ) -> KernelTiming:
        """Events around calls; with ``pause`` the device sleeps while they are being queued."""
        calls = list(once_through) * rounds
        cycles = int(min(len(calls) * 20e-6, 0.05) * 1e9) if pause else 0

        def once() -> float:
            return self._between(lambda: [call() for call in calls], cycles) / len(calls)

        return summary(sample(once, budget, time.perf_counter), mode)

    def _between(self, run: Callable[[], object], sleep: int = 0) -> float:
        """Seconds of the device from the start of ``run`` to the end of what it launched."""
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        if sleep:
            torch.cuda._sleep(sleep)
        start.record()
        run()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)) / 1e3, 1e-9)


def timer_for(device: Device, *, packed: bool = False) -> KernelTimer:
    """The timer of a device; ``packed`` says that the weights of a CPU lie in panels beforehand."""
    if device.facts.kind == "cpu":
        return CpuTimer(device, scrub=scrubber(math.inf, 1 if packed else SCRUBBING))
    return CudaTimer(device)
