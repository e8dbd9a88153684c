"""What the simulator knows of one request while it is alive. Times in seconds, lengths in
tokens."""

from __future__ import annotations

NEVER = float("nan")


class Request:
    """One request on its way through a replica; it exists from its arrival to its last token.

    ``arrival`` is when the client sent it, ``queued`` when the engine's front end handed it to the
    scheduler, ``scheduled`` when it was first in a batch.

    ``computed`` is vLLM's ``num_computed_tokens``: tokens whose KV is in the cache. ``generated``
    counts the output tokens delivered. Both stand still while the request decodes: its progress is
    then ``batch.iteration - joined`` (see ``DecodeBatch``), so that no decode step has to touch it.
    """

    __slots__ = (
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
        "prompt_tokens",
        "queued",
        "scheduled",
    )

    def __init__(self, id: int, arrival: float, prompt_tokens: int, output_tokens: int) -> None:  # noqa: A002
        self.id = id
        self.arrival = arrival
        self.queued = arrival
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
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
