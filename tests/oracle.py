"""A serving engine told the long way: every step walks every request and deals out real blocks.

The reference that the schedulers of ``sim`` are held to. It follows the definitions of the four
disciplines and shares no code with them: no aggregates, no leaps, nothing remembered that can be
counted again. Amounts are tokens, times are step numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


class Sequence:
    """One request: its lengths, the KV it has, and the step that brought each output token."""

    def __init__(
        self, number: int, prompt: int, output: int, queued: int, rank: float = 0.0
    ) -> None:
        self.number = number
        self.rank = rank  # the lower, the sooner it is served by engines that go by rank
        self.prompt = prompt
        self.output = output
        self.queued = queued
        self.scheduled: int | None = None
        self.computed = 0
        self.delivered: list[int] = []
        self.blocks: list[int] = []
        self.decoding = False  # all of it has been prefilled since it was last admitted
        self.preemptions = 0

    @property
    def length(self) -> int:
        """Tokens known of it: the prompt and what was delivered."""
        return self.prompt + len(self.delivered)

    @property
    def done(self) -> bool:
        """Whether every output token was delivered."""
        return len(self.delivered) == self.output

    def compute(self, tokens: int, step: int) -> None:
        """``tokens`` more have their KV; a sequence that has caught up samples its next token."""
        self.computed += tokens
        assert self.computed <= self.length
        if self.computed == self.length:
            self.decoding = True
            self.delivered.append(step)


class Blocks:
    """Numbered blocks of ``size`` tokens, each free or in exactly one table of ``most`` at most.

    Contiguous slabs are blocks of which each sequence can have one.
    """

    def __init__(self, count: int, size: int, most: int | None = None) -> None:
        self.count = count
        self.size = size
        self.most = count if most is None else most
        self.free = list(range(count))

    def needed(self, tokens: int) -> int:
        """Blocks that a new sequence of that length takes."""
        blocks = 0
        while blocks * self.size < tokens:
            blocks += 1
        return blocks

    def cover(self, sequence: Sequence, tokens: int) -> bool:
        """Extend the sequence's table until ``tokens`` fit; nothing changes if blocks run out."""
        opened: list[int] = []
        while (len(sequence.blocks) + len(opened)) * self.size < tokens:
            if not self.free or len(sequence.blocks) + len(opened) == self.most:
                self.free.extend(opened)
                return False
            opened.append(self.free.pop())
        sequence.blocks.extend(opened)
        return True

    def release(self, sequence: Sequence) -> None:
        """Take all its blocks back."""
        self.free.extend(sequence.blocks)
        sequence.blocks.clear()

    def check(self, holders: list[Sequence]) -> None:
        """Every block is in exactly one place."""
        owned = [block for sequence in holders for block in sequence.blocks]
        assert sorted(owned + self.free) == list(range(self.count))


@dataclass(frozen=True)
class Step:
    """What one step did; sequences by number, in the order of the batch."""

    chunks: list[tuple[int, int, int]]
    """(number, tokens prefilled, tokens that were there before)"""
    decode: list[int]
    """who got one token by decoding"""
    computed: int
    """sequences that the decode kernels ran over"""
    context: int
    """tokens that those held before the step, padding included"""
    preempted: list[int]
    """who was thrown out, first to last"""
    admitted: list[int]
    running: int
    """slots taken while the step ran"""
    held: int
    """tokens with KV in memory when it had run"""
    free: int
    """blocks free while it ran"""
    finished: list[int]

    @property
    def work(self) -> set[tuple[int, int]]:
        """(number, tokens computed), whatever they are called."""
        return {(n, tokens) for n, tokens, _ in self.chunks} | {(n, 1) for n in self.decode}


class Engine(ABC):
    """The queue and the memory; a discipline says what a step does."""

    def __init__(self, blocks: Blocks, max_num_seqs: int) -> None:
        self.blocks = blocks
        self.max_num_seqs = max_num_seqs
        self.shortest_first = False
        self.by_rank = False
        self.waiting: list[Sequence] = []
        self.batch: list[Sequence] = []  # in order of admission
        self.last_call = False

    def submit(self, sequence: Sequence) -> None:
        """One more waits, and company may be on its way again."""
        self.waiting.append(sequence)
        self.last_call = False
        if self.by_rank:
            self.waiting.sort(key=ranked)
        if self.shortest_first:
            self.waiting = [s for s in self.waiting if s.preemptions] + sorted(
                (s for s in self.waiting if not s.preemptions),
                key=lambda s: (s.prompt + s.output, s.number),
            )

    def flush(self) -> None:
        """Nobody else comes for now."""
        self.last_call = True

    @abstractmethod
    def step(self, now: int) -> Step | None:
        """Run step ``now``; None if there is nothing to do in it."""


def ranked(sequence: Sequence) -> tuple[float, int]:
    """By rank, and those of one rank as they came."""
    return sequence.rank, sequence.number


class IterationLevel(Engine):
    """Continuous batching: memory on demand; when it runs out, the newest is preempted, or the last
    by rank."""

    def __init__(self, blocks: Blocks, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        super().__init__(blocks, max_num_seqs)
        self.budget = max_num_batched_tokens

    def _make_room(self, sequence: Sequence, tokens: int, preempted: list[int]) -> bool:
        """Cover ``tokens`` of it, throwing out one after the other until that works.

        False if that threw out the sequence itself.
        """
        while not self.blocks.cover(sequence, tokens):
            victim = max(self.batch, key=ranked) if self.by_rank else self.batch[-1]
            self.batch.remove(victim)
            self.blocks.release(victim)
            victim.computed = 0
            victim.decoding = False
            victim.preemptions += 1
            self.waiting.insert(0, victim)
            if self.by_rank:
                self.waiting.sort(key=ranked)
            preempted.append(victim.number)
            if victim is sequence:
                return False
        return True

    def _admit(self, now: int) -> Sequence:
        head = self.waiting.pop(0)
        if head.scheduled is None:
            head.scheduled = now
        self.batch.append(head)
        return head

    def _run(
        self, work: list[tuple[Sequence, int]], preempted: list[int], admitted: list[int], now: int
    ) -> Step | None:
        """Compute, deliver, let the finished go."""
        if not work:
            assert not preempted
            return None
        decode = [s for s, _ in work if s.decoding]
        chunks = [(s.number, tokens, s.computed) for s, tokens in work if not s.decoding]
        context = sum(s.computed for s in decode)
        running, free = len(self.batch), len(self.blocks.free)
        for sequence, tokens in work:
            sequence.compute(tokens, now)
        held = sum(s.computed for s in self.batch)
        finished = [s for s in self.batch if s.done]
        for sequence in finished:
            self.batch.remove(sequence)
            self.blocks.release(sequence)
        return Step(
            chunks=chunks,
            decode=[s.number for s in decode],
            computed=len(decode),
            context=context,
            preempted=preempted,
            admitted=admitted,
            running=running,
            held=held,
            free=free,
            finished=[s.number for s in finished],
        )


class Chunked(IterationLevel):
    """vLLM V1: every request must catch up with its length; the running ones go first."""

    def __init__(
        self,
        blocks: Blocks,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        reserve_full: bool,
        threshold: int,
        whole: bool = False,
    ) -> None:
        super().__init__(blocks, max_num_seqs, max_num_batched_tokens)
        self.reserve_full = reserve_full
        self.whole = whole  # the budget cuts no prompt
        self.threshold = threshold
        self.alone = False  # one request when the plan was begun, running or waiting

    def _lacking(self, sequence: Sequence) -> int:
        """Tokens that it would be given if the budget had no end."""
        tokens = sequence.length - sequence.computed
        if 0 < self.threshold < tokens and not self.alone:
            tokens = self.threshold
        return tokens

    def _serve_running(self, preempted: list[int]) -> list[tuple[Sequence, int]]:
        """Tokens for the running requests in order of admission.

        Who is thrown out returns what it was given. If it is the one whose turn it is, those behind
        it get nothing; they catch up by a chunk, decoding or not.
        """
        budget = self.budget
        work: list[tuple[Sequence, int]] = []
        while len(work) < len(self.batch) and budget > 0:
            sequence = self.batch[len(work)]
            tokens = min(self._lacking(sequence), budget)
            fits = self._make_room(sequence, sequence.computed + tokens, preempted)
            work = [(s, given) for s, given in work if s in self.batch]
            if not fits:
                break
            work.append((sequence, tokens))
            budget = self.budget - sum(given for _, given in work)
        for passed_over in self.batch[len(work) :]:
            passed_over.decoding = False
        return work

    def step(self, now: int) -> Step | None:
        """Running requests in order of admission, then newcomers, within one token budget.

        An engine that served nobody, because the first in line was thrown out, plans again.
        """
        preempted: list[int] = []
        before = -1
        work: list[tuple[Sequence, int]] = []
        while not work and before < len(preempted):
            before = len(preempted)
            self.alone = len(self.batch) + len(self.waiting) == 1
            work = self._serve_running(preempted)
        budget = self.budget - sum(given for _, given in work)
        admitted: list[int] = []
        while (
            len(preempted) == before
            and self.waiting
            and budget > 0
            and len(self.batch) < self.max_num_seqs
        ):
            head = self.waiting[0]
            if self.reserve_full and self.blocks.needed(head.length) > len(self.blocks.free):
                break
            tokens = self._lacking(head)
            if tokens > budget:
                if self.whole and work:
                    break
                if not self.whole:
                    tokens = budget
            if not self.blocks.cover(head, tokens):
                break
            work.append((self._admit(now), tokens))
            admitted.append(head.number)
            budget -= tokens
        return self._run(work, preempted, admitted, now)


class PrefillFirst(IterationLevel):
    """vLLM V0 without chunks: whole prompts whenever one can enter, otherwise everybody decodes."""

    def __init__(
        self, blocks: Blocks, max_num_seqs: int, max_num_batched_tokens: int, watermark: float
    ) -> None:
        super().__init__(blocks, max_num_seqs, max_num_batched_tokens)
        self.watermark = int(watermark * blocks.count)

    def step(self, now: int) -> Step | None:
        """Prompts only, or decodes only."""
        prompts: list[tuple[Sequence, int]] = []
        preempted: list[int] = []
        while self.waiting and len(self.batch) < self.max_num_seqs:
            head = self.waiting[0]
            tokens = head.length
            if prompts and sum(t for _, t in prompts) + tokens > self.budget:
                break  # the first of an iteration always goes: it may have outgrown the budget
            spare = self.watermark if self.batch else 0
            if self.blocks.needed(tokens) + spare > len(self.blocks.free):
                break
            self.blocks.cover(head, tokens)
            prompts.append((self._admit(now), tokens))
        if prompts:
            return self._run(prompts, [], [s.number for s, _ in prompts], now)
        decodes: list[tuple[Sequence, int]] = []
        line = sorted(self.batch, key=ranked) if self.by_rank else list(self.batch)
        while len(decodes) < len(self.batch):
            sequence = line[len(decodes)]
            if not self._make_room(sequence, sequence.computed + 1, preempted):
                break
            decodes.append((sequence, 1))
        decodes.sort(key=lambda served: self.batch.index(served[0]))
        return self._run(decodes, preempted, [], now)


class WholeBatch(Engine):
    """A batch starts together; slots and memory come back when its last member is done."""

    def __init__(self, blocks: Blocks, max_num_seqs: int) -> None:
        super().__init__(blocks, max_num_seqs)
        self.slot_lengths: list[int] = []  # what the kernels see of each slot, padding included

    @abstractmethod
    def _ready(self, now: int) -> int:
        """How many of the queue would start at ``now``, memory permitting."""

    @abstractmethod
    def _prompt_length(self, sequence: Sequence, group: list[Sequence]) -> int:
        """Prompt tokens computed for ``sequence`` in that group."""

    @abstractmethod
    def _reservation(self, sequence: Sequence, group: list[Sequence]) -> int:
        """Tokens of memory that its slot holds from start to end."""

    @abstractmethod
    def _computes(self, sequence: Sequence) -> bool:
        """Whether a decode iteration runs over its slot."""

    def step(self, now: int) -> Step | None:
        """Start the next batch, or decode the one in flight."""
        if self.batch:
            return self._decode(now)
        for size in range(self._ready(now), 0, -1):
            group = self.waiting[:size]
            if all(self.blocks.cover(s, self._reservation(s, group)) for s in group):
                del self.waiting[:size]
                return self._prefill(group, now)
            for sequence in group:
                self.blocks.release(sequence)
        return None

    def _prefill(self, group: list[Sequence], now: int) -> Step:
        self.batch = group
        self.slot_lengths = [self._prompt_length(s, group) for s in group]
        chunks = [(s.number, n, 0) for s, n in zip(group, self.slot_lengths, strict=True)]
        for sequence in group:
            sequence.scheduled = now
            sequence.compute(sequence.prompt, now)
        return self._end(chunks, [], 0, 0, [s.number for s in group], now)

    def _decode(self, now: int) -> Step:
        alive = [s for s in self.batch if not s.done]
        slots = [slot for slot, s in enumerate(self.batch) if self._computes(s)]
        context = sum(self.slot_lengths[slot] for slot in slots)
        for slot in slots:
            self.slot_lengths[slot] += 1
        for sequence in alive:
            sequence.compute(1, now)
        return self._end([], [s.number for s in alive], len(slots), context, [], now)

    def _end(
        self,
        chunks: list[tuple[int, int, int]],
        decode: list[int],
        computed: int,
        context: int,
        admitted: list[int],
        now: int,
    ) -> Step:
        step = Step(
            chunks=chunks,
            decode=decode,
            computed=computed,
            context=context,
            preempted=[],
            admitted=admitted,
            running=len(self.batch),
            held=sum(s.computed for s in self.batch),
            free=len(self.blocks.free),
            finished=[s.number for s in self.batch if s.done and s.delivered[-1] == now],
        )
        if all(s.done for s in self.batch):
            for sequence in self.batch:
                self.blocks.release(sequence)
            self.batch = []
        return step


class Static(WholeBatch):
    """Exactly ``max_num_seqs`` at a time, fewer only at last call; a padded rectangle."""

    def _ready(self, now: int) -> int:
        if len(self.waiting) >= self.max_num_seqs:
            return self.max_num_seqs
        return len(self.waiting) if self.last_call else 0

    def _prompt_length(self, sequence: Sequence, group: list[Sequence]) -> int:
        return max(s.prompt for s in group)

    def _reservation(self, sequence: Sequence, group: list[Sequence]) -> int:
        return max(s.prompt for s in group) + max(s.output for s in group) - 1

    def _computes(self, sequence: Sequence) -> bool:
        return True


class RequestLevel(WholeBatch):
    """A full batch, or what waits once the oldest has waited ``timeout`` steps; nothing padded."""

    def __init__(self, blocks: Blocks, max_num_seqs: int, timeout: int) -> None:
        super().__init__(blocks, max_num_seqs)
        self.timeout = timeout

    def _ready(self, now: int) -> int:
        if not self.waiting:
            return 0
        full = len(self.waiting) >= self.max_num_seqs
        expired = now - min(s.queued for s in self.waiting) >= self.timeout
        return min(len(self.waiting), self.max_num_seqs) if full or expired else 0

    def _prompt_length(self, sequence: Sequence, group: list[Sequence]) -> int:
        return sequence.prompt

    def _reservation(self, sequence: Sequence, group: list[Sequence]) -> int:
        return sequence.prompt + sequence.output - 1

    def _computes(self, sequence: Sequence) -> bool:
        return not sequence.done
