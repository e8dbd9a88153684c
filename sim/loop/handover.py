"""Hands requests over from the replicas that prefill to those that decode, as vLLM's proxy does.

The router chooses a prefill replica when a request arrives, and a decode replica when its prompt is
complete; where layers are pushed as they are computed, both when it arrives. The decode replica
gives it blocks for the whole prompt as its own memory allows. Then the KV goes over the link of
either replica, which serve one transfer at a time, in the order in which they could begin. Until it
has arrived, the prefill side keeps it. The token that the prefill pool samples is discarded, and
the first one that the user sees comes from the decode replica. A request whose client has gone
leaves the replica that prefills it, or the queue for memory; KV that is on its way arrives first,
and so does all that is pushed.

All of this happens at instants of their own, after arrivals and before schedulers plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import simpy

from sim.loop.clock import HANDOVER, Alarm, Process
from sim.loop.engine import Engine, SingleEngine, Unfinished
from sim.loop.lockstep import Rank
from sim.loop.recorder import Recorder
from sim.loop.withdrawing import Withdrawing, withdraw
from sim.request import Request
from sim.routers import Router
from sim.schedulers.roles import DecodeRole, HandedOver, PrefillRole, Prompt


class HandoverCosts(NamedTuple):
    """Costs of a hand-over on a link: ``token`` seconds for each token, ``block`` for each block of
    ``block_size``, ``latency`` until what came can be used. ``exposed`` is the share of the link's
    time that follows the prefill where layers are pushed as they are computed; None where the
    decode side reads everything afterwards. Prompts below ``shortest`` stay where they decode.
    """

    token: float
    block: float
    latency: float
    block_size: int
    exposed: float | None
    shortest: int

    def link(self, tokens: int) -> float:
        """Seconds for which the KV of that many tokens holds a link.

        >>> HandoverCosts(1e-6, 1e-3, 0.0, 16, None, 0).link(100)  # 7 blocks
        0.0071
        """
        return tokens * self.token + -(-tokens // self.block_size) * self.block


class HandOvers:
    """The hand-overs of a fleet: ``prefill`` and ``decode`` are its replicas, by role."""

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        costs: Mapping[int, HandoverCosts],
        routers: tuple[Router, Router],
    ) -> None:
        self.prefill: list[Engine] = []
        self.decode: list[Engine] = []
        self.left: Callable[[Request, int, int], None]
        """Called with a request whose client has gone when it has left: number of the replica,
        tokens that it had."""
        self._env = env
        self._recorder = recorder
        self._costs = costs  # by the number of the decode replica
        self._any = next(iter(costs.values()))
        self._to_prefill, self._to_decode = routers
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._free: dict[int, float] = {}  # when the link of each replica is
        self._prompts: dict[HandedOver, Prompt] = {}  # from arrival until the KV was taken
        self._unwanted: set[HandedOver] = set()  # that leave when their KV has arrived
        self._sides: dict[
            int, tuple[Engine, SingleEngine]
        ] = {}  # by the number of a replica or rank
        self._wake_at = math.inf
        self._alarm = Alarm(env)
        self._alarm.start(self._process())

    def add(self, side: Engine) -> None:
        """A replica of the fleet, by the role of its scheduler."""
        for one in side.ranks:
            self._sides[one.index] = (side, one)
            scheduler = one.scheduler
            if isinstance(scheduler, DecodeRole):
                scheduler.on_taken = self._taker(side, one)
            if isinstance(one, _Prefills):
                one.hand_over, one.give_up = self.prefilled, self._given_up
        (self.decode if _decodes(side) else self.prefill).append(side)

    def left_with(self, targets: Collection[object]) -> bool:
        """New requests go to these replicas alone; whether there are some of both sides."""
        sides = list(dict.fromkeys(side for side, _ in self._sides.values() if side in targets))
        self.prefill = [side for side in sides if not _decodes(side)]
        self.decode = [side for side in sides if _decodes(side)]
        return bool(self.prefill and self.decode)

    def dispatch(self, request: Request) -> str | None:
        """Send ``request`` on its way; why it can never be served, or None."""
        decode, short = self.decode, request.prompt_tokens < self._any.shortest
        for side in decode:
            if (reason := side.scheduler.refusal(request)) is not None:
                return reason
        request.queued = self._env._now
        if short:
            decode[self._choose(self._to_decode, request, decode)].submit(request)
            return None
        handed = HandedOver(request)
        prompt = Prompt(handed)
        source = self.prefill[self._choose(self._to_prefill, prompt, self.prefill)]
        if (reason := source.scheduler.refusal(prompt)) is not None:
            return reason
        self._prompts[handed] = prompt
        if self._any.exposed is not None:
            self._offer(handed)
        source.submit(prompt)
        return None

    def withdraw(self, request: Request) -> None:
        """No client waits for ``request`` any more."""
        self._at(self._env._now, lambda: self._abandon(request))

    def _abandon(self, request: Request) -> None:
        handed = next((each for each in self._prompts if each.asked is request), None)
        if handed is None:
            self._withdraw_decoding(request)
        elif self._any.exposed is not None or handed.taken == handed.taken:
            self._unwanted.add(handed)
        elif handed.prefilled == handed.prefilled:
            self._withdraw_decoding(request)
            self._release(handed)
        else:
            prompt = self._prompts[handed]
            for side, part in self._sides.values():
                if isinstance(part, _Prefills) and part.has(prompt):
                    withdraw(side, prompt)
                    return
            raise AssertionError(f"{prompt} is nowhere")

    def _withdraw_decoding(self, request: Request) -> None:
        """Take ``request`` back from the replica that decodes it, or is to."""
        for side, part in self._sides.values():
            held = [*part.scheduler.members(), *part.scheduler.waiting, *part.scheduler.coming]
            for each in held:
                if each is request or (isinstance(each, HandedOver) and each.asked is request):
                    withdraw(side, each)
                    return
        raise AssertionError(f"{request} is nowhere")

    def _given_up(self, prompt: Prompt, number: int) -> None:
        """``prompt`` has left the replica with that ``number``."""
        handed = prompt.handed
        del self._prompts[handed]
        handed.scheduled, handed.preemptions = prompt.scheduled, prompt.preemptions
        self.left(handed, number, 0)

    def prefilled(self, prompt: Prompt, number: int) -> None:
        """The replica with that ``number`` has computed ``prompt``."""
        handed, now = prompt.handed, self._env._now
        handed.source, handed.prefilled = number, now
        handed.scheduled, handed.preemptions = prompt.scheduled, prompt.preemptions
        if self._any.exposed is None:
            self._at(now, lambda: self._offer(handed))
        elif handed.taken == handed.taken:  # its blocks are there
            self._at(now, lambda: self._send(handed))

    def unfinished(self) -> Iterator[tuple[int, Request, int]]:
        """Requests that no decode replica has yet, as ``Replica.unfinished`` has them."""
        for handed, prompt in self._prompts.items():
            if handed.target < 0:
                handed.scheduled = prompt.scheduled
                yield max(handed.source, 0), handed, 0

    @staticmethod
    def _choose(router: Router, request: Request, sides: list[Engine]) -> int:
        return router.choose(request, sides) if len(sides) > 1 else 0

    def _offer(self, handed: HandedOver) -> None:
        """Ask a decode replica for memory; if none takes new requests, one that does not."""
        decode = self.decode
        if not decode:
            sides = dict.fromkeys(side for side, _ in self._sides.values() if _decodes(side))
            decode = list(sides)
        side = decode[self._choose(self._to_decode, handed, decode)]
        handed.target = side.index
        side.submit(handed)

    def _taker(self, side: Engine, one: SingleEngine) -> Callable[[HandedOver], None]:
        def taken(handed: HandedOver) -> None:
            handed.taken, handed.target = self._env._now, one.index
            if handed.prefilled == handed.prefilled:
                self._send(handed)

        return taken

    def _send(self, handed: HandedOver) -> None:
        """Prompt and blocks are there: the KV goes over the links of both replicas."""
        now = self._env._now
        source, target = self._sides[handed.source][0], self._sides[handed.target][0]
        costs = self._costs[target.index]
        free = max(self._free.get(source.index, 0.0), self._free.get(target.index, 0.0))
        takes = costs.link(handed.prompt_tokens)
        if costs.exposed is None:
            handed.sent = max(now, free)
            end = handed.sent + takes
        else:  # layers have gone since the prompt began to be computed, if there were blocks
            handed.sent = max(handed.scheduled, handed.taken, free)
            end = max(handed.sent + takes, now + takes * costs.exposed)
        self._free[source.index] = self._free[target.index] = end
        self._at(end + costs.latency, lambda: self._arrive(handed))

    def _arrive(self, handed: HandedOver) -> None:
        """All KV is where it decodes: the prefill side gives its memory back."""
        handed.arrived = self._env._now
        self._recorder.handed_over(handed)
        self._release(handed)
        target, at_decode = self._sides[handed.target]
        assert isinstance(at_decode.scheduler, DecodeRole)
        target.wake(at_decode, at_decode.scheduler.receive(handed))
        if handed in self._unwanted:
            self._unwanted.remove(handed)
            withdraw(target, handed)

    def _release(self, handed: HandedOver) -> None:
        """The prefill side gives the memory of a prompt back."""
        prompt = self._prompts.pop(handed)
        source, at_prefill = self._sides[handed.source]
        assert isinstance(at_prefill.scheduler, PrefillRole)
        at_prefill.scheduler.release(prompt)
        source.wake(at_prefill, True)

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heappush(self._due, (time, next(self._numbers), act))
        if time < self._wake_at:
            self._wake_at = time
            self._alarm.move(time, HANDOVER)

    def _process(self) -> Process:
        env, due, alarm = self._env, self._due, self._alarm
        while True:
            self._wake_at = due[0][0] if due else math.inf
            yield alarm.at(self._wake_at, HANDOVER)
            self._wake_at = -math.inf  # while it does not wait
            while due and due[0][0] <= env._now:
                heappop(due)[2]()


def _decodes(side: Engine) -> bool:
    """Whether a replica is of a decode pool."""
    return isinstance(side.scheduler, DecodeRole)


class _Prefills(Withdrawing):
    """Hands complete prompts over instead of answering."""

    hand_over: Callable[[Prompt, int], None]
    give_up: Callable[[Prompt, int], None]

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        """The prompts of ``finished`` are computed."""
        self.count(-len(finished))
        for prompt in finished:
            assert isinstance(prompt, Prompt)
            if prompt in self._unwanted:
                self._unwanted.remove(prompt)
                assert isinstance(self.scheduler, PrefillRole)
                self.scheduler.release(prompt)
                self.give_up(prompt, self.index)
            else:
                self.hand_over(prompt, number)

    def _gone(self, request: Request, generated: int) -> None:
        assert isinstance(request, Prompt)
        self.give_up(request, self.index)

    def unfinished(self) -> Unfinished:
        """No request: ``HandOvers.unfinished`` has them."""
        return []


class PrefillReplica(_Prefills):
    """A replica of a prefill pool."""


class PrefillRank(_Prefills, Rank):
    """A data rank of a replica of a prefill pool."""
