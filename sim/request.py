"""Describes what the simulator knows of one live request. Times in seconds, lengths in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NEVER = float("nan")

Prefix = tuple[tuple[int, int], ...]
"""Texts and where each ends, see ``Request``."""


class Refusal(StrEnum):
    """Why a request is not served; a policy of the user's may have other reasons, in words."""

    TOO_LONG = "longer than max_model_len"
    TOO_LARGE = "larger than the KV cache"
    UNCUT = "prompt longer than max_num_batched_tokens (without chunked prefill)"
    LATE = "its first token would be late (admission)"


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """The common traits of one class of requests. ``index`` is its place among the classes of the
    run; a lower ``priority`` goes first, as in vLLM; ``deadline`` (s after arrival; inf: none) is
    when the first token is due; ``weight`` is its share where classes are served fairly."""

    index: int
    name: str
    priority: int
    deadline: float
    weight: float = 1.0


PLAIN = TrafficClass(index=-1, name="", priority=0, deadline=0.0)
"""The class of every request where the traffic has none; one deadline for all is none at all."""


class Request:
    """One request on its way through a replica; it exists from its arrival to its last token.

    ``arrival`` is when the client sent it, ``queued`` when the engine's front end handed it to the
    scheduler, ``scheduled`` when it was first in a batch.

    ``computed`` is vLLM's ``num_computed_tokens``: tokens whose KV is in the cache. ``generated``
    counts the output tokens delivered. Both stand still while the request decodes: its progress is
    then what the batch says it ``gained`` (see ``sim.growth``), so that no decode step has to touch
    it.

    ``prefix`` names the texts with which the prompt begins and where each ends, in tokens from the
    start: ((3, 400), (8, 1200)). What follows is the request's own text, whose name is ``~id``. Two
    requests whose prompts begin with the same names share those tokens.

    ``session`` is the number of the conversation that it belongs to, ``adapter`` that of the LoRA
    adapter that it asks for; -1 where there are none.
    """

    __slots__ = (
        "adapter",
        "arrival",
        "computed",
        "first_token",
        "generated",
        "id",
        "joined",
        "joins",
        "last_token",
        "output_tokens",
        "preemptions",
        "prefix",
        "prompt_tokens",
        "queued",
        "scheduled",
        "session",
        "traffic_class",
    )

    def __init__(
        self,
        id: int,  # noqa: A002
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        traffic_class: TrafficClass = PLAIN,
        prefix: Prefix = (),
        session: int = -1,
    ) -> None:
        self.id = id
        self.arrival = arrival
        self.queued = arrival
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.traffic_class = traffic_class
        self.prefix = prefix
        self.session = session
        self.adapter = -1
        self.computed = 0
        self.generated = 0
        self.joined = -1
        self.joins = 0
        self.preemptions = 0
        self.scheduled = NEVER
        self.first_token = NEVER
        self.last_token = NEVER

    def __repr__(self) -> str:
        return f"Request({self.id}: {self.prompt_tokens} in, {self.output_tokens} out)"

    def tokens_to_prefill(self) -> int:
        """Length of the sequence a prefill must cover: the prompt, and after a preemption also the
        output tokens that were delivered before it (their KV was lost, they are not sampled again).
        """
        return self.prompt_tokens + self.generated

    def longest_sequence(self) -> int:
        """KV tokens held when the last token is sampled; that token itself is never computed."""
        return self.prompt_tokens + self.output_tokens - 1
