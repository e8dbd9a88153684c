"""Says how nearly a front end of one thread is as busy as it can be, and what that may cost.

One thread of each replica's front end takes requests in and hands out tokens (an engine's
``per_handled_request`` and ``per_streamed_token``). A simulation lets requests wait for that thread
to take in others. It does not let them wait for tokens that are handed out late: beyond what the
thread can do, first tokens come far later than predicted. Seconds.
"""

from __future__ import annotations

import numpy as np

from sim.metrics.record.run_record import RunRecord
from sim.pools import handling_of, streaming_of
from sim.units import show_share, show_time

SLOWER_REQUESTS, SLOWER_TOKENS = 21 / 20, 110 / 60
"""How many times as long a front end may take as its preset has it: what one was measured to do
allows 17 to 21 ms for a request and 60 to 110 us for a token
(``sim/catalog/engines/tensorrt-llm.yaml``)."""

NEARLY = 0.9
"""Share of the time from which on a front end is called busy: requests that come at once wait for
each other long before it is always so."""


def front_end_busy(run: RunRecord, requests: float = 1.0, tokens: float = 1.0) -> float:
    """The share of the run in which the threads of its front ends are busy; more than 1 if they
    could not do what the simulation lets them. 0 where they are not modelled, or stand before
    workers apart. They take so many times as long for ``requests`` and ``tokens`` as their presets
    have it."""
    handling = requests * handling_of(run.pools)
    streaming = tokens * streaming_of(run.pools)
    if _apart(run) or not (handling or streaming) or run.duration <= 0:
        return 0.0
    rows = run.accepted
    threads = sum(len(pool.settings.engines) for pool in run.pools)
    work = handling * len(rows) + streaming * float(rows["generated"].sum())
    return work / (threads * run.duration)


def _apart(run: RunRecord) -> bool:
    return any(pool.settings.role == "decode" for pool in run.pools)


def excess(run: RunRecord) -> float:
    """How much more a front end has to do, if it is as slow as it may be, than what keeps it
    ``NEARLY`` always busy, as a share of that; 0 if it has less to do."""
    return max(0.0, front_end_busy(run, SLOWER_REQUESTS, SLOWER_TOKENS) / NEARLY - 1.0)


def crowded(run: RunRecord) -> float:
    """By what factor, in its logarithm, the mean time to first token grows by such an ``excess``:
    what the front end cannot do waits."""
    more = excess(run)
    if not more or not run.completed.any():
        return 0.0
    whole, first = (run.latency(name)[run.completed] for name in ("e2el", "ttft"))
    return float(np.log1p(more * whole.mean() / first.mean()))


def outside(run: RunRecord) -> float:
    """The share of requests in flight that are with the front end instead of the engine by such an
    ``excess``: so many fewer share its passes."""
    more = excess(run)
    return more / (1.0 + more)


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
