"""Provides a Llama-style transformer over a flat list of tokens, with random weights.

RMS norms, rotary positions, grouped-query attention and a gated MLP; biases on the query, key and
value projections (Qwen2) and norms of queries and keys (Qwen3) where the model has them. Attention
itself is passed in, so that the model does not know which sequence a token belongs to.

The weights are drawn so that the hidden state is of order one in any depth: what they compute means
nothing, but it is as sensitive to a wrong position, block or mask as a trained model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calibrate.bench.elementwise import gated, rotate
from calibrate.dense import dense_layer
from calibrate.engine.batch import EngineStep
from calibrate.engine.cache import Cache
from calibrate.lazy_torch import Tensor, torch
from sim.errors import UsageError
from sim.specs.model import ModelSpec

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of one iteration: queries (token x head x size) and one layer's keys and values (block
x slot x KV head x size) to the result, one row for each query token."""

Part = Callable[[str], None]
"""Called with the name of each part of the pass as it begins."""

ROTARY_BASE = 500_000.0
"""Llama 3's; the speed does not depend on it."""

NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """The weights of one layer; projections that read the same input are one matrix."""

    first_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Tensor
    second_norm: Tensor
    gate_up: Tensor
    down: Tensor


def unheard(part: str) -> None:
    """The default listener, which does nothing."""


class Transformer:
    """Weights on a device, and the pass over them.

    The same ``seed`` gives the same weights on the same kind of device. ``max_positions`` is the
    longest sequence. UsageError for an architecture that is not Llama's.
    """

    def __init__(
        self, spec: ModelSpec, *, dtype: Any, device: str, seed: int, max_positions: int
    ) -> None:
        _check(spec)
        self.spec = spec
        self.dtype = dtype
        self.device = device
        self.max_positions = max_positions
        draw = _Weights(spec, dtype, device, seed)
        hidden, kept = spec.hidden_size, hidden_scale(spec)
        heads, mlp, _ = dense_layer(spec)
        self._heads = heads
        width = heads.query_size + 2 * heads.kv_size
        # a tied embedding is also the head, whose outputs must be of order one
        scale = hidden**-0.5 if spec.tie_word_embeddings else 1.0
        self.embedding = draw.matrix(spec.vocab_size, hidden, scale)
        self.layers = [
            EngineLayer(
                first_norm=draw.norm(hidden),
                qkv=draw.matrix(width, hidden, hidden**-0.5),
                qkv_bias=draw.bias(width) if heads.attention_bias else None,
                query_norm=draw.norm(heads.head_dim) if heads.qk_norm else None,
                key_norm=draw.norm(heads.head_dim) if heads.qk_norm else None,
                output=draw.matrix(hidden, heads.query_size, kept * heads.query_size**-0.5),
                second_norm=draw.norm(hidden),
                gate_up=draw.matrix(2 * mlp.intermediate_size, hidden, hidden**-0.5),
                down=draw.matrix(hidden, mlp.intermediate_size, kept * mlp.intermediate_size**-0.5),
            )
            for _ in range(spec.num_layers)
        ]
        self.last_norm = draw.norm(hidden)
        tied = spec.tie_word_embeddings
        self.head = self.embedding if tied else draw.matrix(spec.vocab_size, hidden, hidden**-0.5)
        self._cos, self._sin = _angles(max_positions, heads.head_dim, dtype, device)

    def forward(
        self, step: EngineStep, cache: Cache, attend: Attend, part: Part = unheard
    ) -> Tensor:
        """Compute the tokens of ``step``, leave their keys and values in ``cache``, and return the
        logits of the rows that sample (row x vocabulary)."""
        functional = torch.nn.functional
        part("embedding")
        x = functional.embedding(step.tokens, self.embedding)
        counts = [self._heads.num_heads, self._heads.num_kv_heads]
        cos = self._cos[step.positions]
        sin = self._sin[step.positions]
        for number, layer in enumerate(self.layers):
            part("norm")
            seen = self._norm(x, layer.first_norm)
            part("query, key, value")
            heads, value = self._project(layer, seen)
            part("rotary positions")
            query, key = rotate(heads, cos, sin).split(counts, dim=1)
            part("write KV cache")
            cache.write(number, step.slots, key, value)
            part("attention")
            mixed = attend(query, cache.keys[number], cache.values[number])
            part("output")
            x = x + functional.linear(mixed.flatten(1), layer.output)
            part("norm")
            seen = self._norm(x, layer.second_norm)
            part("gate and up")
            wide = functional.linear(seen, layer.gate_up)
            part("activation")
            seen = gated(wide)
            part("down")
            x = x + functional.linear(seen, layer.down)
        part("norm")
        seen = self._norm(x[step.sampling], self.last_norm)
        part("head")
        return functional.linear(seen, self.head)

    def _project(self, layer: EngineLayer, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys side by side, and values: token x head x size."""
        heads = self._heads
        mixed = torch.nn.functional.linear(seen, layer.qkv, layer.qkv_bias)
        every = mixed.view(len(mixed), -1, heads.head_dim)
        turned = heads.num_heads + heads.num_kv_heads
        both, value = every[:, :turned], every[:, turned:]
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = both.split([heads.num_heads, heads.num_kv_heads], dim=1)
            normed = self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)
            both = torch.cat(normed, dim=1)
        return both, value

    @staticmethod
    def _norm(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, weight.shape, weight, NORM_EPSILON)


def hidden_scale(spec: ModelSpec) -> float:
    """The factor of the two results that each layer adds to the hidden state, so that all
    together they are of order one."""
    return float((2 * spec.num_layers) ** -0.5)


def _check(spec: ModelSpec) -> None:
    attention, mlp, parallel = dense_layer(spec)
    odd = {
        "parallel attention and MLP": parallel,
        "an MLP of two matrices": mlp.mlp_matrices != 3,
        "biases on the attention's output": attention.output_bias,
        "biases on the MLP": mlp.mlp_bias,
        "biases on norms": spec.norm_bias,
        "a bias on the LM head": spec.head_bias,
        "an odd head size": bool(attention.head_dim % 2),
    }
    found = [name for name, has in odd.items() if has]
    if found:
        raise UsageError(
            f"{spec.name} has {' and '.join(found)}: the engine runs only Llama's layers"
        )


class _Weights:
    """Draws tensors one after the other from one stream.

    Matrices lie side by side in one piece of memory: on a CPU it can then consist of huge pages
    except at its ends, and takes the same time wherever the system puts it.
    """

    def __init__(self, spec: ModelSpec, dtype: Any, device: str, seed: int) -> None:
        vocabulary = spec.embedding_parameters() + spec.head_parameters()
        count = spec.linear_parameters() + vocabulary
        self._free = torch.empty(count, dtype=dtype, device=device)
        self._generator = torch.Generator(device).manual_seed(seed)

    def matrix(self, rows: int, columns: int, scale: float) -> Tensor:
        size = rows * columns
        taken, self._free = self._free[:size], self._free[size:]
        return self._draw(taken.view(rows, columns), scale)

    def bias(self, size: int) -> Tensor:
        return self._draw(self._free.new_empty(size), 0.5)

    def norm(self, size: int) -> Tensor:
        """Around one, not one itself: a norm that is left out must show."""
        return 1 + self._draw(self._free.new_empty(size), 0.1)

    def _draw(self, empty: Tensor, scale: float) -> Tensor:
        return empty.normal_(0.0, scale, generator=self._generator)


def _angles(positions: int, size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles: position x 1 x half of a head."""
    rates = ROTARY_BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(positions, dtype=torch.float64)[:, None, None] * rates
    return (
        torch.cos(angles).to(device=device, dtype=dtype),
        torch.sin(angles).to(device=device, dtype=dtype),
    )
