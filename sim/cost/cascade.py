"""Attention that reads the prefix which all sequences of a batch share once for all of them.

Two kernels take the place of one: all queries of the pass over the common prefix, as if they were
those of one prompt, and those of each sequence over the rest of what it holds. When that is done is
vLLM's rule: *cascade attention* of its FlashAttention backend, up to the release that removed it
(``v1/attention/backends/flash_attn.py::use_cascade_attention``; 0.32 has it no longer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.grouped_query import GroupedQuery

SHORTEST_PREFIX, FEWEST_REQUESTS = 256, 8
"""Tokens in common, and requests, below which it is not tried."""

TILE = 128
"""Queries, and keys, of which vLLM takes a block of the kernel to go over at once."""


@dataclass(frozen=True, slots=True)
class CascadeRule:
    """When reading a prefix once is taken to be faster, for that many heads of one GPU and its
    ``sms``."""

    query_heads: int
    kv_heads: int
    sms: int

    def pays(self, prefix: int, requests: int, *, prompts: bool) -> bool:
        """Whether a pass over ``requests``, of which all begin with the same ``prefix`` tokens,
        reads these once; ``prompts`` are in it, or only decodes.

        >>> rule = CascadeRule(query_heads=32, kv_heads=8, sms=132)
        >>> rule.pays(8000, 17, prompts=False), rule.pays(8000, 16, prompts=False)
        (True, False)
        >>> CascadeRule(64, 1, 132).pays(8000, 8, prompts=False)
        False
        """
        if prefix < SHORTEST_PREFIX or requests < FEWEST_REQUESTS:
            return False
        group = self.query_heads // self.kv_heads
        if prompts or group == 1:
            return True  # no kernel splits the keys of a sequence among SMs
        tiles = -(-prefix // TILE)
        together = -(-self.query_heads * -(-requests // TILE) // self.sms) * tiles
        apart = -(-requests * self.kv_heads * -(-group // TILE) * tiles // self.sms)
        return together < apart


def cascade_rule(d: Deployment) -> CascadeRule | None:
    """That of a deployment; None where its engine, or its attention, reads no prefix once."""
    kinds = {group.attention for group in d.model.layers}
    if not d.engine.cascade or len(kinds) != 1 or d.model.windows:
        return None
    (attention,) = kinds
    if not isinstance(attention, GroupedQuery):
        return None
    ranks = d.layout.tensor
    return CascadeRule(
        attention.num_heads // ranks, max(attention.num_kv_heads // ranks, 1), d.gpu.sms
    )


def behind(parts: Sequence[Part], prefix: int) -> Sequence[Part]:
    """``parts`` of prompts, without the first ``prefix`` tokens that all have computed."""
    return [Part(part.tokens, part.context - prefix) for part in parts] if prefix else parts
