"""Provides attention in which groups of query heads share keys and values, as a part of a layer."""

from __future__ import annotations

from calibrate.bench.elementwise import rotate
from calibrate.engine.arithmetic import Arithmetic
from calibrate.engine.attend import View
from calibrate.engine.layer_pass import LayerPass
from calibrate.engine.places import LayerPlace
from calibrate.engine.weights import EngineWeights, rms_norm
from calibrate.lazy_torch import Tensor, torch
from sim.specs.grouped_query import GroupedQuery


class HeadsBlock:
    """The projections, norms, biases and sinks of a block; those that read the same input are one
    matrix."""

    def __init__(self, spec: GroupedQuery, arithmetic: Arithmetic, draw: EngineWeights) -> None:
        self.spec = spec
        width = spec.query_size + 2 * spec.kv_size
        self.qkv = draw.matrix(width, draw.hidden)
        self.qkv_bias = draw.bias(width) if spec.attention_bias else None
        self.query_norm = draw.norm(spec.head_dim) if spec.qk_norm else None
        self.key_norm = draw.norm(spec.head_dim) if spec.qk_norm else None
        self.output = draw.out(draw.hidden, spec.query_size)
        self.output_bias = draw.out_bias(draw.hidden) if spec.output_bias else None
        self.sinks = draw.bias(spec.num_heads) if spec.sinks else None
        local = arithmetic.local_base if spec.window is not None else None
        self.turning = (spec.head_dim, local or arithmetic.rotary_base)
        """Size and base of the positions that queries and keys are turned by."""

    def forward(self, seen: Tensor, run: LayerPass, place: LayerPlace) -> Tensor:
        """The term that attention adds to the hidden state, from the normed one."""
        spec = self.spec
        run.part("query, key, value")
        heads, value = self._project(seen)
        run.part("rotary positions")
        counts = [spec.num_heads, spec.num_kv_heads]
        query, key = rotate(heads, *run.angles[self.turning]).split(counts, dim=1)
        run.part("write KV cache")
        run.cache.write(run.number, run.step.slots, key, value)
        run.part("attention")
        keys, values = run.cache.layer(run.number)
        mixed = run.attend(query, keys, values, View(place.group, spec.window, self.sinks))
        run.part("output")
        return torch.nn.functional.linear(mixed.flatten(1), self.output, self.output_bias)

    def _project(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys side by side, and values: token x head x size."""
        spec = self.spec
        mixed = torch.nn.functional.linear(seen, self.qkv, self.qkv_bias)
        every = mixed.view(len(mixed), -1, spec.head_dim)
        turned = spec.num_heads + spec.num_kv_heads
        both, value = every[:, :turned], every[:, turned:]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = both.split([spec.num_heads, spec.num_kv_heads], dim=1)
            both = torch.cat([rms_norm(query, self.query_norm), rms_norm(key, self.key_norm)], 1)
        return both, value
