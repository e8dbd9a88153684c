"""Provides the least code that runs a decoder layer: for timing, with random weights.

Norm, QKV, rotary embedding, KV write, attention, output projection, norm, gate and up, activation,
down: as in the Llama family. Its operators are those that the other families time one by one, so
that a layer can be compared with the sum of its parts. Nothing is learned and nothing is generated;
``tests`` compare it with a plain written-out layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from calibrate.bench import by_sequence, decode_attention, gemm, prefill_attention
from calibrate.bench.arena import Arena, dtype
from calibrate.bench.base import BenchPoint
from calibrate.bench.elementwise import compiled, draw, gated, look_up, norm, rotate
from calibrate.bench.heads import Heads, first_right
from calibrate.bench.paged import BLOCK, make_cache
from calibrate.lazy_torch import Tensor, torch
from sim.specs.model import ModelSpec

ROTARY_BASE = 10000.0


class TinyWeights(NamedTuple):
    """The four matrices of a layer (out x in) and its two norms."""

    qkv: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor
    first_norm: Tensor
    second_norm: Tensor


class TinyLayer(NamedTuple):
    """A layer's weights, where its new keys and values go, and its attention.

    ``slots`` are the places of the new tokens in the flattened ``keys`` and ``values``; ``attend``
    reads the queries from a buffer that all layers share.
    """

    weights: TinyWeights
    keys: Tensor
    values: Tensor
    slots: Tensor
    attend: Callable[[], Tensor]


class TinySetting:
    """The common state of the layers of one point: inputs, positions, the queries' buffer."""

    def __init__(self, arena: Arena, model: ModelSpec, point: BenchPoint) -> None:
        self._arena, self._model = arena, model
        self._precision = point.precision
        self._batch, self._tokens, self._context = (
            point.size(name) for name in ("batch", "tokens", "context")
        )
        self._heads = Heads.of(model)
        rows = self._batch * self._tokens
        self.hidden = arena.take((rows, model.hidden_size), point.precision)[0].clone()
        self.queries = arena.empty((rows, self._heads.q, self._heads.size), point.precision)
        self.cos, self.sin = self._angles()
        self._norm, self._rotate = compiled(arena, norm), compiled(arena, rotate)
        self._gated, self._draw = compiled(arena, gated), compiled(arena, draw)
        self.kernel = ""

    def layers(self, count: int) -> list[TinyLayer]:
        """``count`` layers with weights and KV cache of their own."""
        weights = self._weights(count)
        make = self._decoding if self._tokens == 1 else self._prefilling
        return [TinyLayer(own, *rest) for own, rest in zip(weights, make(count), strict=True)]

    def alone(self, layer: TinyLayer) -> Callable[[], Tensor]:
        """One layer on the same input each time."""
        return lambda: self.run(layer, self.hidden, torch.zeros_like(self.hidden))[0]

    def step(self, layers: list[TinyLayer]) -> Callable[[], Tensor]:
        """Embedding, all layers, the last norm, LM head on the last token of each sequence,
        sampling."""
        model, arena, where = self._model, self._arena, self._arena.device.torch_name
        tables = arena.take((model.vocab_size, model.hidden_size), self._precision, 2)
        table, head = tables[0], tables[1].t()
        rows = self._batch * self._tokens
        tokens = torch.randint(model.vocab_size, (rows,), device=where)
        last = torch.arange(self._tokens - 1, rows, self._tokens, device=where)
        scale = layers[0].weights.first_norm

        def run() -> Tensor:
            x = look_up(table, tokens)
            residual = torch.zeros_like(x)
            for layer in layers:
                x, residual = self.run(layer, x, residual)
            x, _ = self._norm(x, residual, scale)
            return self._draw((x[last] @ head).float())

        return run

    def run(self, layer: TinyLayer, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """One layer: its output, not yet added to the residual, and the residual."""
        heads, weights = self._heads, layer.weights
        x, residual = self._norm(x, residual, weights.first_norm)
        mixed = (x @ weights.qkv.t()).view(len(x), heads.q + 2 * heads.kv, heads.size)
        turned = self._rotate(mixed[:, : heads.q + heads.kv], self.cos, self.sin)
        self.queries.copy_(turned[:, : heads.q])
        layer.keys.index_copy_(0, layer.slots, turned[:, heads.q :])
        layer.values.index_copy_(0, layer.slots, mixed[:, heads.q + heads.kv :])
        seen = self._flat(layer.attend())
        x, residual = self._norm(seen @ weights.output.t(), residual, weights.second_norm)
        return self._gated(x @ weights.gate_up.t()) @ weights.down.t(), residual

    def _flat(self, seen: Tensor) -> Tensor:
        """Attention's output as rows, whichever way the kernel left it."""
        if self._tokens > 1 and seen.dim() == 4:
            seen = seen.transpose(1, 2)
        return seen.reshape(self._batch * self._tokens, self._heads.q * self._heads.size)

    def _angles(self) -> tuple[Tensor, Tensor]:
        size, where = self._heads.size, self._arena.device.torch_name
        rates = ROTARY_BASE ** (-torch.arange(0, size, 2, device=where) / size)
        first = self._context - self._tokens
        places = torch.arange(first, self._context, device=where).repeat(self._batch)
        angles = places[:, None, None] * rates
        kind = dtype(self._precision)
        return torch.cos(angles).to(kind), torch.sin(angles).to(kind)

    def _weights(self, count: int) -> list[TinyWeights]:
        """Slices of one pool, so that no two layers share a byte; scaled to keep the hidden state
        of order one (random weights are of order one, products grow with the square root of k)."""
        shapes = gemm.layer_shapes(self._model, 1)
        wanted = [shapes[name] for name in ("qkv", "output", "gate_up", "down")]
        total = sum(n * k for n, k in wanted)
        made = []
        for flat in self._arena.take((total,), self._precision, count):
            matrices, start = [], 0
            for n, k in wanted:
                matrices.append(flat[start : start + n * k].view(n, k))
                start += n * k
            ones = torch.full(
                (self._model.hidden_size,),
                self._model.hidden_size**-0.5,
                dtype=dtype(self._precision),
                device=flat.device,
            )
            qkv, output, gate_up, down = matrices
            made.append(TinyWeights(qkv, output, gate_up, down, ones, ones))
        return made

    def _decoding(self, count: int) -> list[Rest]:
        """Paged caches in random block order; the new token is the last of its sequence."""
        cache = make_cache(
            self._arena, (self._context,) * self._batch, self._heads, self._precision, count
        )
        ways = decode_attention.candidates(self._arena, self.queries, cache, self._precision)
        self.kernel, calls = first_right(ways)
        place = self._context - 1
        keys, values = (part.flatten(0, 1) for part in (cache.keys, cache.values))
        return [
            (keys, values, table[:, place // BLOCK].long() * BLOCK + place % BLOCK, attend)
            for table, attend in zip(cache.tables, _turns(calls, count), strict=True)
        ]

    def _prefilling(self, count: int) -> list[Rest]:
        """Keys and values of the prompts, side by side, in a buffer for each layer; on a CPU in
        paged caches."""
        if self._arena.device.facts.kind == "cpu":
            return self._prefilling_pages(count)
        rows = self._batch * self._tokens
        shape = (rows, self._heads.kv, self._heads.size)
        kept = self._arena.take(shape, self._precision, 2 * min(count, 4), pool="kv")
        operands = [(self.queries, k, v) for k, v in zip(kept[::2], kept[1::2], strict=True)]
        ways = prefill_attention.candidates(self._arena, operands, self._batch, self._precision)
        self.kernel, calls = first_right(ways)
        slots = torch.arange(rows, device=self._arena.device.torch_name)
        made: list[Rest] = [
            (k, v, slots, attend) for (_, k, v), attend in zip(operands, calls, strict=True)
        ]
        return [made[i % len(made)] for i in range(count)]

    def _prefilling_pages(self, count: int) -> list[Rest]:
        cache = make_cache(
            self._arena, (self._context,) * self._batch, self._heads, self._precision, count
        )
        self.kernel = by_sequence.NAME
        calls = prefill_attention.one_by_one(self.queries, cache)
        keys, values = (part.flatten(0, 1) for part in (cache.keys, cache.values))
        places = torch.arange(self._context - self._tokens, self._context)
        return [
            (keys, values, (table[:, places // BLOCK] * BLOCK + places % BLOCK).flatten().long(), c)
            for table, c in zip(cache.tables, _turns(calls, count), strict=True)
        ]


Rest = tuple[Tensor, Tensor, Tensor, Callable[[], Tensor]]


def _turns(calls: Sequence[Callable[[], Tensor]], count: int) -> list[Callable[[], Tensor]]:
    return [calls[i % len(calls)] for i in range(count)]
