"""Provides the two kinds of attention that the continuous batching of transformers can run.

``DENSE`` is its own, ``paged|sdpa``: all keys and values of the batch side by side, repeated for
every query head, and one masked attention of (sum of queries) x (sum of KV tokens). Its cost is
that of the square, not that of the sequences.

``BY_REQUEST`` is registered here: PyTorch's attention for each request over its own keys and values
alone. On CUDA one variable-length flash call does it where PyTorch has that kernel for these heads
and this precision, elsewhere a call for each request.
"""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any

from calibrate.bench.paged_flash import grouped
from calibrate.lazy_torch import Tensor, optional, torch
from calibrate.observers import lazy_transformers

DENSE = "paged|sdpa"
BY_REQUEST = "paged|by-request"

NAMES = {
    DENSE: f"{DENSE}: one masked attention over all sequences of the batch, keys and values "
    "repeated for each query head",
    BY_REQUEST: f"{BY_REQUEST}: PyTorch's attention for each request over its own keys and values",
}
"""Their names in records."""

FLASH_HEADS = 256
"""The largest head that the variable-length kernel takes."""


def register() -> None:
    """Make ``BY_REQUEST`` known to transformers."""
    known = lazy_transformers.module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    known.register(BY_REQUEST, by_request)


def by_request(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **paged: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers asks for it: heads x tokens of all requests in a row.

    ``paged`` has the cache with the places to read and write, and where each request starts.
    """
    keys, values = paged["cache"].update(
        key_states=key,
        value_states=value,
        layer_idx=module.layer_idx,
        read_index=paged["read_index"],
        write_index=paged["write_index"],
    )
    queries = query[0].transpose(0, 1)  # token x head x size, as keys and values
    bounds = paged["cu_seq_lens_q"], paged["cu_seq_lens_k"]
    flash = _flash(queries)
    if flash is not None:
        seen = flash(
            queries,
            keys,
            values,
            *bounds,
            paged["max_seqlen_q"],
            paged["max_seqlen_k"],
            scale=scaling,
            window_size=(-1, 0),  # causal, the last query sees all keys
            **grouped(flash),
        )
    else:
        rows, places = (each.tolist() for each in bounds)
        seen = _one_by_one(queries, keys, values, rows, places, scaling)
    return seen[None], None


def _one_by_one(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: list[int],
    places: list[int],
    scaling: float | None,
) -> Tensor:
    """A call for each request; the last of its queries sees all its keys."""
    out = torch.empty_like(queries)
    for index in range(len(rows) - 1):
        mine, own = slice(*rows[index : index + 2]), slice(*places[index : index + 2])
        count, held = mine.stop - mine.start, own.stop - own.start
        query, key, value = (
            part.transpose(0, 1)[None] for part in (queries[mine], keys[own], values[own])
        )
        together = count == 1 and query.shape[1] != key.shape[1]
        if together:  # the heads of a group are rows of one product
            query = query.view(1, key.shape[1], -1, query.shape[-1])
        mask = None
        if 1 < count < held:
            seen = torch.arange(held, device=query.device)
            mask = seen <= torch.arange(held - count, held, device=query.device)[:, None]
        found = torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=count == held > 1,
            scale=scaling,
            enable_gqa=not together and query.shape[1] != key.shape[1],
        )
        out[mine] = found.reshape(1, -1, count, queries.shape[-1])[0].transpose(0, 1)
    return out


def _flash(queries: Tensor) -> Any | None:
    """PyTorch's variable-length attention, where it runs on these queries."""
    half = queries.dtype in (torch.bfloat16, torch.float16)
    if queries.device.type != "cuda" or not half or queries.shape[-1] > FLASH_HEADS:
        return None
    return _varlen()


@cache
def _varlen() -> Any | None:
    """The function itself, in releases that have it causal."""
    found = optional("torch.nn.attention.varlen")
    if found is None or "window_size" not in signature(found.varlen_attn).parameters:
        return None
    return found.varlen_attn
