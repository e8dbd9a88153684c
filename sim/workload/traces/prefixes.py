"""Counts the prompt tokens of a trace that repeat the beginning of earlier prompts.

Some traces name the blocks of each prompt (``hash_ids``): two prompts begin alike as far as their
first names agree, since a block's name stands for all that comes before it too. Counted is what a
cache that never fills would hold, so an upper bound of what a prefix cache saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from sim.workload.traces.base import PromptBlocks, Trace
from sim.workload.traces.rows import Block

HASH_IDS = "hash_ids"
"""The key under which a row lists the names of its blocks."""

_ONE_BY_ONE = 0.1
"""The share from which on a whole percentage is precise enough."""


def counted(parts: Iterable[tuple[Trace, Block]], block_tokens: int) -> Trace:
    """One trace of consecutive parts, each with the block of rows that it was read from.

    Its ``repeated`` are counted in the order of the file, in one pass. A name stands for
    ``block_tokens`` tokens, or for an equal share of its prompt if their number contradicts that.
    Rows whose names are no list of numbers or texts repeat nothing.
    """
    seen: dict[object, int] = {}
    trace = Trace.joined(
        _read(part, block.columns[HASH_IDS], block_tokens, seen) for part, block in parts
    )
    return trace if seen else replace(trace, repeated=None, blocks=None)


def reuse_share(trace: Trace) -> float | None:
    """The share of all prompt tokens that repeat earlier ones; None where the file names none.

    >>> columns = np.array([0.0, 1.0]), np.array([30, 10]), np.array([5, 5])
    >>> reuse_share(Trace(*columns, repeated=np.array([0, 10])))
    0.25
    """
    if trace.repeated is None:
        return None
    return float(trace.repeated.sum() / trace.prompt_tokens.sum())


def reuse_note(trace: Trace, *, caches: bool = False) -> str | None:
    """Note on shared prefixes for a reader of predictions, for a fleet that ``caches`` them or does
    not; None if there is nothing."""
    share = reuse_share(trace)
    if share:
        if caches:
            return None
        text = f"{share:.0%}" if share >= _ONE_BY_ONE else f"{share:.1%}"
        return (
            f"{text} of the prompt tokens repeat the beginning of an earlier prompt (hash_ids) "
            "and are computed again here. vLLM's prefix cache, on by default, keeps what fits: "
            "`--set kv_cache.enable_prefix_caching=true`."
        )
    if share is None and trace.sessions is not None:
        return (
            f"The trace has conversations ({trace.sessions}), whose later prompts usually repeat "
            "earlier ones; it does not say how much. vLLM's prefix cache, on by default, would not "
            "compute those tokens again: these predictions are then pessimistic."
        )
    return None


def _read(
    part: Trace, names: Sequence[object], block_tokens: int, seen: dict[object, int]
) -> Trace:
    """``part`` with its blocks and the repeated tokens of each prompt; ``seen`` are the numbers of
    the blocks of earlier ones, and grows."""
    repeated: list[int] = []
    numbers: list[int] = []
    counts: list[int] = []
    for prompt, ids in zip(part.prompt_tokens.tolist(), names, strict=True):
        known, found = _numbered(ids, seen) if isinstance(ids, list) else (0, [])
        repeated.append(block_end(prompt, known, len(found), block_tokens) if known else 0)
        numbers += found
        counts.append(len(found))
    return replace(
        part,
        repeated=np.array(repeated, dtype=np.int64),
        blocks=PromptBlocks(np.array(numbers, np.int64), np.array(counts, np.int64), block_tokens),
    )


def block_end(prompt: int, block: int, blocks: int, block_tokens: int) -> int:
    """Where a prompt of ``blocks`` has its block with that number, from 1, behind it, in tokens.

    >>> [block_end(1100, i, 3, 512) for i in (1, 2, 3)], block_end(100, 3, 4, 512)
    ([512, 1024, 1100], 75)
    """
    if blocks == -(-prompt // block_tokens):
        return min(prompt, block * block_tokens)
    return prompt * block // blocks


def _numbered(ids: list[object], seen: dict[object, int]) -> tuple[int, list[int]]:
    """How many of these blocks, from the first on, are known, and the numbers of all of them;
    afterwards all are known."""
    before = len(seen)
    try:
        numbers = [seen.setdefault(name, len(seen)) for name in ids]
    except TypeError:  # a list or a mapping is no name
        return 0, []
    for known, number in enumerate(numbers):
        if number >= before:
            return known, numbers
    return len(numbers), numbers
