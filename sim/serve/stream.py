"""Sends the answers of a call to its client as events, each token the moment it comes.

A token goes from the simulation straight to the client's socket. Its handler sleeps meanwhile; it
sends what comes first and last, and takes over while the client reads too slowly for the socket.
"""

from __future__ import annotations

from aiohttp import HttpVersion11, web

from sim.serve.exchange import Call, Reply
from sim.serve.pace import Lateness, RealTime
from sim.serve.protocol import Writer, failed, usage

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Stream:
    """The answers of ``call`` on their way to the client of ``http``; ``lateness`` hears of each
    token. ``counted``: whether the last event says how many tokens there were; ``doubtful``:
    whether the call may find no replica, so that its status is that of its first token.

    Tokens that wait for a client to read are not late: they count as held.
    """

    def __init__(
        self,
        http: web.Request,
        call: Call,
        writer: Writer,
        pace: RealTime,
        lateness: Lateness,
        *,
        counted: bool,
        doubtful: bool,
    ) -> None:
        self._http, self._call, self._writer = http, call, writer
        self._time, self._lateness = pace.time, lateness
        self._transport = http.transport
        self._free = 0.0  # when the client had last read what was held
        self._counted, self._doubtful = counted, doubtful
        if counted:
            writer.with_usage()

    async def send(self) -> web.StreamResponse:
        """All of it, to the end or to the failure of the call."""
        response, call, writer = web.StreamResponse(headers=HEADERS), self._call, self._writer
        if self._doubtful:
            await call.news.wait()
            if call.failure is not None:
                raise call.failure
        await response.prepare(self._http)
        opening = b"".join(writer.first(index) for index in range(len(call.answers)))
        try:
            while not call.sent:
                await call.news.wait()
                call.news.clear()
                events, due = self._pending()
                now, slow = self._time(), self._unread > 0
                if events:
                    await response.write(opening + events)
                    opening = b""
                if slow:
                    self._free = self._time()
                for moment in due:
                    self._lateness.add(now - moment, held=slow or moment < self._free)
                if call.failure is not None:
                    await response.write(failed(call.failure))
                    break
                if self._http.version >= HttpVersion11 and not self._unread:
                    call.outlet = self._push
            else:
                counts = usage(call.prompt_tokens, call.answer_tokens) if self._counted else None
                await response.write(writer.last(counts))
        finally:
            call.outlet = None
        await response.write_eof()
        return response

    def _pending(self) -> tuple[bytes, list[float]]:
        """The events of all tokens that were not sent, and when each was due."""
        events, due = [], []
        for answer in self._call.answers:
            while answer.sent < answer.told:
                events.append(self._event(answer))
                due.append(answer.due.popleft())
        return b"".join(events), due

    def _event(self, answer: Reply) -> bytes:
        """The event of the next token, which counts as sent."""
        at = answer.sent
        answer.sent += 1
        filler = answer.filler
        reason = answer.reason if answer.sent == filler.tokens else None
        return self._writer.token(answer.index, filler.piece(at), reason)

    @property
    def _unread(self) -> int:
        """Bytes that the socket does not take, since the client does not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _push(self, answer: Reply) -> None:
        """Send the tokens that ``answer`` has now; the last one of all is the handler's."""
        call, transport, told = self._call, self._transport, answer.told
        if (
            transport is None
            or transport.is_closing()
            or transport.get_write_buffer_size()
            or (told >= answer.filler.tokens and call.done)
        ):
            call.outlet = None
            call.news.set()
            return
        filler, sent = answer.filler, answer.sent
        while sent < told:
            sent += 1
            if sent < filler.tokens:
                transport.write(self._writer.chunk(answer.index, filler.piece(sent - 1)))
                answer.sent = sent
            else:
                event = self._event(answer)
                transport.write(b"%x\r\n%b\r\n" % (len(event), event))
            self._lateness.add(self._time() - answer.due.popleft())
