"""Turns the steps of a third-party engine into the rows of a run.

The same rows as the simulator's and the reference engine's, derived only from which requests were
computed, how many tokens, and when. Requests by number, seconds since the start of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.engine.log import Iteration, IterationCounts, Log, Phases
from sim.iteration import Part
from sim.request import Request


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One iteration of an engine.

    ``tokens`` computed of each request, on top of those ``before``; ``sampled`` the tokens that
    came of it; ``preempted`` those that lost the memory for it, ``running`` and ``waiting`` as the
    engine's decision left them; ``reserved`` the KV tokens' worth of memory taken.
    """

    tokens: dict[int, int]
    before: dict[int, int]
    sampled: dict[int, list[int]]
    preempted: tuple[int, ...]
    running: int
    waiting: int
    reserved: int


class Ledger:
    """``log`` has the rows, ``answers`` the tokens of finished requests, ``alive`` the requests
    that arrived and are neither refused nor finished."""

    def __init__(self) -> None:
        self.log = Log()
        self.alive: dict[int, Request] = {}
        self.answers: dict[int, list[int]] = {}
        self._said: dict[int, list[int]] = {}
        self._decoding: set[int] = set()
        self._computed: dict[int, int] = {}  # of those that hold memory

    def arrive(self, request: Request) -> None:
        """``request`` was given to the engine."""
        self.alive[request.id] = request
        self._said[request.id] = []

    def write(self, ran: LedgerRow, start: float, end: float, phases: Phases) -> list[Request]:
        """The engine ran ``ran`` from ``start`` to ``end``; returns which requests are done."""
        self._preempt(ran, start)
        self._decoding &= ran.tokens.keys()  # a request that was passed over catches up by a chunk
        for number, before in ran.before.items():
            self._computed[number] = before + ran.tokens[number]
        held = sum(self._computed.values())
        decodes = tuple(number for number in ran.tokens if number in self._decoding)
        prefills = tuple(
            (number, ran.before[number], tokens)
            for number, tokens in ran.tokens.items()
            if number not in self._decoding
        )
        for number, before, _ in prefills:
            if before == 0 and not self.alive[number].preemptions:
                self.alive[number].scheduled = start
        stalled = self._late_tokens(ran, decodes, prefills, start, end)
        finished = self._deliver(ran, end)
        self._row(ran, (start, end), decodes, prefills, (held, stalled, len(finished)))
        served = tuple(number for number, tokens in ran.sampled.items() if tokens)
        self.log.iterations.append(
            Iteration(start, end, phases, decodes, prefills, 0, served, ran.preempted)
        )
        return finished

    def close(self) -> None:
        """The run ends here: requests still alive stay unfinished."""
        for request in self.alive.values():
            self.log.recorder.leave_unfinished(request, 0, request.generated)

    def _preempt(self, ran: LedgerRow, start: float) -> None:
        for number in ran.preempted:
            self.log.recorder.preempted(self.alive[number], start)
            self.alive[number].preemptions += 1
            self._decoding.discard(number)
            self._computed.pop(number, None)

    def _late_tokens(
        self,
        ran: LedgerRow,
        decodes: tuple[int, ...],
        prefills: tuple[tuple[int, int, int], ...],
        start: float,
        end: float,
    ) -> int:
        """Note gaps longer than the iteration; returns of how many that decoded."""
        stalled = 0
        for number in decodes:
            last = self.alive[number].last_token
            if last != start:
                self.log.recorder.long_gap(end - last, 1)
                stalled += 1
        for number, _, _ in prefills:
            request = self.alive[number]
            if request.generated and ran.sampled.get(number):  # it was preempted in between
                self.log.recorder.long_gap(end - request.last_token, 1)
                self.log.recorder.caught_up(request, end)
        return stalled

    def _deliver(self, ran: LedgerRow, end: float) -> list[Request]:
        """Tokens to their requests; returns which requests have all."""
        finished = []
        for number, tokens in ran.sampled.items():
            if not tokens:
                continue
            request = self.alive[number]
            if not request.generated:
                request.first_token = end
            request.generated += len(tokens)
            request.last_token = end
            self._said[number] += tokens
            self._decoding.add(number)
            if request.generated >= request.output_tokens:
                finished.append(request)
                self.log.recorder.close(request, 0, request.generated, end)
                self.answers[number] = self._said.pop(number)
                del self.alive[number], self._computed[number]
                self._decoding.discard(number)
        return finished

    def _row(
        self,
        ran: LedgerRow,
        span: tuple[float, float],
        decodes: tuple[int, ...],
        prefills: tuple[tuple[int, int, int], ...],
        counts: tuple[int, int, int],
    ) -> None:
        held, stalled, finished = counts
        self.log.write(
            *span,
            [(number, Part(tokens, before)) for number, before, tokens in prefills],
            IterationCounts(
                context=sum(ran.before[number] for number in decodes),
                held=held,
                reserved=ran.reserved,
                decode=len(decodes),
                computed=len(decodes),
                stalled=stalled,
                admitted=sum(before == 0 for _, before, _ in prefills),
                preemptions=len(ran.preempted),
                running=ran.running,
                waiting=ran.waiting,
                finished=finished,
            ),
        )
