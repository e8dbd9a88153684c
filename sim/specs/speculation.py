"""Describes speculative decoding: what drafts tokens, how many, and how many of them are accepted.

A decoding sequence asks for 1 + K tokens of an iteration, K of them drafts. The pass tells how many
drafts in a row are right; these and one token more are delivered, the others are thrown away. What
drafts is a model of its own (``draft_model``), a layer trained to continue the target's hidden
state (``eagle``, ``mtp``), or the text itself (``ngram``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEW_STEPS = 8
"""After that many iterations of the most tokens the renewal theorem holds to a thousandth."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """``num_tokens`` drafts for each decoding sequence and iteration, K in the words of papers.

    ``rates[i]`` is the chance that the first i + 1 drafts are all accepted, one for each position,
    none above the one before (vLLM's unconditional rates per position). ``by_batch[n - 1]``, where
    given, is how many are drafted after a pass over n requests, at most ``num_tokens``, the last
    for more requests, too. ``match`` is the share of a sequence's iterations for which anything is
    drafted at all: where the text itself is searched, nothing is where it does not repeat.
    ``rates`` are over all iterations. Raises ValueError for rates that are none.
    """

    method: str
    num_tokens: int
    rates: tuple[float, ...]
    by_batch: tuple[int, ...] = ()
    match: float = 1.0

    def __post_init__(self) -> None:
        if len(self.rates) != self.num_tokens:
            raise ValueError(f"rates: got {len(self.rates)} for {self.num_tokens} tokens")
        if not all(0.0 <= rate <= 1.0 for rate in self.rates):
            raise ValueError(f"rates: got {self.rates}, expected shares from 0 to 1")
        if any(later > rate for rate, later in zip(self.rates, self.rates[1:], strict=False)):
            raise ValueError(f"rates: got {self.rates}, expected none above the one before")
        if not max(self.rates, default=0.0) <= self.match <= 1.0:
            raise ValueError(f"match: got {self.match}, expected a share of at least {self.rates}")

    def drafts(self, requests: int) -> int:
        """Drafts made for each sequence after a pass over that many ``requests``, prompts included.

        >>> given = Speculation("ngram", 3, (0.5, 0.2, 0.1), by_batch=(3, 3, 1, 0))
        >>> [given.drafts(requests) for requests in (1, 2, 3, 4, 99)]
        [3, 3, 1, 0, 0]
        """
        by_batch = self.by_batch
        if not by_batch:
            return self.num_tokens
        return by_batch[min(max(requests, 1), len(by_batch)) - 1]

    def at(self, requests: int) -> Speculation:
        """The drafting for a batch that stays at that many ``requests``."""
        drafts = self.drafts(requests)
        return replace(self, num_tokens=drafts, rates=self.rates[:drafts], by_batch=())

    def rows(self, sequences: int, drafts: int) -> int:
        """Tokens of the target's pass over that many ``sequences``: one of each, and that many
        ``drafts`` of those whose text has a match, as many as there are on average.

        >>> Speculation("ngram", 4, (0.2,) * 4, match=0.25).rows(8, 4)
        16
        """
        return sequences + round(self.match * sequences * drafts)

    def matching(self, sequences: int) -> tuple[int, float]:
        """How many of that many ``sequences`` have a match, and the share of passes in which one
        more has, so that there are as many as on average.

        >>> Speculation("ngram", 4, (0.2,) * 4, match=0.25).matching(6)
        (1, 0.5)
        """
        mean = self.match * sequences
        whole = int(mean)
        return whole, mean - whole

    @property
    def width(self) -> int:
        """Most tokens of a decoding sequence in the target's pass."""
        return 1 + self.num_tokens

    @property
    def slots(self) -> int:
        """``slots_of`` the most drafts."""
        return self.slots_of(self.num_tokens)

    def slots_of(self, drafts: int) -> int:
        """Tokens of ``max_num_batched_tokens`` that a decoding sequence takes: a draft model's
        first pass is one token longer than the target's (vLLM 0.32,
        ``max_num_new_slots_for_drafting``)."""
        return 1 + drafts + (self.method == "draft_model")

    def asked(self, sequences: int, drafts: int) -> int:
        """Tokens that this many ``sequences`` take together: of a text that is searched, those
        whose text has a match take the drafts, as many as there are on average.

        >>> Speculation("ngram", 4, (0.2,) * 4, match=0.25).asked(8, 4)
        16
        """
        return self.rows(sequences, drafts) + sequences * (self.slots - self.width)

    @property
    def lookahead(self) -> int:
        """KV slots kept for drafts beyond the tokens of the pass (vLLM 0.32,
        ``num_lookahead_tokens``)."""
        return 0 if self.method == "ngram" else self.num_tokens

    @property
    def reads_target(self) -> bool:
        """Whether hidden states of the target are what the drafter reads (vLLM 0.32,
        ``use_eagle``)."""
        return self.method in ("eagle", "mtp")

    @property
    def length(self) -> float:
        """Tokens that a sequence gets of an iteration, on average: the acceptance length.

        >>> round(Speculation("mtp", 3, (0.7, 0.49, 0.343)).length, 3)
        2.533
        """
        return 1.0 + sum(self.rates)

    def length_of(self, drafts: int) -> float:
        """The acceptance length with that many drafts, of those that ``rates`` are about."""
        return 1.0 + sum(self.rates[:drafts])

    @property
    def random(self) -> bool:
        """Whether chance decides what is accepted."""
        return any(0.0 < rate < 1.0 for rate in self.rates)

    def steps(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Iterations until a sequence has that many ``tokens``, whole numbers, on average.

        Of many: their number and what the last iteration brings too many, by the renewal theorem,
        over the acceptance length; of few, by what the first iteration brings.
        """
        import numpy as np  # noqa: PLC0415 - it starts threads

        chances = -np.diff([1.0, *self.rates, 0.0])
        gains = np.arange(1, len(chances) + 1)
        beyond = float((chances * gains * (gains - 1)).sum()) / (2 * self.length)
        few = [0.0]
        for wanted in range(1, FEW_STEPS * len(chances)):
            left = [few[max(0, wanted - gain)] for gain in gains.tolist()]
            few.append(1.0 + float(np.dot(chances, left)))
        many: NDArray[np.float64] = (tokens + beyond) / self.length
        few_tokens = np.minimum(tokens, len(few) - 1).astype(np.int64)
        return np.where(tokens < len(few), np.array(few)[few_tokens], many)


def constant_rates(rate: float, tokens: int) -> tuple[float, ...]:
    """The rates where each draft is right with the chance ``rate``, given that those before were.

    >>> constant_rates(0.5, 3)
    (0.5, 0.25, 0.125)
    """
    return tuple(rate ** (place + 1) for place in range(tokens))


def rates_of_length(length: float, tokens: int) -> tuple[float, ...]:
    """Constant conditional rates that make the acceptance length ``length``, 1 to ``tokens`` + 1,
    found by bisection.

    >>> [round(rate, 4) for rate in rates_of_length(1.75, 2)]
    [0.5, 0.25]
    """
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if 1.0 + sum(constant_rates(middle, tokens)) < length:
            low = middle
        else:
            high = middle
    return constant_rates(high, tokens)
