"""Keeps what requests computed in SGLang's radix tree, next to the pages that are theirs alone.

As in SGLang 0.5.23 (``mem_cache/unified_radix_cache.py``, ``common.py``, ``allocation.py``):

- A request is looked up each time that it is considered for a batch, and finds whole pages that
  leave it a token to compute. While it runs, what it found is locked.
- What it computes is entered after each chunk, at the end of its prompt and when it has finished;
  of equal pages that were computed twice one copy goes. Who is retracted enters nothing.
- Finished requests are entered in two pieces, prompt and answer, so that one can go first.
- Memory is taken when a batch is complete: leaves are evicted until it is there, with pages of more
  than a token a page more for each request than it may need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sim.memory.paged import PagedAllocator
from sim.memory.prefix_search import missed, spans
from sim.memory.radix_tree import RadixTree, Span, TreeNode
from sim.request import Request


class RadixAllocator(PagedAllocator):
    """``PagedAllocator`` with SGLang's prefix cache: pages of the tree held by no request are free.

    >>> kv = RadixAllocator(num_blocks=40, block_size=1)
    >>> first, second = (Request(i, 0.0, 30, 9, prefix=((7, 20),)) for i in range(2))
    >>> kv.cached(first), kv.allocate(first, 30), kv.publish(first, 30)
    (0, True, None)
    >>> kv.cached(second), kv.allocate(second, 10), kv.free_blocks
    (20, True, 0)
    """

    __slots__ = ("_last", "_nodes", "_opened", "_wanted", "note", "tree")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.tree = RadixTree()
        self._nodes: dict[Request, TreeNode] = {}  # to which each holder has locked the tree
        self._last: tuple[Request, TreeNode] | None = None  # whom ``cached`` looked up last
        self._wanted = 0  # tokens that SGLang asks for since it last took memory
        self._opened = 0  # and those of the pages that it gets
        # who keeps what ``missed`` says of each request that is admitted for the first time
        self.note: Callable[[Request, int, int], None] | None = None

    @property
    def shared_tokens(self) -> int:  # type: ignore[override]
        """Tokens that several requests hold, as often as they are held beyond the first time."""
        return self.tree.shared * self.block_size

    @property
    def several_tokens(self) -> int:  # type: ignore[override]
        """Tokens of memory that more than one request holds."""
        return self.tree.several * self.block_size

    @property
    def idle_tokens(self) -> int:
        """Tokens of the tree that no request holds."""
        return self.tree.idle * self.block_size

    def spans(self, request: Request, tokens: int) -> list[Span]:
        """The whole pages of the first ``tokens`` of ``request``."""
        return list(spans(request, self.block_size, tokens))

    def look_up(self, request: Request) -> TreeNode:
        """Where the longest part that is cached of ``request`` ends; it has been used now."""
        tokens = request.prompt_tokens + request.generated - 1
        return self.tree.find(self.spans(request, tokens))

    def touch(self, request: Request) -> int:
        """Marks cached tokens of ``request``, which waits, as used now; returns their number."""
        node = self.tree.find(self.spans(request, request.prompt_tokens + request.generated))
        return node.high * self.block_size

    def cached(self, request: Request) -> int:
        """Tokens of ``request``, which holds nothing, that are in the tree."""
        node = self.look_up(request)
        self._last = request, node
        return node.high * self.block_size

    def _found(self, request: Request) -> TreeNode:
        if self._last is None or self._last[0] is not request:
            self.cached(request)
        assert self._last is not None
        return self._last[1]

    def pinned(self, request: Request) -> int:
        """Tokens that are free until ``request``, just looked up, is admitted."""
        return self.tree.idle_up_to(self._found(request)) * self.block_size

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether there is room for ``tokens`` on top of what is cached."""
        size = self.block_size
        blocks = -(-tokens // size) + self.pinned(request) // size
        return blocks + int(spare * self.num_blocks) <= self.free_blocks

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the pages that ``tokens`` more need; a request that has nothing also locks what is
        cached of it. Nothing is evicted before ``settle``."""
        size = self.block_size
        held, node, pinned = self._held.get(request), None, 0
        if held is None:
            node = self._found(request)
            held, pinned = node.high * size, self.pinned(request)
        opened = (-(-(held + tokens) // size) + (-held // size)) * size
        if self.reserved + opened + pinned > self.capacity:
            return False
        if node is not None:
            if self.note is not None and not request.preemptions:
                self.note(request, *missed(request, self.tree.texts, node.high * size, size))
            self._nodes[request] = node
            self.reserved += self.tree.lock(node) * size
            self._last = None
        self.reserved += opened
        self._held[request] = held + tokens
        self._opened += opened
        self._wanted += tokens + size if size > 1 else tokens
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the pages that the last ``tokens`` of ``request`` opened."""
        size, held = self.block_size, self._held[request]
        closed = (-(-held // size) + (-(held - tokens) // size)) * size
        self._held[request] = held - tokens
        self.reserved -= closed
        self._opened = self._wanted = 0

    def settle(self) -> None:
        """A batch is complete: evict as much as it asks for."""
        self.evict(max(self._wanted - self._opened, 0))
        self._opened = self._wanted = 0

    def grow(self, iterations: int) -> bool:
        """Open the pages that the next decode iterations need, and evict what they ask for."""
        last = self._ring[(1 - self._grown - iterations) % self.block_size]
        if not super().grow(iterations):
            return False
        self.evict((self._decoding - last) * self.block_size)
        return True

    def _lack(self) -> None:
        """All has been evicted, and it was not enough."""
        self.tree.evict(self.tree.idle)

    def evict(self, spare: int) -> None:
        """Evict until the tree leaves ``spare`` tokens besides those that are held, if it can."""
        size = self.block_size
        lack = self.reserved + self.tree.idle * size + spare - self.capacity
        if lack > 0:
            self.tree.evict(-(-lack // size))

    def publish(self, request: Request, tokens: int) -> None:
        """Enter the first ``tokens`` of ``request``, which holds them, and lock them."""
        old, size = self._nodes[request], self.block_size
        node = self._enter(request, tokens)
        self.reserved -= (node.high - old.high) * size
        self.reserved += self.tree.lock(node) * size
        self.tree.unlock(old)
        self._nodes[request] = node

    def _enter(self, request: Request, tokens: int) -> TreeNode:
        """Enter the first ``tokens`` of ``request``, in two pieces where it has answered."""
        node = self.tree.enter(self.spans(request, tokens))
        prompt = request.prompt_tokens // self.block_size
        if 0 < prompt < node.high:
            self.tree.enter(self.spans(request, request.prompt_tokens))
        return node

    def free(self, request: Request) -> None:
        """Take back what ``request`` has; if it is finished, enter it."""
        size = self.block_size
        held, node = self._held.pop(request), self._nodes.pop(request)
        self.reserved -= (-(-held // size) - node.high) * size
        if request.generated >= request.output_tokens:
            self._enter(request, held)
        self.reserved -= self.tree.unlock(node) * size

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every page is free, in the tree or of one request; the locks are those of holders."""
        tree, size = self.tree, self.block_size
        tree.check_integrity()
        held = {r: tokens - self._grown * decoding for r, (tokens, decoding) in owners.items()}
        assert self._held == held, (self._held, held)
        assert self._nodes.keys() == held.keys()
        locks: dict[TreeNode, int] = {}
        for node in self._nodes.values():
            for each in tree.path(node):
                locks[each] = locks.get(each, 0) + 1
        assert locks == {node: node.locks for node in tree.nodes() if node.locks}
        alone = sum(
            -(-tokens // size) - self._nodes[request].high
            for request, (tokens, _) in owners.items()
        )
        used = alone + sum(node.high - node.low for node in locks)
        assert self.reserved == used * size, (self.reserved, used)
        assert used + tree.idle <= self.num_blocks, (used, tree.idle)
        self._check_ring(owners)
