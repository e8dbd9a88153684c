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


def static_share(memory: Bytes, chunk: Count, gpus: Count) -> Share:
    """The share of ``memory``, that of each of the ``gpus`` that hold the model, which is left for
    weights and KV cache with prompts cut into chunks of ``chunk`` tokens.

    >>> static_share(80 * 2**30, 8192, 1)
    0.836
    """
    total = memory / MIB
    graph = next(
        (few if gpus < 4 else many for g, few, many in GRAPHS if total < g * 1024), LARGEST
    )
    reserved = 512 + 1.5 * max(chunk, 2048) + 2 * graph + 1024 * gpus / 8
    if total > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return round((total - reserved) / total, 3)
