"""Lists the shapes that an engine meets when it serves these lengths with this model.

Points of the families of ``calibrate.bench``: few enough for a minute, dense where a batch lies.
"""

from __future__ import annotations

from collections.abc import Iterator

from calibrate.bench import copies, decode_attention, elementwise, gemm, prefill_attention
from calibrate.bench.base import BenchPoint, rows_for
from calibrate.bench.heads import Heads
from calibrate.dense import dense_layer
from calibrate.verify.traffic import BLOCK_SIZE, TrafficSetting
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
    ``setting``."""
    precision, batch = setting.precision, setting.batch
    most = max(setting.chunk, batch * setting.prompt[1])
    rows = [m for m in rows_for(kind) if m <= min(most, LONG)]
    rows = [m for m in rows if m <= 2 * batch or m in LENGTHS]
    for name, (n, k) in gemm.layer_shapes(model, 1).items():
        for m in rows:
            if name != "head" or m <= batch:
                yield gemm.point(precision, m, n, k)
        if name != "head":
            yield gemm.point(precision, most, n, k)
    yield from _attention(model, setting)
    attention, mlp, _ = dense_layer(model)
    widths = {
        "norm": model.hidden_size,
        "embedding": model.hidden_size,
        "activation": mlp.intermediate_size,
        "rotary": attention.query_size + attention.kv_size,
        "kv_write": 2 * attention.kv_size,
    }
    for operator, width in widths.items():
        for m in rows[:: max(1, len(rows) // MOVED)]:
            yield elementwise.stream_point(operator, precision, m, width)
    for m in sorted({batch, *SAMPLED}):
        yield elementwise.sampling_point(m, model.vocab_size)
    for size in COPIED:
        yield copies.memory_point("memory", precision, size)


def _attention(model: ModelSpec, setting: TrafficSetting) -> Iterator[BenchPoint]:
    """Decodes, whole prompts, and chunks behind a context."""
    heads = Heads.of(model)
    precision, batch = setting.precision, setting.batch
    longest = -(-setting.longest // BLOCK_SIZE) * BLOCK_SIZE
    lengths = sorted({*(n for n in LENGTHS if n <= longest and n not in (24, 48)), longest})
    for context in lengths:
        for decodes in sorted({1, batch}):
            yield decode_attention.point(precision, decodes, context, heads)
    prompts = [n for n in lengths if n <= setting.prompt[1]] or lengths[:1]
    for tokens in prompts:
        for many in sorted({1, min(4, batch)}):
            yield prefill_attention.point(precision, many, tokens, 0, heads)
        for context in (n for n in prompts[1::2] if n + tokens <= longest):
            yield prefill_attention.point(precision, 1, tokens, context, heads)
