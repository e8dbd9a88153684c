"""Provides the attention kernels that the engine runs on CUDA.

Decodes: all sequences in one call of the Triton kernel that ``infersim calibrate`` measures, or,
where that cannot run, caches gathered and masked. Prompts: PyTorch's variable-length flash kernel,
all in one call, or PyTorch's attention a prompt at a time. Padded batches are always gathered and
masked, as engines that pad do it. Each kernel is compared with attention by sequence on a small
case before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from itertools import accumulate
from typing import Any, NamedTuple

from calibrate.bench import latent_by_sequence, paged_flash
from calibrate.bench.latent_by_sequence import Up
from calibrate.bench.paged_triton import LEAST_ROWS, MOST_SPLITS, TILE, splits_for
from calibrate.engine.attend import WHOLE, Attend, View
from calibrate.engine.attention import (
    BySequence,
    Decode,
    EngineAttention,
    gathered,
    prompts_one_by_one,
)
from calibrate.engine.batch import EngineStep, Span, make_step
from calibrate.engine.cache import BlockTables
from calibrate.lazy_torch import Tensor, optional, torch
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.model import ModelSpec

TOLERANCE = 2e-2
"""Error of a kernel against attention by sequence in the same precision, relative (bf16)."""

PlainAttend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries over one layer's keys and values."""

Prompts = Callable[[EngineStep], PlainAttend]
"""Attention of the prompts of a step; other rows of the result hold nothing."""


class Batched:
    """One kernel for all decodes, another one for the prompts.

    ``replayable``: the decode kernel takes as long as the sequences need, and not as long as the
    table is wide. Layers that look through windows, have sinks or latent vectors are computed by
    sequence.
    """

    def __init__(self, decode: Decode, prompts: Prompts, name: str, *, replayable: bool) -> None:
        self.name = name
        self.replayable = replayable
        self._decode = decode
        self._prompts = prompts
        self._others = BySequence()

    def of(self, step: EngineStep) -> Attend:
        """Decodes first, as the rows lie."""
        decode = gathered if step.padded else self._decode
        prompts = None
        if len(step.spans) > step.decodes:
            prompts = (prompts_one_by_one if step.padded else self._prompts)(step)
        return _AtOnce(step, decode, prompts, self._others.of(step))


class _AtOnce(NamedTuple):
    """The call of ``Batched`` for each layer of ``step``."""

    step: EngineStep
    decode: Decode
    prompts: PlainAttend | None
    others: Attend

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, view: View = WHOLE) -> Tensor:
        if view.group or view.window is not None or view.sinks is not None:
            return self.others(query, keys, values, view)
        query = query.contiguous()  # it was turned together with the keys
        if self.prompts is None:
            return self.decode(query, keys, values, self.step)
        out, count = self.prompts(query, keys, values), self.step.decodes
        if count:
            out[:count] = self.decode(query[:count], keys, values, self.step)
        return out

    def latent(self, query: Tensor, cached: Tensor, up: Up) -> Tensor:
        return self.others.latent(query, cached, up)


def choose(model: ModelSpec, dtype: Any, device: str) -> EngineAttention:
    """The best kernels that are installed and right; by sequence where some layer looks through a
    window, has sinks or latent vectors. Experts are launched one by one, which no graph repeats."""
    if any(isinstance(group.attention, Latent) for group in model.layers):
        return BySequence(latent_by_sequence.NAME)
    if device == "cpu" or not all(_plain(group.attention) for group in model.layers):
        return BySequence()
    dense = all(isinstance(group.mlp, DenseMlp) for group in model.layers)
    decode, decode_name, replayable = gathered, "gather and SDPA", False
    if _agrees(
        Batched(triton_decode, prompts_one_by_one, "", replayable=True), model, dtype, device
    ):
        decode, decode_name, replayable = triton_decode, "Triton split-KV", True
    prompts: Prompts = prompts_one_by_one
    prompts_name = "SDPA by sequence"
    if _agrees(Batched(gathered, prompts_at_once, "", replayable=False), model, dtype, device):
        prompts, prompts_name = prompts_at_once, "variable-length flash"
    name = f"{decode_name}; prompts: {prompts_name}"
    return Batched(decode, prompts, name, replayable=replayable and dense)


def _plain(attention: object) -> bool:
    return isinstance(attention, GroupedQuery) and attention.window is None and not attention.sinks


def triton_decode(query: Tensor, keys: Tensor, values: Tensor, step: EngineStep) -> Tensor:
    """Split-KV attention over the block tables; see ``calibrate.bench.paged_triton_kernels``."""
    module = optional("calibrate.bench.paged_triton_kernels")
    if module is None or optional("triton") is None:
        raise RuntimeError("Triton is not installed")
    batch, heads, size = query.shape
    kv_heads, group = keys.shape[2], heads // keys.shape[2]
    units = torch.cuda.get_device_properties(query.device).multi_processor_count
    longest = step.tables[0].shape[1] * keys.shape[1]
    splits = splits_for(batch * kv_heads, longest, units)
    out = torch.empty_like(query)
    partial = torch.empty((batch, heads, splits, size), device=query.device)
    maxima = torch.empty((batch, heads, splits), device=query.device)
    sums = torch.empty((batch, heads, splits), device=query.device)
    module.attend[(batch, kv_heads, splits)](
        query,
        keys,
        values,
        step.tables[0],
        step.lengths,
        out,
        partial,
        maxima,
        sums,
        size**-0.5 * math.log2(math.e),
        step.tables[0].stride(0),
        keys.stride(0),
        kv_heads,
        splits,
        group=group,
        size=size,
        block=keys.shape[1],
        tile=TILE,
        rows=max(LEAST_ROWS, 2 ** math.ceil(math.log2(group))),
        whole=splits == 1,
        num_warps=4,
        num_stages=2,
    )
    if splits > 1:
        module.combine[(batch, heads)](
            partial, maxima, sums, out, splits, size=size, most=MOST_SPLITS, num_warps=4
        )
    return out


def prompts_at_once(step: EngineStep) -> PlainAttend:
    """The keys and values of all prompts side by side, then one variable-length kernel."""
    library = optional("torch.nn.attention.varlen")
    if library is None or "window_size" not in signature(library.varlen_attn).parameters:
        raise RuntimeError("this PyTorch has no causal variable-length attention")
    spans = step.spans[step.decodes :]
    device = step.tables[0].device
    starts, ends = (
        torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device)
        for counts in ([span.count for span in spans], [span.stop for span in spans])
    )
    longest = max(span.count for span in spans), max(span.stop for span in spans)
    table, size = step.tables[0][step.decodes :], step.block_size
    places = torch.arange(table.shape[1] * size, device=device)
    slots = table.repeat_interleave(size, dim=1) * size + places % size
    chosen = slots[places < step.lengths[step.decodes :, None]]
    shared = paged_flash.grouped(library.varlen_attn)

    def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        own = [part.flatten(0, 1).index_select(0, chosen) for part in (keys, values)]
        out = torch.empty_like(query)
        out[step.decodes :] = library.varlen_attn(
            query[step.decodes :],
            *own,
            starts,
            ends,
            *longest,
            window_size=(-1, 0),
            **shared,
        )
        return out

    return attend


def _agrees(candidate: EngineAttention, model: ModelSpec, dtype: Any, device: str) -> bool:
    """Whether ``candidate`` runs here and gives what attention by sequence gives, for decodes and
    chunks of prompts of unequal length."""
    size = 16
    tables = BlockTables(64, size, order=[(7 * block) % 64 for block in range(64)])
    shapes = [(0, 300, 1), (1, 4, 1), (2, 131, 1), (3, 0, 50), (4, 100, 20), (5, 37, 1)]
    spans = []
    for request, start, count in shapes:
        tables.resize(request, start + count)
        spans.append(Span(request, [0] * count, start, 0, samples=False, prompt=request > 2))
    step = make_step(spans, tables, nowhere=64, device=device)
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        made = torch.empty(shape, dtype=dtype, device=device)
        return made.normal_(generator=generator)

    heads = model.layers[0].attention
    assert isinstance(heads, GroupedQuery)
    query = draw(len(step.tokens), heads.num_heads, heads.head_dim)
    keys, values = (draw(65, size, heads.num_kv_heads, heads.head_dim) for _ in range(2))
    expected = BySequence().of(step)(query, keys, values).double()
    try:
        error = candidate.of(step)(query, keys, values).double() - expected
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever a compiler, a driver or a missing kernel raises: not this one
        return False
    return float(error.norm()) <= TOLERANCE * float(expected.norm())
