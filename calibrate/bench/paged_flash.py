"""Computes attention with PyTorch's variable-length flash kernel, paged if the build supports it.

Newer versions of PyTorch take block tables (``torch.nn.attention.varlen``); older ones raise, and
the next candidate is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from calibrate.bench.base import UnsupportedError
from calibrate.bench.paged import PagedCache
from calibrate.lazy_torch import Tensor, optional, torch

NAME = "torch varlen_attn"


def _library() -> Any:
    library = optional("torch.nn.attention.varlen")
    if library is None:
        raise UnsupportedError("this PyTorch has no varlen_attn")
    return library.varlen_attn


def grouped(attend: Callable[..., Any]) -> dict[str, bool]:
    """Lets query heads share KV heads: PyTorch 2.11 does it unasked and has no word for it."""
    return {"enable_gqa": True} if "enable_gqa" in signature(attend).parameters else {}


def decode_calls(
    query: Tensor, cache: PagedCache, window: int | None = None
) -> list[Callable[[], Tensor]]:
    """One query token per sequence over paged keys and values, or the last ``window`` of them."""
    attend = _library()
    if "block_table" not in signature(attend).parameters:
        raise UnsupportedError("this PyTorch's varlen_attn takes no block table")
    batch, where = len(cache.lengths), query.device
    starts = torch.arange(batch + 1, dtype=torch.int32, device=where)
    used = torch.tensor(cache.lengths, dtype=torch.int32, device=where)
    back = (-1, -1) if window is None else (window - 1, 0)

    def call(table: Tensor) -> Callable[[], Tensor]:
        return lambda: attend(
            query,
            cache.keys,
            cache.values,
            starts,
            None,
            1,
            cache.longest,
            window_size=back,
            seqused_k=used,
            block_table=table,
            **grouped(attend),
        )

    return [call(table) for table in cache.tables]


def prefill_call(
    query: Tensor, keys: Tensor, values: Tensor, batch: int, window: int | None = None
) -> Callable[[], Tensor]:
    """``batch`` prompts of equal length, packed; queries are the last tokens of their context, and
    see no more than ``window`` tokens where it is given.

    ``query`` is all tokens x heads x size, ``keys`` and ``values`` all contexts x KV heads x size.
    """
    attend = prefill_function(query, keys, batch, window)
    return lambda: attend(query, keys, values)


def prefill_function(
    query: Tensor, keys: Tensor, batch: int, window: int | None = None
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The function for any tensors as long as these."""
    attend = _library()
    tokens, context = query.shape[0] // batch, keys.shape[0] // batch
    count = torch.arange(batch + 1, dtype=torch.int32, device=query.device)
    places = count * tokens, count * context, tokens, context
    back = (-1 if window is None else window - 1, 0)
    shared = grouped(attend)
    return lambda q, k, v: attend(q, k, v, *places, window_size=back, **shared)
