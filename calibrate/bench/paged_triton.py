"""Computes decode attention over a paged KV cache in Triton: split the context, then combine.

One program takes one sequence, one KV head (with all query heads of its group, as rows of one tile)
and one split of the context. It walks its part in tiles of ``TILE`` tokens with a running maximum
and sum (base 2), and writes an unnormalised result with both. A second kernel weighs the splits
against one another. With one split the first kernel writes the result itself.

Keys and values in 8 bits are widened as they are read. Triton is imported when calls are made.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache as once
from typing import Any

from calibrate.bench.base import UnsupportedError
from calibrate.bench.paged import BLOCK, PagedCache
from calibrate.lazy_torch import Tensor, optional, torch

NAME = "Triton split-KV"
TILE = 64
MOST_SPLITS = 64
WAVES = 4
"""Programs wanted for each multiprocessor: with fewer, some wait while others finish."""

LEAST_ROWS = 16
"""Rows of the smallest tile that the matrix units take."""


@once
def _kernels() -> tuple[Any, Any]:
    """The two compiled kernels; UnsupportedError where Triton is missing."""
    if optional("triton") is None:
        raise UnsupportedError("Triton is not installed")
    module = importlib.import_module("calibrate.bench.paged_triton_kernels")
    return module.attend, module.combine


def splits_for(programs: int, longest: int, units: int) -> int:
    """Splits of the context that fill the device, none shorter than two tiles; a power of two.

    >>> splits_for(8, 8192, 132), splits_for(2048, 8192, 132), splits_for(8, 100, 132)
    (64, 1, 1)
    """
    wanted = WAVES * units / programs
    most = min(MOST_SPLITS, longest / (2 * TILE))
    return 1 << math.floor(math.log2(max(1.0, min(wanted, most))))


def decode_calls(query: Tensor, cache: PagedCache) -> list[Callable[[], Tensor]]:
    """Calls for each block table in turn; they share their scratch memory."""
    attend, combine = _kernels()
    heads, batch = cache.heads, len(cache.lengths)
    group = heads.q // heads.kv
    where = query.device
    units = torch.cuda.get_device_properties(where).multi_processor_count
    splits = splits_for(batch * heads.kv, cache.longest, units)
    lengths = torch.tensor(cache.lengths, dtype=torch.int32, device=where)
    out = torch.empty_like(query)
    partial = torch.empty((batch, heads.q, splits, heads.size), device=where)
    maxima = torch.empty((batch, heads.q, splits), device=where)
    sums = torch.empty((batch, heads.q, splits), device=where)
    scale = heads.size**-0.5 * math.log2(math.e)
    rows = max(LEAST_ROWS, 2 ** math.ceil(math.log2(group)))

    def call(table: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            attend[(batch, heads.kv, splits)](
                query,
                cache.keys,
                cache.values,
                table,
                lengths,
                out,
                partial,
                maxima,
                sums,
                scale,
                table.stride(0),
                cache.keys.stride(0),
                heads.kv,
                splits,
                group=group,
                size=heads.size,
                block=BLOCK,
                tile=TILE,
                rows=rows,
                whole=splits == 1,
                num_warps=4,
                num_stages=2,
            )
            if splits > 1:
                combine[(batch, heads.q)](
                    partial,
                    maxima,
                    sums,
                    out,
                    splits,
                    size=heads.size,
                    most=MOST_SPLITS,
                    num_warps=4,
                )
            return out

        return run

    return [call(table) for table in cache.tables]
