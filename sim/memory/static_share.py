"""Computes the share of a GPU's memory that SGLang takes for weights and KV cache by default.

``ServerArgs._handle_gpu_memory_settings`` (sgl-project/sglang, python/sglang/srt/server_args.py,
releases 0.5.6 to 0.5.23): what activations, graphs and the ranks' buffers need is reserved.
"""

from __future__ import annotations

from sim.units import Bytes, Count, Share

MIB = 2.0**20

GRAPHS = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))
"""Sequences of the largest decode graph: GiB of memory below which they hold, on fewer than four
GPUs and on more."""
LARGEST = 512
"""Sequences of the largest decode graph on GPUs with more memory."""


DRAFTING = {"ngram": 0, "draft_model": 6 * 1024}
"""MiB for a method of drafting; OTHER_DRAFTS for all others."""
OTHER_DRAFTS = 2 * 1024


def static_share(
    memory: Bytes,
    chunk: Count,
    tensor: Count,
    stages: Count = 1,
    *,
    ranks: Count = 1,
    drafts: str | None = None,
) -> Share:
    """The share of ``memory`` of a GPU that is left for weights and KV cache.

    Prompts are cut into chunks of ``chunk`` tokens. The model is on ``tensor`` GPUs in each of its
    ``stages``, those of all its data ``ranks`` together. ``drafts`` is the method of drafting.

    >>> static_share(80 * 2**30, 8192, 1)
    0.836
    """
    total = memory / MIB
    graph = next(
        (few if tensor < 4 else many for g, few, many in GRAPHS if total < g * 1024), LARGEST
    )
    reserved = 512 + 1.5 * max(chunk, 2048) + 2 * graph + 1024 * tensor * stages / 8
    if ranks > 1:
        reserved += graph * ranks * (3 + 1.5 * (graph > 300))
    if total > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if drafts is not None:
        reserved += DRAFTING.get(drafts, OTHER_DRAFTS)
    return round((total - reserved) / total, 3)
