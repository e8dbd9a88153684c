"""The Triton kernels of ``paged_triton``: attention of one split, and the combination of splits.

Arguments that are fixed at compilation are marked ``constexpr``; the others have no types, since
the compiler looks up every name of a signature and knows only Triton's. Without Triton the
functions are plain ones that nothing calls.
"""

from __future__ import annotations

from typing import Any

from calibrate.lazy_torch import optional

tl: Any = optional("triton.language")
_triton: Any = optional("triton")


def _jit(*changing: str) -> Any:
    """Compiles a kernel once for all values of the arguments ``changing``: otherwise it is compiled
    anew, in half a second in the middle of a run, where one of them becomes 1, or a multiple of 16,
    or an address that is none."""
    if _triton is None:
        return lambda function: function
    return _triton.jit(do_not_specialize=list(changing))


@_jit("table", "lengths", "table_stride", "splits")  # type: ignore[untyped-decorator]
def attend(  # type: ignore[no-untyped-def]
    query,
    keys,
    values,
    table,
    lengths,
    out,
    partial,
    maxima,
    sums,
    scale,
    table_stride,
    block_stride,
    kv_heads,
    splits,
    group: tl.constexpr,
    size: tl.constexpr,
    block: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    whole: tl.constexpr,
) -> None:
    """One sequence, one KV head, one split (``whole``: there is only one); ``scale`` includes the
    change to base 2. What differs between head layouts only in number is no constant, so that few
    kernels are compiled."""
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + sequence)
    each = tl.cdiv(tl.cdiv(length, tile), splits) * tile
    first = split * each
    last = tl.minimum(first + each, length)

    row = tl.arange(0, rows)
    column = tl.arange(0, size)
    step = tl.arange(0, tile)
    own = row < group
    query_row = sequence * kv_heads * group + head * group + row
    at = query_row[:, None] * size + column[None, :]
    q = tl.load(query + at, mask=own[:, None], other=0.0)
    top = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    result = tl.zeros([rows, size], tl.float32)

    for start in range(first, last, tile):
        token = start + step
        valid = token < last
        number = tl.load(table + sequence * table_stride + token // block, mask=valid, other=0)
        place = number.to(tl.int64) * block_stride
        place += (token % block) * (kv_heads * size) + head * size
        where = place[:, None] + column[None, :]
        k = tl.load(keys + where, mask=valid[:, None], other=0.0).to(q.dtype)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(valid[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp2(top - higher)
        weights = tl.exp2(scores - higher[:, None])
        v = tl.load(values + where, mask=valid[:, None], other=0.0).to(q.dtype)
        result = result * shrink[:, None]
        result += tl.dot(weights.to(q.dtype), v, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        top = higher

    if whole:
        normal = result / total[:, None]
        tl.store(out + at, normal.to(out.dtype.element_ty), mask=own[:, None])
    else:
        cell = query_row * splits + split
        tl.store(maxima + cell, top, mask=own)
        tl.store(sums + cell, total, mask=own)
        cells = cell[:, None] * size + column[None, :]
        tl.store(partial + cells, result, mask=own[:, None])


@_jit("splits")  # type: ignore[untyped-decorator]
def combine(  # type: ignore[no-untyped-def]
    partial,
    maxima,
    sums,
    out,
    splits,
    size: tl.constexpr,
    most: tl.constexpr,
) -> None:
    """One query head of one sequence: its splits, of which there are ``most`` at most, weighed by
    their maxima, empty ones by nothing."""
    row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    split = tl.arange(0, most)
    column = tl.arange(0, size)
    own = split < splits
    top = tl.load(maxima + row * splits + split, mask=own, other=float("-inf"))
    total = tl.load(sums + row * splits + split, mask=own, other=0.0)
    weight = tl.exp2(top - tl.max(top, 0))
    cells = (row * splits + split)[:, None] * size + column[None, :]
    parts = tl.load(partial + cells, mask=own[:, None], other=0.0)
    whole = tl.sum(parts * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + row * size + column, whole.to(out.dtype.element_ty))
