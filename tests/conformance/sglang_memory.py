"""SGLang's own memory on a CPU: page allocator, table of rows and prefix tree, and no KV.

What is free, found, entered and evicted is decided by its ``TokenToKVPoolAllocator`` or
``PagedTokenToKVPoolAllocator``, ``ReqToTokenPool`` and ``UnifiedRadixCache`` (with its core in
Python), called by its ``mem_cache.allocation`` and ``mem_cache.common`` as in a server.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.sglang_package import module


class SglangMemory:
    """``pages`` of ``page`` tokens for ``rows`` requests at once; with ``caching`` what was
    computed stays in the tree."""

    def __init__(self, *, pages: int, page: int, rows: int, caching: bool) -> None:
        self._torch = torch = module("torch")
        self._common = module("sglang.srt.mem_cache.common")
        self._allocation = module("sglang.srt.mem_cache.allocation")
        allocators = module("sglang.srt.mem_cache.allocator")
        size, none = pages * page, (torch.float16, "cpu", None, False)
        self.pool: Any = (
            allocators.TokenToKVPoolAllocator(size, *none)
            if page == 1
            else allocators.PagedTokenToKVPoolAllocator(size, page, *none)
        )
        pools = module("sglang.srt.mem_cache.memory_pool")
        self.rows: Any = pools.ReqToTokenPool(
            rows, size + page, device="cpu", enable_memory_saver=False
        )
        components = module("sglang.srt.mem_cache.unified_cache.components")
        params = module("sglang.srt.mem_cache.cache_init_params").CacheInitParams(
            disable=not caching,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.pool,
            page_size=page,
            tree_components=(components.ComponentType.FULL,),
            tree_core_backend="python",
        )
        caches = module("sglang.srt.mem_cache.unified_radix_cache")
        self.tree: Any = caches.UnifiedRadixCache(params)

    def extend(self, batch: Any) -> None:
        """Take memory for the prompts of ``batch``, evicting what has to go."""
        requests = batch.reqs
        batch.prefix_lens = [request.prefix_len for request in requests]
        batch.extend_lens = [request.extend_len for request in requests]
        batch.extend_num_tokens = sum(batch.extend_lens)
        self._set_lengths(batch, [request.extend_end for request in requests])
        self._allocation.alloc_for_extend(batch)

    def decode(self, batch: Any) -> None:
        """Take memory for a token more of each request of ``batch``."""
        self._set_lengths(batch, [request.kv.kv_committed_len for request in batch.reqs])
        rows = [request.kv.req_pool_idx for request in batch.reqs]
        batch.req_pool_indices = batch.req_pool_indices_cpu = self._torch.tensor(rows)
        self._allocation.alloc_for_decode(batch, token_per_req=1)

    def _set_lengths(self, batch: Any, lengths: list[int]) -> None:
        batch.seq_lens = batch.seq_lens_cpu = self._torch.tensor(lengths, dtype=self._torch.int64)

    def publish(self, request: Any) -> None:
        """The prompt of ``request`` is complete, and it goes on: others can find it."""
        self._common.checkpoint_kv_cache(request, self.tree)

    def release(self, request: Any) -> None:
        """``request`` has finished."""
        self._common.release_kv_cache(request, self.tree, checkpoint=True)
