"""Orders requests by the shortest job first, with lengths from an oracle."""

from __future__ import annotations

from sim.request import Request
from sim.schedulers.orders.base import Order


class ShortestJob(Order):
    """The fewest prompt and output tokens together go first.

    The simulator knows how long the answer will be; a real engine does not. So this is an oracle: a
    bound on what guessing lengths could bring, and no policy that can be switched on somewhere.
    Long requests may wait for as long as shorter ones keep coming.
    """

    def key(self, request: Request) -> float:
        """``prompt_tokens + output_tokens``."""
        return request.prompt_tokens + request.output_tokens
