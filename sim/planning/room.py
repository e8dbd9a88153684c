"""Words what a layout cannot accept, before anything about its speed or cost."""

from __future__ import annotations

from collections.abc import Sequence

from sim.metrics.precision import wilson
from sim.metrics.promises import Promise
from sim.metrics.rejection import Rejection, Room, foreseen
from sim.planning.loads import Traffic
from sim.simulation import Setup


def room_of(setup: Setup) -> Room:
    """What a replica accepts."""
    memory = setup.capacity
    return Room(
        setup.limits.max_model_len,
        memory.usable_blocks * memory.block_size,
        setup.deployment.model.max_position_embeddings,
        memory.given,
    )


def small_cache(setup: Setup) -> str:
    """The sentence on a KV cache that cannot hold one request of ``max_model_len`` tokens; empty
    where it can."""
    tokens, longest = setup.capacity.tokens, setup.limits.max_model_len
    if tokens >= longest:
        return ""
    free = setup.capacity.usable_blocks * setup.capacity.block_size
    return (
        f"the KV cache holds {free:,} tokens for requests, less than max_model_len ({longest:,}), "
        "so vLLM would refuse to start without more memory or a lower max_model_len"
    )


def too_many_rejected(
    traffic: Traffic, room: Room, promises: Sequence[Promise]
) -> Rejection | None:
    """The requests that a replica rejects, if they are more than some part of the SLO allows."""
    found = foreseen(traffic.prompts + traffic.outputs, room)
    if found is None:
        return None
    accepted = wilson(1 - found.share, found.requests)[1]
    return found if any(accepted < promise.share for promise in promises) else None
