"""Files that are given in the place of a model's config.json are named for what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim import catalog
from sim.errors import UsageError

PLAIN = {
    "generation_config": {"do_sample": True, "temperature": 0.6, "eos_token_id": 2},
    "tokens": {"bos_token_id": 1, "eos_token_id": [2, 7], "transformers_version": "4.40.0"},
    "gated": {"error": "Access to model a/b is restricted. Please log in."},
    "defaults": {"_from_model_config": True, "bos_token_id": 1},
    "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096},
    "tokenizer": {"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}},
    "index": {"metadata": {"total_size": 16}, "weight_map": {"lm_head.weight": "a.safetensors"}},
    "hf_quant_config": {"producer": {}, "quantization": {"quant_algo": "FP8"}},
    "params": {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 128256},
    "adapter_config": {"peft_type": "LORA", "base_model_name_or_path": "a/b", "r": 16},
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("generation_config", "is the configuration of how tokens are chosen"),
        ("tokens", "is the configuration of how tokens are chosen"),
        ("gated", "is no file of a model but a server's error (Access to model a/b is restricted."),
        ("defaults", "is the configuration of how tokens are chosen"),
        ("tokenizer_config", "is the configuration of a tokenizer"),
        ("tokenizer", "is tokenizer.json"),
        ("index", "is the index of a checkpoint's safetensors"),
        ("hf_quant_config", "is hf_quant_config.json, which is read where it stands next to"),
        ("params", "is the params.json of the weights"),
        ("adapter_config", "is the configuration of an adapter"),
    ],
)
def test_json_of_a_checkpoint(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN[name]))
    with pytest.raises(UsageError) as caught:
        catalog.model(path)
    assert str(caught.value).startswith(f"{path}: {kind}")
    assert str(caught.value).endswith("give the config.json of the model")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
        (b"\n<!DOCTYPE html><html><body>Log in</body>", "is a web page"),
        (b"Access to model a/b is restricted. Log in.", "says that access to the model is"),
        (b"GGUF\x01\x00\x00\x00" + bytes(40), "is a GGUF file of version 1"),
        (b"PK\x03\x04" + b"\xa4" * 40, "is a zip archive"),
        (b"\x1f\x8b\x08" + b"\xa4" * 40, "is compressed by gzip"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00" + b'{"a":{}}' + b"\xff" * 40, "is a file of weights"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        catalog.model(path)
    assert str(caught.value).startswith(f"{path}: {kind}")


def test_a_large_file_of_weights_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(11_000_000))
    with pytest.raises(UsageError, match="is a GGUF file of the architecture None"):
        catalog.model(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adapter_config.json", "is the folder of an adapter"),
        ("model-q4.gguf", "holds GGUF files and no config"),
        ("params.json", "holds params.json and no config.json"),
        ("notes.txt", "holds no config.json"),
    ],
)
def test_folders(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError) as caught:
        catalog.model(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: {kind}")
