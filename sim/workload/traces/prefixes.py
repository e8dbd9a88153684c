"""Counts the prompt tokens of a trace that repeat the beginning of earlier prompts.

Some traces name the blocks of each prompt (``hash_ids``): two prompts begin alike as far as their
first names agree, since a block's name stands for all that comes before it too. Counted is what a
cache that never fills would hold, so an upper bound of what a prefix cache saves. Prefix caching is
not simulated; the count says how much that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.base import Trace
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
    seen: set[object] = set()
    trace = Trace.joined(
        replace(part, repeated=_repeated(part, block.columns[HASH_IDS], block_tokens, seen))
        for part, block in parts
    )
    return trace if seen else replace(trace, repeated=None)


def reuse_share(trace: Trace) -> float | None:
    """The share of all prompt tokens that repeat earlier ones; None where the file names none.

    >>> columns = np.array([0.0, 1.0]), np.array([30, 10]), np.array([5, 5])
    >>> reuse_share(Trace(*columns, repeated=np.array([0, 10])))
    0.25
    """
    if trace.repeated is None:
        return None
    return float(trace.repeated.sum() / trace.prompt_tokens.sum())


def reuse_note(trace: Trace) -> str | None:
    """What a reader of predictions should know of shared prefixes; None if there is nothing."""
    share = reuse_share(trace)
    if share:
        text = f"{share:.0%}" if share >= _ONE_BY_ONE else f"{share:.1%}"
        return (
            f"{text} of the prompt tokens repeat the beginning of an earlier prompt (hash_ids). "
            "vLLM's prefix cache, on by default, would not compute again those it still holds; "
            "prefix caching is not modelled, so these predictions are pessimistic."
        )
    if share is None and trace.sessions is not None:
        return (
            f"The trace has conversations ({trace.sessions}); their later prompts usually repeat "
            "earlier ones. vLLM's prefix cache, on by default, would not compute those tokens "
            "again; prefix caching is not modelled, so these predictions are then pessimistic."
        )
    return None


def _repeated(
    part: Trace, names: Sequence[object], block_tokens: int, seen: set[object]
) -> NDArray[np.int64]:
    """Repeated tokens of each prompt; ``seen`` are the blocks of earlier ones, and grows."""
    found = []
    for prompt, ids in zip(part.prompt_tokens.tolist(), names, strict=True):
        if not isinstance(ids, list):
            found.append(0)
            continue
        blocks = _known(ids, seen)
        fits = len(ids) == -(-prompt // block_tokens)
        tokens = blocks * block_tokens if fits or not blocks else prompt * blocks // len(ids)
        found.append(min(prompt, tokens))
    return np.array(found, dtype=np.int64)


def _known(ids: list[object], seen: set[object]) -> int:
    """How many of these blocks, from the first on, are known; afterwards all of them are."""
    try:
        known = sum(1 for _ in takewhile(seen.__contains__, ids))
        seen.update(ids)
    except TypeError:  # a list or a mapping is no name
        return 0
    return known
