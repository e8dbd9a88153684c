"""Random uses of a prefix tree, recorded of SGLang's own and played on this project's.

    python -m tests.conformance.sglang_trees FILE.json [CASES] [FIRST SEED] [--lpm]

records cases with SGLang's ``UnifiedRadixCache`` (its Python core, no GPU). A step is ``[what, with
what, pages it found or freed, idle pages after it]``; what is ``find``, ``lock`` (find, and hold
what was found), ``enter`` with spans of texts, ``unlock`` with the place of a lock among those that
last, ``evict`` with pages. With ``--lpm`` there are queues among them, too: ``order`` with the
sequence of each request that waits, which SGLang's ``SchedulePolicy("lpm")`` sorts; found is how
they stand then, by number.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sim.memory.radix import RadixAllocator
from sim.memory.radix_tree import Span, TreeNode
from sim.request import Request
from sim.schedulers.prefix_order import sort_by_prefix
from sim.schedulers.queues import Resorted
from tests.conformance.sglang_package import module, version

Step = tuple[str, Any, int | list[int], int]
"""What is done, with what, the pages found or freed, and the idle pages after it."""


def draw_spans(chance: random.Random) -> list[Span]:
    """A sequence of up to four texts, each of which says all before it."""
    spans: list[Span] = []
    at = text = 0
    for _ in range(chance.randint(1, 4)):
        high = min(at + chance.randint(1, 4), 12)
        text = text * 5 + chance.randint(1, 4)
        if high > at:
            spans.append((text * 16 + at, at, high))
            at = high
    return spans


class Theirs:
    """SGLang's tree, in pages."""

    def __init__(self, page: int) -> None:
        caches = module("sglang.srt.mem_cache.unified_radix_cache")
        params = module("sglang.srt.mem_cache.cache_init_params").CacheInitParams
        full = module("sglang.srt.mem_cache.unified_cache.components").ComponentType.FULL
        self._base = module("sglang.srt.mem_cache.base_prefix_cache")
        self._key = module("sglang.srt.mem_cache.radix_cache").RadixKey
        self._page = page
        self._tree = caches.UnifiedRadixCache(
            params(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=_Pool(),
                page_size=page,
                tree_components=(full,),
                tree_core_backend="python",
            )
        )
        self._locks: list[Any] = []
        policies = module("sglang.srt.managers.schedule_policy")
        policies.get_disagg = lambda: SimpleNamespace(disaggregation_mode="null")
        policies.get_memory = lambda: SimpleNamespace(radix_eviction_policy="lru")
        self._policy = policies.SchedulePolicy("lpm", self._tree, False, False, False)

    def _request(self, number: int, spans: Sequence[Span]) -> Any:
        return SimpleNamespace(
            rid=str(number),
            origin_input_ids=self._tokens(spans),
            output_ids=array("q"),
            extra_key=None,
            cache_salt=None,
            session=None,
            kv=SimpleNamespace(),
            _compute_max_prefix_len=lambda tokens: tokens - 1,
        )

    def _tokens(self, spans: Sequence[Span]) -> array[int]:
        size = self._page
        return array(
            "q", [t * 10**6 + at for t, low, high in spans for at in range(low * size, high * size)]
        )

    def do(self, what: str, value: Any) -> tuple[int | list[int], int]:
        """Pages found or freed, and idle pages after it."""
        tree, base, found = self._tree, self._base, 0
        if what == "order":
            queue = [self._request(number, spans) for number, spans in enumerate(value)]
            self._policy.calc_priority(queue)
            return [int(each.rid) for each in queue], tree.evictable_size() // self._page
        if what == "enter":
            tokens = self._tokens(value)
            values = module("torch").zeros(len(tokens), dtype=module("torch").int64)
            done = tree.insert(base.InsertParams(key=self._key(tokens), value=values))
            found = done.prefix_len
        elif what == "evict":
            done = tree.evict(base.EvictParams(num_tokens=value * self._page))
            found = done.num_tokens_evicted
        elif what == "unlock":
            tree.unlock(self._locks.pop(value))
        else:
            done = tree.match_prefix(base.MatchPrefixParams(key=self._key(self._tokens(value))))
            found = done.device_prefix_len
            if what == "lock":
                self._locks.append(tree.lock(done.last_device_node))
        return found // self._page, tree.evictable_size() // self._page


class _Pool:
    """A pool of KV that takes back whatever it is given."""

    device = "cpu"

    def available_size(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Ours:
    """This project's tree, asked the same."""

    def __init__(self, page: int = 1) -> None:
        self._kv = RadixAllocator(1000, page)
        self.tree = self._kv.tree
        self._locks: list[TreeNode] = []

    def _order(self, queue: Sequence[Sequence[Span]]) -> list[int]:
        page, waiting = self._kv.block_size, Resorted()
        for number, spans in enumerate(queue):
            prefix = tuple((text, high * page) for text, _, high in spans)
            waiting.append(Request(number, 0.0, prefix[-1][1], 9, prefix=prefix))
        sort_by_prefix(waiting, self._kv)
        return [request.id for request in waiting]

    def do(self, what: str, value: Any) -> tuple[int | list[int], int]:
        """Pages found or freed, and idle pages after it."""
        tree, found = self.tree, 0
        if what == "order":
            return self._order(value), tree.idle
        if what == "enter":
            idle = tree.idle
            spans = [tuple(span) for span in value]
            found = tree.enter(spans).high - (tree.idle - idle)
        elif what == "evict":
            found = tree.evict(value)
        elif what == "unlock":
            tree.unlock(self._locks.pop(value))
        else:
            node = tree.find([tuple(span) for span in value])
            found = node.high
            if what == "lock":
                tree.lock(node)
                self._locks.append(node)
        return found, tree.idle


def draw(tree: Theirs, chance: random.Random, steps: int, queues: int = 0) -> list[Step]:
    """What ``tree`` answers to random uses."""
    played: list[Step] = []
    locks = 0
    for _ in range(steps):
        uses = ["find", "lock", "enter", "unlock", "evict", "order"]
        what = chance.choices(uses, [2, 2, 5, 2, 2, queues])[0]
        if what == "unlock" and not locks:
            what = "lock"
        value: Any = draw_spans(chance)
        if what == "unlock":
            value = chance.randrange(locks)
        elif what == "evict":
            value = chance.randint(1, 6)
        elif what == "order":
            value = [draw_spans(chance) for _ in range(chance.randint(2, 8))]
        locks += (what == "lock") - (what == "unlock")
        played.append((what, value, *tree.do(what, value)))
    return played


def main(path: str, cases: int = 3, first: int = 0, *, queues: bool = False) -> None:
    """Record ``cases`` into the file of that name; those with ``queues`` in longer pages."""
    found = []
    for seed in range(first, first + cases):
        chance = random.Random(seed)
        page = chance.choice([8, 16, 32] if queues else [1, 2, 4])
        steps = draw(Theirs(page), chance, 60, 5 * queues)
        lines = ",\n".join(json.dumps(step) for step in steps)
        found.append(f'{{"page_size": {page}, "steps": [\n{lines}\n]}}')
    text = f'{{"sglang": "{version()}",\n"cases": [\n' + ",\n".join(found) + "\n]}\n"
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:] if word != "--lpm"]
    main(sys.argv[1], *numbers, queues="--lpm" in sys.argv)
