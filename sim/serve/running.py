"""Runs the server: from the first connection to the run of what was served."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from sim.errors import InfersimError, UsageError
from sim.metrics.record.run_record import RunRecord
from sim.results.run_directory import RunDirectory
from sim.scenario import Scenario
from sim.serve.app import IDLE_TIMEOUT, Server
from sim.serve.service import Service
from sim.serve.session import without_clients
from sim.setup import prepare

GRACE = 5.0
"""Seconds that requests have to finish when the server is asked to stop: half of what containers
are given before they are killed."""

BACKLOG = 1024
"""Connections that may wait to be accepted."""

MOST_FILES = 16_384
"""Connections and files that the server opens at a time, if the system lets it."""


async def serve(
    scenario: Scenario,
    directory: Path,
    server: Server,
    address: tuple[str, int],
    *,
    speed: float,
    most_waiting: int | None,
    ready: Callable[[str, Service], None],
) -> tuple[Service, RunDirectory, RunRecord] | None:
    """Serve ``scenario`` at ``address`` (host and port; 0: any that is free) until SIGINT or
    SIGTERM; the run, and the directory it is to be saved in, None if no request came.

    ``ready`` is called with the server's address. Requests in flight have ``GRACE`` seconds to
    finish, or until a second signal. UsageError if the scenario or the address cannot be served.
    """
    stopping = _Stopping()
    _open_many()
    try:
        async with listening(server, address) as port:
            setup = await asyncio.to_thread(prepare, without_clients(scenario))
            service = Service(setup, directory, server.name, speed=speed, most_waiting=most_waiting)
            service.without_clients = setup.scenario != scenario
            server.serve(service)
            ready(f"http://{address[0]}:{port}", service)
            await stopping.first.wait()
            service.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await stopping.second_or(lambda: not service.outstanding)
            stopping.check()
            found = service.finish()
    finally:
        stopping.heed_no_more()
    return None if found is None else (service, found[1], found[0])


@asynccontextmanager
async def listening(
    server: Server, address: tuple[str, int], *, silent: float = IDLE_TIMEOUT
) -> AsyncIterator[int]:
    """``server`` at ``address`` while the context lasts, which gets the port; UsageError if the
    address cannot be had. Connections that are ``silent`` so long (s), without a request, end."""
    runner = web.AppRunner(
        server.application(),
        handler_cancellation=True,
        keepalive_timeout=IDLE_TIMEOUT,
        access_log=None,
        shutdown_timeout=1.0,
        logger=_logger(),
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *address, backlog=BACKLOG).start()
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise UsageError(f"cannot listen on {where}: {error.strerror or error}") from None
        assert runner.server is not None
        sweeper = asyncio.create_task(_hang_up(runner.server, server.heard, silent))
        yield runner.addresses[0][1]
        sweeper.cancel()
    finally:
        await runner.cleanup()


WRONG = (HttpProcessingError, ClientPayloadError, web.RequestPayloadError, ConnectionError)
"""Mistakes of clients: a request that is no HTTP, a body that is not what its head says, a
connection that ends. They have their answer; the log is for faults of the server."""


def _faults_of_ours(record: logging.LogRecord) -> bool:
    """Whether the server, and no client, is to blame for what is logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, WRONG)


def _logger() -> logging.Logger:
    """Says what goes wrong in the server itself."""
    found = logging.getLogger("infersim.serve")
    found.filters = [_faults_of_ours]
    return found


async def _hang_up(listener: web.Server, heard: set[object], silent: float) -> None:
    """Close connections that have sent no whole request for ``silent`` seconds after they were
    first seen; those that have are ``heard``, and aiohttp closes them when they are idle."""
    loop, since = asyncio.get_running_loop(), dict[web.RequestHandler, float]()
    while True:
        await asyncio.sleep(silent / 4)
        now, since = (
            loop.time(),
            {each: since.get(each, loop.time()) for each in listener.connections},
        )
        heard &= since.keys()
        for connection, first in since.items():
            if connection not in heard and now - first > silent and connection.transport:
                connection.transport.abort()


def _open_many() -> None:
    """Let this process have as many connections as the system allows, up to ``MOST_FILES``."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Stopping:
    """The cause that ends the server: a signal, a second one, or an error in the simulation."""

    def __init__(self) -> None:
        self.first, self._second = asyncio.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._failed)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._signalled)

    def heed_no_more(self) -> None:
        """Leave signals to others."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self.first.is_set():
            self._second.set()
        self.first.set()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Something failed where no caller waits for it: an error of infersim ends the server."""
        error = context.get("exception")
        if isinstance(error, InfersimError | AssertionError):
            self._error = error
            self.first.set()
            self._second.set()
        else:
            loop.default_exception_handler(context)

    def check(self) -> None:
        """Raise the error that ended the server, if one did."""
        if self._error is not None:
            raise self._error

    async def second_or(self, done: Callable[[], bool]) -> None:
        """Wait for the second signal, or until ``done``."""
        while not done() and not self._second.is_set():
            await asyncio.sleep(0.02)
