"""Provides ``VerifyCourse``: a verification under way, whose rest is planned anew after each part.

What a calibration, the work around it and a run take is measured as they happen; from then on the
plan uses these times. ``Pace`` says how much time is left: the sum of the steps to come, stretched
by as much as the steps so far took longer than they should have. Where the time is over in the
middle of a part, ``heed`` cuts the part short. Seconds.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from calibrate.verify.budget import (
    EXPECTED,
    RESERVE,
    Begun,
    Version,
    Wish,
    fit,
    least_total,
    slower,
)
from sim.errors import InfersimError, UsageError
from sim.units import show_time

EVERY = 10.0
"""Seconds between lines during one step."""

Say = Callable[[str], None]


class Pace:
    """The progress of something that should take ``planned`` in all, reported to ``say``."""

    def __init__(
        self,
        planned: float,
        say: Say = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned, self._say, self._clock = planned, say, clock
        self._start = self._told = clock()
        self._done = self._step = 0.0
        self._text, self._end = "", math.inf

    def ends(self, at: float) -> None:
        """Whatever is planned, all of it is over ``at`` that reading of the clock."""
        self._end = at

    def begin(self, text: str, planned: float) -> None:
        """A step that should take ``planned`` begins; the one before is over."""
        self._done += self._step
        self._step, self._text = planned, text
        self._tell()

    def remains(self, planned: float) -> None:
        """From now on ``planned`` is what is left, by times that were measured: not stretched by
        what steps before took."""
        self._planned, self._start = planned, self._clock()
        self._done = self._step = 0.0

    def tick(self) -> None:
        """Something happened within the step: say so if nothing was said for a while."""
        if self._clock() - self._told >= EVERY:
            self._tell()

    def left(self) -> float:
        """Seconds that are probably left."""
        used = self._clock() - self._start
        stretch = max(1.0, used / self._done) if self._done else 1.0
        planned = stretch * self._planned - used
        return max(0.0, min(planned, self._end - self._clock()))

    def _tell(self) -> None:
        self._told = self._clock()
        self._say(f"{self._text}; about {show_time(round(self.left()))} left")


GRACE = 0.1
"""Share of the total by which the least may be too long, once it is measured, without a refusal."""

ORDINARY = 2.0
"""How many times as long as ``EXPECTED`` a machine may take for which the first advice is enough:
two cores that share their time with other work took 1.3 times as long."""

STEP = 5.0
"""The least total is named in multiples of that many seconds."""


def check(wish: Wish) -> None:
    """UsageError if even the smallest version is expected to take longer than there is time."""
    least = least_total(wish, EXPECTED)
    if least > wish.total:
        generous = least_total(wish, slower(EXPECTED, ORDINARY))
        raise _too_short(wish, fit(0.0, wish, EXPECTED), least, advised=generous, sure=False)


FITS = 2
"""What is left to do once nothing is measured any more, in fits of one calibration: that of two
calibrations together, and the predictions of the runs."""

LEAST_SHARE = 0.05
"""Of a processor, that is counted with."""

ALONE = 0.9
"""Share of a processor from which on a process has it to itself, near enough."""


class TimeOverError(InfersimError):
    """The time that was asked for is over, in the middle of a part."""


class VerifyCourse:
    """The plan of a verification, and what is known of its costs.

    Calls come in this order: for each trace ``next_trace``; a calibration (``calibration``,
    ``calibrated``) and ``opened``; then for each round its runs (``run``, ``ran``), a calibration
    and ``closed``; at last ``finished``. ``clock`` counts seconds, and time counts from ``started``
    on by the same clock. Where ``opened`` is None, ``finished`` comes next. Within a part ``heed``
    is called often. ``processor`` counts the processor time that this process had.
    """

    def __init__(
        self,
        wish: Wish,
        say: Say = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._wish, self._say, self._clock = wish, say, clock
        self._processor, self._had, self._from = processor, processor(), clock()
        self._fits = 0.0
        self._start = self._since = clock() if started is None else started
        self._costs, self._begun, self._version = EXPECTED, Begun(), Version((), (), 0)
        self._doing, self._spent = "", defaultdict[str, float](float)
        self._slower, self._planned_run = 1.0, 0.0
        self._runs: list[float] = []
        self._known, self._said = False, ""
        self.pace = Pace(0.0, say, clock)
        self.pace.ends(self._start + wish.total)

    def heed(self) -> None:
        """Part of a step is done; TimeOverError where what is left of the time is needed for the
        fits and predictions that end a verification."""
        self.pace.tick()
        if self._used() > self._wish.total - FITS * self._fits:
            raise TimeOverError(f"{show_time(self._wish.total)} are over")

    def fitted(self) -> None:
        """The fit to a calibration, which comes first of all that comes with it, is over."""
        self._fits = self._clock() - self._since

    def too_late(self) -> UsageError:
        """Why nothing came of it: the time was over before the first run was."""
        if self._costs == EXPECTED:  # nothing was measured yet
            self._costs = slower(EXPECTED, 1 / max(LEAST_SHARE, min(1.0, self._share())))
        around = max(self._costs.around, self._spent["around"])  # as far as it came
        version = fit(0.0, self._wish, replace(self._costs, around=around))
        least = max(self._used() + around, version.seconds) / (1 - RESERVE)
        advised = (1 + GRACE) * least
        return _too_short(self._wish, version, least, advised=advised, why=self._shared())

    def cut_short(self, text: str) -> None:
        """The time was over in the middle of a part: say what becomes of it."""
        self._switch("around")
        self._say(f"{text}{self._shared()}")

    def _share(self) -> float:
        """The share of a processor that this process had so far."""
        wall = self._clock() - self._from
        return (self._processor() - self._had) / wall if wall > 0 else 1.0

    def _shared(self) -> str:
        """The note that other programs were the reason; empty where they were not."""
        share = self._share()
        if share >= ALONE:
            return ""
        return f"; other programs use the machine: this one had {share:.0%} of a processor"

    def next_trace(self) -> str | None:
        """The trace that comes now; None where none is left, or none fits any more."""
        self._spent, self._runs = defaultdict(float), []
        version = self._decide()
        if not version.traces:
            return None
        first = version.traces[0]
        others = (name for name in self._wish.traces if name != first)
        self._wish = replace(self._wish, traces=(first, *others))
        return first

    def calibration(self, trace: str) -> float:
        """A calibration begins; its length."""
        self._switch("calibration")
        self._plan()
        self.pace.begin(f"{trace}: calibration", self._version.calibration)
        return self._version.calibration

    def calibrated(self, trace: str, least: float) -> None:
        """Note that a calibration is over; a useful one takes at least ``least``."""
        self._switch("around")
        if not self._known:
            self._costs = slower(self._costs, least / self._costs.calibration)
            version = fit(self._left(), self._wish, self._costs)
            self._refuse(replace(version, seconds=version.seconds - version.calibration))
        self._costs = replace(self._costs, calibration=least)
        self.pace.begin(f"{trace}: host terms", self._costs.around)

    def opened(self, predicted: Mapping[str, float]) -> Version | None:
        """The first calibration of a trace is over with all that comes with it, and the shortest
        run of each trace is ``predicted``: what to do. Where even the smallest version takes much
        longer than there is time: UsageError for the first trace, None for a later one."""
        self._surrounded()
        runs = {name: self._slower * seconds for name, seconds in predicted.items()}
        self._costs = replace(self._costs, runs=runs)
        version = self._decide()
        if not self._known:
            self._refuse(version)
        elif self._over(version):
            return None
        self._known = True
        self._planned_run = version.runs[version.traces[0]]
        self._begun = replace(self._begun, batchings=version.batchings, run=self._planned_run)
        return version

    def longer(self, trace: str) -> float:
        """How many times as long as its shortest run the runs of ``trace`` are."""
        return self._version.runs[trace] / self._costs.runs[trace]

    def run(self, text: str) -> bool:
        """Begin a run if there is still time for it, else leave out the rest of the round: of each
        trace there is at least one run."""
        self._switch("run")
        self._plan()
        if self._runs:
            drag = max(1.0, self._runs[-1] / self._planned_run)
            closing = drag * (self._costs.calibration + self._costs.around)
            if max(self._runs[-1], self._run()) + closing > self._wish.total - self._used():
                kinds = len(self._begun.batchings)
                rounds = math.ceil((self._begun.runs + 1) / kinds)
                self._begun = replace(self._begun, runs=kinds * rounds)
                self._switch("around")
                self._say("The rest of this round is left out: the machine has become slow.")
                return False
        self.pace.begin(text, self._run())
        return True

    def ran(self) -> None:
        """Note that a run is over: the next ones of its trace take as long as those of the last
        round."""
        took = self._clock() - self._since
        self._switch("around")
        self._runs.append(took)
        self._begun = replace(self._begun, runs=self._begun.runs + 1, run=self._run())

    def _run(self) -> float:
        """What a run of this trace takes."""
        return fmean(self._runs[-len(self._begun.batchings) :] or [self._planned_run])

    def closed(self) -> bool:
        """A round is over, its calibration and all that comes with it included: whether another
        one fits."""
        self._surrounded()
        version = self._decide()
        return version.repeats * len(version.batchings) > self._begun.runs

    def finished(self, trace: str) -> None:
        """All of ``trace`` is done that can be."""
        if self._runs:
            self._slower *= self._run() / self._planned_run
        rest = tuple(name for name in self._wish.traces if name != trace)
        self._wish = replace(self._wish, traces=rest)
        self._begun = Begun(finished=self._begun.finished + 1)

    def _plan(self) -> Version:
        """How long the parts to come should take."""
        self._version = fit(self._left(), self._wish, self._costs, self._begun)
        self.pace.remains(self._version.seconds)
        return self._version

    def _decide(self) -> Version:
        """Which parts are to come, said where that has changed."""
        version = self._plan()
        dropped = _dropped(self._wish, version)
        if dropped != self._said and self._wish.traces:
            within = f"To stay within {show_time(self._wish.total)}"
            self._say(f"{within}: {dropped}." if dropped else f"{within}: nothing is left out.")
            self._said = dropped
        return version

    def _switch(self, doing: str) -> None:
        """Something else is done from now on."""
        now = self._clock()
        self._spent[self._doing] += now - self._since
        self._doing, self._since = doing, now

    def _surrounded(self) -> None:
        """A calibration is over, with all that comes with it."""
        self._switch("around")
        self._begun = replace(self._begun, calibrations=self._begun.calibrations + 1)
        self._costs = replace(self._costs, around=self._spent.pop("around"))

    def _refuse(self, version: Version) -> None:
        """UsageError if the version, the smallest, takes much longer than there is time."""
        if self._over(version):
            least = (self._used() + version.seconds) / (1 - RESERVE)
            why = self._shared()
            raise _too_short(self._wish, version, least, advised=(1 + GRACE) * least, why=why)

    def _over(self, version: Version) -> bool:
        return version.seconds > self._left() + GRACE * self._wish.total

    def _left(self) -> float:
        return (1 - RESERVE) * self._wish.total - self._used()

    def _used(self) -> float:
        return self._clock() - self._start


def _dropped(wish: Wish, version: Version) -> str:
    """What of the wish the version leaves out, in words."""
    if not version.traces:
        return f"no trace {' or '.join(wish.traces)}"
    parts = []
    if version.repeats < wish.repeats:
        runs = "1 run" if version.repeats == 1 else f"{version.repeats} runs"
        parts.append(f"{runs} of each kind instead of {wish.repeats}")
    for title, asked, made in (
        ("trace", wish.traces, version.traces),
        ("batching", wish.batchings, version.batchings),
    ):
        gone = [name for name in asked if name not in made]
        if gone:
            parts.append(f"no {title} {' or '.join(gone)}")
    return ", ".join(parts)


def _too_short(
    wish: Wish,
    version: Version,
    least: float,
    *,
    advised: float,
    sure: bool = True,
    why: str = "",
) -> UsageError:
    """Why there is too little time; ``sure`` once this machine has shown what it takes, and ``why``
    that is much."""
    took, enough = (STEP * math.ceil(seconds / STEP) for seconds in (least, advised))
    where = "" if sure else " on a fast and idle machine"
    slow = (
        ""
        if sure
        else f"; a machine that needs more than {enough:.0f}s says so after the first calibration"
    )
    return UsageError(
        f"--total-time {wish.total:g}s: too short; one run of {version.batchings[0]} in "
        f"{version.traces[0]} between two calibrations takes about {took:.0f}s in all{where}, the "
        f"least that is useful; give --total-time {enough:.0f}s or more{slow}{why}"
    )
