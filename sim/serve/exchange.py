"""Holds what goes back to a client: the tokens of its answers as they come, or a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sim.serve.protocol import ApiError
from sim.serve.tokens import Filler


class Reply:
    """One answer on its way, which is request ``number`` of the simulation. ``told`` of its tokens
    have come, from ``engine``, the ``last`` of them at that simulated time, as its ``arrival`` is
    one; ``sent`` were sent on;
    ``due`` has the moment of each of those between. ``index`` is its place in the call."""

    __slots__ = (
        "arrival",
        "due",
        "engine",
        "exchange",
        "filler",
        "index",
        "last",
        "number",
        "sent",
        "told",
    )

    def __init__(self, number: int, filler: Filler, exchange: Call) -> None:
        self.number = number
        self.index = len(exchange.answers)
        self.filler = filler
        self.exchange = exchange
        self.arrival = 0.0
        self.engine = -1
        self.last = 0.0
        self.told = self.sent = 0
        self.due: deque[float] = deque()

    @property
    def done(self) -> bool:
        """Whether all its tokens have come."""
        return self.told >= self.filler.tokens

    @property
    def reason(self) -> str:
        """Why it ends."""
        return "stop" if self.filler.stopped is not None else self._length

    @property
    def _length(self) -> str:
        return "length" if self.filler.tokens >= self.exchange.most else "stop"


class Call:
    """A request of a client and its answers, each up to ``most`` tokens long. ``news`` is set when
    a token has come, or ``failure``: what the client gets instead of the rest. Where there is an
    ``outlet``, tokens go there instead."""

    def __init__(self, prompt_tokens: int, most: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.most = most
        self.answers: list[Reply] = []
        self.news = asyncio.Event()
        self.failure: ApiError | None = None
        self.outlet: Callable[[Reply], None] | None = None

    def fail(self, failure: ApiError) -> None:
        """The client gets this instead of the rest."""
        self.failure = failure
        self.news.set()

    @property
    def sent(self) -> bool:
        """Whether every answer was sent on, to its last token."""
        return all(answer.sent >= answer.filler.tokens for answer in self.answers)

    @property
    def done(self) -> bool:
        """Whether every answer has all its tokens."""
        return all(answer.done for answer in self.answers)

    @property
    def answer_tokens(self) -> int:
        """Tokens that have come, of all answers."""
        return sum(answer.told for answer in self.answers)

    async def finish(self) -> None:
        """Wait until it is done; ApiError if it fails."""
        while not self.done:
            await self.news.wait()
            self.news.clear()
            if self.failure is not None:
                raise self.failure
