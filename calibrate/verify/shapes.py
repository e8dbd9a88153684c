"""Lists the shapes that an engine meets when it serves these lengths with this model.

Points of the families of ``calibrate.bench``: few enough for a minute, dense where a batch lies.
"""

from __future__ import annotations

from collections.abc import Iterator

from calibrate.bench import (
    copies,
    decode_attention,
    elementwise,
    experts,
    gemm,
    latent_attention,
    prefill_attention,
    window_attention,
)
from calibrate.bench.base import BenchPoint, rows_for
from calibrate.bench.experts import ExpertShape
from calibrate.bench.heads import Heads
from calibrate.bench.latent_attention import LatentShape
from calibrate.bench.of_model import products, widths
from calibrate.verify.traffic import BLOCK_SIZE, TrafficSetting
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import Attention, Mlp
from sim.specs.model import ModelSpec

LENGTHS = (1, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
"""Prompts, chunks and contexts worth a point."""

MOVED = 9
"""Sizes of an operator that moves data, at least: a fit wants eight."""

SAMPLED = (1, 2, 3, 4, 6, 8, 12, 16)
"""Rows of logits."""

LONG = 1024
"""Rows up to which products are measured densely; beyond, there is one point at the longest
pass."""

COPIED = tuple(2**exponent for exponent in (20, 24, 26))
"""Bytes of the copies that show what the memory can do."""


def points(model: ModelSpec, setting: TrafficSetting, kind: str) -> Iterator[BenchPoint]:
    """Every operator of the pass on a device of that ``kind``, within the lengths and batches of
    ``setting``. UsageError for layers that have no benchmark."""
    met = set()
    for point in _points(model, setting, kind):
        if point.key not in met:
            met.add(point.key)
            yield point


def _points(model: ModelSpec, setting: TrafficSetting, kind: str) -> Iterator[BenchPoint]:
    precision, batch = setting.precision, setting.batch
    most = max(setting.chunk, batch * setting.prompt[1])
    rows = [m for m in rows_for(kind) if m <= min(most, LONG)]
    rows = [m for m in rows if m <= 2 * batch or m in LENGTHS]
    head = (model.vocab_size, model.hidden_size)
    for shape in (*products(model), head):
        for m in rows:
            if shape is not head or m <= batch:
                yield gemm.point(precision, m, *shape)
        if shape is not head:
            yield gemm.point(precision, most, *shape)
    for group in model.layers:
        yield from _attention(group.attention, setting, kind)
        yield from _experts(model.hidden_size, group.mlp, setting, [*rows, most])
    for operator, width in widths(model):
        for m in rows[:: max(1, len(rows) // MOVED)]:
            yield elementwise.stream_point(operator, precision, m, width)
    for m in sorted({batch, *SAMPLED}):
        yield elementwise.sampling_point(m, model.vocab_size)
    for size in COPIED:
        yield copies.memory_point("memory", precision, size)


def _attention(attention: Attention, setting: TrafficSetting, kind: str) -> Iterator[BenchPoint]:
    """Decodes, whole prompts, and chunks behind a context."""
    precision = setting.precision
    decodes, prompts = list(_decodes(setting)), list(_prompts(setting, kind))
    if isinstance(attention, GroupedQuery):
        heads = Heads(attention.num_heads, attention.num_kv_heads, attention.head_dim)
        window = attention.sliding_window
        for batch, context in decodes:
            yield decode_attention.point(precision, batch, context, heads)
            if window is not None:
                yield window_attention.decode_point(precision, batch, context, window, heads)
        for batch, tokens, context in prompts:
            yield prefill_attention.point(precision, batch, tokens, context, heads)
            if window is not None and tokens + context > window:
                sizes = batch, tokens, context
                yield window_attention.prefill_point(precision, *sizes, window, heads)
    elif isinstance(attention, Latent):
        sizes = attention.kv_lora_rank, attention.qk_rope_head_dim, attention.v_head_dim
        shape = LatentShape(attention.num_heads, *sizes)
        for batch, context in decodes:
            yield latent_attention.decode_point(precision, batch, context, shape)
        for batch, tokens, context in prompts:
            yield latent_attention.prefill_point(precision, batch, tokens, context, shape)


def _decodes(setting: TrafficSetting) -> Iterator[tuple[int, int]]:
    """(sequences, context)."""
    for context in _lengths(setting):
        for sequences in sorted({1, setting.batch}):
            yield sequences, context


def _prompts(setting: TrafficSetting, kind: str) -> Iterator[tuple[int, int, int]]:
    """(prompts, tokens of each, context of each); on a CPU also drafts that are checked, which it
    computes as such."""
    lengths = _lengths(setting)
    prompts = [n for n in lengths if n <= setting.prompt[1]] or lengths[:1]
    for tokens in prompts:
        for many in sorted({1, min(4, setting.batch)}):
            yield many, tokens, 0
        for context in (n for n in prompts[1::2] if n + tokens <= lengths[-1]):
            yield 1, tokens, context
    for tokens in prefill_attention.CHECKS if kind == "cpu" else ():
        for context in (n for n in lengths[1:] if n + tokens <= lengths[-1]):
            yield 1, tokens, context


def _lengths(setting: TrafficSetting) -> list[int]:
    longest = -(-setting.longest // BLOCK_SIZE) * BLOCK_SIZE
    return sorted({*(n for n in LENGTHS if n <= longest and n not in (24, 48)), longest})


def _experts(
    hidden: int, mlp: Mlp, setting: TrafficSetting, rows: list[int]
) -> Iterator[BenchPoint]:
    """The routed experts, chosen as evenly as random weights choose them."""
    if isinstance(mlp, MixtureOfExperts):
        sizes = mlp.moe_intermediate_size, mlp.experts_per_token, mlp.num_experts
        shape = ExpertShape(hidden, *sizes, mlp.mlp_matrices)
        for tokens in rows:
            yield experts.point(setting.precision, shape, tokens, shared=False)
