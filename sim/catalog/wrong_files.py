"""Recognises files that are given in the place of a model's config.json, and says what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sim.errors import printable, shorten

INSTEAD = "give the config.json of the model"

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "is a pointer of Git LFS, not the file itself: `git lfs pull`"),
    (b"PK\x03\x04", f"is a zip archive; unpack it, and {INSTEAD}"),
    (b"\x1f\x8b", f"is compressed by gzip; unpack it, and {INSTEAD}"),
    (b"\x28\xb5\x2f\xfd", f"is compressed by zstd; unpack it, and {INSTEAD}"),
    (b"%PDF", f"is a PDF; {INSTEAD}"),
    (b"Access to model", f"says that access to the model is restricted: log in; {INSTEAD}"),
)
"""How files begin, and what they are."""

_HTML = (b"<!doctype html", b"<html", b"<?xml")

_CHOICE = (
    *("max_new_tokens", "do_sample", "_from_model_config", "temperature", "top_p", "top_k"),
    *("eos_token_id", "bos_token_id", "pad_token_id"),
)
"""Keys of a generation_config.json, of which a config.json has some next to its ``model_type``."""

_KINDS: tuple[tuple[Callable[[Mapping[str, object]], bool], str], ...] = (
    (lambda keys: "weight_map" in keys, "the index of a checkpoint's safetensors"),
    (
        lambda keys: "peft_type" in keys or "base_model_name_or_path" in keys,
        "the configuration of an adapter, which is served on top of a model: that model is meant",
    ),
    (
        lambda keys: "quantization" in keys and "architectures" not in keys,
        "hf_quant_config.json, which is read where it stands next to a config.json",
    ),
    (lambda keys: "added_tokens" in keys and "model" in keys, "tokenizer.json"),
    (
        lambda keys: "tokenizer_class" in keys or "added_tokens_decoder" in keys,
        "the configuration of a tokenizer",
    ),
    (
        lambda keys: "dim" in keys and ("n_layers" in keys or "n_heads" in keys),
        "the params.json of the weights as their publisher trains them",
    ),
    (
        lambda keys: (
            "hidden_size" not in keys
            and "model_type" not in keys
            and any(key in keys for key in _CHOICE)
        ),
        "the configuration of how tokens are chosen (generation_config.json)",
    ),
)
"""Kinds of a checkpoint's JSON files, by their keys."""

_READ = 64


def of_content(path: Path) -> str | None:
    """The kind of a file that is no JSON, by how it begins; None for any other."""
    try:
        with path.open("rb") as file:
            begins = file.read(_READ)
    except OSError:
        return None
    for start, kind in _STARTS:
        if begins.startswith(start):
            return kind
    if begins.lstrip().lower().startswith(_HTML):
        return f"is a web page, perhaps one that asks to log in; {INSTEAD}"
    if begins[8:9] == b"{" and 0 < int.from_bytes(begins[:8], "little") < 2**32:
        return f"is a file of weights (safetensors), which are not read; {INSTEAD}"
    return None


def of_keys(document: object) -> str | None:
    """The kind of a checkpoint's JSON file that describes no model; else None."""
    if not isinstance(document, Mapping) or "architectures" in document:
        return None
    if isinstance(error := document.get("error"), str):
        said = printable(shorten(" ".join(error.split())))
        return f"is no file of a model but a server's error ({said}); {INSTEAD}"
    kind = next((kind for holds, kind in _KINDS if holds(document)), None)
    return None if kind is None else f"is {kind}; {INSTEAD}"


def without_config(folder: Path) -> str:
    """The description of a folder without a config.json."""
    if (folder / "adapter_config.json").exists():
        return f"is the folder of an adapter, which is served on top of a model; {INSTEAD}"
    if any(folder.glob("*.gguf")):
        return "holds GGUF files and no config.json; name one of them"
    if (folder / "params.json").exists():
        return f"holds params.json and no config.json; {INSTEAD}, as on Hugging Face"
    return "holds no config.json"
