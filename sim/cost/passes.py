"""Adds up the parts of a model to the operators and the attention of a pass. Seconds, tokens.

Here, and nowhere else, the engine's factors on predicted times (``sim.specs.engine.Factors``) come
in. What a pass takes in all, the host included, is ``iteration``'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sim.cost.adapters import AdapterKernels
from sim.cost.checks import ChunkChecks, by_sequence
from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills, either, merged, mixed
from sim.cost.parts import AttentionPart, MlpPart, attention_part, mlp_part
from sim.cost.parts.grouped_query import GroupedQueryPart
from sim.cost.parts.no_attention import NoAttentionPart
from sim.cost.parts.recurrent import RecurrentPart
from sim.cost.parts.shared import Shared
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.window import Window


class TimedGroup(NamedTuple):
    """The predictor of a group of that many ``layers``."""

    layers: int
    attention: AttentionPart
    mlp: MlpPart


def parts_of(deployment: Deployment) -> tuple[Operators, GroupAttention]:
    """Everything but attention's reads of the KV cache, and these."""
    kernels = Rooflines(deployment)
    groups = [
        TimedGroup(
            group.count,
            attention_part(group, deployment, kernels),
            mlp_part(group, deployment, kernels),
        )
        for group in deployment.model.layers
    ]
    shared = Shared(deployment, kernels)
    adapters = AdapterKernels(deployment, kernels)
    return Operators(deployment, shared, groups, adapters), GroupAttention(deployment, groups)


class Operators:
    """Everything but attention's reads of the KV cache, by the size of the pass: a number, or an
    array of them."""

    def __init__(
        self,
        deployment: Deployment,
        shared: Shared,
        groups: list[TimedGroup],
        adapters: AdapterKernels,
    ) -> None:
        self._shared, self._groups, self._adapters = shared, groups, adapters
        self._slower, self._factors = deployment.kernel_time, deployment.engine.factors
        self._ranks = deployment.layout.data
        self._micro, self._split = deployment.engine.micro_batch, deployment.layout.split
        self._all_reduces = sum(
            group.layers * (group.attention.all_reduces + group.mlp.all_reduces) for group in groups
        )

    def per_token(self, m: Amount) -> list[Operator]:
        """Operators that depend only on the number of tokens in the pass, if all data ranks have as
        many; of an iteration in micro-batches, the sum over these.

        GPUs that have consecutive layers each work on micro-batches that follow each other: the
        first goes through all of them, each further one takes the time of one GPU more, as equal
        parts have it (ggml-org/llama.cpp, pull request 6017)."""
        if self._micro:
            whole, rest = np.divmod(m, self._micro)
            full = [each.often(whole) for each in self._of_pass(float(self._micro))]
            last = [each.often(np.sign(rest)) for each in self._of_pass(rest)]
            if self._split > 1:
                cards, several = self._split, whole > 0
                share = (whole + cards - 1) / (cards * np.maximum(whole, 1))
                full = [each.slowed(share) for each in full]
                last = [each.slowed(np.where(several, 1 / cards, 1.0)) for each in last]
            return merged([*full, *last])
        return self._of_pass(m)

    def _of_pass(self, m: Amount) -> list[Operator]:
        """``per_token`` of one pass over ``m`` tokens."""
        if self._ranks == 1:
            return self._grown(self._predicted_in_all, m) + merged(self.sent(m))
        return self.of_one_rank(m) + self.of_all_ranks(m * self._ranks)

    def of_one_rank(self, m: Amount) -> list[Operator]:
        """Operators that depend on the number of tokens of one data rank in the pass."""
        return self._grown(self._predicted, m)

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        """Operators that depend on the number of tokens of all data ranks."""
        return self._grown(self._predicted_of_all, m)

    def _grown(self, predicted: Callable[[Amount], list[Operator]], m: Amount) -> list[Operator]:
        """``predicted`` with the engine's factors."""
        operators, growth = predicted(m), self._factors.tokens
        factors: list[Amount] = [self._factors.kernels] * len(operators)
        ones = predicted(1.0) if growth != 1.0 else []
        for at, one in enumerate(ones):
            beyond = 1.0 - one.seconds / np.maximum(operators[at].seconds, 1e-30)
            factors[at] = self._factors.kernels * (1.0 + (growth - 1.0) * beyond)
        return [o.slowed(factor) for o, factor in zip(operators, factors, strict=True)]

    def sent(self, m: Amount) -> list[Operator]:
        """Transfers from each pipeline stage to the next, one for each border."""
        factor = self._slower * self._factors.kernels
        return [operator.slowed(factor) for operator in self._shared.sent(m)]

    def per_output(self, rows: Amount) -> list[Operator]:
        """Operators that depend on the number of positions that sample a token."""
        operators = self._shared.per_output(rows)
        return [o.slowed(self._slower).slowed(self._factors.kernels) for o in operators]

    def adapted(self, m: Amount, adapters: Amount) -> list[Operator]:
        """The kernels of that many different ``adapters`` in a pass of ``m`` tokens."""
        factor = self._slower * self._factors.kernels
        return [operator.slowed(factor) for operator in self._adapters.operators(m, adapters)]

    def _predicted_in_all(self, m: Amount) -> list[Operator]:
        """``per_token`` of a single data rank, without the engine's factors."""
        return self._predicted(m, alone=True)

    def _predicted_of_all(self, m: Amount) -> list[Operator]:
        """``of_all_ranks`` without the engine's factors."""
        operators = [o for group in self._groups for o in group.mlp.of_all_ranks(m)]
        return [o.slowed(self._slower) for o in merged(operators)]

    def _predicted(self, m: Amount, *, alone: bool = False) -> list[Operator]:
        """``of_one_rank`` without the engine's factors; with what depends on the tokens of all
        ranks where that one is ``alone``."""
        operators, quantised = self._shared.before(m, self._all_reduces), []
        for layers, attention, mlp in self._groups:
            operators += attention.per_token(m) + mlp.per_token(m)
            operators += mlp.of_all_ranks(m) if alone else []
            inputs = (*attention.inputs, *mlp.inputs)
            quantised += self._shared.quantised(m, layers, inputs)
        operators += quantised + self._shared.summed(m, self._all_reduces)
        return [o.slowed(self._slower) for o in merged(operators)]


class GroupAttention:
    """Attention of all layers of one deployment."""

    def __init__(self, deployment: Deployment, groups: list[TimedGroup]) -> None:
        factors = deployment.engine.factors
        self._decode = factors.decode_attention * factors.kernels
        self._prefill = factors.prefill_attention * factors.kernels
        groups = [each for each in groups if not isinstance(each.attention, NoAttentionPart)]
        self._kinds = [group.attention for group in groups]
        self._recurrent = [each for each in self._kinds if isinstance(each, RecurrentPart)]
        self._seeing = [each for each in self._kinds if not isinstance(each, RecurrentPart)]
        self._padded = [
            each for each in self._seeing if isinstance(each, GroupedQueryPart) and each.pads
        ]
        self.windows = deployment.model.windows
        self.pair_flops = flops = sum(each.pair_flops for each in self._kinds)
        # pairs of all layers stand for as many FLOP as the pairs of each; one group has them all
        self._weights = [each.pair_flops / flops if flops else 0.0 for each in self._kinds]
        self._arithmetic = {
            window: self._decode * self._seconds_per_token(deployment, window)
            for window in (None, *self.windows)
        }
        layers = sum(group.layers for group in groups)
        self._shares = [group.layers / layers for group in groups]
        self._checks: ChunkChecks | None = None
        plain = not self.windows and not self._recurrent
        if plain and by_sequence(deployment):
            self._checks = ChunkChecks(self._kinds, self._prefill)

    def _seconds_per_token(self, d: Deployment, window: Window | None) -> float:
        """Arithmetic of decode attention for each token that one query sees through ``window``."""
        kinds = [each for each in self._seeing if each.window == window]
        if not kinds:
            return 0.0
        many, more = (
            merged(each.decode(1.0, held) for each in kinds)[0].flops for held in (1e5, 2e5)
        )
        rate = d.gpu.flops(d.unquantised) * d.gpu.efficiency.compute
        return float(more - many) / 1e5 / rate * d.kernel_time

    def decode_lines(self, sequences: int, window: Window | None = None) -> list[Line]:
        """Decode attention of ``sequences`` in the layers with that ``window``, as lines in the
        tokens that they see through it in sum.

        Returns (limit, intercept, slope) in ascending order: ``intercept + slope * context``
        seconds for ``context < limit``. The token that each sequence adds is counted on top of
        ``context``.
        """
        kinds = [each for each in self._kinds if each.window == window]
        lines = added([each.decode_lines(sequences) for each in kinds])
        f = self._decode
        return lines if f == 1.0 else repeated(lines, f)

    def verify_lines(
        self, sequences: int, drafts: int, match: float = 1.0, window: Window | None = None
    ) -> list[Line]:
        """``decode_lines`` of sequences, the share ``match`` of which has so many ``drafts`` to
        check in the pass: the cache is read once for all tokens of a sequence, and the arithmetic
        of each takes its time. Where kernels take one sequence after the other, they are
        chunks."""
        lines, width = self.decode_lines(sequences, window), 1 + match * drafts
        if width == 1:
            return lines
        if self._checks is not None:
            chunks = self._checks.lines(sequences, 1 + drafts)
            if match == 1.0:
                return chunks
            return added([repeated(lines, 1.0 - match), repeated(chunks, match)])
        slope = self._arithmetic[window] * width
        return raised(lines, (sequences * slope, slope))

    def verify(
        self,
        sequences: Amount,
        context: Amount,
        drafts: Amount,
        match: float = 1.0,
        seen: Sequence[Amount] = (),
    ) -> Operator:
        """``decode`` of the same."""
        width = np.asarray(1.0 + match * drafts)
        several = np.where(width > 1, width, 0)
        if not several.any():
            return self.decode(sequences, context, seen)
        if self._checks is not None:
            alone = self.decode(sequences, context, seen)
            wide = 1.0 + np.maximum(drafts, 1)
            chunks = self._checks.operator(sequences, context, wide)
            if match != 1.0:
                chunks = mixed([alone], [chunks], match)[0]
            return either(width > 1, chunks, alone)
        found = []
        for window, held in self._seen_by(sequences, context, seen).items():
            kinds = [each for each in self._seeing if each.window == window]
            if kinds:
                (one,) = merged(each.decode(sequences, held) for each in kinds)
                one = one.slowed(self._decode)
                found.append(self._verified(one, held + sequences, width, several, window))
        return found[0] if len(found) == 1 else merged(found)[0]

    def _verified(
        self, one: Operator, seen: Amount, width: Amount, several: Amount, window: Window | None
    ) -> Operator:
        """Attention through one ``window`` of sequences that see so much, ``one`` token of each,
        for ``width`` tokens of each; ``several`` is that where it is more than 1, else 0."""
        arithmetic = seen * self._arithmetic[window] * several
        took = np.maximum(one.seconds, arithmetic)
        compute = np.maximum(one.compute, arithmetic)
        return one._replace(
            flops=one.flops * width,
            compute=compute,
            latency=took - np.maximum(compute, one.memory),
        )

    @property
    def in_chunks(self) -> bool:
        """Whether several tokens of a sequence are computed as a chunk of a prompt."""
        return self._checks is not None

    def decode(self, sequences: Amount, context: Amount, seen: Sequence[Amount] = ()) -> Operator:
        """Decode attention of ``sequences`` that hold ``context`` tokens in sum, and see of them
        what ``seen`` says for each of ``windows``; without it, all hold equally many."""
        of = self._seen_by(sequences, context, seen)
        (operator,) = merged(each.decode(sequences, of[each.window]) for each in self._seeing)
        return operator.slowed(self._decode)

    def decode_work(
        self, sequences: Amount, context: Amount, seen: Sequence[Amount] = ()
    ) -> tuple[Amount, Amount]:
        """FLOP and bytes of the same."""
        of = self._seen_by(sequences, context, seen)
        works = [each.decode_work(sequences, of[each.window]) for each in self._seeing]
        flops, traffic = works[0]
        for more, read in works[1:]:
            flops, traffic = flops + more, traffic + read
        return flops, traffic

    def _seen_by(
        self, sequences: Amount, context: Amount, seen: Sequence[Amount]
    ) -> dict[Window | None, Amount]:
        """Tokens of ``context`` seen through each window, and without one."""
        if not seen:
            seen = [window.seen_by_equals(sequences, context) for window in self.windows]
        return {None: context, **dict(zip(self.windows, seen, strict=True))}

    def updates(self, sequences: Amount) -> list[Operator]:
        """Updates of recurrent layers for decoding ``sequences``; empty in models without."""
        operators = merged(each.decode(sequences, 0.0) for each in self._recurrent)
        return [operator.slowed(self._decode) for operator in operators]

    def prefill_seconds(
        self, parts: Sequence[Part], sequences: int, context: int = 0
    ) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``parts``.

        With decoding ``sequences``, which hold ``context`` tokens in sum, it shares their kernel,
        and the floor is theirs. Pairs are those of one layer, in the mean over all that weighs them
        by their FLOP.
        """
        seconds = pairs = 0.0
        if self._padded:
            seconds = sum(each.padding(parts, sequences, context) for each in self._padded)
        if len(self._kinds) == 1:  # of most models, and faster
            taken, pairs = self._kinds[0].prefill_seconds(parts, sequences)
            return (seconds + taken) * self._prefill, pairs
        for each, weight in zip(self._kinds, self._weights, strict=True):
            taken, seen = each.prefill_seconds(parts, sequences)
            seconds += taken
            pairs += weight * seen
        return seconds * self._prefill, pairs

    def prefill(self, parts: Sequence[Part], sequences: int, context: int = 0) -> Operator:
        """Prefill attention of ``parts`` in a pass with decoding ``sequences``, which hold
        ``context`` tokens in sum."""
        seconds, pairs = self.prefill_seconds(parts, sequences, context)
        tokens = sum(part.tokens for part in parts)
        keys = sum(part.context for part in parts) + tokens
        passes = 0 if sequences else 1
        fresh = float(keys == tokens)
        return self.prefill_operator(Prefills(seconds, pairs, tokens, keys, passes, fresh))

    def prefill_operator(self, prefills: Prefills) -> Operator:
        """The operator of ``prefills``, the work of all layers shared out among the kinds."""
        (operator,) = merged(
            each.prefill_operator(prefills._replace(seconds=prefills.seconds * share))
            for each, share in zip(self._kinds, self._shares, strict=True)
        )
        return operator


def added(several: list[list[Line]]) -> list[Line]:
    """The sum of functions that are made of lines, as lines."""
    if len(several) < 2:
        return several[0] if several else [(math.inf, 0.0, 0.0)]
    limits = sorted({limit for lines in several for limit, _, _ in lines})
    found = []
    for limit in limits:
        there = [next(line for line in lines if line[0] >= limit) for lines in several]
        found.append((limit, sum(a for _, a, _ in there), sum(b for _, _, b in there)))
    return found


def repeated(lines: list[Line], times: float) -> list[Line]:
    """So many times over."""
    return [(limit, a * times, b * times) for limit, a, b in lines]


def raised(lines: list[Line], least: tuple[float, float]) -> list[Line]:
    """The larger of a function that is made of ``lines`` and of the line (intercept, slope).

    >>> raised([(math.inf, 4.0, 1.0)], (0.0, 2.0))
    [(4.0, 4.0, 1.0), (inf, 0.0, 2.0)]
    """
    found: list[Line] = []
    start, (floor, rise) = 0.0, least
    for limit, intercept, slope in lines:
        ahead = floor + rise * start > intercept + slope * start
        crossing = math.inf if rise == slope else (intercept - floor) / (rise - slope)
        if start < crossing < limit:
            found.append((crossing, *(least if ahead else (intercept, slope))))
            ahead = not ahead
        found.append((limit, *(least if ahead else (intercept, slope))))
        start = limit
    return found


def tabulated(
    operators_of: Callable[[Amount], list[Operator]], needed: int, added_to: float
) -> list[float]:
    """Seconds of passes of 0, 1, 2, ... up to at least ``needed``, all predicted at once."""
    sizes = np.arange(max(1024, 1 << needed.bit_length()), dtype=np.float64)
    total = np.full(len(sizes), added_to)
    for operator in operators_of(sizes):
        total += operator.seconds
    return total.tolist()
