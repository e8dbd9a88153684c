"""Keeps processes that simulate, started and warm, and ends the one whose question was withdrawn.

A process that is still busy a moment after its question was withdrawn is killed, and a fresh one
starts in its place.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from sim.ui.job import Draw, Job, Step

PROCESSES = 2
"""Processes: one for the question that is asked, one for the next."""

LONGEST = 60.0
"""Seconds after which a step of an answer is not waited for any longer."""

GRACE = 0.3
"""Seconds in which a process may finish what no one reads, before it is killed."""

TOO_LONG = {"errors": {"": f"no answer within {LONGEST:g} s; `infersim run` has no such limit"}}
ENDED = {"errors": {"": "the simulation ended before its answer, perhaps for lack of memory"}}


class _Simulator:
    """A process that answers one question after the other."""

    def __init__(self, draw: Draw) -> None:
        context = get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there, draw), daemon=True)
        self._process.start()
        there.close()

    def send(self, job: Job) -> None:
        with suppress(OSError):  # a process that has ended says so when its answer is received
            self._here.send(job)

    def receive(self) -> Step | None:
        """The next step; None after the last. EOFError when the process ended."""
        found: Step | None = self._here.recv()
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.join()


class Simulators:
    """The processes; ``draw`` is sent to them by its name."""

    def __init__(self, draw: Draw) -> None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._draw = draw
        self._all = {_Simulator(draw) for _ in range(PROCESSES)}
        self._free: asyncio.Queue[_Simulator] = asyncio.Queue()
        self._settling: set[asyncio.Task[None]] = set()
        for worker in self._all:
            self._free.put_nowait(worker)

    async def ask(self, job: Job) -> AsyncGenerator[Step, None]:
        """The steps of the answer; to end the iteration withdraws the question."""
        worker = await self._free.get()
        worker.send(job)
        receiving: asyncio.Future[Step | None] | None = None
        try:
            while True:
                receiving = asyncio.ensure_future(asyncio.to_thread(worker.receive))
                step = await asyncio.wait_for(asyncio.shield(receiving), LONGEST)
                if step is None:
                    return
                yield step
        except TimeoutError:
            yield TOO_LONG
        except (EOFError, OSError):
            yield ENDED
        finally:
            task = asyncio.create_task(self._settle(worker, receiving))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle(
        self, worker: _Simulator, receiving: asyncio.Future[Step | None] | None
    ) -> None:
        """Make ``worker`` free, or one in its place."""
        with suppress(EOFError, OSError, TimeoutError):
            async with asyncio.timeout(GRACE):
                while receiving is not None and await asyncio.shield(receiving) is not None:
                    receiving = asyncio.ensure_future(asyncio.to_thread(worker.receive))
                self._free.put_nowait(worker)
                return
        self._all.discard(worker)
        if receiving is not None:  # it fails when the process is killed, and is not waited for
            receiving.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.to_thread(worker.end)
        fresh = _Simulator(self._draw)
        self._all.add(fresh)
        self._free.put_nowait(fresh)

    def close(self) -> None:
        """End all processes."""
        for task in self._settling:
            task.cancel()
        for worker in self._all:
            worker.end()


def _work(there: Connection, draw: Draw) -> None:
    """Answer questions until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    from sim.ui.answer import steps, warm_up  # noqa: PLC0415 - the server never simulates

    warm_up(draw)
    with suppress(EOFError, OSError):
        while True:
            job: Job = there.recv()
            try:
                for step in steps(job, draw):
                    there.send(step)
            except Exception as error:  # a fault of ours: the page says it, the process stays
                there.send({"errors": {"": f"{type(error).__name__}: {error}"}})
            there.send(None)
