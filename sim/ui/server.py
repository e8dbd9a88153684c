"""Serves the page and its answers to a browser on this machine, and to nothing else.

It listens on 127.0.0.1. A page of another origin may neither ask nor read: the name by which the
server is called must be its own (a foreign name that leads here is DNS rebinding), and so must be
the origin of what is posted. What is posted has a type that other origins may not send unasked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from sim.errors import UsageError
from sim.ui.job import Draw, Job, Window
from sim.ui.question import TRACE, read
from sim.ui.workers import Simulators

HOST = "127.0.0.1"

MOST_BYTES = 8 * 2**20
"""The largest trace."""

MOST_TRACES = 20
"""Traces that are kept; the oldest goes first."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    """The handlers: the ``page`` itself, questions for ``workers``, traces kept in ``folder``."""

    def __init__(self, page: str, workers: Simulators, folder: Path) -> None:
        self._page, self._workers, self._folder = page, workers, folder
        self._traces: dict[str, str] = {}  # name here -> the reader's name, the oldest first

    def application(self) -> web.Application:
        """All routes."""

        app = web.Application(middlewares=[_guarded], client_max_size=MOST_BYTES)
        app.add_routes(
            [web.get("/", self._show), web.post("/ask", self._ask), web.post("/trace", self._keep)]
        )
        return app

    async def _show(self, _: web.Request) -> web.Response:
        return web.Response(text=self._page, content_type="text/html", headers=HEADERS)

    async def _ask(self, http: web.Request) -> web.StreamResponse:
        """The steps of an answer, one JSON object a line."""
        _check_type(http, "application/json")
        try:
            given = json.loads(await http.read())
            question, window = read(given["question"]), _window(given.get("window"))
        except (LookupError, TypeError, ValueError, RecursionError, UsageError) as error:
            return _refused(400, str(error))
        name = question["trace"]
        known = TRACE.fullmatch(name) is not None and name in self._traces
        trace = self._folder / f"{name}.csv" if known else None
        lines = web.StreamResponse(headers={**HEADERS, "Content-Type": "application/x-ndjson"})
        await lines.prepare(http)
        job = Job(question, trace, self._traces.get(name, ""), window)
        async with aclosing(self._workers.ask(job)) as steps:
            async for step in steps:
                await lines.write(json.dumps(step, allow_nan=False).encode() + b"\n")
        await lines.write_eof()
        return lines

    async def _keep(self, http: web.Request) -> web.Response:
        """The name under which an uploaded trace is kept."""
        _check_type(http, "text/csv")
        try:
            body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"a trace has at most {MOST_BYTES // 2**20} MiB here")
        name = hashlib.sha256(body).hexdigest()[:16]
        await asyncio.to_thread((self._folder / f"{name}.csv").write_bytes, body)
        shown = filter(str.isprintable, Path(http.query.get("name", "")).name)
        self._traces.pop(name, None)
        self._traces[name] = "".join(shown)[:80] or "trace.csv"
        while len(self._traces) > MOST_TRACES:
            oldest = next(iter(self._traces))
            del self._traces[oldest]
            (self._folder / f"{oldest}.csv").unlink(missing_ok=True)
        return web.json_response({"trace": name}, headers=HEADERS)


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a page of another origin may have sent."""
    host = request.headers.get("Host", "")
    if host.rpartition(":")[0] not in (HOST, "localhost"):
        return _refused(403, f"Host {host!r} is not this server")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return _refused(403, "a page of another origin asked")
    if (
        request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        and request.path != "/"
    ):
        return _refused(403, "a page of another site asked")
    return await handler(request)


def _window(given: Any) -> Window | None:
    """A stretch of time; ValueError for anything else."""
    if given is None:
        return None
    start, end = (float(each) for each in given)
    if not 0 <= start < end < 1e12:
        raise ValueError("a window is two times, in order")
    return start, end


def _check_type(http: web.Request, wanted: str) -> None:
    if http.content_type != wanted:
        raise web.HTTPUnsupportedMediaType(text=f"expected {wanted}")


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"errors": {"": why}}, status=status, headers=HEADERS)


async def serve(page: str, draw: Draw, port: int, ready: Callable[[str], Any]) -> None:
    """Serve ``page`` at ``port`` (0: any that is free) until SIGINT or SIGTERM; ``ready`` is called
    with its address. UsageError if the port cannot be had."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    workers = Simulators(draw)
    with TemporaryDirectory(prefix="infersim-ui-") as folder:
        app = Page(page, workers, Path(folder)).application()
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5
        )
        try:
            await runner.setup()
            try:
                await web.TCPSite(runner, HOST, port).start()
            except OSError as error:
                why = error.strerror or error
                raise UsageError(f"cannot listen on {HOST}:{port}: {why}") from None
            ready(f"http://{HOST}:{runner.addresses[0][1]}")
            await stopping.wait()
        finally:
            await runner.cleanup()
            workers.close()
