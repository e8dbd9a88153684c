"""Checks runs with random arrivals against queueing theory. Times in seconds.

A request is a job whose size is its output tokens: the prefill gives the first of them, and every
iteration gives one to each request in the batch. The duration of an iteration makes the queue:

- a constant and one slot: M/D/1 and M/G/1, first come first served, or by priority;
- a constant and slots for all: M/G/infinity, entered at iteration boundaries;
- a constant *per request* and slots for all: processor sharing.

Times are whole tokens, so the sizes here are discrete laws; the formulas below hold for them
exactly, except for processor sharing (see there).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

import numpy as np
from numpy.typing import NDArray

from sim.iteration import Timer
from sim.request import TrafficClass
from sim.schedulers import Scheduler
from sim.selftest.check import Check, estimate
from sim.selftest.exact import conservation, departures, idle_only_when_empty, littles_law
from sim.selftest.loop import LineTimer, Played, play, scheduler
from sim.workload import Mix, generate
from sim.workload.arrivals import Poisson
from sim.workload.lengths import Fixed, LengthLaw, Uniform

TOKEN = 2.0**-10
"""Seconds that a token takes, about a millisecond."""

BATCHES = 40
"""Stretches of a run; the first and the last, where it fills and empties, are not counted."""

PROMPT = Fixed(1)

TWO_CLASSES = Mix(
    (TrafficClass(0, "first", 0, math.inf), TrafficClass(1, "second", 1, math.inf)), (0.4, 0.6)
)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Output lengths without memory, ``mean`` tokens on average: the exponential of whole numbers.

    Their second moment is smaller than the exponential's 2 mean^2 by the factor 1 - 1/(2 mean).
    """

    mean: int

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Independent lengths, at least 1."""
        drawn: NDArray[np.int64] = rng.geometric(1 / self.mean, size)
        return drawn


@dataclass(frozen=True, slots=True)
class Size:
    """A law of job sizes with its first two moments, in tokens and tokens squared."""

    law: LengthLaw
    mean: float
    square: float


CONSTANT = Size(Fixed(8), 8.0, 64.0)
MEMORYLESS = Size(Geometric(200), 200.0, 200.0 * 399.0)
SPREAD = Size(Uniform(1, 399), 200.0, 200.0 * 799.0 / 3)


def pollaczek_khinchine(rate: float, mean: float, square: float) -> float:
    """Mean wait (s) of M/G/1, first come first served: ``rate`` per second, the service time's mean
    and second moment.

    >>> pollaczek_khinchine(rate=0.5, mean=1.0, square=2.0)     # M/M/1: rho S / (1 - rho)
    1.0
    >>> pollaczek_khinchine(rate=0.5, mean=1.0, square=1.0)     # M/D/1: half of it
    0.5
    """
    return rate * square / (2 * (1 - rate * mean))


def cobham(rate: float, square: float, loads: Sequence[float]) -> list[float]:
    """Mean waits (s) of the classes of M/G/1 that are served in this order and never interrupted.

    ``loads`` are the shares of the time that each class keeps the server busy; ``rate`` per second
    and second moment ``square`` of the service time are those of all together (Cobham, 1954).

    >>> cobham(rate=0.5, square=2.0, loads=[0.5])     # one class: M/M/1
    [1.0]
    >>> cobham(rate=0.5, square=2.0, loads=[0.25, 0.25])    # on average the same
    [0.6666666666666666, 1.3333333333333333]
    """
    left = rate * square / 2  # of the service under way, as an arrival finds it
    sums = [0.0, *accumulate(loads)]
    return [left / ((1 - sums[k]) * (1 - sums[k + 1])) for k in range(len(loads))]


def queue_checks(seed: int) -> Iterator[Check]:
    """All of this page, at two loads each; more requests where the queue forgets slowly."""
    # traffic of its own for each run, so that one unlucky draw is not seen eight times
    seeds = count(100 * seed)
    for load, n in ((0.5, 20_000), (0.8, 60_000)):
        yield from single_server(f"M/D/1 at {load}", load, CONSTANT, next(seeds), requests=n)
    for load, n in ((0.5, 40_000), (0.8, 100_000)):
        yield from single_server(f"M/M/1 at {load}", load, MEMORYLESS, next(seeds), requests=n)
    yield from priorities("M/M/1-HOL at 0.8", 0.8, MEMORYLESS, next(seeds), requests=60_000)
    for load, size in ((10, SPREAD), (40, MEMORYLESS)):
        name = f"M/G/inf at {load}"
        yield from infinite_servers(name, load, size, next(seeds), requests=20_000)
    for load, n in ((0.5, 30_000), (0.8, 80_000)):
        name = f"M/G/1-PS at {load}"
        yield from processor_sharing(name, load, SPREAD, next(seeds), requests=n)


def single_server(
    name: str,
    load: float,
    size: Size,
    seed: int,
    *,
    requests: int,
    timer: Timer | None = None,
    policy: Scheduler | None = None,
) -> list[Check]:
    """M/G/1: one slot and a constant iteration time, so that a job of n tokens takes n iterations
    and the next one enters at the boundary at which it leaves.
    """
    rate = load / (size.mean * TOKEN)
    played = play(
        generate(requests, seed, Poisson(rate), PROMPT, size.law),
        policy or scheduler(slots=1),
        timer or LineTimer(fixed=TOKEN),
    )
    rows = played.requests
    theory = pollaczek_khinchine(rate, size.mean * TOKEN, size.square * TOKEN**2)
    return [
        estimate(f"{name}: mean wait, s", theory, batch_means(rows["scheduled"] - rows["arrival"])),
        departures(name, played, TOKEN),
        *identities(name, played, TOKEN),
    ]


def priorities(
    name: str,
    load: float,
    size: Size,
    seed: int,
    *,
    requests: int,
    timer: Timer | None = None,
    policy: Scheduler | None = None,
) -> list[Check]:
    """M/G/1 with head-of-the-line priorities (HOL): of two classes of equal sizes, the first goes
    before the second in the queue, and who is served is not interrupted."""
    rate = load / (size.mean * TOKEN)
    played = play(
        generate(requests, seed, Poisson(rate), PROMPT, size.law, mix=TWO_CLASSES),
        policy or scheduler(slots=1, order="priority"),
        timer or LineTimer(fixed=TOKEN),
    )
    rows = played.requests
    waits = cobham(rate, size.square * TOKEN**2, [load * share for share in TWO_CLASSES.shares])
    estimates = [
        estimate(
            f"{name}: wait of {item.name}, s",
            wait,
            batch_means((rows["scheduled"] - rows["arrival"])[rows["class"] == item.index]),
        )
        for item, wait in zip(TWO_CLASSES.classes, waits, strict=True)
    ]
    return [*estimates, *identities(name, played, TOKEN)]


def infinite_servers(
    name: str,
    load: float,
    size: Size,
    seed: int,
    *,
    requests: int,
    timer: Timer | None = None,
    policy: Scheduler | None = None,
) -> list[Check]:
    """M/G/infinity: slots for all, and an iteration takes the same time for any batch.

    A request waits for the boundary, half a token on average whatever the load, then takes its
    size. (Unless it finds no other: a share exp(-load), which moves nothing visible.) At a given
    place between two boundaries the number present is Poisson; its mean grows by rate * TOKEN from
    one to the next, which adds a twelfth of that squared to the variance.
    """
    rate = load / (size.mean * TOKEN)
    played = play(
        generate(requests, seed, Poisson(rate), PROMPT, size.law),
        policy or scheduler(),
        timer or LineTimer(fixed=TOKEN),
    )
    rows = played.requests
    mean = rate * (size.mean + 0.5) * TOKEN
    spread = mean + (rate * TOKEN) ** 2 / 12
    extra = rows["finish"] - rows["arrival"] - rows["output_tokens"] * TOKEN
    return [
        estimate(f"{name}: mean number present", mean, number_means(played, lambda n: n)),
        estimate(
            f"{name}: variance of it", spread, number_means(played, lambda n: (n - mean) ** 2)
        ),
        estimate(f"{name}: time beyond service, s", TOKEN / 2, batch_means(extra)),
        *identities(name, played, None),
    ]


def processor_sharing(
    name: str,
    load: float,
    size: Size,
    seed: int,
    *,
    requests: int,
    timer: Timer | None = None,
    policy: Scheduler | None = None,
) -> list[Check]:
    """M/G/1-PS: a round gives a token to each of n requests and takes n times TOKEN.

    A job of x tokens stays x TOKEN / (1 - load) on average, whatever the law of the others' sizes.
    That is for infinitely thin slices; rounds move the mean sojourn by less than one round out of
    the 200 of a mean job, and the slope by as little. That is well inside one standard error here.
    """
    rate = load / (size.mean * TOKEN)
    played = play(
        generate(requests, seed, Poisson(rate), PROMPT, size.law),
        policy or scheduler(),
        timer or LineTimer(sequence=TOKEN),
    )
    rows = played.requests
    per_token = TOKEN / (1 - load)
    sojourns, sizes = rows["finish"] - rows["arrival"], rows["output_tokens"]
    slopes = [
        np.cov(x, t)[0, 1] / np.var(x, ddof=1)
        for x, t in zip(_batches(sizes), _batches(sojourns), strict=True)
    ]
    return [
        estimate(f"{name}: sojourn per token, s", per_token, np.array(slopes)),
        estimate(f"{name}: mean sojourn, s", size.mean * per_token, batch_means(sojourns)),
        *identities(name, played, TOKEN),
    ]


def identities(name: str, played: Played, token: float | None) -> list[Check]:
    """Checks that hold for every run; ``token`` is the work of one token (s), None if there is no
    such thing."""
    found = [littles_law(name, played), idle_only_when_empty(name, played)]
    return found if token is None else [*found, conservation(name, played, token)]


def batch_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of consecutive stretches of the requests, in order of arrival."""
    return np.array([float(np.mean(batch)) for batch in _batches(values)])


def _batches(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return np.array_split(values, BATCHES)[1:-1]


def number_means(
    played: Played, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Time averages, over consecutive stretches of equal length, of a function of the number of
    requests present."""
    rows = played.requests
    times = np.concatenate([rows["arrival"], rows["finish"]])
    steps = np.concatenate([np.ones(len(rows)), -np.ones(len(rows))])
    order = np.argsort(times, kind="stable")
    times, number = times[order], np.cumsum(steps[order])
    integral = np.concatenate([[0.0], np.cumsum(of(number[:-1]) * np.diff(times))])
    edges = np.linspace(0.0, float(rows["arrival"][-1]), BATCHES + 1)[1:-1]
    means: NDArray[np.float64] = np.diff(np.interp(edges, times, integral)) / np.diff(edges)
    return means
