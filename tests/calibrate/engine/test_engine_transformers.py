"""The engine's models compute what Hugging Face transformers computes with the same weights: the
same logits, of prompts in one piece and of chunks and decodes over the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")
pytest.importorskip("transformers", reason="transformers is not installed here")

from calibrate.engine.arithmetic import Arithmetic
from calibrate.engine.attention import BySequence
from calibrate.engine.batch import Span, make_step
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.heads_block import HeadsBlock
from calibrate.engine.latent_block import LatentBlock
from calibrate.engine.mlps import DenseBlock, ExpertsBlock
from calibrate.engine.model import EngineLayer, Transformer
from calibrate.engine.places import groups_of, kv_places
from calibrate.lazy_torch import torch
from sim.catalog.huggingface import read_config
from sim.schedulers import Limits
from sim.specs.model import ModelSpec
from tests.engine_configs import CONFIGS
from tests.engine_models import memory

transformers: Any = import_module("transformers")

TOKENS, CHUNKS = 40, (17, 11, 1, 1, 1, 9)
ARITHMETICS = {
    "mixtral": Arithmetic(rotary_base=10_000.0),
    "qwen3-moe": Arithmetic(rotary_base=1_000_000.0, renormalise=False),
    "gemma-3": Arithmetic(
        activation="gelu",
        rotary_base=1_000_000.0,
        local_base=10_000.0,
        embedding_scale=48**0.5,
    ),
    "gpt-oss": Arithmetic(activation="cut", rotary_base=150_000.0),
    "deepseek-v3": Arithmetic(scores="sigmoid", bias_chooses=True, scale=2.5, rotary_base=10_000.0),
}
Named = dict[str, Any]


def theirs(name: str) -> Any:
    """transformers' model, with weights that leave nothing at zero or one."""
    config = dict(CONFIGS[name])
    kind = getattr(transformers, config.pop("architectures")[0])
    del config["model_type"]
    torch.manual_seed(7)
    model = kind(kind.config_class(**config, attn_implementation="eager")).float().eval()
    with torch.no_grad():
        for key, weight in model.state_dict().items():
            if "norm" in key:
                weight.normal_(0.0 if name == "gemma-3" else 1.0, 0.2)
            else:
                weight.normal_(0.0, 0.5 if weight.dim() == 1 else weight.shape[-1] ** -0.5)
    return model


def read_spec(name: str, folder: Path) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIGS[name]))
    return read_config(path)


def ours(name: str, spec: ModelSpec, named: Named) -> Transformer:
    """The engine's model with the weights ``named`` by transformers."""
    made = Transformer(
        spec,
        dtype=torch.float32,
        device="cpu",
        seed=0,
        max_positions=64,
        arithmetic=ARITHMETICS[name],
    )
    # Gemma's norms multiply by one more than their weight
    base = 1.0 if name == "gemma-3" else 0.0
    named = {
        key: weight + base if "norm" in key and key.endswith("weight") else weight
        for key, weight in named.items()
    }
    made.embedding.copy_(named["model.embed_tokens.weight"])
    made.last_norm.copy_(named["model.norm.weight"])
    made.head.copy_(named["lm_head.weight"])
    for number, layer in enumerate(made.layers):
        start = f"model.layers.{number}."
        own = {key[len(start) :]: named[key] for key in named if key.startswith(start)}
        fill(layer, own)
    return made


def fill(layer: EngineLayer, own: Named) -> None:
    layer.first_norm.copy_(own["input_layernorm.weight"])
    after, before = "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight"
    if layer.attention_norm is not None and layer.mlp_norm is not None:
        layer.attention_norm.copy_(own[after])
        layer.second_norm.copy_(own[before])
        layer.mlp_norm.copy_(own["post_feedforward_layernorm.weight"])
    else:
        layer.second_norm.copy_(own[after])
    attention = {key[10:]: own[key] for key in own if key.startswith("self_attn.")}
    if isinstance(layer.attention, HeadsBlock):
        fill_heads(layer.attention, attention)
    else:
        fill_latent(layer.attention, attention)
    mlp = {key[4:]: own[key] for key in own if key.startswith("mlp.")}
    if isinstance(layer.mlp, DenseBlock):
        fill_dense(layer.mlp, mlp)
    else:
        fill_experts(layer.mlp, mlp)


def fill_heads(block: HeadsBlock, own: Named) -> None:
    names = ["q_proj", "k_proj", "v_proj"]
    block.qkv.copy_(torch.cat([own[f"{name}.weight"] for name in names]))
    block.output.copy_(own["o_proj.weight"])
    optional: list[tuple[Any, Callable[[], Any]]] = [
        (block.qkv_bias, lambda: torch.cat([own[f"{name}.bias"] for name in names])),
        (block.output_bias, lambda: own["o_proj.bias"]),
        (block.query_norm, lambda: own["q_norm.weight"]),
        (block.key_norm, lambda: own["k_norm.weight"]),
        (block.sinks, lambda: own["sinks"]),
    ]
    for weight, found in optional:
        if weight is not None:
            weight.copy_(found())


def fill_latent(block: LatentBlock, own: Named) -> None:
    """Pairs of numbers that are turned together lie next to each other in DeepSeek's weights."""
    spec = block.spec
    halves = [*range(0, spec.qk_rope_head_dim, 2), *range(1, spec.qk_rope_head_dim, 2)]
    down = own["kv_a_proj_with_mqa.weight"].clone()
    down[spec.kv_lora_rank :] = down[spec.kv_lora_rank :][halves]
    block.down.copy_(torch.cat([down, own["q_a_proj.weight"]]))
    query = own["q_b_proj.weight"].view(spec.num_heads, spec.key_size, -1).clone()
    query[:, spec.qk_nope_head_dim :] = query[:, spec.qk_nope_head_dim :][:, halves]
    block.query.copy_(query.flatten(0, 1))
    block.latent_norm.copy_(own["kv_a_layernorm.weight"])
    assert block.query_norm is not None
    block.query_norm.copy_(own["q_a_layernorm.weight"])
    block.up.weight.copy_(own["kv_b_proj.weight"].view(block.up.weight.shape))
    block.output.copy_(own["o_proj.weight"])


def fill_dense(block: DenseBlock, own: Named, start: str = "") -> None:
    halves = [own[f"{start}{name}_proj.weight"] for name in ("gate", "up")]
    block.gate_up.copy_(torch.cat(halves))
    block.down.copy_(own[f"{start}down_proj.weight"])


def fill_experts(block: ExpertsBlock, own: Named) -> None:
    router = "router" if "router.weight" in own else "gate"
    block.router.copy_(own[f"{router}.weight"])
    into, out = own["experts.gate_up_proj"], own["experts.down_proj"]
    if block.experts.gate_up_bias is not None and block.experts.down_bias is not None:  # gpt-oss
        into, out = split_pairs(into.transpose(1, 2)), out.transpose(1, 2)
        block.experts.gate_up_bias.copy_(split_pairs(own["experts.gate_up_proj_bias"]))
        block.experts.down_bias.copy_(own["experts.down_proj_bias"])
    block.experts.gate_up.copy_(into)
    block.experts.down.copy_(out)
    if block.router_bias is not None:
        bias = "router.bias" if router == "router" else "gate.e_score_correction_bias"
        block.router_bias.copy_(own[bias])
    if block.shared is not None:
        fill_dense(block.shared, own, "shared_experts.")


def split_pairs(pairs: Any) -> Any:
    """Gate and up in turn as first all of one, then all of the other."""
    return torch.cat([pairs[:, 0::2], pairs[:, 1::2]], dim=1)


def logits(model: Transformer, tokens: list[int], chunks: tuple[int, ...]) -> Any:
    """Of the last token of each chunk; blocks of four tokens, those behind windows given back."""
    kv = memory(model.spec, 200, 4, Limits(max_num_seqs=1, max_model_len=64))
    places = kv_places(model.spec, None if kv is None else groups_of(kv))
    tables = BlockTables(200, 4, order=range(199, -1, -1), windows=places.windows)
    cache = Cache(places, 200, 4, dtype=model.dtype, device="cpu")
    rows, start = [], 0
    for count in chunks:
        tables.resize(0, start + count, start)
        span = Span(0, tokens[start : start + count], start, 0, samples=True, prompt=count > 1)
        step = make_step([span], tables, nowhere=200, device="cpu")
        rows.append(model.forward(step, cache, BySequence().of(step))[0])
        start += count
    return torch.stack(rows)


@pytest.mark.parametrize("name", ARITHMETICS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    oracle = theirs(name)
    spec = read_spec(name, tmp_path)
    with torch.inference_mode():
        mine = ours(name, spec, dict(oracle.state_dict()))
        tokens = torch.randint(1, 128, (TOKENS,), generator=torch.Generator().manual_seed(1))
        expected = oracle(tokens[None]).logits[0]
        ends = [sum(CHUNKS[: n + 1]) - 1 for n in range(len(CHUNKS))]
        assert float(expected.std()) > 0.3
        for chunks, rows in (((TOKENS,), [TOKENS - 1]), (CHUNKS, ends)):
            found = logits(mine, tokens.tolist(), chunks)
            assert float((found - expected[rows]).abs().max()) < 1e-4


@pytest.mark.parametrize("name", CONFIGS)
def test_there_are_as_many_parameters(name: str, tmp_path: Path) -> None:
    """transformers keeps the bias that only chooses experts as a buffer."""
    model, spec = theirs(name), read_spec(name, tmp_path)
    chosen = [weight for key, weight in model.named_buffers() if "correction_bias" in key]
    counted = sum(weight.numel() for weight in [*model.parameters(), *chosen])
    assert counted == spec.parameters
