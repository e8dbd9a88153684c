"""Defines the metrics of the KV cache, of a prefix cache and of KV memory in the host."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric

KV_METRICS = (
    Metric("kv_cache.tokens", "kv_tokens", "tokens", kind="count", table="memory"),
    Metric("kv_cache.num_gpu_blocks", "kv_blocks", "blocks", kind="count", table="memory"),
    Metric("kv_cache.block_size", "block_size", "tokens", kind="count", table="memory"),
    Metric("kv_cache.max_model_len", "max_model_len", "tokens", kind="count", table="memory"),
    Metric("kv_cache.max_concurrency", "max_concurrency", "requests", table="memory"),
    Metric(
        "kv_cache.mean_used", "kv_used", "%",
        kind="share", table="memory", detail="mean", repeated=True,
    ),
    Metric(
        "kv_cache.peak_used", "kv_used", "%",
        kind="share", table="memory", detail="peak", repeated=True,
    ),
    Metric(
        "kv_cache.mean_reserved", "kv_reserved", "%", kind="share", table="memory", detail="mean"
    ),
    Metric("kv_cache.fragmentation", "fragmentation", "%", kind="share", table="memory"),
    Metric("preemptions", "preemptions", kind="count", table="memory", repeated=True),
    Metric(
        "prefix_cache.hit_rate", "prefix_hits", "share", "higher", "share",
        title="Prefix hits", called="prefix hit rate", table="memory",
        compared=True, repeated=True, optional=True,
    ),
)  # fmt: skip

KV_TERMS: Mapping[str, Definition] = {
    "allocator": Definition(
        "Allocator",
        "How KV cache is given to requests: paged (block by block as they grow) or contiguous "
        "(the maximum length, reserved at the start).",
    ),
    "kv_tokens": Definition(
        "KV cache size",
        "Tokens whose keys and values fit into the memory of one replica after the weights.",
    ),
    "kv_blocks": Definition("KV blocks", "The same as a number of blocks (num_gpu_blocks)."),
    "block_size": Definition("Block size", "Tokens per block of KV cache."),
    "max_model_len": Definition("Maximum length", "Most tokens of prompt and output in a request."),
    "max_concurrency": Definition(
        "Maximum concurrency",
        "KV cache size / maximum length: how many requests of the longest kind fit at once.",
    ),
    "kv_used": Definition("KV cache used", "Share of the KV cache that holds tokens."),
    "kv_reserved": Definition(
        "KV cache reserved", "Share of the KV cache that requests own, filled or not."
    ),
    "fragmentation": Definition(
        "Fragmentation", "Share of the reserved KV cache that holds nothing."
    ),
    "kv_map": Definition(
        "KV cache over time",
        "Used: holds keys and values of tokens. Reserved, empty: owned by a request but not "
        "filled yet (waste, in blocks or up to the maximum length). Free: owned by no request. "
        "The three add up to the whole cache at any time. With a prefix cache, blocks shared by "
        "several requests are counted once and drawn separately, and so are free blocks that are "
        "still cached.",
    ),
    "gpu_memory": Definition(
        "Memory of one GPU",
        "Weights; activations of the largest iteration; the engine's reserve (context, graphs, "
        "buffers); KV cache that is used, reserved but empty, or free; and memory that the engine "
        "may not use. Together they make up the memory of the GPU.",
    ),
    "prefix_hits": Definition(
        "Prefix hits",
        "Share of the prompt tokens that were in the prefix cache when their request was admitted, "
        "and were not computed. As vLLM's prefix_cache_hits over prefix_cache_queries.",
    ),
}

HOST_METRICS = (
    Metric(
        "host_tier.hit_rate", "host_hits", "share", "higher", "share",
        title="Host hits", called="host hit rate", table="memory", repeated=True, optional=True,
    ),
    Metric("host_tier.to_host_gb", "host_moved", "GB", table="memory", detail="to the host",
           repeated=True, optional=True),
    Metric("host_tier.from_host_gb", "host_moved", "GB", table="memory", detail="from the host",
           repeated=True, optional=True),
    Metric("host_tier.link_out", "host_link", "%", kind="share", table="memory",
           detail="to the host", repeated=True, optional=True),
    Metric("host_tier.link_in", "host_link", "%", kind="share", table="memory",
           detail="from the host", repeated=True, optional=True),
    Metric("host_tier.swaps", "swaps", kind="count", table="memory", repeated=True, optional=True),
)  # fmt: skip

HOST_TERMS: Mapping[str, Definition] = {
    "host_hits": Definition(
        "Host hits",
        "Share of the prompt tokens that were loaded from host memory when their request was "
        "admitted; they count as prefix hits too.",
    ),
    "host_moved": Definition(
        "Moved to and from the host",
        "Gigabytes of KV cache over the links between GPUs and hosts, all GPUs together: blocks "
        "stored and loaded, and those of swapped requests.",
    ),
    "host_link": Definition(
        "Host link in use",
        "Share of the time in which the link between a replica and its host moves blocks, for "
        "each direction.",
    ),
    "swaps": Definition(
        "Swaps",
        "How often the blocks of a preempted request went to the host. The other preemptions lose "
        "their work.",
    ),
}
