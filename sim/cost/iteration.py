"""Predicts the time of one iteration: kernels of the pass plus the host, in seconds.

Almost everything depends on a few aggregates of the batch: the number of tokens (projections,
norms, all-reduce), of sampled positions (LM head), of decoding sequences and the context they hold
(decode attention, in KV tokens), and the parts of prompts (prefill attention). The first two are
tabulated for all sizes at once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from typing import Self

from sim.cost.adapters import KERNELS
from sim.cost.decode_table import Line
from sim.cost.drafting import Drafting
from sim.cost.passes import added, parts_of, tabulated
from sim.growth.window_reads import WindowReads, seen_by_equals
from sim.iteration import Ints, Part, PassConditions, Timer
from sim.specs.deployment import Deployment
from sim.specs.window import NEVER

Decodes = tuple[float, float, float, float, "Indexed"]
"""Of decode-only iterations the least kernel time, kernels but attention, the host's addition and
what it adds for each token of context (s), and attention."""

WindowedDecodes = tuple[float, float, float, float, list["Indexed"]]
"""The same, with attention of all of a context and of each window."""

Indexed = tuple[list[float], list[Line]]
"""Lines, and their limits, in which the line that holds is looked up."""

MOST_CONDITIONS = 4096
"""PassConditions under which decode lines are kept."""


class IterationTimes(Timer):
    """The times of one replica's iterations, a pipeline as if its stages were one."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.by_size, self.attention = parts_of(deployment)
        self._engine = deployment.engine
        self._windows = self.attention.windows
        layers, with_experts = deployment.model.num_layers, deployment.model.expert_layers
        self._layer_gaps = self._engine.per_layer * layers
        self._launches = self._engine.launch_time(layers, with_experts, prompts=False)
        kernels = self._engine.launches(layers, with_experts)
        self._eager = self._engine.launch * kernels  # of decodes beyond the largest graph
        self._prompt_launches = self._engine.launch_time(layers, with_experts, prompts=True)
        adapted = KERNELS * sum(module.layers for module in deployment.adapted)
        more = self._engine.launch * adapted
        self._eager += more
        self._launches += more * (self._launches > 0)
        self._prompt_launches += more * (self._prompt_launches > 0)
        self._late = self._engine.late_share(layers, with_experts)
        self._host_time = self._engine.host_time
        self._overlapped = self._engine.overlapped
        self._streamed = self._engine.per_streamed_token
        speculation = deployment.speculation
        self._speculation = speculation
        self._match = 1.0 if speculation is None else speculation.match
        self._drafting: Drafting | None = None
        self._drafts: tuple[int, int] | None = (0, 0)  # checked and made; None: by the batch
        # of the front end for each sequence, by the drafts that are checked
        self._streams = [self._streamed]
        if speculation is not None:
            most = speculation.num_tokens
            self._drafting = Drafting(deployment.drafter, self.attention)
            self._drafts = None if speculation.by_batch else (most, most)
            lengths = [speculation.length_of(drafts) for drafts in range(most + 1)]
            self._streams = [self._streamed * length for length in lengths]
        self._usual_drafts = self._drafts
        self._under: dict[PassConditions, Self] = {}  # with the same tables
        self._token_seconds: list[float] = []  # by tokens in the pass
        self._ranks = deployment.layout.data
        self._others: int | None = None  # tokens of other data ranks; None: each as many
        self._all_seconds: list[float] = []  # by tokens of all data ranks
        self._others_requests = 0  # of those, where tokens are drafted
        self._output_seconds: list[float] = []  # by positions sampled
        self._decodes: dict[int, Decodes] = {}  # by sequences
        self._windowed: dict[int, WindowedDecodes] = {}  # by sequences
        # by the drafts checked and made, and by decoding sequences
        self._attention_lines: dict[tuple[int, int], dict[int, Indexed]] = {}
        self._adapters: int | None = None  # different ones in the pass; None: as many as can be
        self._most_adapters = 0 if deployment.lora is None else deployment.lora.most
        self._adapter_seconds: dict[int, list[float]] = {}  # by adapters and tokens
        self._own_attention = self._attention_lines.setdefault((0, 0), {})  # where none is drafted
        # of the whole context, of each window, by sequences and the drafts checked and made
        self._seen_lines: dict[tuple[int, int, int], list[Indexed]] = {}

    def under(self, conditions: PassConditions) -> Self:
        """The times under ``conditions``; under the usual ones, those of a new timer."""
        found = self._under.get(conditions)
        if found is None:
            if len(self._under) >= MOST_CONDITIONS:
                self._under.clear()
            found = self._under[conditions] = copy(self)
            found._others, found._others_requests, drafts, found._adapters = conditions
            found._drafts = drafts or self._usual_drafts
            found._decodes, found._windowed = {}, {}
        return found

    def graph(self, sequences: int) -> int:
        """Sequences of the graph that is replayed for so many; 0 if none is."""
        return self._engine.graph(sequences)

    def _replayed(self, sequences: int, checked: int) -> int:
        """How many are computed where so many are decoded: on data ranks, the one with the most
        decides for all."""
        if not self._engine.graph_sizes:
            return sequences
        return self._engine.graph(self._most(sequences, checked)) or sequences

    def _most(self, sequences: int, checked: int) -> int:
        """Sequences of the data rank that has most."""
        if self._others is None or self._ranks == 1:
            return sequences
        return max(sequences, self._others // (self._ranks - 1) // (1 + checked))

    def _drafts_of(self, requests: int) -> tuple[int, int]:
        """Drafts that are checked of each sequence, and made, in a pass over that many requests."""
        if self._drafts is not None:
            return self._drafts
        assert self._speculation is not None
        drafts = self._speculation.drafts(requests)
        return drafts, drafts

    def _matching(self, sequences: int) -> tuple[int, float]:
        """How many of decoding ``sequences`` have drafts to check, and the share of passes in which
        one more has."""
        given = self._speculation
        return (sequences, 0.0) if given is None else given.matching(sequences)

    def _decoded(
        self, sequences: int, checked: int, prompt_tokens: int = 0, prompts: int = 0
    ) -> float:
        """Kernels but attention of the target's pass over decoding ``sequences``, with so many
        drafts of each that has a match, and over ``prompts``."""
        if not prompts:
            sequences = self._replayed(sequences, checked)
        whole, share = self._matching(sequences)
        rows = sequences + whole * checked
        seconds = self._kernels(rows + prompt_tokens, rows + prompts)
        if not share:
            return seconds
        more = self._kernels(rows + checked + prompt_tokens, rows + checked + prompts)
        return (1.0 - share) * seconds + share * more

    @property
    def alone(self) -> Self:
        """The times of a data rank while the others have nothing to do but a dummy token each."""
        others = self._ranks - 1
        return self.under(PassConditions(others, others)) if others else self

    def line(self, sequences: int, context: int) -> Line:
        """Time of a decode-only iteration over ``sequences``, as the line that holds at
        ``context``.

        Where launches, an overlapped host or the front end are the longer part, the line is flat up
        to the context at which the kernels catch up.
        """
        try:
            floor, fixed, later, each, (limits, lines) = self._decodes[sequences]
        except KeyError:
            if self._windows:
                seen = seen_by_equals(self._windows, sequences, context)
                return self.windowed_line(sequences, context, seen)
            found = self._decodes[sequences] = self._decode(sequences)
            floor, fixed, later, each, (limits, lines) = found
        limit, intercept, slope = lines[bisect_right(limits, context)]
        gpu = fixed + intercept
        if gpu > floor and slope >= 0.0:  # the kernels take longer than the floor all along
            return limit, gpu + later, slope + each
        if gpu + (slope * limit if slope else 0.0) <= floor:
            return limit, floor + later, each
        crossing = (floor - gpu) / slope if slope else 0.0
        if context < crossing:
            return crossing, floor + later, each
        return limit, gpu + later, slope + each

    def windowed_line(self, sequences: int, context: int, seen: WindowReads) -> Line:
        """The line of sequences that have ``seen`` tokens through the windows of the model."""
        try:
            floor, gpu, later, each, indexed = self._windowed[sequences]
        except KeyError:
            floor, gpu, later, each, _ = self._decode(sequences)
            indexed = self._seen(sequences, *self._drafts_of(sequences))
            self._windowed[sequences] = floor, gpu, later, each, indexed
        step, left = 0.0, seen.left
        tokens, growing = (context, *seen.tokens), (sequences, *seen.growing)
        for (limits, lines), held, more in zip(indexed, tokens, growing, strict=True):
            limit, intercept, slope = lines[bisect_right(limits, held)]
            gpu += intercept + slope * held
            step += slope * more
            if more and limit < math.inf:
                left = min(left, math.ceil((limit - held) / more))
        if gpu < floor:
            if step:
                left = min(left, math.ceil((floor - gpu) / step))
            gpu, step = floor, 0.0
        slope = step / sequences
        limit = math.inf if left >= NEVER else float(context + left * sequences)
        return limit, gpu + later - slope * context, slope + each

    def _seen(self, sequences: int, checked: int, drafted: int) -> list[Indexed]:
        """Decode attention as lines in what is seen of all of a context, and of each window, while
        that many drafts are checked and made."""
        key = (sequences, checked, drafted)
        try:
            return self._seen_lines[key]
        except KeyError:
            verify, match = self.attention.verify_lines, self._match
            lines = [verify(sequences, checked, match, window) for window in self._windows]
            found = [self._attention_of(*key), *map(_indexed, lines)]
            self._seen_lines[key] = found
            return found

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """Time of an iteration with prefills, here or on other data ranks: (duration, seconds of it
        in prefill attention, query-key pairs of that)."""
        if self._drafting is not None:
            return self._drafted(self._drafting, sequences, context, parts, admitted, seen)
        prefill = pairs = 0.0
        if parts:
            prefill, pairs = self.attention.prefill_seconds(parts, sequences, context)
        tokens, outputs = sequences, sequences + len(parts)
        for part in parts:
            tokens += part.tokens
        try:
            gpu = self._token_seconds[tokens] + self._output_seconds[outputs] + prefill
        except IndexError:  # larger than any before
            gpu = self._own_kernels(tokens, outputs) + prefill
        if self._ranks > 1:
            gpu += self._kernels_of_all(tokens)
        if self._most_adapters:
            gpu += self._adapted(tokens, outputs)
        if sequences:
            try:
                limits, lines = self._own_attention[sequences]
            except KeyError:
                limits, lines = self._attention_of(sequences, 0, 0)
            _, intercept, slope = lines[bisect_right(limits, context)]
            gpu += intercept + slope * context
            if self._windows:
                gpu += self._behind_windows(sequences, context, seen)
        if gpu < self._prompt_launches:
            gpu = max(gpu, self._launching(parts))
        host = self._host_time(outputs, admitted)
        if not self._overlapped:
            gpu += host
        elif gpu < host:
            gpu = host
        if gpu < outputs * self._streamed:
            gpu = outputs * self._streamed
        return gpu, prefill, pairs

    def launched(self, seconds: float) -> float:
        """Until it is through with its launches, some of which may have to wait for the GPU."""
        if not self._engine.launches_first:
            return 0.0
        return min(seconds, max(self._prompt_launches, self._late * seconds))

    def _launching(self, parts: Sequence[Part]) -> float:
        """Host time to launch a pass with ``parts`` of prompts. The last token of a prompt whose KV
        is there already is computed as decodes are."""
        prompts = any(part.tokens > 1 for part in parts)
        return self._prompt_launches if prompts else self._launches

    def _drafted(
        self,
        drafting: Drafting,
        sequences: int,
        context: int,
        parts: Sequence[Part],
        admitted: int,
        seen: Ints,
    ) -> tuple[float, float, float]:
        """``iteration`` where tokens are drafted: the target's pass over all of them, and what
        makes the next ones."""
        prefill, pairs = self.attention.prefill_seconds(parts, sequences, context)
        outputs = sequences + len(parts)
        checked, drafted = self._drafts or self._drafts_of(outputs)
        coming = sum(part.tokens for part in parts)
        gpu = self._decoded(sequences, checked, coming, len(parts)) + prefill
        rows = sequences * (1 + checked) + coming
        gpu += drafting.seconds(rows, outputs, drafted, self._of_others())
        gpu += drafting.prefill_seconds(parts, sequences)
        if sequences:
            limits, lines = self._attention_of(sequences, checked, drafted)
            _, intercept, slope = lines[bisect_right(limits, context)]
            gpu += intercept + slope * context
            if self._windows:
                gpu += self._behind_windows(sequences, context, seen, (checked, drafted))
        gpu = max(gpu, self._launching(parts) + drafting.launches(drafted))
        host = self._host_time(outputs, admitted)
        gpu = max(gpu, host) if self._overlapped else gpu + host
        searched, each = drafting.host_line(sequences, drafted)
        gpu = max(gpu + searched + each * context, outputs * self._streams[checked])
        return gpu, prefill, pairs

    def _attention_of(self, sequences: int, checked: int, drafted: int) -> Indexed:
        """Decode attention of the target, over all tokens of the pass, and of a drafter; the same
        under all conditions."""
        kept = self._attention_lines.setdefault((checked, drafted), {})
        try:
            return kept[sequences]
        except KeyError:
            lines = self.attention.verify_lines(sequences, checked, self._match)
            if self._drafting is not None:
                lines = added([lines, self._drafting.attention_lines(sequences, checked, drafted)])
            found = kept[sequences] = _indexed(lines)
            return found

    def _behind_windows(
        self,
        sequences: int,
        context: int,
        seen: Ints,
        drafts: tuple[int, int] = (0, 0),
    ) -> float:
        """Seconds of decode attention in the layers that have a window, while that many ``drafts``
        are checked and made."""
        seconds = 0.0
        tokens = seen or seen_by_equals(self._windows, sequences, context).tokens
        for (limits, lines), held in zip(self._seen(sequences, *drafts)[1:], tokens, strict=True):
            _, intercept, slope = lines[bisect_right(limits, held)]
            seconds += intercept + slope * held
        return seconds

    def _kernels(self, tokens: int, outputs: int) -> float:
        """Seconds of everything but attention."""
        try:
            seconds = self._token_seconds[tokens] + self._output_seconds[outputs]
        except IndexError:  # larger than any before
            seconds = self._own_kernels(tokens, outputs)
        if self._most_adapters:
            seconds += self._adapted(tokens, outputs)
        return seconds if self._ranks == 1 else seconds + self._kernels_of_all(tokens)

    def _adapted(self, tokens: int, outputs: int) -> float:
        """Seconds of the kernels of adapters."""
        adapters = self._adapters_of(outputs)
        table = self._adapter_seconds.setdefault(adapters, [])
        if tokens >= len(table):
            table[:] = tabulated(lambda m: self.by_size.adapted(m, adapters), tokens, 0.0)
        return table[tokens]

    def _adapters_of(self, outputs: int) -> int:
        """Different adapters of a pass over so many requests."""
        return min(self._most_adapters, outputs) if self._adapters is None else self._adapters

    def _kernels_of_all(self, tokens: int) -> float:
        """Seconds of what data ranks do together while this one has that many ``tokens``."""
        everyone = tokens * self._ranks if self._others is None else tokens + self._others
        if everyone >= len(self._all_seconds):
            self._all_seconds[:] = tabulated(self.by_size.of_all_ranks, everyone, 0.0)
        return self._all_seconds[everyone]

    def _of_others(self) -> tuple[int, int] | None:
        """Tokens and requests of other data ranks; None where each has as many as this one."""
        return None if self._others is None else (self._others, self._others_requests)

    def _own_kernels(self, tokens: int, outputs: int) -> float:
        """Seconds of everything but attention and what data ranks do together."""
        if tokens >= len(self._token_seconds):
            size = self.by_size
            operators = size.per_token if self._ranks == 1 else size.of_one_rank
            self._token_seconds[:] = tabulated(operators, tokens, self._layer_gaps)
        if outputs >= len(self._output_seconds):
            self._output_seconds[:] = tabulated(self.by_size.per_output, outputs, 0.0)
        return self._token_seconds[tokens] + self._output_seconds[outputs]

    def _decode_floor(self, sequences: int) -> tuple[float, float]:
        """The least kernel time of a decode-only iteration, and the host's addition."""
        host, launches = self._engine.host_time(sequences, 0), self._launches
        checked, drafted = self._drafts_of(sequences)
        captured = self._engine.graph_sizes
        if captured and not self._engine.graph(self._most(sequences, checked)):
            launches = self._eager
        if self._drafting is not None:
            launches += self._drafting.launches(drafted)
        floor, later = launches, host
        if self._engine.overlapped:
            floor, later = max(launches, host), 0.0
        return max(floor, sequences * self._streams[checked] - later), later

    def _decode(self, sequences: int) -> Decodes:
        """Decode-only iterations over ``sequences``, apart from their context."""
        floor, later = self._decode_floor(sequences)
        checked, drafted = self._drafts_of(sequences)
        searched, each = 0.0, 0.0
        fixed = self._decoded(sequences, checked)
        if self._drafting is not None:
            tokens = sequences * (1 + checked)
            fixed += self._drafting.seconds(tokens, sequences, drafted, self._of_others())
            searched, each = self._drafting.host_line(sequences, drafted)
        attention = self._attention_of(sequences, checked, drafted)
        return floor, fixed, later + searched, each, attention


def _indexed(lines: list[Line]) -> Indexed:
    return [limit for limit, _, _ in lines], lines
