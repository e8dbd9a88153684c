"""Draws the LoRA adapter of each request, and keeps the prefixes of adapters apart."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from sim.request import Request
from sim.rng import numbered

if TYPE_CHECKING:
    from sim.scenario import Scenario


class AdapterDraw:
    """The adapters of requests: ``number`` of them, the k-th drawn in proportion to 1/k^``zipf``.

    A request's adapter follows from the seed and its number, or that of its session, so that it is
    the same whatever is served before it, and traffic is as without adapters.

    >>> draw = AdapterDraw(3, 1.0, seed=42)
    >>> [draw.of(request) for request in range(8)]
    [0, 0, 1, 2, 2, 0, 0, 0]
    """

    def __init__(self, number: int, zipf: float, seed: int) -> None:
        self._number = number
        self._weights = list(accumulate(k**-zipf for k in range(1, number + 1)))
        self._stream = numbered(seed, "adapters")

    def of(self, request: int, session: int = -1) -> int:
        """The adapter, from 0 on, of a ``request`` and of its ``session``, by their numbers."""
        drawn = self._stream(request if session < 0 else session).random()
        return min(bisect_right(self._weights, drawn * self._weights[-1]), self._number - 1)

    def mark(self, request: Request) -> None:
        """Give ``request`` its adapter. Its prompt shares text with those of the same adapter
        alone: a block's hash has the name of the adapter (``_gen_lora_extra_hash_keys`` of vLLM
        0.33)."""
        request.adapter = adapter = self.of(request.id, request.session)
        request.prefix = tuple(  # texts below 0 are of the session, whose adapter is one
            (text * self._number + adapter if text >= 0 else text, end)
            for text, end in request.prefix
        )


def adapter_draw(scenario: Scenario) -> AdapterDraw | None:
    """The draw of the adapters of ``scenario``; None where it has none."""
    asked = scenario.lora
    if asked is None:
        return None
    law = asked.distribution
    return AdapterDraw(asked.adapters, law.exponent * (law.kind == "zipf"), scenario.seed)
