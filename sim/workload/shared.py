"""Lets prompts begin alike, as those do that stand behind the same system prompt."""

from __future__ import annotations

from collections.abc import Iterator

from sim.request import Prefix
from sim.rng import stream
from sim.workload.traffic import LengthChunk


def beginning_alike(
    lengths: Iterator[LengthChunk], tokens: int, groups: int, seed: int
) -> Iterator[LengthChunk]:
    """The same lengths; each prompt begins with the text of one of ``groups``, equally likely.

    That text has ``tokens`` and is part of the prompt; a shorter prompt is its beginning. The
    groups come from a random stream of their own: with them and without, arrivals and lengths are
    the same.
    """
    rng = stream(seed, "shared-prefix")
    for chunk in lengths:
        drawn = rng.integers(groups, size=len(chunk.prompt_tokens)).tolist()
        prefixes: list[Prefix] = [
            ((group, min(tokens, prompt)),)
            for group, prompt in zip(drawn, chunk.prompt_tokens, strict=True)
        ]
        yield chunk._replace(prefixes=prefixes)
