"""Predicts what a replica's iterations take, and which operators they consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sim.cost.batches import Batches, By, Counts, Sizes, TimedPasses
from sim.cost.operators import Amount, Operator, Prefills, mixed
from sim.cost.pipelined import PipelinedTimes
from sim.iteration import Batch


class CostModel(PipelinedTimes):
    """Predicts the times of one replica's iterations, and what is in them."""

    def pass_operators(self, batch: Batch) -> list[Operator]:
        """Every operator of one pass over ``batch``, host excluded: what ``seconds`` sums up."""
        sequences, context, parts, _, seen = batch
        checked, drafted = self._drafts_of(sequences + len(parts))
        computed = sequences if parts else self._replayed(sequences, checked)
        tokens, outputs = computed + sum(part.tokens for part in parts), computed + len(parts)
        whole, share = self._matching(computed)
        operators = self._sized_once(tokens + whole * checked, outputs + whole * checked)
        if self._most_adapters:
            operators += self.by_size.adapted(tokens, self._adapters_of(outputs))
        if share:
            more = (whole + 1) * checked
            operators = mixed(operators, self._sized_once(tokens + more, outputs + more), share)
        if computed > sequences:  # dummies take time, and do nothing that the model needs
            operators = [o._replace(flops=o.flops * sequences / computed) for o in operators]
        if sequences:
            operators.append(
                self.attention.verify(sequences, context, float(checked), self._match, seen)
            )
            operators += self.attention.updates(sequences)
        if parts:
            operators.append(self.attention.prefill(parts, sequences, context))
        if self._drafting is not None:
            columns = self.columns([batch])
            drafts = np.array([checked]), np.array([drafted])
            made = self._drafting.operators(columns, columns.prefills.together(), *drafts)
            operators += [_alone(operator) for _, operator in made]
        return operators

    def _sized_once(self, tokens: int, outputs: int) -> list[Operator]:
        """Operators that scale with the tokens in a pass and with the positions that sample one."""
        return [*self.by_size.per_token(tokens), *self.by_size.per_output(outputs)]

    def operators(self, batches: Batches, *, each: bool = False) -> list[TimedPasses]:
        """Every operator of many passes, host excluded.

        Prefill attention is one operator, of all ``batches`` together, or with ``each`` one of each
        of them. Keys of earlier parts of a prompt, read again by later ones, are left out of its
        bytes.
        """
        checked, drafted = self._recorded_drafts(batches)
        computed = self._computed(batches, checked)
        size, met = self.by_size, []
        per_token = size.per_token if self._ranks == 1 else size.of_one_rank
        if self._ranks > 1:
            beyond = computed.sequences * checked
            everyone = computed.sizes(computed.everyone(self._ranks, beyond))
            of_all = size.of_all_ranks(everyone.different)
            met = [TimedPasses("tokens", operator, everyone.times, everyone) for operator in of_all]
        sequences, context = batches.sequences.astype(np.float64), batches.context
        drafts = checked.astype(np.float64)
        sized = [
            *self._sized("tokens", computed, checked, per_token),
            *met,
            *self._sized("outputs", computed, checked, size.per_output),
        ]
        if computed is not batches:
            sized = _without_dummies(sized, batches, computed)
        decode = self.attention.verify(sequences, context, drafts, self._match, batches.seen)
        prefills = batches.prefills if each else batches.prefills.together()
        prefill = self.attention.prefill_operator(prefills)
        return [
            *sized,
            TimedPasses("decodes", decode, batches.times),
            *(TimedPasses("decodes", o, batches.times) for o in self.attention.updates(sequences)),
            *self._of_adapters(computed),
            TimedPasses("prompts", prefill, np.ones(len(batches.times) if each else 1)),
            *self._of_drafts(batches, prefills, checked, drafted),
        ]

    def _of_adapters(self, batches: Batches) -> list[TimedPasses]:
        """The operator of adapters."""
        if not self._most_adapters:
            return []
        adapters = batches.adapters
        if adapters is None:
            adapters = np.minimum(batches.outputs, self._most_adapters)
        found = self.by_size.adapted(batches.tokens.astype(np.float64), adapters.astype(np.float64))
        return [TimedPasses("decodes", operator, batches.times) for operator in found]

    def _computed(self, batches: Batches, checked: Counts) -> Batches:
        """``batches`` with as many sequences as are computed: those without prompts are padded
        where they replay a graph. On data ranks they do where the others have the tokens of one
        each, as recorded."""
        if not self._engine.graph_sizes:
            return batches
        most, decodes = batches.sequences, batches.prompts == 0
        if batches.others is not None and self._ranks > 1:
            each, rest = np.divmod(batches.others, self._ranks - 1)
            most = np.maximum(most, each // (1 + checked))
            decodes &= (rest == 0) & np.isin(each // (1 + checked), self._engine.graph_sizes)
        different, at = np.unique(most, return_inverse=True)
        graphs = np.array([self._engine.graph(n) for n in different.tolist()], dtype=np.int64)[at]
        replayed = decodes & (batches.sequences > 0) & (graphs > 0)
        return replace(batches, sequences=np.where(replayed, graphs, batches.sequences))

    def _sized(
        self, by: By, batches: Batches, checked: Counts, of: Callable[[Amount], list[Operator]]
    ) -> list[TimedPasses]:
        """Passes timed by the tokens in them, or by the positions that sample one, drafts included;
        where not every sequence has any, the mean of passes with one more and one less."""
        count = batches.tokens if by == "tokens" else batches.outputs
        if self._match == 1.0:
            sizes = batches.sizes(count + batches.sequences * checked)
            return [
                TimedPasses(by, operator, sizes.times, sizes) for operator in of(sizes.different)
            ]
        (rows, sequences, drafts), at = _different(
            np.stack([count, batches.sequences, checked], axis=1)
        )
        whole, share = np.array([self._matching(n) for n in sequences.tolist()]).reshape(-1, 2).T
        fewer = rows + whole * drafts
        times = np.bincount(at, weights=batches.times).astype(np.float64)
        sizes = Sizes(at, np.arange(len(times), dtype=np.float64), times)
        found = mixed(of(fewer), of(fewer + drafts), share)
        return [TimedPasses(by, operator, times, sizes) for operator in found]

    def _recorded_drafts(self, batches: Batches) -> tuple[Counts, Counts]:
        """Drafts that each of ``batches`` checks of a sequence, and makes; by their sizes where
        that was not recorded."""
        if batches.checked is None or batches.drafted is None:
            if self._drafts is not None:
                whole = np.zeros(np.shape(batches.outputs), dtype=np.int64)
                return whole + self._drafts[0], whole + self._drafts[1]
            different, at = np.unique(batches.outputs, return_inverse=True)
            found = [self._drafts_of(requests) for requests in different.tolist()]
            checked, drafted = np.array(found, dtype=np.int64).reshape(-1, 2)[at].T
            return checked, drafted
        return batches.checked, batches.drafted

    def _of_drafts(
        self, batches: Batches, prefills: Prefills, checked: Counts, drafted: Counts
    ) -> list[TimedPasses]:
        """The operators of a drafter."""
        if self._drafting is None:
            return []
        ones = np.ones(np.shape(prefills.seconds) or 1)
        times = {"decodes": batches.times, "prompts": ones}
        made = self._drafting.operators(batches, prefills, checked, drafted)
        return [TimedPasses(by, operator, times[by]) for by, operator in made]

    def columns(self, batches: Sequence[Batch]) -> Batches:
        """``batches``, an iteration each, as columns."""
        timed = [self.iteration(*batch)[1:] if batch.parts else (0.0, 0.0) for batch in batches]
        return Batches.made(batches, timed)


def _different(rows: Counts) -> tuple[Counts, Counts]:
    """The columns of the different ``rows``, and the place of each row among them."""
    different, at = np.unique(rows, axis=0, return_inverse=True)
    return different.T, at.reshape(-1)


def _alone(operator: Operator) -> Operator:
    """An operator of a single pass as numbers, not columns of one."""
    return operator._replace(
        flops=float(np.sum(operator.flops)),
        bytes=float(np.sum(operator.bytes)),
        compute=float(np.sum(operator.compute)),
        memory=float(np.sum(operator.memory)),
        latency=float(np.sum(operator.latency)),
        communication=float(np.sum(operator.communication)),
        error=float(np.mean(operator.error)),
        measured=float(np.mean(operator.measured)),
    )


def _without_dummies(
    sized: Sequence[TimedPasses], batches: Batches, computed: Batches
) -> list[TimedPasses]:
    """The operators with the FLOP of ``batches`` alone, of what was ``computed`` with dummies."""
    share = np.divide(
        batches.outputs,
        computed.outputs,
        out=np.ones(len(batches.times)),
        where=computed.outputs > 0,
    )
    found = []
    for ran in sized:
        sizes = ran.sizes
        assert sizes is not None
        last = len(sizes.different) - 1
        at = np.minimum(np.searchsorted(sizes.different, sizes.of), last)
        real = np.bincount(at, weights=batches.times * share, minlength=last + 1)
        whole = np.bincount(at, weights=batches.times, minlength=last + 1)
        needed = ran.operator.flops * real / np.maximum(whole, 1e-30)
        found.append(ran._replace(operator=ran.operator._replace(flops=needed)))
    return found
