"""Defines what a trace is, and what each trace format declares about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.head import Head
from sim.workload.traces.rows import Block

FAILED = "failed requests (no output tokens)"
"""Why rows with zero output tokens are skipped, in formats where they mark a failure."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptBlocks:
    """The blocks of which each prompt of a trace consists, by number, in order of the prompts.

    ``numbers`` of all prompts one after the other, ``counts`` how many each has. A number stands
    for all that comes before the block, too: prompts that share it share everything up to its end.
    A block has ``tokens``, or an equal share of its prompt if their number contradicts that.
    """

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    tokens: int

    @classmethod
    def joined(
        cls, first: PromptBlocks | None, parts: Sequence[PromptBlocks | None]
    ) -> PromptBlocks | None:
        """The blocks of consecutive parts of one trace, numbered alike; None where they have
        none."""
        found = [part for part in parts if part is not None]
        if first is None:
            return None
        return cls(
            np.concatenate([part.numbers for part in found]),
            np.concatenate([part.counts for part in found]),
            first.tokens,
        )

    def taken(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> PromptBlocks:
        """The blocks of the prompts at these places, in this order, or for which a mask is true."""
        starts = np.cumsum(self.counts) - self.counts
        starts, counts = starts[rows], self.counts[rows]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        return replace(self, numbers=self.numbers[places], counts=counts)

    def apart(self, copies: NDArray[np.int64]) -> PromptBlocks:
        """The blocks, where those of prompts of different ``copies`` have nothing in common."""
        most = int(self.numbers.max(initial=0)) + 1
        return replace(self, numbers=self.numbers + most * np.repeat(copies, self.counts))


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests that were recorded once, as arrays of equal length.

    ``arrivals`` in seconds (from any origin as a reader returns it; since the first request, and
    sorted, as ``read_trace`` returns it), lengths in tokens, each at least 1.
    """

    arrivals: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows of the file that are no requests to replay: how many, by the reason."""
    priorities: NDArray[np.int64] | None = None
    """Of each request, lower goes first; None where the file does not say."""
    repeated: NDArray[np.int64] | None = None
    """Of each prompt, the tokens at its beginning that earlier ones begin with too; None where the
    file does not say (``prefixes``)."""
    sessions: str | None = None
    """The column that says which requests belong to one conversation; None if there is none."""
    blocks: PromptBlocks | None = None
    """Which blocks each prompt consists of; None where the file does not say."""
    session_ids: NDArray[np.int64] | None = None
    """The number of the conversation of each request, -1 for none; None where the file does not
    say."""
    patience: NDArray[np.float64] | None = None
    """Seconds after which the client of each request went away, unless it had its answer by then;
    infinite where it waited. None where all did."""

    def __len__(self) -> int:
        return len(self.arrivals)

    @classmethod
    def of(
        cls, block: Block, time: str, prompt: str, output: str, *, per_second: float = 1.0
    ) -> Trace:
        """The rows of ``block``, whose columns have these names; ``per_second`` of its units of
        time make a second. TraceError for a value that is none."""
        return cls(block.seconds(time, per_second), block.tokens(prompt), block.tokens(output))

    @classmethod
    def joined(cls, parts: Iterable[Trace]) -> Trace:
        """One trace from consecutive parts of it (at least one)."""
        rows = list(parts)
        priorities = [part.priorities for part in rows if part.priorities is not None]
        repeated = [part.repeated for part in rows if part.repeated is not None]
        named = [part.session_ids for part in rows if part.session_ids is not None]
        waited = [part.patience for part in rows if part.patience is not None]
        skipped: Counter[str] = Counter()
        for part in rows:
            skipped.update(part.skipped)
        return cls(
            np.concatenate([part.arrivals for part in rows]),
            np.concatenate([part.prompt_tokens for part in rows]),
            np.concatenate([part.output_tokens for part in rows]),
            dict(skipped),
            np.concatenate(priorities) if priorities else None,
            np.concatenate(repeated) if repeated else None,
            rows[0].sessions,
            PromptBlocks.joined(rows[0].blocks, [part.blocks for part in rows]),
            np.concatenate(named) if named else None,
            np.concatenate(waited) if waited else None,
        )

    def taken(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Trace:
        """The requests at these places, in this order, or those for which a mask is true."""
        return Trace(
            self.arrivals[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            self.skipped,
            None if self.priorities is None else self.priorities[rows],
            None if self.repeated is None else self.repeated[rows],
            self.sessions,
            None if self.blocks is None else self.blocks.taken(rows),
            None if self.session_ids is None else self.session_ids[rows],
            None if self.patience is None else self.patience[rows],
        )

    def moved(self, arrivals: NDArray[np.float64]) -> Trace:
        """The requests at other times (s)."""
        return replace(self, arrivals=arrivals)


def sessions_of(names: Iterable[object], known: dict[object, int]) -> NDArray[np.int64]:
    """The number of each name of a conversation: those in ``known``, which grows by the new ones;
    -1 for nothing and for what is no name.

    >>> sessions_of(["a", None, "b", "a", ""], {}).tolist()
    [0, -1, 1, 0, -1]
    """
    found = []
    for name in names:
        nothing = name in (None, "", "-1", -1) or isinstance(name, list | dict)
        found.append(-1 if nothing else known.setdefault(name, len(known)))
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format: ``recognises`` looks at nothing but column names, never at values."""

    name: str
    layout: str
    """The format in one line, for people who must write or recognise it."""
    recognises: Callable[[Head], bool]
    read: Callable[[Path], Trace]
    """All rows of a file, in its order; TraceError where the file breaks the format."""
    names_blocks: bool = False
    """Whether its files may name the blocks of prompts."""
