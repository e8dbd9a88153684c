"""Names the requests that a replica can never serve, why, and the setting that would admit them.

Such requests are rejected when they arrive, whatever the load: no faster GPU serves them. Lengths
are in tokens, prompt and answer together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED
from sim.metrics.record.run_record import RunRecord
from sim.pools import PreparedPool
from sim.request import Refusal


@dataclass(frozen=True)
class SpareRate:
    """The requests that a replica accepts: those of at most ``max_model_len`` tokens whose KV fits
    into ``kv_tokens``. ``longest`` is the length the model was made for, ``given_blocks`` whether
    the scenario states the size of the KV cache, ``assumed`` the name of a model whose length no
    file states."""

    max_model_len: int
    kv_tokens: int
    longest: int
    given_blocks: bool
    assumed: str = ""


@dataclass(frozen=True)
class Rejection:
    """How many of ``requests`` are ``rejected``, for which ``reasons`` (name -> number), and what
    the ``longest`` of them takes."""

    requests: int
    rejected: int
    reasons: Mapping[str, int]
    longest: int
    room: SpareRate

    @property
    def share(self) -> float:
        """Rejected requests as a share of all."""
        return self.rejected / self.requests

    @property
    def text(self) -> str:
        """How many are rejected, and why.

        >>> room = SpareRate(8192, 100_000, 131_072, False)
        >>> Rejection(3000, 1525, {Refusal.TOO_LONG: 1525}, 126_195, room).text
        '1,525 of 3,000 requests (50.8%) are longer than max_model_len (8,192 tokens; the longest \
has 126,195)'
        """
        told = [
            f"{count:,} of {self.requests:,} requests ({100 * count / self.requests:.3g}%) "
            f"{self._why(reason)}"
            for reason, count in self.reasons.items()
        ]
        return "; ".join(told)

    def _why(self, reason: str) -> str:
        if reason == Refusal.TOO_LONG:
            limit = f"{self.room.max_model_len:,} tokens; the longest has {self.longest:,}"
            return f"are longer than max_model_len ({limit})"
        if reason == Refusal.TOO_LARGE:
            limit = f"{self.room.kv_tokens:,} tokens; the longest request has {self.longest:,}"
            return f"need more than the KV cache has for requests ({limit})"
        if reason == Refusal.LATE:
            return "were turned away on arrival, since their first token would be late (admission)"
        return f"are rejected: {reason}"

    @property
    def wanted_length(self) -> int | None:
        """The ``max_model_len`` that admits what is rejected for its length, as far as the model
        goes; None where it would not help."""
        wanted = min(self.longest, self.room.longest)
        return (
            wanted
            if Refusal.TOO_LONG in self.reasons and wanted > self.room.max_model_len
            else None
        )

    @property
    def remedy(self) -> str:
        """The setting that would admit them, as an instruction; empty for a user's own reasons.

        >>> room = SpareRate(8192, 100_000, 131_072, False)
        >>> Rejection(3000, 1525, {Refusal.TOO_LONG: 1525}, 90_000, room).remedy
        'set max_model_len to 90,000 or more'
        """
        told = []
        wanted = min(self.longest, self.room.longest)
        if self.wanted_length is not None:
            told.append(f"set max_model_len to {wanted:,} or more")
        if Refusal.TOO_LONG in self.reasons and self.longest > self.room.longest:
            told.append(
                f"add max_position_embeddings to the config.json of {self.room.assumed}, which "
                f"does not give it: {self.room.longest:,}, the default of transformers, was taken"
                if self.room.assumed
                else f"leave requests of more than {self.room.longest:,} tokens out: the model was "
                "made for no more"
            )
        if wanted > self.room.kv_tokens:
            told.append(self._more_memory())
        return ", and ".join(told)

    def _more_memory(self) -> str:
        """How the KV cache gets room for the longest request."""
        now = f"it holds {self.room.kv_tokens:,} tokens"
        if self.room.given_blocks:
            return f"raise kv_cache.num_gpu_blocks ({now})"
        return (
            f"make the KV cache larger ({now}): more GPUs a replica (fleet.0.tensor_parallel), a "
            "GPU with more memory, or weights or KV cache in fewer bits (precision)"
        )

    def document(self) -> dict[str, Any]:
        """The rejection as plain data."""
        return {
            "count": self.rejected,
            "rejected": self.rejected,
            "share": self.share,
            "by_reason": dict(self.reasons),
            "longest_tokens": self.longest,
            "text": f"{self.text}.",
            "remedy": self.remedy or None,
        }


def room_of(pools: Sequence[PreparedPool]) -> SpareRate:
    """The requests that every replica of ``pools`` accepts."""
    shortest = min(
        (pool.deployment.model for pool in pools), key=lambda model: model.max_position_embeddings
    )
    return SpareRate(
        min(pool.limits.max_model_len for pool in pools),
        min(pool.kv_longest for pool in pools),
        shortest.max_position_embeddings,
        all(pool.capacity.given for pool in pools),
        shortest.name if shortest.assumed_context else "",
    )


def rejection(run: RunRecord) -> Rejection | None:
    """The rejected requests of a run; None if there are none."""
    rows = run.requests[run.requests["status"] == REJECTED]
    if not len(rows):
        return None
    counts = np.bincount(rows["reason"], minlength=len(run.reasons)).tolist()
    reasons = {run.reasons[i]: count for i, count in enumerate(counts) if count}
    longest = int((rows["prompt_tokens"] + rows["output_tokens"]).max())
    return Rejection(len(run.requests), len(rows), reasons, longest, room_of(run.pools))


def over_runs(found: Sequence[Rejection | None], requests: int) -> Rejection | None:
    """The rejected requests of several runs of one replica, with ``requests`` in all."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    reasons: dict[str, int] = {}
    for each in known:
        for reason, count in each.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    longest = max(each.longest for each in known)
    return Rejection(requests, sum(reasons.values()), reasons, longest, known[0].room)


def foreseen(tokens: NDArray[np.int64], room: SpareRate) -> Rejection | None:
    """The rejection of requests of these lengths, before they are simulated."""
    long = tokens > room.max_model_len
    large = ~long & (tokens - 1 > room.kv_tokens)  # the last token is sampled, never computed
    counts: dict[str, int] = {
        Refusal.TOO_LONG: int(long.sum()),
        Refusal.TOO_LARGE: int(large.sum()),
    }
    reasons = {reason: count for reason, count in counts.items() if count}
    if not reasons:
        return None
    longest = int(tokens[long | large].max())
    return Rejection(len(tokens), sum(reasons.values()), reasons, longest, room)
