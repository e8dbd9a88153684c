"""Reads the header of a GGUF file as the config.json of its model, and the bytes of its tensors.

The layout is that of ggml-org/llama.cpp, ``docs`` of ggml and ``gguf-py/gguf/constants.py``:
magic, version, counts, keys with typed values, then a name, a shape and a type for each tensor.
Only architectures whose layers a class of transformers describes are read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sim.errors import UsageError, printable, shorten
from sim.specs.layers import Role
from sim.specs.model import ModelSpec
from sim.specs.precision import GGUF
from sim.specs.published import PublishedFormat

MAGIC = b"GGUF"
VERSIONS = (2, 3)

SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
"""How values are packed, by the number of their type; 8 is a text, 9 a list."""
TEXT, LIST = 8, 9

BLOCKS: Mapping[int, tuple[int, int]] = {
    **{0: (1, 4), 1: (1, 2), 30: (1, 2)},
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34)},
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)},
    **{20: (32, 18), 23: (256, 136), 39: (32, 17)},
}
"""Numbers and bytes of a block, by type of tensor: f32, f16, bf16; q4_0, q4_1, q5_0, q5_1, q8_0;
q2_k to q6_k; iq4_nl, iq4_xs, mxfp4 (``GGML_QUANT_SIZES``)."""

CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
"""The class of transformers with the layers of an architecture; ``llama`` with experts is
Mixtral."""

KEYS = {
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "context_length": ("max_position_embeddings",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
}
"""The keys of a config.json for those that follow the name of an architecture."""

TOKENS = "tokenizer.ggml.tokens"
MOST = 10_000_000
"""No file has more keys, tensors or bytes of a text."""

TOLERANCE, EXACT = 0.1, 0.005
"""How far the bytes of a model in one format may be from those of the tensors, and from where on a
word is said."""


class GgufFile(NamedTuple):
    """A file's ``config``, as a config.json has it, the number of its weights and their bytes."""

    path: Path
    config: dict[str, object]
    parameters: int
    bytes: float

    def published(self, spec: ModelSpec) -> PublishedFormat:
        """The format in which ``spec`` takes nearly as many bytes as the tensors; UsageError where
        the tensors are not those of ``spec``."""
        if abs(self.parameters / spec.parameters - 1) > 0.01:
            raise UsageError(
                f"{self.path}: its tensors have {self.parameters:,} weights, and a model of its "
                f"keys {spec.parameters:,}; it has layers of another kind, or is a part of a model"
            )
        sizes = {name: _stored(spec, name) for name in ("bf16", *GGUF)}
        weights = min(sizes, key=lambda name: abs(sizes[name] - self.bytes))
        off = sizes[weights] / self.bytes - 1
        said = (
            f"the tensors of {self.path.name} take {self.bytes / 1e9:.3g} GB, and "
            f"{sizes[weights] / 1e9:.3g} GB as {weights}"
        )
        return PublishedFormat(
            weights,
            None,
            str(self.path),
            note=f"{said[0].upper()}{said[1:]}, as counted." if abs(off) > EXACT else None,
            problem=said if abs(off) > TOLERANCE else None,
        )


def _stored(spec: ModelSpec, name: str) -> float:
    """Bytes of a model whose matrices are all in the format of that name."""
    formats: dict[Role, str] = dict.fromkeys(("projections", "experts", "vocabulary"), name)
    return spec.stored_bytes({**formats, "kept": "bf16"})


def read_gguf(path: Path) -> GgufFile | None:
    """The header of the GGUF file at ``path``; None for another kind of file.

    Raises UsageError for a file that is cut off, split, or of an architecture that is not known.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
            return _header(path, _HeaderReader(file))
    except OSError:
        return None
    except (struct.error, UnicodeDecodeError, _MalformedError):
        raise UsageError(f"{path}: is a GGUF file whose header is cut off or malformed") from None


class _MalformedError(Exception):
    """A count or a type that no GGUF file has."""


class _HeaderReader:
    """The values of a header, one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def scalar(self, kind: str) -> int | float:
        """The next number, packed as ``kind``."""
        packed = f"<{kind}"
        (value,) = struct.unpack(packed, self._file.read(struct.calcsize(packed)))
        found: int | float = value
        return found

    def count(self, kind: str = "Q") -> int:
        """The next number, which counts something."""
        found = int(self.scalar(kind))
        if found > MOST:
            raise _MalformedError
        return found

    def text(self) -> str:
        """The next text."""
        return self._file.read(self.count()).decode()

    def value(self, kind: int) -> object:
        """The next value; of a list of texts, how many there are."""
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            if not 0 <= kind < len(SCALARS):
                raise _MalformedError
            return self.scalar(SCALARS[kind])
        inner, length = self.count("I"), self.count()
        if inner == TEXT:
            for _ in range(length):
                self._file.seek(self.count(), 1)
            return length
        return [self.value(inner) for _ in range(length)]


def _header(path: Path, reader: _HeaderReader) -> GgufFile:
    version = reader.count("I")
    if version not in VERSIONS:
        raise UsageError(f"{path}: is a GGUF file of version {version}; read are 2 and 3")
    tensors, pairs = reader.count(), reader.count()
    meta: dict[str, object] = {}
    for _ in range(pairs):
        key = reader.text()
        meta[key] = reader.value(reader.count("I"))
    names, parameters, size = set(), 0, 0.0
    for _ in range(tensors):
        names.add(name := reader.text())
        numbers = prod(reader.count() for _ in range(reader.count("I")))
        kind = reader.count("I")
        reader.scalar("Q")  # where it lies
        if kind not in BLOCKS:
            raise UsageError(
                f"{path}: {shorten(printable(name))} is of type {kind} of ggml, whose size is not "
                "known; give the config.json of the model"
            )
        block, each = BLOCKS[kind]
        parameters += numbers
        size += numbers / block * each
    if isinstance(split := meta.get("split.count"), int) and split > 1:
        raise UsageError(
            f"{path}: is one of {split} files of a model; give its config.json, and the format as "
            "precision.weights"
        )
    return GgufFile(path, _config(path, meta, names), parameters, size)


def _config(path: Path, meta: Mapping[str, object], tensors: set[str]) -> dict[str, object]:
    """The keys of a config.json; UsageError for an architecture that is not known."""
    kind = str(meta.get("general.architecture"))
    if kind not in CLASSES:
        raise UsageError(
            f"{path}: is a GGUF file of the architecture {shorten(printable(kind))}, which is not "
            f"read; read are {', '.join(CLASSES)}. Give the config.json of the model, and the "
            "format as precision.weights"
        )
    config: dict[str, object] = {}
    for key, names in KEYS.items():
        value = meta.get(f"{kind}.{key}")
        if isinstance(value, list):  # one for each layer
            if len(set(value)) != 1:
                raise UsageError(f"{path}: {kind}.{key} differs by layer, which is not read")
            (value,) = set(value)
        if value is not None:
            config |= dict.fromkeys(names, value)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        config.setdefault("num_key_value_heads", heads)
        config.setdefault("head_dim", hidden // heads)
    mixtral = kind == "llama" and config.get("num_local_experts")
    return {
        **config,
        "architectures": ["MixtralForCausalLM" if mixtral else CLASSES[kind]],
        "vocab_size": meta.get(TOKENS) or meta.get(f"{kind}.vocab_size"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
    }
