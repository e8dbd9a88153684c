"""Predicts what drafts cost: the passes of a drafter, or the search of the text. Seconds, tokens.

A drafter makes K passes. The first goes over the tokens that the target has just computed, prompts
included, which it has to see as well; the others go over one token of each sequence. All of them
read the drafter's own keys and values of the whole context, and each waits for the host, which
prepares it. Searching the text for the last few tokens is the host's work, and waits for the tokens
of the pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.cost.batches import Batches, By, Counts
from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills, merged
from sim.cost.passes import GroupAttention, added, parts_of, repeated, tabulated
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Drafter

DRAFTING = "drafting"
"""The name that all operators of a drafter share."""

SEARCH_SEQUENCE, SEARCH_TOKEN = 2e-6, 5e-9
"""Seconds of a search: for each sequence, and for each token of its context (vLLM 0.32's compiled
search of 500 to 32,000 random tokens, 2 to 5 of which have to match, on one core of a server)."""


class Drafting:
    """The times of all that drafts of ``drafter`` take in one iteration, for a target with that
    attention; None drafts where the text itself is searched."""

    def __init__(self, drafter: Drafter | None, target: GroupAttention) -> None:
        self._target = target
        self._token_seconds: list[float] = []  # by tokens in a pass of the drafter
        self._all_seconds: list[float] = []  # by tokens of all data ranks in it
        self._output_seconds: list[float] = []  # by positions that it samples
        self._attention: GroupAttention | None = None
        self._launches = self._prepared = 0.0
        if drafter is None:
            return
        own = drafter.deployment
        self._size, self._attention = parts_of(own)
        self._joins, self._kernels = drafter.joins, Rooflines(own)
        self._ranks = own.layout.data
        self._slower = own.kernel_time * own.engine.factors.kernels
        layers = own.model.num_layers
        self._gaps = own.engine.per_layer * layers
        self._launches = own.engine.launch_time(layers, prompts=False)
        self._prepared = own.engine.per_drafting_pass

    def launches(self, drafts: int) -> float:
        """Host time to launch the passes for that many ``drafts`` of each sequence."""
        return self._launches * max(1, drafts)

    def seconds(
        self, tokens: int, sequences: int, drafts: int, others: tuple[int, int] | None = None
    ) -> float:
        """Kernels but attention that make this many ``drafts`` of each of ``sequences``, after a
        pass over ``tokens`` of them, prompts included; on a data rank, while the ``others`` have
        that many tokens and sequences (None: as many each)."""
        if self._attention is None:
            return 0.0
        if tokens >= len(self._token_seconds):
            self._token_seconds[:] = tabulated(self._per_token, tokens, self._gaps)
        if sequences >= len(self._output_seconds):
            self._output_seconds[:] = tabulated(self._size.per_output, sequences, 0.0)
        first = self._token_seconds[tokens]
        if self._ranks > 1:
            first += self._of_all(tokens, None if others is None else others[0])
        if not drafts:  # its own keys and values keep up with the target's
            return first
        each = self._output_seconds[sequences]
        if drafts == 1:
            return first + each
        again = self._token_seconds[sequences] + each
        if self._ranks > 1:
            again += self._of_all(sequences, None if others is None else others[1])
        return first + each + (drafts - 1) * again

    def _of_all(self, own: int, others: int | None) -> float:
        """Seconds of what data ranks do together in a pass over ``own`` tokens of this one."""
        everyone = own * self._ranks if others is None else own + others
        if everyone >= len(self._all_seconds):
            self._all_seconds[:] = tabulated(self._size.of_all_ranks, everyone, 0.0)
        return self._all_seconds[everyone]

    def attention_lines(self, sequences: int, checked: int, drafts: int) -> list[Line]:
        """Decode attention of all passes, as lines in the tokens that ``sequences`` hold."""
        if self._attention is None:
            return [(math.inf, 0.0, 0.0)]
        passes = max(1, drafts)
        lines = self._seen_lines(sequences)
        if self._attention.in_chunks and checked:
            first = self._attention.verify_lines(sequences, checked)
            return added([first, repeated(lines, passes - 1)]) if passes > 1 else first
        return repeated(lines, passes)

    def _seen_lines(self, sequences: int) -> list[Line]:
        """Decode attention of one pass, where a window hides some of equal contexts, too."""
        assert self._attention is not None
        found = [self._attention.decode_lines(sequences)]
        for window in self._attention.windows:
            full = float(sequences * (window.size - 1))
            lines = self._attention.decode_lines(sequences, window=window)
            rising = [line for line in lines if line[0] < full]
            _, start, slope = lines[len(rising)]
            found.append([*rising, (full, start, slope), (math.inf, start + slope * full, 0.0)])
        return added(found)

    def host_line(self, sequences: int, drafts: int) -> tuple[float, float]:
        """(intercept, slope), in the tokens that ``sequences`` hold, of the host's search, or of
        what it does for each pass of a drafter."""
        if self._attention is not None:
            return max(1, drafts) * self._prepared, 0.0
        if not drafts:
            return 0.0, 0.0
        return sequences * SEARCH_SEQUENCE, SEARCH_TOKEN

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> float:
        """Attention of the parts of prompts."""
        if self._attention is None:
            return 0.0
        return self._attention.prefill_seconds(parts, sequences)[0]

    def _per_token(self, m: Amount) -> list[Operator]:
        """Operators of a pass's tokens, and of joining the target's states to them."""
        joined = (
            self._kernels.unquantised("join", 1, m, wide, out).slowed(self._slower)
            for wide, out in self._joins
        )
        size = self._size
        own = size.per_token if self._ranks == 1 else size.of_one_rank
        return [*own(m), *joined]

    def operators(
        self, batches: Batches, prefills: Prefills, checked: Counts, drafts: Counts
    ) -> list[tuple[By, Operator]]:
        """Drafter operators after a pass of each of ``batches``, in which that many drafts of each
        sequence were ``checked``, by what they depend on; ``prefills`` are the target's, by whose
        arithmetic those of the drafter are judged."""
        if self._attention is None:
            return []
        tokens = (batches.tokens + batches.sequences * checked).astype(np.float64)
        outputs = batches.outputs.astype(np.float64)
        sequences = batches.sequences.astype(np.float64)
        made = drafts.astype(np.float64)
        again = np.maximum(made - 1, 0)
        kernels = self._per_token(tokens)
        kernels += [operator.often(made) for operator in self._size.per_output(outputs)]
        if again.any():
            kernels += [operator.often(again) for operator in self._per_token(outputs)]
        if self._ranks > 1:
            drafted = batches.sequences * checked
            met = batches.everyone(self._ranks, drafted), batches.drafting(self._ranks)
            kernels += self._size.of_all_ranks(met[0].astype(np.float64))
            later = self._size.of_all_ranks(met[1].astype(np.float64))
            kernels += [operator.often(again) for operator in later]
        decode = self._attention.decode(sequences, batches.context)
        attention = [decode.often(again + 1)]
        if self._attention.in_chunks:
            first = self._attention.verify(sequences, batches.context, checked.astype(np.float64))
            attention = [first, decode.often(again)]
        share = self._attention.pair_flops / self._target.pair_flops
        prompts = prefills._replace(seconds=prefills.seconds * share)
        return [
            ("decodes", _one([*kernels, *attention])),
            ("prompts", _one([self._attention.prefill_operator(prompts)])),
        ]


def _one(operators: Sequence[Operator]) -> Operator:
    """All of them as one."""
    (found,) = merged(each._replace(name=DRAFTING) for each in operators)
    return found
