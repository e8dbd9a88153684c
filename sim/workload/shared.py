"""Lets prompts begin alike, as those do that stand behind the same system prompt or document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.request import Prefix
from sim.rng import stream
from sim.workload.traffic import LengthChunk


@dataclass(frozen=True, slots=True)
class Groups:
    """Texts of ``tokens``, ``number`` of them; the k-th is drawn in proportion to 1/k^``zipf``."""

    tokens: int
    number: int = 1
    zipf: float = 0.0

    def numbers(self, rng: np.random.Generator, size: int) -> list[int]:
        """Independent draws, from 0 on."""
        if not self.zipf:
            drawn = rng.integers(self.number, size=size)
        else:
            weights = np.cumsum(np.arange(1.0, self.number + 1) ** -self.zipf)
            drawn = np.searchsorted(weights, rng.random(size) * weights[-1], side="right")
        numbers: list[int] = drawn.tolist()
        return numbers

    def draw(self, rng: np.random.Generator, size: int) -> list[Prefix]:
        """Drawn texts as beginnings of prompts that are longer."""
        return [((group, self.tokens),) for group in self.numbers(rng, size)]


def beginning_alike(
    lengths: Iterator[LengthChunk], groups: Groups, seed: int
) -> Iterator[LengthChunk]:
    """The lengths, where each prompt begins with the text of one of ``groups``.

    That text is part of the prompt; a shorter prompt is its beginning. The groups come from a
    random stream of their own: with them and without, arrivals and lengths are the same.
    """
    rng = stream(seed, "shared-prefix")
    for chunk in lengths:
        drawn = groups.numbers(rng, len(chunk.prompt_tokens))
        prefixes: list[Prefix] = [
            ((group, min(groups.tokens, prompt)),)
            for group, prompt in zip(drawn, chunk.prompt_tokens, strict=True)
        ]
        yield chunk._replace(prefixes=prefixes)
