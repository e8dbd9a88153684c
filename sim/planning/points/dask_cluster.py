"""Evaluates points on a Dask cluster, whose workers need the same release of infersim.

The loss of a worker loses nothing: its points are done again by another one. A point that loses
worker after worker is given up, by Dask's ``allowed-failures``, and is recorded as failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sim.errors import InfersimError, UsageError
from sim.planning.points.evaluate import evaluate
from sim.planning.points.points import Outcome, Point
from sim.scenario import Scenario
from sim.version import version

AHEAD = 8
"""Points handed to the cluster for each of its threads: enough that none waits for the next."""

TIMEOUT = 15
"""Seconds in which the scheduler has to answer."""


@dataclass(frozen=True)
class DaskCluster:
    """The workers of the scheduler at ``address``; ``tell`` is called with those that are lost."""

    address: str
    tell: Callable[[str], object]

    def check(self) -> None:
        """UsageError if no cluster that can evaluate points answers."""
        with _client(_distributed(), self.address) as client:
            _checked_threads(client, self.address)

    def run(self, scenario: Scenario, points: Iterable[Point]) -> Iterator[Outcome]:
        """Runs points on the cluster. UsageError if no cluster that can do it answers."""
        distributed = _distributed()
        placed = scenario.moved(scenario.base.absolute())
        with _client(distributed, self.address) as client:
            threads = _checked_threads(client, self.address)
            begun = max((time for time, _ in _events(client)), default=0.0)
            tasks = _Tasks(distributed, client, placed)
            yield from tasks.run(iter(points), AHEAD * threads)
            self._tell_of_losses(client, begun)

    def _tell_of_losses(self, client: Any, begun: float) -> None:
        """Say how many workers were lost since ``begun``, and what that meant."""
        lost = [
            event
            for time, event in _events(client)
            if time > begun and event.get("action") == "remove-worker" and not event["expected"]
        ]
        if lost:
            workers = "1 worker was" if len(lost) == 1 else f"{len(lost)} workers were"
            again = sum(len(event["processing-tasks"]) for event in lost)
            self.tell(
                f"{workers} lost on the way; what they were at ({again} points) went to others"
            )


def dask(address: str | None, tell: Callable[[str], object]) -> DaskCluster:
    """An executor on the Dask cluster at ``address``, such as tcp://10.0.0.1:8786.

    UsageError without an address, for what is none, or where Dask is not installed.
    """
    if not address:
        raise UsageError("--executor dask needs --address, such as tcp://10.0.0.1:8786")
    _distributed()
    try:
        import_module("distributed.comm").get_address_host(address)
    except ValueError as error:
        raise UsageError(f"--address {address}: {error}; give it as tcp://10.0.0.1:8786") from None
    return DaskCluster(address, tell)


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError:
        raise UsageError(
            "--executor dask needs Dask, which is not installed; in the checkout: "
            "pip install '.[dask]'"
        ) from None


def _client(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--address {address}: no Dask scheduler answers there ({error})"
        ) from None


def _checked_threads(client: Any, address: str) -> int:
    """Threads of all workers, which run this release."""
    try:
        found: dict[str, str] = client.run(version)
    except Exception as error:
        raise UsageError(
            f"--address {address}: its workers cannot run infersim ({type(error).__name__}: "
            f"{error}); install infersim {version()} there"
        ) from None
    if not found:
        raise UsageError(f"--address {address}: the cluster has no workers")
    for worker, release in found.items():
        if release != version():
            raise UsageError(
                f"--address {address}: worker {worker} has infersim {release}, not {version()}"
            )
    return sum(client.nthreads().values())


def _events(client: Any) -> list[tuple[float, dict[str, Any]]]:
    """Events of the cluster's workers, each with the scheduler's time of it."""
    return [(time, event) for time, event in client.get_events("all") if isinstance(event, dict)]


class _Tasks:
    """The points that the cluster is at."""

    def __init__(self, distributed: Any, client: Any, scenario: Scenario) -> None:
        self._as_completed = distributed.as_completed
        self._killed: type[Exception] = distributed.scheduler.KilledWorker
        self._client, self._scenario = client, scenario
        self._points: dict[str, Point] = {}

    def run(self, points: Iterator[Point], ahead: int) -> Iterator[Outcome]:
        """The outcome of each point, ``ahead`` of them at a time.

        With a point that kills workers Dask also blames those that were queued with it: all that it
        blames are tried again in the end, one by one.
        """
        suspects: list[Point] = []
        yield from self._side_by_side(points, ahead, suspects)
        for suspect in suspects:
            guilty: list[Point] = []
            yield from self._side_by_side(iter([suspect]), 1, guilty)
            for point in guilty:
                text = "every worker that ran it died, perhaps out of memory"
                yield Outcome(point, None, text, InfersimError.exit_code)

    def _side_by_side(
        self, points: Iterator[Point], ahead: int, killers: list[Point]
    ) -> Iterator[Outcome]:
        """Runs points side by side; points that are blamed for the death of workers go to
        ``killers``."""
        futures = self._as_completed(
            [self._submit(point) for point in itertools.islice(points, ahead)],
            loop=self._client.loop,
        )
        for future in futures:
            point = self._points.pop(future.key)
            try:
                outcome: Outcome = future.result()
            except self._killed:
                killers.append(point)
            except Exception as error:  # not of the point: evaluate turns all of that into outcomes
                raise InfersimError(
                    f"the Dask cluster failed ({type(error).__name__}: {error}); what had finished "
                    "by then is kept"
                ) from None
            else:
                yield outcome
            for following in itertools.islice(points, 1):
                futures.add(self._submit(following))

    def _submit(self, point: Point) -> Any:
        future = self._client.submit(evaluate, self._scenario, point, pure=False)
        self._points[future.key] = point
        return future
