"""Brings conversations to the replicas: each turn is sent when the answers to the one before it are
there and a while has passed.

A session is an object from its start to its last answer. At one instant turns are sent in the order
of their sessions' numbers, after all answers of that instant (``sim.loop.clock``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

import simpy

from sim.loop.engine import Engine
from sim.loop.fleet import AnsweredFleet, Fleet, Progress, make_fleet
from sim.loop.recorder import Recorder
from sim.loop.session_rows import ENDINGS, REFUSED, SessionRecorder, SessionRows
from sim.request import Prefix, Request
from sim.routers import Router
from sim.workload import AnyTraffic, SessionTraffic
from sim.workload.sessions import Conversation


class Live:
    """A session that is under way: ``turn`` is the next one, ``prefix`` the texts with which it
    begins, ``waiting`` the answers that are still to come."""

    __slots__ = ("prefix", "refused", "sent", "session", "start", "turn", "waiting")

    def __init__(self, session: Conversation) -> None:
        self.session = session
        self.prefix: Prefix = session.prefix
        self.start = 0.0
        self.sent = self.turn = self.waiting = 0
        self.refused = False


class SessionFleet(AnsweredFleet):
    """Conversations that start by the clock, or that clients have one after the other."""

    @property
    def session_rows(self) -> SessionRows:
        """Which request belongs to which session, and how those ended."""
        return self._rows.rows()

    def start(self, traffic: SessionTraffic) -> None:
        """Begin with the first session, or one of each client (the replicas are there by now)."""
        self._traffic, self._coming = traffic, traffic.sessions()
        self._rows = SessionRecorder()
        self._live: dict[int, Live] = {}
        self._sends: list[tuple[float, int]] = []  # a heap of when which session sends next
        for _ in range(traffic.clients or 1):
            self._begin(0.0)
        self._play(traffic.total)

    def all_sent(self, total: float) -> bool:
        """Whether all requests are sent; a session that ends early leaves its further turns out."""
        return super().all_sent(total) or (total < math.inf and not self._live)

    def _due(self) -> float:
        return self._sends[0][0] if self._sends else math.inf

    def _prompt(self) -> int:
        """The longest prompt of the next turn: its requests reach the router together."""
        if not self._sends:
            return 0
        live = self._live[self._sends[0][1]]
        return max(prompt for prompt, _ in live.session.turns[live.turn].requests)

    def _send_next(self) -> None:
        time, number = heappop(self._sends)
        live = self._live[number]
        if not live.turn and not self._traffic.clients:
            self._begin(0.0)
        self._send(live, time)

    def _begin(self, now: float) -> None:
        """The next session starts: at its own time, or ``now``, if a client has it."""
        session = next(self._coming, None)
        if session is not None:
            self._live[session.number] = Live(session)
            start = now if self._traffic.clients else session.start
            heappush(self._sends, (start, session.number))

    def _send(self, live: Live, time: float) -> None:
        """Send the next turn of a session, which is due at ``time``."""
        session, number = live.session, live.turn
        first = self.issued
        requests = session.turns[number].requests[: self._traffic.total - first]
        if not number:
            live.start = time
            self._rows.started(session.turns)
        live.waiting = len(requests)
        live.sent += live.waiting
        live.turn += 1
        prefix, refused = live.prefix, 0
        for prompt, output in requests:
            self._rows.sent(session.number, number)
            if not self._dispatch(
                time, prompt, output, session.traffic_class, prefix, session.number
            ):
                refused += 1
        prompt, output = requests[0]
        kept = output if self._traffic.law.keep_answer else 0
        live.prefix = (*prefix, (~first, prompt + kept))
        if refused:
            live.refused = True
            live.waiting -= refused
            if not live.waiting:
                self._end(live)

    def answer(self, request: Request) -> None:
        """An answer is there; after the last one of a turn the next turn follows, if there is
        one."""
        live = self._live[request.session]
        live.waiting -= 1
        if live.waiting:
            return
        turns = live.session.turns
        if live.refused or live.turn == len(turns):
            self._end(live)
        else:
            heappush(self._sends, (self._env._now + turns[live.turn].delay, live.session.number))
        if self.issued < self._traffic.total:
            self._wake()

    def gave_up(self, request: Request) -> None:
        """No answer comes: the session ends with those that are still to come."""
        self._live[request.session].refused = True
        self.answer(request)

    def _end(self, live: Live) -> None:
        """A session is over; its client, if there is one, has another one after a pause."""
        session, now = live.session, self._env._now
        ending = REFUSED if live.refused else ENDINGS[session.ending]
        self._rows.ended(session.number, live.start, now, live.sent, ending)
        del self._live[session.number]
        if self._traffic.clients:
            self._begin(now + self._traffic.pause)


def make_any_fleet(
    env: simpy.Environment,
    traffic: AnyTraffic,
    router: Router,
    recorder: Recorder,
    make_replica: Callable[[int, Callable[[Request], None] | None], Engine],
    *,
    replicas: int,
    front_end: float,
    progress: Progress | None = None,
) -> Fleet:
    """A fleet for ``traffic`` of any kind, as ``make_fleet`` makes it."""
    if not isinstance(traffic, SessionTraffic):
        return make_fleet(
            env,
            traffic,
            router,
            recorder,
            make_replica,
            replicas=replicas,
            front_end=front_end,
            progress=progress,
        )
    fleet = SessionFleet(env, router, recorder, front_end=front_end, progress=progress)
    fleet.replicas = [make_replica(index, fleet.answer) for index in range(replicas)]
    fleet.start(traffic)
    return fleet
