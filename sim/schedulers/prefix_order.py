"""Sorts requests that wait by what a prefix tree has of them: SGLang's ``--schedule-policy lpm``.

After ``managers/schedule_policy.py`` of SGLang 0.5.23 (``_compute_prefix_matches`` and
``_sort_by_longest_prefix``): the longest match goes first, of equals the one that was before. A
request that finds next to nothing, and begins as another one that waits before it and finds nothing
either, goes behind all others, so that it finds what that one will have computed.
"""

from __future__ import annotations

import math

from sim.memory.prefix_search import spans
from sim.memory.radix import RadixAllocator
from sim.memory.radix_tree import RadixTree
from sim.request import Request
from sim.schedulers.queues import Resorted

CHECKED, SHARED = 32, 32
"""Who finds no more tokens than the first, and has in common with another at least as many as the
second, waits for it (``IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD`` and
``IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD``)."""


def sort_by_prefix(waiting: Resorted, tree: RadixAllocator) -> None:
    """Sort ``waiting``; all that is found in ``tree`` counts as used."""
    alike, ranks = RadixTree(), {}
    for request in waiting:
        tokens, found = request.prompt_tokens + request.generated, tree.touch(request)
        ranks[request] = _rank(request, tokens, found, alike)
    waiting.sort(ranks.__getitem__)


def _rank(request: Request, tokens: int, found: int, alike: RadixTree) -> float:
    if found <= CHECKED:
        own = list(spans(request, 1, tokens))
        if alike.find(own).high >= SHARED:
            return math.inf
        alike.enter(own)
    return -min(found, tokens - 1)
