"""Brings requests of clients into the simulation, and its tokens back to them.

``Service`` is the server without HTTP: it runs in an event loop of asyncio, since real time passes
in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any

from sim.loop.live import UNSERVED, LiveFleet
from sim.loop.steering import Action, Steerer
from sim.metrics.record.run_record import RunRecord
from sim.request import PLAIN, Prefix, Request, TrafficClass
from sim.results.run_directory import RunDirectory
from sim.schedulers.roles import Prompt
from sim.serve.answers import Answers
from sim.serve.exchange import Call, Reply
from sim.serve.meters import Meters
from sim.serve.names import Names
from sim.serve.pace import BEHIND, Lateness, RealTime
from sim.serve.protocol import ApiError
from sim.serve.record import Record
from sim.serve.session import LiveSession
from sim.serve.tokens import Filler
from sim.setup import Setup, prepare
from sim.workload.classes import classes_of

MOST_ANSWERS = 4096
"""Answers to one call: its prompts times ``n``."""


@dataclass(frozen=True, slots=True)
class AnswerTerms:
    """A client's terms: ``choices`` answers to each prompt, and how long they may be."""

    choices: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    seed: int | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class _Planned:
    """A request to the simulated fleet."""

    prompt_tokens: int
    filler: Filler
    blocks: list[int]
    prefix: Prefix


class Service:
    """A fleet that serves: ``setup``, ``speed`` simulated seconds a second, recorded in the
    directory ``path``. ``model`` is what clients call the model. Beyond ``most_waiting`` requests
    in the queues, others are turned away."""

    def __init__(
        self,
        setup: Setup,
        path: Path,
        model: str,
        *,
        speed: float = 1.0,
        most_waiting: int | None = None,
    ) -> None:
        scenario = setup.scenario
        classes = classes_of(scenario)
        self._session = LiveSession(setup, self._told, self._lost)
        self.fleet: LiveFleet = self._session.fleet
        self.clients, self.scaler = self._session.clients, self._session.scaler
        self.pace = RealTime(self.fleet, speed)
        self.lateness = Lateness()
        self.meters = Meters(setup, self.fleet, model)
        self.setup = setup
        self.max_model_len = min(pool.limits.max_model_len for pool in setup.pools)
        self._classes = {item.priority: item for item in reversed(classes)}
        self._plain = self._classes.get(0, classes[0]) if classes else PLAIN
        caches = any(pool.kv_cache.enable_prefix_caching for pool in scenario.pools)
        self._names = Names() if caches else None
        self._record = Record(path, scenario, ranked=bool(classes), caches=caches)
        self._answers = Answers(scenario)
        self._running: dict[int, Reply] = {}
        self._most_waiting = most_waiting
        self._now, self._moment = -inf, -inf  # when tokens last came: simulated, and real
        self._found: tuple[RunRecord, RunDirectory] | None = None
        self.refused = 0  # calls that were turned away since too many requests waited
        self.unserved = 0  # requests that found no replica in service
        self.without_clients = False  # the scenario says of clients what real ones decide
        self.open = True

    @property
    def outstanding(self) -> int:
        """Requests that are not finished."""
        return len(self._running)

    def submit(self, moment: float, prompts: Sequence[Sequence[int]], wish: AnswerTerms) -> Call:
        """A request that came at ``moment``, of the loop's clock, with ``prompts`` in tokens.
        ApiError if it cannot be served."""
        if not self.open:
            raise ApiError(503, "the server is stopping")
        if (answers := len(prompts) * wish.choices) > MOST_ANSWERS:
            raise ApiError(
                400,
                f"prompt: {len(prompts):,} prompts with n: {wish.choices} are {answers:,} answers; "
                f"at most {MOST_ANSWERS:,}",
                param="prompt",
            )
        self.pace.catch_up(moment)
        kind = self._class_of(wish.priority)
        most = self._most(max(map(len, prompts)), wish.max_tokens)
        self._make_room(answers)
        exchange = Call(sum(map(len, prompts)), most)
        planned = [
            self._planned(prompt, choice, most, wish)
            for prompt in prompts
            for choice in range(wish.choices)
        ]
        arrival = self.pace.simulated(moment)  # the first request starts the clock
        for each in planned:
            self._send(arrival, each, kind, exchange)
        self.pace.wake()
        return exchange

    def steer(self, *commands: tuple[Action, int]) -> None:
        """Operators do that to the replicas at those places of the fleet, now."""
        for do, place in commands:
            now = self.pace.simulated(self.pace.time()) if self.pace.started else None
            self._session.steer(do, place, now)
        self.pace.wake()

    @property
    def steerer(self) -> Steerer:
        """The replicas that are drained, failed, or starting."""
        return self._session.steerer

    def _make_room(self, more: int) -> None:
        """ApiError if that many requests ``more`` would be too many that wait."""
        limit = self._most_waiting
        if limit is not None and self.fleet.waiting(more) > limit:
            self.refused += 1
            waiting = self.fleet.waiting(0)
            raise ApiError(
                429,
                f"{waiting:,} requests wait already, of {limit:,} that may (--max-waiting); try "
                "again later",
            )

    def _class_of(self, priority: int) -> TrafficClass:
        if not priority:
            return self._plain
        found = self._classes.get(priority)
        if found is None:
            known = ", ".join(map(str, sorted(self._classes))) or "none"
            raise ApiError(
                400, f"priority: the classes of the scenario have {known}", param="priority"
            )
        return found

    def _most(self, prompt: int, max_tokens: int | None) -> int:
        """Tokens that an answer may have."""
        room = self.max_model_len - prompt
        asked = 1 if max_tokens is None else max_tokens
        if asked > room:
            raise ApiError(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens, but "
                f"{prompt} in the prompt and {asked} in the answer were asked for",
                param="max_tokens" if room > 0 else "prompt",
                code="context_length_exceeded",
            )
        return room if max_tokens is None else max_tokens

    def _planned(
        self, prompt: Sequence[int], choice: int, most: int, wish: AnswerTerms
    ) -> _Planned:
        """One answer to ``prompt``; ApiError if no replica could ever give it."""
        filler = self._answers.next(
            most,
            least=wish.min_tokens,
            exactly=wish.ignore_eos,
            seed=None if wish.seed is None else wish.seed + choice,
            stop=wish.stop,
        )
        if (reason := self._session.refusal(len(prompt), filler.tokens)) is not None:
            raise ApiError(
                400,
                f"a prompt of {len(prompt)} tokens and {filler.tokens} of answer: {reason}",
                param="prompt",
            )
        blocks, prefix = ([], ()) if self._names is None else self._names.of(prompt)
        return _Planned(len(prompt), filler, blocks, prefix)

    def _send(self, arrival: float, planned: _Planned, kind: TrafficClass, exchange: Call) -> None:
        prompt, output = planned.prompt_tokens, planned.filler.tokens
        answer = Reply(self.fleet.sent, planned.filler, exchange)
        answer.arrival = arrival = self.fleet.send(arrival, prompt, output, kind, planned.prefix)
        self._record.add(arrival, prompt, output, kind.priority, planned.blocks)
        exchange.answers.append(answer)
        self._running[answer.number] = answer

    def _told(self, request: Request, tokens: int, now: float, engine: int) -> None:
        """``request`` has that many tokens ``now``, in simulated seconds."""
        if isinstance(request, Prompt):  # whose token is discarded
            if tokens:
                self.meters.of[engine].first_token(request, now)
                self.meters.of[engine].done(request, "length", now)
            return
        answer = self._running.get(request.id)
        if answer is None or tokens <= answer.told:
            return
        more = tokens - answer.told
        if now != self._now:  # of all tokens of an instant
            self._now, self._moment = now, self.pace.moment(now)
        if more == 1:
            answer.due.append(self._moment)
        else:
            answer.due.extend(repeat(self._moment, more))
        if answer.engine < 0:
            answer.engine = engine
            self.meters.of[engine].first_token(request, now)
        else:
            self.meters.of[answer.engine].tokens(more, now - answer.last)
        answer.told, answer.last = tokens, now
        if (outlet := answer.exchange.outlet) is not None:
            outlet(answer)
        else:
            answer.exchange.news.set()
        if answer.done:
            del self._running[request.id]
            self.meters.of[answer.engine].done(request, answer.reason, now)

    def leave(self, exchange: Call) -> None:
        """The client has its answers, or has gone: what is unfinished leaves the fleet."""
        self._withdraw([a for a in exchange.answers if a.number in self._running], "abort")

    def _lost(self, request: Request, why: str) -> None:
        """``request`` came to nothing."""
        self.unserved += why == UNSERVED
        if (answer := self._running.pop(request.id, None)) is not None:
            self.meters.of[max(answer.engine, 0)].finished["error"] += 1
            answer.exchange.fail(ApiError(503, why))

    def _withdraw(self, answers: Sequence[Reply], reason: str) -> None:
        if not answers or self._found is not None:
            return
        now = self.pace.simulated(self.pace.time())
        for answer in answers:
            del self._running[answer.number]
            waited = self.fleet.leave(answer.number, answer.arrival, now)
            self._record.cancelled(answer.number, waited)
            self.meters.of[max(answer.engine, 0)].finished[reason] += 1
        self.pace.wake()

    def close(self) -> None:
        """Take no more requests."""
        self.open = False

    def finish(self) -> tuple[RunRecord, RunDirectory] | None:
        """Time stops, and clients that wait get a message; the run and its directory, None if no
        request came."""
        self.open = False
        if self._found is not None:
            return self._found
        now = self.pace.stop() if self.pace.started else 0.0
        if not self.fleet.sent:
            self._record.discard()
            return None
        for answer in self._running.values():
            answer.exchange.fail(ApiError(503, "the server is stopping"))
        place, scenario = self._record.finish(self._session.horizon(now), self._session.steps)
        self._found = self._session.record(prepare(scenario)), place
        return self._found

    def document(self) -> dict[str, Any]:
        """The summary's part on how the run was served."""
        return {
            "speed": self.pace.speed,
            "lateness": self.lateness.document(),
            "cancelled": self._record.gone,
            "refused": self.refused,
            "unserved": self.unserved,
            "steered": len(self._session.commands),
        }

    def notes(self) -> list[str]:
        """The notes in sentences."""
        notes, late = [], self.lateness.document()
        if late["tokens"]:
            told = f"Served live at {self.pace.speed:g} times real time: {late['tokens']:,} tokens"
            told += f" left the server {late['p50_ms']:g} ms late in the median, {late['p99_ms']:g}"
            told += f" ms at the 99th percentile, {late['max_ms']:g} ms at most."
            if self.lateness.percentile(0.99) > BEHIND:
                told += " This machine could not keep up: clients saw longer latencies than these."
            if late["held"]:
                told += f" {late['held']:,} tokens more waited for clients that read too slowly."
            notes.append(told)
        if gone := self._record.gone:
            count = "1 answer was" if gone == 1 else f"{gone:,} answers were"
            notes.append(
                f"{count} cancelled by clients that went away, and left the engine; the recorded "
                "trace says when."
            )
        if self.refused:
            count = "1 call was" if self.refused == 1 else f"{self.refused:,} calls were"
            notes.append(
                f"{count} turned away (429), and not recorded: too many requests waited "
                "(--max-waiting)."
            )
        if self.unserved:
            count = "1 request" if self.unserved == 1 else f"{self.unserved:,} requests"
            notes.append(f"{count} found no replica in service (503), and came to nothing.")
        if self.without_clients:
            notes.append(
                "Real clients give up and send again as they like: client_timeout, on_timeout and "
                "failures.in_flight of the scenario were left out."
            )
        if self._session.commands:
            notes.append(
                "Replicas were started and stopped meanwhile, as the recorded scenario says "
                "(steering); utilisation and cost count all of them, all the time."
            )
        return notes
