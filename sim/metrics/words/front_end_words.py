"""Says how nearly a front end of one thread is as busy as it can be, and what that may cost.

One thread of each replica's front end takes requests in and hands out tokens (an engine's
``per_handled_request`` and ``per_streamed_token``). A simulation lets requests wait for that thread
to take in others. It does not let them wait for tokens that are handed out late: beyond what the
thread can do, first tokens come far later than predicted. Seconds.
"""

from __future__ import annotations

from sim.metrics.record.run_record import RunRecord
from sim.pools import handling_of, streaming_of
from sim.units import show_share, show_time

NEARLY = 0.9
"""Share of the time from which on a front end is called busy: requests that come at once wait for
each other long before it is always so."""


def front_end_busy(run: RunRecord) -> float:
    """The share of the run in which the threads of its front ends are busy; more than 1 if they
    could not do what the simulation lets them. 0 where they are not modelled, or stand before
    workers apart."""
    handling, streaming = handling_of(run.pools), streaming_of(run.pools)
    if _apart(run) or not (handling or streaming) or run.duration <= 0:
        return 0.0
    rows = run.accepted
    threads = sum(len(pool.settings.engines) for pool in run.pools)
    work = handling * len(rows) + streaming * float(rows["generated"].sum())
    return work / (threads * run.duration)


def _apart(run: RunRecord) -> bool:
    return any(pool.settings.role == "decode" for pool in run.pools)


def front_end_notes(run: RunRecord) -> list[str]:
    """Notes on front ends that are nearly always busy, or not simulated."""
    handling = handling_of(run.pools)
    if _apart(run) and handling:
        return [
            "The front end before workers apart is not simulated: the engine's own has one thread "
            f"that takes {show_time(handling)} for a request, so {1 / handling:.3g} requests/s."
        ]
    busy = front_end_busy(run)
    if busy < NEARLY:
        return []
    if busy < 1.0:
        state = f"is busy {show_share(busy)} of the time, near the most that its one thread can do"
    else:
        state = (
            f"would be busy {show_share(busy)} of the time: its one thread limits the rate, so "
            f"that throughput is about {show_share(1 - 1 / busy)} lower"
        )
    return [
        f"The front end (HTTP, tokeniser, streaming) {state}. First tokens may come much later "
        "than predicted; more replicas help, faster GPUs do not."
    ]
