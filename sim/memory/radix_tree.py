"""Keeps the prefixes of sequences in a tree as SGLang does: pages shared, whole leaves evicted.

A sequence is a list of *spans*: (text, low, high), pages ``low`` to ``high`` (exclusive) of a text,
one behind the other from page 0 on. Two sequences have a page in common if it is the same page of
the same text, as in ``sim.memory.caching``. A node is what sequences have in common between two
places at which they part, or at which one of them was looked up or entered.

As in SGLang 0.5.23 (``mem_cache/unified_cache/unified_tree_core.py``, eviction ``lru``):

- Finding a sequence, and entering it, makes its nodes the most recently used, the deepest last. A
  node of which only the front is found is split there, and its rest counts as used too.
- Who runs on a node locks it and all above it.
- Eviction takes the unlocked leaf that was used longest ago, whole, until enough is free; a parent
  that becomes a leaf can be next.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

Span = tuple[int, int, int]
"""(text, its first page, the page behind its last one)."""


class TreeNode:
    """Pages ``low`` to ``high`` of sequences that are equal up to there, below ``parent``.

    ``spans`` say which pages these are, ``locks`` how many requests hold them, and ``used`` when
    the node was used last (a count of uses).
    """

    __slots__ = ("children", "high", "locks", "low", "parent", "queued", "spans", "used")

    def __init__(self, parent: TreeNode | None, spans: list[Span], low: int, high: int) -> None:
        self.parent = parent
        self.spans = spans
        self.low = low
        self.high = high
        self.children: dict[int, TreeNode] = {}  # by the text of their first page
        self.locks = 0
        self.used = 0
        self.queued = False  # it has an entry among the leaves to evict

    def __repr__(self) -> str:
        return f"TreeNode({self.spans}, locked {self.locks} times, used {self.used})"


class RadixTree:
    """The sequences that were entered, and of them what was not evicted.

    >>> tree = RadixTree()
    >>> tree.enter([(7, 0, 4), (1, 4, 6)]).high, tree.idle
    (6, 6)
    >>> tree.find([(7, 0, 4), (2, 4, 9)]).high      # the text 7 is common to both
    4
    >>> tree.evict(1), tree.idle                    # a whole leaf goes: both pages of text 1
    (2, 4)
    """

    __slots__ = ("_leaves", "_uses", "idle", "root", "several", "shared", "texts")

    def __init__(self) -> None:
        self.root = TreeNode(None, [], 0, 0)
        self.root.locks = 1
        self.idle = 0
        """Pages that no request holds."""
        self.shared = 0
        """Pages as often as they are held beyond the first time."""
        self.several = 0
        """Pages that more than one request holds."""
        self.texts: set[int] = set()
        """All that were ever entered."""
        self._uses = 0
        # unlocked leaves by when they were used last, or earlier: an entry is made good when it is
        # taken; each node has one at most
        self._leaves: list[tuple[int, TreeNode]] = []

    def find(self, spans: list[Span]) -> TreeNode:
        """The node at which the longest part of a sequence that is here ends."""
        node, _ = self._walk(spans, split_first=False)
        uses = self._uses
        path = list(self.path(node))
        self._uses = uses + len(path)
        for each in path:  # the deepest first
            each.used = uses + len(path)
            uses -= 1
        return node

    def enter(self, spans: list[Span]) -> TreeNode:
        """Add what is missing of a sequence, as idle pages; returns the node at its end."""
        node, rest = self._walk(spans, split_first=True)
        if rest:
            leaf = TreeNode(node, rest, rest[0][1], rest[-1][2])
            self._use(leaf)
            node.children[rest[0][0]] = leaf
            self.texts.update([text for text, _, _ in rest])
            self.idle += leaf.high - leaf.low
            self._queue(leaf)
            node = leaf
        return node

    def lock(self, node: TreeNode) -> int:
        """One more request holds all up to ``node``; returns how many pages were free before."""
        taken = 0
        for each in self.path(node):
            pages = each.high - each.low
            if not each.locks:
                taken += pages
            else:
                self.shared += pages
                if each.locks == 1:
                    self.several += pages
            each.locks += 1
        self.idle -= taken
        return taken

    def unlock(self, node: TreeNode) -> int:
        """One request less holds all up to ``node``; returns how many pages are free now."""
        freed = 0
        for each in self.path(node):
            pages = each.high - each.low
            each.locks -= 1
            if not each.locks:
                freed += pages
                self._queue(each)
            else:
                self.shared -= pages
                if each.locks == 1:
                    self.several -= pages
        self.idle += freed
        return freed

    def idle_up_to(self, node: TreeNode) -> int:
        """Pages up to ``node`` that no request holds."""
        return sum([each.high - each.low for each in self.path(node) if not each.locks])

    def evict(self, pages: int) -> int:
        """Drop whole leaves until ``pages`` or more are gone, or none can go; returns how many."""
        leaves, gone = self._leaves, 0
        while gone < pages and leaves:
            used, node = heapq.heappop(leaves)
            node.queued = False
            if node.locks or node.children:
                continue
            if used != node.used:
                self._queue(node)
                continue
            parent = node.parent
            assert parent is not None
            del parent.children[node.spans[0][0]]
            gone += node.high - node.low
            self._queue(parent)
        self.idle -= gone
        return gone

    def path(self, node: TreeNode) -> Iterator[TreeNode]:
        """``node`` and all above it but the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    def nodes(self) -> Iterator[TreeNode]:
        """All but the root."""
        todo = list(self.root.children.values())
        while todo:
            node = todo.pop()
            yield node
            todo.extend(node.children.values())

    # -- the walk ----------------------------------------------------------------------------

    def _walk(self, spans: list[Span], *, split_first: bool) -> tuple[TreeNode, list[Span]]:
        """Go down along ``spans`` as far as they are here; returns the node reached and the spans
        behind it. Entering (``split_first``) uses each node as it comes by."""
        node, at, index = self.root, 0, 0
        while index < len(spans):
            child = node.children.get(spans[index][0])
            if child is None:
                break
            if split_first:
                self._use(child)
            for text, _, high in child.spans:
                while at < high and index < len(spans) and spans[index][0] == text:
                    at = min(high, spans[index][2])
                    index += at == spans[index][2]
                if at < high:
                    break
            if at < child.high:
                node = self._split(child, at)
                break
            node = child
        if index == len(spans):
            return node, []
        text, _, high = spans[index]
        return node, [(text, at, high), *spans[index + 1 :]]

    def _split(self, child: TreeNode, at: int) -> TreeNode:
        """Make the pages of ``child`` before ``at`` a node of their own, and its parent; returns
        that."""
        parent, spans = child.parent, child.spans
        assert parent is not None
        front = TreeNode(parent, [(t, a, min(b, at)) for t, a, b in spans if a < at], child.low, at)
        child.spans = [(t, max(a, at), b) for t, a, b in spans if b > at]
        child.low = at
        parent.children[front.spans[0][0]] = front
        front.children[child.spans[0][0]] = child
        child.parent = front
        front.locks = child.locks
        self._use(front)
        self._use(child)
        return front

    def _use(self, node: TreeNode) -> None:
        self._uses += 1
        node.used = self._uses

    def _queue(self, node: TreeNode) -> None:
        """``node`` can be evicted, if it is a leaf that no request holds."""
        if not (node.locks or node.children or node.queued):
            node.queued = True
            heapq.heappush(self._leaves, (node.used, node))

    def check_integrity(self) -> None:
        """Raise AssertionError unless the tree is well-formed and its counts are right."""
        queued = {id(node) for _, node in self._leaves}
        idle = shared = several = 0
        for node in self.nodes():
            parent, pages = node.parent, node.high - node.low
            assert parent is not None
            assert pages > 0, node
            assert parent.high == node.low, (parent, node)
            assert parent.locks >= node.locks or parent is self.root, (parent, node)
            at = node.low
            for _, low, high in node.spans:
                assert low == at < high, node
                at = high
            assert at == node.high, node
            idle += pages * (not node.locks)
            shared += pages * max(node.locks - 1, 0)
            several += pages * (node.locks > 1)
            assert node.queued == (id(node) in queued), node
            assert node.queued or node.locks or node.children, node
        assert (idle, shared, several) == (self.idle, self.shared, self.several)
        assert len(queued) == len(self._leaves)
