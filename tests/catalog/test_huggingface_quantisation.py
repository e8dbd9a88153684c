"""How a checkpoint is stored, by ``quantization_config`` of its files.

Bytes by hand: a dense model of 8.19 B parameters (Qwen3-8B's shape) has 6.95 B of them in
projections and 2 x 151,936 x 4,096 in embedding and LM head, which stay at 16 bits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.catalog.huggingface_modules import modules
from sim.specs.layers import Role, counted
from sim.specs.model import ModelSpec
from sim.specs.published import PublishedFormat
from tests.huggingface import config

DENSE = {
    **{"architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 4096},
    **{"intermediate_size": 12288, "max_position_embeddings": 40960, "vocab_size": 151936},
    **{"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8},
}
PROJECTIONS = 36 * (4096 * (2 * 32 + 2 * 8) * 128 + 3 * 4096 * 12288)
VOCABULARY = 2 * 151936 * 4096

LATENT = {
    **{"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 12},
    **{"intermediate_size": 2048, "moe_intermediate_size": 512, "n_routed_experts": 64},
    **{"n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1},
    **{"num_attention_heads": 8, "q_lora_rank": 256, "vocab_size": 4096},
}
NEMOTRON = {
    **{"architectures": ["NemotronHForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 7},
    **{"hybrid_override_pattern": "MEM*EME", "mamba_num_heads": 32, "num_attention_heads": 8},
    **{"moe_intermediate_size": 512, "n_routed_experts": 16, "num_experts_per_tok": 2},
    **{"num_key_value_heads": 2, "vocab_size": 4096},
}


def group(bits: int, kind: str, inputs: dict[str, Any] | None = None, **more: Any) -> Any:
    """The only group of a checkpoint of compressed-tensors."""
    weights = {"num_bits": bits, "type": kind, **more}
    found = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": found},
        "ignore": ["lm_head"],
    }


def stored(folder: Path, base: dict[str, Any], **quantised: Any) -> tuple[ModelSpec, Any]:
    """The model, and how its checkpoint is stored; which is there."""
    model = config(folder, base, quantization_config=quantised)
    assert model.published is not None
    return model, model.published


def size(model: ModelSpec, found: PublishedFormat) -> float:
    return model.weight_bytes(found.weights, experts=found.experts)


FLOAT8 = {"num_bits": 8, "type": "float", "dynamic": True}
FIXED8 = {**FLOAT8, "dynamic": False}
INT8 = {"num_bits": 8, "type": "int", "dynamic": True}
FLOAT4 = {"num_bits": 4, "type": "float", "dynamic": "local", "group_size": 16}
KV8 = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("quantised", "weights", "activations", "bytes_each"),
    [
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            *("fp8-block", "fp8", 1 + 4 / 128**2),
        ),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", "fp8", 1),
        ({"quant_method": "fbgemm_fp8"}, "fp8", "fp8", 1),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False},
            *("int4-group", "bf16", 0.5 + 2.5 / 128),
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True}, "int4", "bf16", 0.5),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}, "int8", "bf16", 1),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False},
            *("int4-group64", "bf16", 0.5 + 2 / 64),
        ),
        (
            group(4, "int", group_size=32, strategy="group"),
            *("int4-group32", "bf16", 0.5 + 2 / 32),
        ),
        (group(8, "int", INT8, strategy="channel"), "int8", "int8", 1),
        (group(8, "float", FLOAT8, strategy="channel"), "fp8", "fp8", 1),
        (
            group(8, "float", FLOAT8, strategy="block", block_structure=[128, 128]),
            *("fp8-block", "fp8", 1 + 4 / 128**2),
        ),
        (
            group(8, "float", FLOAT8, strategy="block", block_structure="128x128"),
            *("fp8-block", "fp8", 1 + 4 / 128**2),
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True},
            *("int4-group64", "bf16", 0.5 + 2 / 64),
        ),
        (group(8, "float", strategy="tensor"), "fp8", "bf16", 1),
        (
            group(4, "float", FLOAT4, group_size=16, strategy="tensor_group"),
            *("nvfp4", "nvfp4", 0.5 + 1 / 16),
        ),
        (group(4, "float", group_size=32, strategy="group"), "mxfp4", "bf16", 0.5 + 1 / 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "nvfp4", 0.5 + 1 / 16),
        ({"quant_algo": "W4A16_NVFP4"}, "nvfp4", "bf16", 0.5 + 1 / 16),
        ({"quant_algo": "FP8"}, "fp8", "fp8", 1),
    ],
)
def test_each_library_is_read(
    tmp_path: Path, quantised: dict[str, Any], weights: str, activations: str, bytes_each: float
) -> None:
    model, found = stored(tmp_path, DENSE, **quantised)
    assert (found.weights, found.experts, found.activations) == (weights, None, activations)
    assert (found.problem, found.note, found.kv_cache) == (None, None, None)
    expected = PROJECTIONS * bytes_each + 2 * (VOCABULARY + model.small_parameters())
    assert size(model, found) == pytest.approx(expected, rel=1e-9)
    assert found.source.startswith("quantization_config of ")


@pytest.mark.parametrize(
    ("quantised", "kv_cache", "static"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8", True),
        ({"quant_algo": "NVFP4", "kv_cache_scheme": KV8}, "fp8", False),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8", True),
        ({**group(8, "float", FIXED8), "kv_cache_scheme": KV8}, "fp8", True),
        ({**group(8, "float", FLOAT8), "kv_cache_scheme": None}, None, False),
        ({"quant_method": "fp8", "activation_scheme": "static"}, None, True),
        (group(4, "float", {**FLOAT4, "dynamic": False}, group_size=16), None, False),
    ],
)
def test_the_kv_cache_and_the_scales_are_those_that_are_stated(
    tmp_path: Path, quantised: dict[str, Any], kv_cache: str | None, static: bool
) -> None:
    _, found = stored(tmp_path, DENSE, **quantised)
    assert (found.kv_cache, found.static) == (kv_cache, static)


@pytest.mark.parametrize("inside", [True, False])
def test_it_is_read_from_the_text_part_and_from_the_file_next_to_it(
    tmp_path: Path, inside: bool
) -> None:
    stated = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    if inside:
        text = {**DENSE, "model_type": "qwen3", "quantization_config": stated}
        outer = {"architectures": ["SomePicturesForConditionalGeneration"], "text_config": text}
        found = config(tmp_path, outer).published
    else:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": stated}))
        found = config(tmp_path, DENSE).published
        assert found is not None
        assert found.source.endswith("hf_quant_config.json")
    assert found is not None
    assert (found.weights, found.kv_cache) == ("nvfp4", "fp8")


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    assert stored(tmp_path, DENSE, quant_method="fp8")[1].weights == "fp8"
    assert stored(tmp_path, DENSE, quant_algo="NVFP4")[1].weights == "nvfp4"
    assert config(tmp_path, DENSE).published is None


ATTENTION = {
    "re:": ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|down)_proj.*"],
    "*": [
        *(f"model.layers.{at}.self_attn*" for at in range(12)),
        *(f"model.layers.{at}.mlp.shared_experts*" for at in range(1, 12)),
        "model.layers.0.*",
    ],
    "plain": ["self_attn", "mlp.shared_experts", "model.layers.0.mlp"],
}
"""The same modules, everything but the experts, as three libraries write them."""


@pytest.mark.parametrize("way", ATTENTION)
def test_experts_alone_are_stored_so_where_all_else_is_left_out(tmp_path: Path, way: str) -> None:
    left_out = ["lm_head", *ATTENTION[way]]
    model, found = stored(tmp_path, LATENT, quant_algo="NVFP4", ignore=left_out)
    assert (found.weights, found.experts, found.note) == ("bf16", "nvfp4", None)
    assert found.activations == "nvfp4"
    experts = 11 * 64 * 3 * 1024 * 512
    rest = model.parameters - experts
    assert size(model, found) == pytest.approx(experts * 0.5625 + 2 * rest, rel=1e-9)


def test_a_layer_is_not_another_whose_number_it_begins(tmp_path: Path) -> None:
    """``model.layers.1.`` names no layer 10 or 11."""
    _, one = stored(tmp_path, LATENT, quant_algo="NVFP4", ignore=["model.layers.1.mlp*"])
    _, three = stored(
        tmp_path, LATENT, quant_algo="NVFP4",
        ignore=[f"model.layers.{at}.mlp*" for at in (1, 10, 11)],
    )  # fmt: skip
    each = 64 * 3 * 1024 * 512
    assert f"and {each / 1e9:.2f} B in bf16; LM head" in one.problem
    assert f"and {3 * each / 1e9:.2f} B in bf16; LM head" in three.problem


def test_a_few_matrices_left_out_are_counted_with_the_rest_and_named(tmp_path: Path) -> None:
    kept = [f"model.layers.{at}.self_attn.kv_a_proj_with_mqa" for at in range(12)]
    model, found = stored(tmp_path, LATENT, quant_method="fp8", modules_to_not_convert=kept)
    assert (found.weights, found.problem) == ("fp8", None)
    left_out = 12 * 1024 * 576
    assert found.note is not None
    assert f"{left_out / 1e9:.2f} B in bf16 are counted in that of the weights" in found.note
    assert size(model, found) == pytest.approx(
        model.weight_bytes("fp8"), rel=1e-9
    )  # what is stated is `left_out` bytes more, less than 2 %
    assert left_out / size(model, found) < 0.02


def test_auto_round_names_the_modules_that_stay_at_16_bits(tmp_path: Path) -> None:
    kept = {"model.layers.0.mlp.down_proj": {"bits": 16, "data_type": "float"}}
    auto = {"quant_method": "auto-round", "bits": 8, "group_size": -1, "sym": True}
    _, found = stored(tmp_path, DENSE, **auto, data_type="int", extra_config=kept)
    assert (found.weights, found.problem) == ("int8", None)
    assert f"{4096 * 12288 / 1e9:.2f} B in bf16 are counted" in str(found.note)


def test_the_first_files_of_compressed_tensors_have_another_key(tmp_path: Path) -> None:
    old = group(8, "float", FLOAT8, strategy="channel")
    found = config(tmp_path, DENSE, compression_config=old).published
    assert found is not None
    assert (found.weights, found.activations) == ("fp8", "fp8")
    assert found.source.startswith("compression_config of ")


def test_mxfp4_of_transformers_is_of_the_experts(tmp_path: Path) -> None:
    base = {
        **{"architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "num_hidden_layers": 4},
        **{"intermediate_size": 2880, "num_local_experts": 8, "num_attention_heads": 64},
        **{"num_key_value_heads": 8, "vocab_size": 1024},
    }
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    _, found = stored(tmp_path, base, quant_method="mxfp4", modules_to_not_convert=names)
    assert found[:2] == ("bf16", "mxfp4")
    assert found.activations == "bf16"


def test_layers_of_a_hybrid_are_counted_as_its_file_counts_them(tmp_path: Path) -> None:
    """Of MEM*EME the experts are layers 1, 4 and 6: two of three are left out."""
    names = ["backbone.layers.1.mixer.experts*", "backbone.layers.4.mixer.experts*"]
    _, found = stored(tmp_path, NEMOTRON, quant_algo="NVFP4", ignore=names)
    each = 16 * 2 * 1024 * 512
    assert found.problem is not None
    assert f"experts {2 * each / 1e9:.2f} B in bf16 and {each / 1e9:.2f} B in nvfp4" in (
        found.problem
    )


def test_layers_of_their_own_formats_are_read_one_by_one(tmp_path: Path) -> None:
    layers = {
        **{f"model.layers.{at}.mlp.experts": {"quant_algo": "W4A16_NVFP4"} for at in range(1, 12)},
        **{f"model.layers.{at}.self_attn.o_proj": {"quant_algo": "FP8"} for at in range(12)},
    }
    _, found = stored(tmp_path, LATENT, quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert found.experts == "nvfp4"
    assert found.activations == "bf16"
    fp8, fp4 = {"num_bits": 8, "type": "float"}, {"num_bits": 4, "type": "float", "group_size": 16}
    groups = {
        "group_0": {"weights": fp8, "targets": [name for name in layers if "self_attn" in name]},
        "group_1": {"weights": fp4, "targets": [name for name in layers if "experts" in name]},
    }
    _, grouped = stored(tmp_path, LATENT, quant_algo="MIXED_PRECISION", config_groups=groups)
    assert grouped == found


@pytest.mark.parametrize(
    ("quantised", "where"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method: 'bitsandbytes'"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits: 3 cannot be"),
        ({"quant_method": "gptq", "bits": 2, "group_size": 128}, "bits: 2 cannot be"),
        ({"quant_method": "awq", "bits": 4, "group_size": 48}, "group_size: 48 cannot be"),
        (
            {"quant_method": "auto-round", "bits": 4, "extra_config": {"lm_head": {"bits": 8}}},
            "extra_config.lm_head.bits: 8 cannot be",
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"},
            "data_type: 'mx_fp' cannot be",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}},
            "dynamic: ",
        ),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, "weight_block_size: [1, 32]"),
        (group(4, "int", FLOAT8, group_size=128), "int4-group weights are not modelled with"),
        (group(6, "float"), "num_bits: 6 cannot be"),
        ({"quant_algo": "MXFP8"}, "quant_algo: 'MXFP8' cannot be"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo: 'NVFP4'"),
        ({"quant_algo": "FP8", "ignore": ["re:("]}, "ignore: cannot be read"),
        ({"quant_algo": "FP8", "ignore": "lm_head"}, "ignore: expected a list of names"),
        (
            {"quant_algo": "NVFP4", "ignore": ["re:.*self_attn.*"]},
            "mixes formats in a way that `precision` cannot represent: projections 5.44 B in nvfp4 "
            "and 1.51 B in bf16",
        ),
    ],
)
def test_what_cannot_be_represented_is_never_counted_in_16_bits(
    tmp_path: Path, quantised: dict[str, Any], where: str
) -> None:
    _, found = stored(tmp_path, DENSE, **quantised)
    assert found.problem is not None
    assert str(tmp_path) in found.problem
    assert where in found.problem


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_projection_of_a_model_has_a_name(name: str) -> None:
    """The matrices by name are all that its layers and its LM head have."""
    model = catalog.model(name)
    found = modules(model)
    for role in ("projections", "experts"):
        named = sum(each.parameters for each in found if each.role == role)
        assert named == counted(model.weights(), role), role
    head: Role = "vocabulary"
    assert sum(e.parameters for e in found if e.role == head) == pytest.approx(
        model.head_parameters()
    )
