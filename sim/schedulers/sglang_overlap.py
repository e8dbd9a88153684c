"""Batches as SGLang does by default: the next iteration is planned while one runs."""

from __future__ import annotations

from collections.abc import Iterable

from sim.memory.radix import RadixAllocator
from sim.request import Request
from sim.schedulers.ahead import Ahead
from sim.schedulers.base import Plan
from sim.schedulers.sglang import Sglang


class SglangOverlap(Ahead, Sglang):
    """SGLang's scheduler as it starts by default: it plans while an iteration runs.

    Tokens of that iteration are not known yet when the next one is planned. A request that is
    retracted keeps the token that was on its way to it, which SGLang discards.
    """

    def submit(self, request: Request) -> bool:
        """Queues a request that comes during an iteration: it misses the next plan, already
        made."""
        return Ahead.submit(self, request)

    def submit_early(self, request: Request) -> bool:
        """Queues a request that comes while an iteration is being launched: the next plan has it,
        where new requests are looked for each time."""
        return Ahead.submit_early(self, request) if self._interval == 1 else self.submit(request)

    def _receive(self) -> None:
        """They are taken in when the next iteration has been planned (``_settle``)."""

    def _settle(self) -> bool:
        """As all that plan ahead, new requests only where they are looked for."""
        if self._interval == 1 or self._is_due():
            return super()._settle()
        later, self.coming = self.coming, []
        settled = super()._settle()
        self.coming = later
        return settled or bool(later)

    def _next(self, now: float) -> Plan | None:
        fresh, tree = self._fresh, self._tree
        plan = Sglang.schedule(self, now)
        if tree is not None:
            for request in fresh:
                if request in self._running and request not in self._ended:
                    tree.publish(request, request.computed)
        return plan

    def _enter_prompts(self, tree: RadixAllocator) -> None:
        """Their tokens were on their way when this was planned: entered when it has been."""

    def _late(self, request: Request) -> bool:
        """Whether a token of ``request`` was on its way when this was planned."""
        if request.joined < 0:
            return request in self._ended
        return self._decoded or request in self._fresh

    def _outputs(self, request: Request) -> int:
        return super()._outputs(request) - self._late(request)

    def _to_come(self) -> int:
        late = self.decoding.size if self._decoded else len(self._fresh)
        ended = [self._asked(r) - r.output_tokens + 1 for r in self._ended]
        return super()._to_come() + late + sum(ended)

    def _known(self) -> Iterable[Request]:
        return [request for request in self._running if request is not self._partial]

    def _leaving(self) -> int:
        return len(self._ended)
