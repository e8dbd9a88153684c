"""Holds many batches as columns, and what each operator did in them.

Rows are recorded plans: one batch that ran a number of times, its context growing evenly. Seconds,
FLOP and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.operators import Amount, Operator, Prefills
from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import (
    ADAPTERS,
    CHECKED,
    DRAFTED,
    OTHERS,
    OTHERS_REQUESTS,
    SEEN,
    SEEN_GROWING,
    Leaps,
)
from sim.iteration import Batch

Floats = NDArray[np.float64]
Counts = NDArray[np.signedinteger[Any]]

By = Literal["tokens", "outputs", "decodes", "prompts"]
"""The measure of an operator's work: the tokens in the pass, the positions that sample a token, the
decoding sequences and their context, or the parts of prompts."""


class Sizes(NamedTuple):
    """A size of each batch (``of``), the ``different`` ones in ascending order, and how many
    ``times`` passes of each of those ran."""

    of: Counts
    different: Floats
    times: Floats


@dataclass(frozen=True)
class Batches:
    """A row per batch: the decoding ``sequences`` and the ``context`` that they hold in the middle
    of its passes, the ``prompts`` prefilled and their ``prompt_tokens``, what prefill attention
    took (``prefill_attention``) and its query-key ``pairs``, and how many ``times`` it ran.
    ``seen`` is what they see of the context through each window of the model, a column each, where
    it is known; ``others`` the tokens that other data ranks have in each pass, where it is.
    ``checked`` and ``drafted`` are the drafts of a sequence that a pass checks, and that are made
    after it, where they are known; ``others_requests`` those of other data ranks for which drafts
    are made; ``adapters`` the different ones in a pass, where they are known."""

    sequences: Counts
    context: Floats
    prompts: Counts
    prompt_tokens: Counts
    prefill_attention: Floats
    pairs: Floats
    times: Floats
    seen: tuple[Floats, ...] = ()
    others: Counts | None = None
    checked: Counts | None = None
    drafted: Counts | None = None
    others_requests: Counts | None = None
    adapters: Counts | None = None

    @classmethod
    def of(cls, plans: PlanRows) -> Batches:
        """The batches of recorded plans (rows of ``sim.loop.recorder.PLAN``)."""
        sequences = plans["computed"]
        leaps, names = Leaps.recorded(plans), plans.dtype.names or ()
        return cls(
            sequences=sequences,
            # contexts grow evenly over a leap: the middle stands for all of it
            context=plans["context"] + leaps.gained(sequences) / 2,
            prompts=plans["prefill_seqs"],
            prompt_tokens=plans["prefill_tokens"],
            prefill_attention=plans["prefill_attention"],
            pairs=plans["pairs"],
            times=leaps.times.astype(np.float64),
            seen=_seen(plans, leaps),
            others=plans[OTHERS] if OTHERS in names else None,
            checked=plans[CHECKED] if CHECKED in names else None,
            drafted=plans[DRAFTED] if CHECKED in names else None,
            others_requests=plans[OTHERS_REQUESTS] if OTHERS_REQUESTS in names else None,
            adapters=plans[ADAPTERS] if ADAPTERS in names else None,
        )

    @classmethod
    def made(cls, batches: Sequence[Batch], attention: Sequence[tuple[float, float]]) -> Batches:
        """``batches`` that run once each, with the (seconds, pairs) of their prefill
        ``attention``."""
        seconds, pairs = np.array(attention, dtype=np.float64).reshape(-1, 2).T
        return cls(
            sequences=np.array([batch.sequences for batch in batches], dtype=np.int64),
            context=np.array([batch.context for batch in batches], dtype=np.float64),
            prompts=np.array([len(batch.parts) for batch in batches], dtype=np.int64),
            prompt_tokens=np.array(
                [sum(part.tokens for part in batch.parts) for batch in batches], dtype=np.int64
            ),
            prefill_attention=seconds,
            pairs=pairs,
            times=np.ones(len(batches)),
            seen=_seen_in(batches),
        )

    @property
    def tokens(self) -> Counts:
        """Tokens in a pass, prompts and decodes together."""
        return self.sequences + self.prompt_tokens

    def everyone(self, ranks: int, drafts: Counts) -> Counts:
        """Tokens of all data ranks in a pass, of this one with that many ``drafts``; as many on
        each, where it is not known."""
        own = self.tokens + drafts
        if self.others is None:
            found: Counts = own * ranks
            return found
        return own + self.others

    def drafting(self, ranks: int) -> Counts:
        """Requests of all data ranks that a drafter goes over after a pass; as many on each, where
        it is not known."""
        if self.others_requests is None:
            found: Counts = self.outputs * ranks
            return found
        return self.outputs + self.others_requests

    @property
    def outputs(self) -> Counts:
        """Positions of a pass that sample a token."""
        return self.sequences + self.prompts

    @cached_property
    def prefills(self) -> Prefills:
        """Prefill attention of each batch."""
        tokens = self.prompt_tokens.astype(np.float64)
        # prompts without a context have no more pairs than one prompt of all their tokens
        fresh = np.where(self.pairs <= tokens * (tokens + 1) / 2, 1.0, 0.0)
        alone = np.where((self.prompts > 0) & (self.sequences == 0), 1.0, 0.0)
        return Prefills(self.prefill_attention, self.pairs, tokens, tokens, alone, fresh)

    def sizes(self, of: Counts) -> Sizes:
        """The different sizes of pass among ``of``, a size of each batch."""
        often = np.bincount(of, weights=self.times).astype(np.float64)
        different = np.flatnonzero(often)
        return Sizes(of, different.astype(np.float64), often[different])


def _seen(plans: PlanRows, leaps: Leaps) -> tuple[Floats, ...]:
    """The context that decoding sequences see through each window in mid-plan, if recorded."""
    if SEEN not in (plans.dtype.names or ()):
        return ()
    middle = plans[SEEN] + leaps.seen(plans[SEEN_GROWING].T).T / 2
    return tuple(middle.T)


def _seen_in(batches: Sequence[Batch]) -> tuple[Floats, ...]:
    """The tokens seen through windows by made-up batches; nothing if unknown of one that
    decodes."""
    windows = max((len(batch.seen) for batch in batches), default=0)
    if not windows or any(batch.sequences and not batch.seen for batch in batches):
        return ()
    rows = [batch.seen or (0,) * windows for batch in batches]
    return tuple(np.array(rows, dtype=np.float64).reshape(-1, windows).T)


class TimedPasses(NamedTuple):
    """One ``operator`` in many batches: its amounts are of one pass, of each pass that differs, and
    each of those ran that many ``times``."""

    by: By
    operator: Operator
    times: Floats
    sizes: Sizes | None = None

    def total(self, amount: Amount) -> float:
        """The sum of an ``amount`` of the operator over all passes; one number for all stands for
        each."""
        return float((amount * self.times).sum())

    def each(self, amount: Amount) -> Floats:
        """An ``amount`` of the operator in one pass of each batch."""
        found = np.broadcast_to(np.asarray(amount, dtype=np.float64), self.times.shape)
        if self.sizes is None:
            return found
        return found[np.searchsorted(self.sizes.different, self.sizes.of)]
