"""Opens pages in an installed Chromium, without a window and without a network.

The browser is driven by Chrome's DevTools protocol over two pipes (JSON objects that end in a zero
byte), so that no port is opened and no library is needed. One browser opens any number of pages.
Lengths are CSS pixels, times seconds.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any, NamedTuple, Self

from sim.errors import InfersimError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Names of a Chromium on the PATH, in the order in which they are tried."""

PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
"""Where one is that is not on the PATH."""

PATIENCE = 60.0
"""Longer than this no answer is waited for, unless the caller is more patient."""

FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"),
    *("--no-default-browser-check", "--disable-sync", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--disable-quic", "--mute-audio", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
)


class Box(NamedTuple):
    """A part of a page: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


def find_browser() -> str | None:
    """The path of a Chromium or Chrome, None if there is none."""
    on_path = [found for name in NAMES if (found := shutil.which(name))]
    return next(iter([*on_path, *(place for place in PLACES if Path(place).is_file())]), None)


class Browser:
    """A browser from ``with`` to its end; InfersimError if it does not start, or does not answer
    within ``patience`` seconds."""

    def __init__(self, program: str, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._folder = tempfile.mkdtemp(prefix="infersim-browser-")
        flags = [*FLAGS, f"--user-data-dir={self._folder}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        try:
            self._read, self._write, self._process = _spawn([program, *flags, "about:blank"])
        except InfersimError:
            shutil.rmtree(self._folder)
            raise
        self._buffer = b""
        self._number = 0
        self.events: list[Mapping[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._write)  # with no reader left, it ends
        os.close(self._read)
        _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> Tab:
        """``page``, a file, loaded in a window of that size; scripts may still be running.

        It knows nothing of what other pages have stored.
        """
        context = str(self.ask("Target.createBrowserContext", {})["browserContextId"])
        blank = {"url": "about:blank", "browserContextId": context}
        target = self.ask("Target.createTarget", blank)["targetId"]
        attached = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, str(attached["sessionId"]))
        tab.prepare(width, height, dark=dark)
        tab.go(page.resolve().as_uri())
        return tab

    def ask(self, method: str, given: Mapping[str, Any], session: str = "") -> Mapping[str, Any]:
        """The answer to one command; events that arrive meanwhile are kept in ``events``."""
        self._number += 1
        said = {"id": self._number, "method": method, "params": dict(given)}
        said |= {"sessionId": session} if session else {}
        message = json.dumps(said).encode() + b"\0"
        try:
            while message:
                message = message[os.write(self._write, message) :]
        except BrokenPipeError:
            raise InfersimError("the browser ended") from None
        deadline = time.monotonic() + self._patience
        while (found := self._next(deadline)).get("id") != self._number:
            self.events.append(found)
        if "error" in found:
            raise InfersimError(f"the browser refused {method}: {found['error']['message']}")
        answer: Mapping[str, Any] = found["result"]
        return answer

    def wait_for(self, event: str, session: str) -> None:
        """Return when ``event`` has happened in ``session``."""
        deadline = time.monotonic() + self._patience
        while not any(
            (e.get("method"), e.get("sessionId")) == (event, session) for e in self.events
        ):
            self.events.append(self._next(deadline))

    def _next(self, deadline: float) -> Mapping[str, Any]:
        """The browser's next message."""
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise InfersimError(f"the browser did not answer within {self._patience:g} s")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise InfersimError("the browser did not start, or ended")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: Mapping[str, Any] = json.loads(message)
        return found


class Tab:
    """One page in a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **given: Any) -> Mapping[str, Any]:
        """The answer to one command about this page."""
        return self._browser.ask(method, given, self._session)

    def prepare(self, width: int, height: int, *, dark: bool) -> None:
        """Set the window's size and which colours are preferred; take away the network."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.ask("Network.emulateNetworkConditions", offline=True, **offline)
        self.resize(width, height)
        self.prefer(dark=dark)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, *, dark: bool) -> None:
        """Say which colours the reader prefers."""
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[wish])

    def go(self, address: str) -> None:
        """Load a page and wait until it is there; InfersimError if it cannot be loaded."""
        failed = self.ask("Page.navigate", url=address).get("errorText")
        if failed:
            raise InfersimError(f"the browser cannot open {address}: {failed}")
        self._browser.wait_for("Page.loadEventFired", self._session)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited if it is asynchronous; InfersimError if
        it throws."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True}
        done = self.ask("Runtime.evaluate", **given)
        if "exceptionDetails" in done:
            told = done["exceptionDetails"]
            raise InfersimError(f"in the page: {told.get('exception', told)}")
        return done["result"].get("value")

    def picture(self, box: Box, scale: float) -> bytes:
        """A part of the page as PNG, ``scale`` dots for each pixel of the page."""
        clip = box._asdict() | {"scale": scale}
        shot = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    @property
    def complaints(self) -> list[str]:
        """Errors, warnings and failed requests of this page so far."""
        mine = [e for e in self._browser.events if e.get("sessionId") == self._session]
        return [told for event in mine if (told := _complaint(event))]


def _complaint(event: Mapping[str, Any]) -> str:
    """The complaint of an event; empty if there is none."""
    kind, told = event.get("method"), event.get("params", {})
    if kind == "Runtime.exceptionThrown":
        details = told["exceptionDetails"]
        return str(details.get("exception", {}).get("description") or details["text"])
    if kind == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
        return " ".join(str(each.get("value", each.get("description"))) for each in told["args"])
    if kind == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
        return str(told["entry"]["text"])
    if kind == "Network.loadingFailed":
        return f"network: {told['errorText']}"
    return ""


def _spawn(command: list[str]) -> tuple[int, int, int]:
    """Start the browser; where to read, where to write, and its process."""
    (theirs_in, write), (read, theirs_out) = os.pipe(), os.pipe()
    high = [fcntl(end, F_DUPFD, 10) for end in (theirs_in, theirs_out)]  # 3 and 4 may be in use
    places = [(os.POSIX_SPAWN_DUP2, end, at) for end, at in zip(high, (3, 4), strict=True)]
    quiet = [(os.POSIX_SPAWN_OPEN, at, os.devnull, os.O_RDWR, 0) for at in (0, 1, 2)]
    closed = [(os.POSIX_SPAWN_CLOSE, end) for end in high]
    try:
        process = os.posix_spawn(
            command[0],
            command,
            dict(os.environ),
            file_actions=[*places, *quiet, *closed],
            setpgroup=0,
        )
    except OSError as error:
        os.close(read)
        os.close(write)
        raise InfersimError(f"{command[0]}: cannot be started ({error.strerror})") from None
    finally:
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
    return read, write, process


def _end(process: int) -> None:
    """Wait a little for the browser to end by itself, then end it and its children."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        if os.waitpid(process, os.WNOHANG)[0]:
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):  # it was waited for above
        os.waitpid(process, 0)
