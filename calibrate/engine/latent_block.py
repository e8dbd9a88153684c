"""Provides multi-head latent attention as a part of a layer."""

from __future__ import annotations

from calibrate.bench.elementwise import rotate
from calibrate.bench.latent_by_sequence import Up
from calibrate.engine.arithmetic import Arithmetic
from calibrate.engine.layer_pass import LayerPass
from calibrate.engine.places import LayerPlace
from calibrate.engine.weights import EngineWeights, rms_norm
from calibrate.lazy_torch import Tensor, torch
from sim.specs.latent import Latent


class LatentBlock:
    """The projections of a block: ``down`` to the latent vector, the position and, where there is
    one, the queries' own latent vector; to queries; ``up`` to keys and values; and the output."""

    def __init__(self, spec: Latent, arithmetic: Arithmetic, draw: EngineWeights) -> None:
        self.spec = spec
        heads, rank = spec.num_heads, spec.q_lora_rank
        self.down = draw.matrix(spec.down_size, draw.hidden)
        self.down_bias = draw.bias(spec.down_size) if spec.attention_bias else None
        self.latent_norm = draw.norm(spec.kv_lora_rank)
        self.query_norm = None if rank is None else draw.norm(rank)
        self.query = draw.matrix(heads * spec.key_size, rank or draw.hidden)
        weight = draw.matrix(heads, spec.up_size, spec.kv_lora_rank)
        self.up = Up(weight, spec.qk_nope_head_dim)
        self.output = draw.out(draw.hidden, heads * spec.v_head_dim)
        self.output_bias = draw.out_bias(draw.hidden) if spec.attention_bias else None
        self.turning = (spec.qk_rope_head_dim, arithmetic.rotary_base)
        """Size and base of the positions that parts of queries and keys are turned by."""

    def forward(self, seen: Tensor, run: LayerPass, place: LayerPlace) -> Tensor:
        """The term that attention adds to the hidden state, from the normed one."""
        spec, linear = self.spec, torch.nn.functional.linear
        run.part("latent vectors")
        down = linear(seen, self.down, self.down_bias)
        sizes = [spec.kv_lora_rank, spec.qk_rope_head_dim, spec.q_lora_rank or 0]
        latent, position, narrow = down.split(sizes, dim=1)
        run.part("latent norm")
        latent = rms_norm(latent, self.latent_norm)
        source = seen if self.query_norm is None else rms_norm(narrow, self.query_norm)
        run.part("query")
        query = linear(source, self.query).view(len(seen), spec.num_heads, spec.key_size)
        run.part("rotary positions")
        cos, sin = run.angles[self.turning]
        kept = [spec.qk_nope_head_dim, spec.qk_rope_head_dim]
        plain, turned = query.split(kept, dim=2)
        query = torch.cat([plain, rotate(turned, cos, sin)], dim=2)
        position = rotate(position[:, None], cos, sin)
        run.part("write KV cache")
        new = torch.cat([latent[:, None], position], dim=2)
        run.cache.write(run.number, run.step.slots, new)
        run.part("attention")
        (cached,) = run.cache.layer(run.number)
        mixed = run.attend.latent(query, cached, self.up)
        run.part("output")
        return linear(mixed.flatten(1), self.output, self.output_bias)
