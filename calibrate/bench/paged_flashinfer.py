"""Computes paged attention with flashinfer, whose kernels several engines use, if it is installed.

``plan`` splits the work over the device once per step and is not part of the time; ``run`` is.
Each wrapper has memory of its own for its plan, so only ``MOST_TABLES`` block tables take turns.
"""

from __future__ import annotations

from collections.abc import Callable

from calibrate.bench.base import UnsupportedError
from calibrate.bench.paged import BLOCK, PagedCache, blocks_for
from calibrate.lazy_torch import Tensor, optional, torch

NAME = "flashinfer"
WORKSPACE = 128 * 2**20
MOST_TABLES = 64


def decode_calls(
    query: Tensor, cache: PagedCache, window: int | None = None
) -> list[Callable[[], Tensor]]:
    """One planned wrapper for each block table, over the last ``window`` tokens where it is given;
    UnsupportedError without flashinfer."""
    library = optional("flashinfer")
    if library is None:
        raise UnsupportedError("flashinfer is not installed")
    heads, where = cache.heads, query.device
    counts = [blocks_for([length]) for length in cache.lengths]
    starts = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).to(torch.int32).to(where)
    last = [(length - 1) % BLOCK + 1 for length in cache.lengths]
    filled = torch.tensor(last, dtype=torch.int32, device=where)
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=where)
    back = {} if window is None else {"window_left": window - 1}
    tensor_cores = heads.q // heads.kv >= 4

    def call(table: Tensor) -> Callable[[], Tensor]:
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
            workspace,
            "NHD",
            use_tensor_cores=tensor_cores,
        )
        blocks = torch.cat([table[i, :count] for i, count in enumerate(counts)])
        wrapper.plan(
            starts,
            blocks,
            filled,
            heads.q,
            heads.kv,
            heads.size,
            BLOCK,
            q_data_type=query.dtype,
            kv_data_type=cache.keys.dtype,
            **back,
        )
        pair = (cache.keys, cache.values)
        return lambda: wrapper.run(query, pair)

    return [call(table) for table in cache.tables[:MOST_TABLES]]
