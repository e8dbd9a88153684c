"""The header of a GGUF file describes a model and its format."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

import sim
from sim import catalog
from sim.errors import UsageError

LLAMA = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 512,
    "llama.feed_forward_length": 1024,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a"] * 1000,
}
Q4_0, Q4_K, Q6_K, F32 = 2, 12, 14, 0
SHAPES = {
    "attn_q": (512, 512),
    "attn_k": (512, 128),
    "attn_v": (512, 128),
    "attn_output": (512, 512),
    "ffn_gate": (512, 1024),
    "ffn_up": (512, 1024),
    "ffn_down": (1024, 512),
}
Tensors = dict[str, tuple[tuple[int, ...], int]]


def tensors(kind: int, head: int | None = Q6_K) -> Tensors:
    found: Tensors = {"token_embd.weight": ((512, 1000), kind), "output_norm.weight": ((512,), F32)}
    if head is not None:
        found["output.weight"] = ((512, 1000), head)
    for layer in range(2):
        found |= {f"blk.{layer}.{name}.weight": (shape, kind) for name, shape in SHAPES.items()}
        norms = ("attn_norm", "ffn_norm")
        found |= {f"blk.{layer}.{name}.weight": ((512,), F32) for name in norms}
    return found


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def typed(value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list) and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<II", 4, value)


def write(path: Path, meta: Mapping[str, object], held: Tensors) -> Path:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(held), len(meta))]
    parts += [text(key) + typed(value) for key, value in meta.items()]
    for name, (shape, kind) in held.items():
        parts.append(text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", kind, 0))
    path.write_bytes(b"".join(parts))
    return path


def test_a_header_is_read_as_a_config(tmp_path: Path) -> None:
    found = catalog.model(write(tmp_path / "tiny-Q4_0.gguf", LLAMA, tensors(Q4_0)))
    config = {
        "architectures": ["LlamaForCausalLM"],
        **{"hidden_size": 512, "num_hidden_layers": 2, "intermediate_size": 1024},
        **{"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000},
        **{"max_position_embeddings": 4096, "tie_word_embeddings": False},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    same = catalog.model(tmp_path)
    assert (found.layers, found.vocab_size) == (same.layers, same.vocab_size)
    assert (
        found.parameters
        == same.parameters
        == sum(
            shape[0] * (shape[1] if len(shape) > 1 else 1) for shape, _ in tensors(Q4_0).values()
        )
    )
    assert (found.name, found.max_position_embeddings) == ("tiny-Q4_0", 4096)


def test_the_format_is_the_one_whose_bytes_are_nearest(tmp_path: Path) -> None:
    """All in q4_k are 4.5 bits, as in q4_0; an LM head in q6_k makes them 4.69."""
    plain = catalog.model(write(tmp_path / "plain.gguf", LLAMA, tensors(Q4_K, head=None)))
    assert plain.tie_word_embeddings
    assert plain.published is not None
    assert (plain.published.weights, plain.published.note) == ("q4_0", None)
    mixed = catalog.model(write(tmp_path / "mixed.gguf", LLAMA, tensors(Q4_K)))
    assert mixed.published is not None
    assert mixed.published.weights == "iq4_nl"  # 4.68 bits
    assert mixed.published.note is None
    wide = catalog.model(write(tmp_path / "wide.gguf", LLAMA, tensors(Q4_K, head=F32)))
    assert wide.published is not None
    assert (wide.published.weights, wide.published.problem) == ("q6_k", None)  # 7.1 bits
    assert wide.published.note == (
        "The tensors of wide.gguf take 0.00485 GB, and 0.0045 GB as q6_k, as counted."
    )
    full = catalog.model(write(tmp_path / "full.gguf", LLAMA, tensors(F32, head=F32)))
    assert full.published is not None
    assert full.published.problem is not None


def test_it_is_served_in_its_format(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", LLAMA, tensors(Q6_K))
    scenario = sim.load_scenario(
        {
            "model": str(path),
            "fleet": {"gpu": "rtx-3090"},
            "engine": "llama.cpp",
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 64},
                "output_tokens": {"kind": "fixed", "value": 8},
            },
            "run": {"requests": 2},
        }
    )
    assert scenario.precision.weights == "q6_k"
    assert sim.simulate(scenario).summary["completed"] == 2


def test_experts_and_lists_by_layer(tmp_path: Path) -> None:
    more = {"llama.expert_count": 4, "llama.expert_used_count": 2}
    held = {name: each for name, each in tensors(Q4_0).items() if "ffn_g" not in name}
    for layer in range(2):
        held |= {
            f"blk.{layer}.ffn_{name}_exps.weight": ((*SHAPES[f"ffn_{name}"], 4), Q4_0)
            for name in ("gate", "up", "down")
        }
        held |= {f"blk.{layer}.ffn_gate_inp.weight": ((512, 4), F32)}
        held = {n: e for n, e in held.items() if n[-14:] not in (".ffn_up.weight",)}
        del held[f"blk.{layer}.ffn_down.weight"]
    lists = {**LLAMA, **more, "llama.attention.head_count_kv": [2, 2]}
    found = catalog.model(write(tmp_path / "moe.gguf", lists, held))
    assert (found.num_experts, found.has_experts) == (4, True)
    mixed = {**LLAMA, "llama.attention.head_count_kv": [2, 4]}
    with pytest.raises(UsageError, match="head_count_kv differs by layer"):
        catalog.model(write(tmp_path / "mixed.gguf", mixed, held))


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    held = tensors(Q4_0)
    path = tmp_path / "x.gguf"
    for meta, parts, said in (
        ({**LLAMA, "general.architecture": "mamba"}, held, "architecture mamba, which is not read"),
        ({**LLAMA, "split.count": 3}, held, "is one of 3 files of a model"),
        (LLAMA, {**held, "blk.0.odd": ((256,), 99)}, "blk.0.odd is of type 99 of ggml"),
        (LLAMA, {**held, "extra": ((512, 512), Q4_0)}, "layers of another kind"),
    ):
        with pytest.raises(UsageError, match=said):
            catalog.model(write(path, meta, parts))
    path.write_bytes(write(path, LLAMA, held).read_bytes()[:200])
    with pytest.raises(UsageError, match="cut off or malformed"):
        catalog.model(path)
