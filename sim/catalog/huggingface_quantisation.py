"""Reads how a checkpoint's matrices are stored: ``quantization_config`` and what stands for it.

It stands in config.json, at the top or in ``text_config``; checkpoints of NVIDIA's Model Optimizer
may have it in hf_quant_config.json next to that file instead, which engines read where config.json
is silent (vLLM, transformers_utils/config.py). Keys are those that each library writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_json
from sim.catalog.huggingface_modules import Module, Patterns
from sim.errors import UsageError, shorten
from sim.specs.precision import MULTIPLIES, precision_bytes

KEYS = ("quantization_config", "compression_config")
"""Keys of the statement: the second is that of the first files of compressed-tensors."""

BLOCK = [128, 128]
"""Rows and columns of the blocks of ``fp8-block``."""

BLOCKS = (BLOCK, "128x128")
"""The ways in which compressed-tensors writes them."""

INT4_GROUPS = {-1: "int4", 0: "int4", 128: "int4-group", 64: "int4-group64", 32: "int4-group32"}
"""The format by how many weights share a scale; -1 and 0 stand for a whole row."""

SCALE, ZERO = 2.0, 0.5
"""Bytes of the scale of a group, and of its zero point of 4 bits."""

LEFT_OUT = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
"""Keys under which libraries list the modules that stay at 16 bits."""


class Scheme(NamedTuple):
    """How a matrix is stored: the nearest format, the bytes of a number as stated, what it is
    multiplied by, and whether the checkpoint holds the scales of that."""

    format: str
    bytes: float
    activations: str
    static: bool = False


class Quantisation(NamedTuple):
    """A checkpoint's statements: the scheme of the modules of each kind of name (None: of all but
    the LM head), which modules are left out, and the format of its KV cache, if it states one."""

    schemes: tuple[tuple[Patterns | None, Scheme], ...]
    left_out: Patterns
    kv_cache: str | None
    source: str

    def of(self, module: Module) -> Scheme | None:
        """The scheme of ``module``; None where it stays at 16 bits."""
        if self.left_out.match(module):
            return None
        for names, scheme in self.schemes:
            if module.role != "vocabulary" if names is None else names.match(module):
                return scheme
        return None


def quantisation(config: Fields, path: Path) -> Quantisation | None:
    """The stated quantisation of the config.json at ``path``; None if there is none.

    Raises UsageError, naming file, key and value, for what is not modelled.
    """
    found, source = _stated(config, path)
    if found is None:
        return None
    method = found.value("quant_method") if found.has("quant_method") else None
    if method is None and found.has("quant_algo"):
        method = "modelopt"
    read = METHODS.get(str(method).lower().removesuffix("_marlin"))
    if read is None:
        raise found.error(
            "quant_method",
            f"{_shown(method)} is not modelled; modelled are {', '.join(METHODS)}",
        )
    try:
        schemes, left_out = read(found)
        apart = _experts_apart(config, found)
        kv_cache = _kv_cache(found) or (COMPRESSED_CACHE if _is_compressed(config) else None)
        if _given(found, "moe_quant_algo"):  # what is left out is so of the experts' format alone
            left_out = []
        return Quantisation((*apart, *schemes), Patterns.of(left_out), kv_cache, source)
    except re.error as error:
        raise found.error("ignore", f"cannot be read ({error})") from None


def _is_compressed(config: Fields) -> bool:
    """Whether the file is of DeepSeek V4."""
    return config.has("model_type") and config.value("model_type") == COMPRESSED


def _experts_apart(config: Fields, q: Fields) -> Schemes:
    """The scheme of experts that ``expert_dtype`` or ``moe_quant_algo`` gives one of their own, in
    files of DeepSeek V4; mxfp4 where they are silent (vLLM 0.33, ``DeepseekV4FP8Config``)."""
    if _given(q, "moe_quant_algo"):
        own = q.value("moe_quant_algo")
        if own != "NVFP4":
            raise _unknown(q, "moe_quant_algo", "experts in NVFP4 are modelled")
        return ((Patterns.of(["experts"]), _plain("nvfp4", "nvfp4")),)
    stated = config.value("expert_dtype") if config.has("expert_dtype") else None
    if stated is None and not _is_compressed(config):
        return ()
    if stated not in EXPERT_TYPES:
        raise _unknown(
            config, "expert_dtype", f"{' and '.join(map(str, EXPERT_TYPES))} are modelled"
        )
    scheme = EXPERT_TYPES[stated]
    return () if scheme is None else ((Patterns.of(["experts"]), scheme),)


def _stated(config: Fields, path: Path) -> tuple[Fields | None, str]:
    """The keys that say how the checkpoint is stored, and where they are."""
    inner = [config.inner("text_config")] if config.has("text_config") else []
    for place in (config, *inner):
        for key in KEYS:
            if place.has(key) and place.value(key) not in (None, {}):
                return place.inner(key), f"{key} of {path}"
    other = quantisation_file(path)
    if not other.is_file():
        return None, ""
    document = Fields(str(other), read_json(other))
    return document.inner("quantization") if document.has("quantization") else document, str(other)


def quantisation_file(path: Path) -> Path:
    """The hf_quant_config.json that belongs to the config.json at ``path``, if there is one."""
    return path.with_name(f"{path.name.removesuffix('config.json')}hf_quant_config.json")


Schemes = tuple[tuple[Patterns | None, Scheme], ...]
Read = tuple[Schemes, list[str]]


def _fp8(q: Fields) -> Read:
    """fp8 as transformers writes it: a scale for each matrix or for each block."""
    if not _given(q, "weight_block_size"):
        static = _given(q, "activation_scheme") and q.value("activation_scheme") == "static"
        return ((None, Scheme("fp8", 1.0, "fp8", static)),), _left_out(q)
    if q.value("weight_block_size") != BLOCK:
        raise _unknown(q, "weight_block_size", f"blocks of {BLOCK} are modelled")
    return ((None, _plain("fp8-block", "fp8")),), _left_out(q)


def _fbgemm(q: Fields) -> Read:
    """fp8 with a scale for each row and each token."""
    return ((None, Scheme("fp8", 1.0, "fp8")),), _left_out(q)


def _gptq(q: Fields) -> Read:
    """GPTQ: the packed kernels leave out zero points where ``sym`` says that there are none."""
    zero = not (_given(q, "sym") and q.flag("sym"))
    scheme = _integers(q, "bits", _whole(q, "bits"), _whole(q, "group_size", -1), zero=zero)
    names: Patterns | None = None
    if _given(q, "modules_in_block_to_quantize"):
        listed: Any = q.value("modules_in_block_to_quantize")
        if not isinstance(listed, list):
            raise q.error("modules_in_block_to_quantize", "expected a list of names of modules")
        flat = [each for part in listed for each in (part if isinstance(part, list) else [part])]
        names = Patterns.of(map(str, flat))
    head = ((Patterns.of(["lm_head"]), scheme),) if q.flag("lm_head", absent=False) else ()
    rules = q.value("dynamic") if _given(q, "dynamic") else {}
    skipped = []
    for rule in rules if isinstance(rules, Mapping) else ():
        if not str(rule).startswith("-:"):
            raise _unknown(q, "dynamic", f"{_shown(rule)} gives some modules a format of their own")
        skipped.append("re:" + str(rule).removeprefix("-:"))
    return (*head, (names, scheme)), [*_left_out(q), *skipped]


def _auto_round(q: Fields) -> Read:
    """AutoRound: as GPTQ, and modules that ``extra_config`` leaves at 16 bits."""
    if _given(q, "data_type") and q.value("data_type") != "int":
        raise _unknown(q, "data_type", "whole numbers are modelled")
    schemes, left_out = _gptq(q)
    more = q.inner("extra_config") if _given(q, "extra_config") else ()
    for name in more:
        own = q.inner("extra_config").inner(name)
        if _given(own, "bits") and own.whole("bits") != q.whole("bits"):
            if own.whole("bits") < 16:
                raise _unknown(own, "bits", "modules with another number of bits are not modelled")
            left_out.append(name)
    return schemes, left_out


def _awq(q: Fields) -> Read:
    """AWQ: groups with zero points, unless it is said that there are none."""
    bits = "bits" if q.has("bits") else "w_bit"
    group = "group_size" if q.has("group_size") else "q_group_size"
    zero = q.flag("zero_point", absent=True)
    scheme = _integers(q, bits, _whole(q, bits, 4), _whole(q, group, 128), zero=zero)
    return ((None, scheme),), _left_out(q)


def _compressed(q: Fields) -> Read:
    """compressed-tensors: groups of modules by class (Linear) or by name."""
    groups = q.inner("config_groups")
    named: list[tuple[Patterns | None, Scheme]] = []
    for key in groups:
        group = groups.inner(key)
        targets = _texts(group, "targets")
        scheme = _group(group)
        classes = [each for each in targets if each == "Linear"]
        others = [each for each in targets if each not in classes]
        if others:
            named.insert(0, (Patterns.of(others), scheme))
        if classes or not targets:
            named.append((None, scheme))
    return tuple(named), _left_out(q)


def _group(group: Fields) -> Scheme:
    """The scheme of one group of compressed-tensors."""
    weights = group.inner("weights")
    bits, kind = weights.whole("num_bits"), weights.text("type")
    size = _whole(weights, "group_size", -1)
    strategy = str(weights.value("strategy")) if _given(weights, "strategy") else ""
    inputs = group.inner("input_activations") if _given(group, "input_activations") else None
    if (bits, kind) == (8, "float") and strategy != "group":
        if strategy != "block":
            found = Scheme("fp8", 1.0, "bf16")
        elif weights.value("block_structure") in BLOCKS:
            found = _plain("fp8-block", "bf16")
        else:
            raise _unknown(weights, "block_structure", f"blocks of {BLOCK} are modelled")
    elif kind == "int":
        symmetric = weights.flag("symmetric", absent=True)
        found = _integers(weights, "num_bits", bits, size, zero=not symmetric)
    elif (bits, kind) == (4, "float") and size in (16, 32):
        found = _plain("nvfp4" if size == 16 else "mxfp4", "bf16")
    else:
        raise _unknown(
            weights, "num_bits", f"{bits} bits ({kind}, groups of {size}) have no format"
        )
    return found if inputs is None else _multiplied(inputs, found)


def _multiplied(inputs: Fields, scheme: Scheme) -> Scheme:
    """``scheme`` with activations of so many bits."""
    bits = inputs.whole("num_bits")
    kind = inputs.text("type") if inputs.has("type") else "int"
    name = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): scheme.format}.get((bits, kind))
    if bits == 16:
        return scheme
    if name is None or scheme.format not in MULTIPLIES.get(name, ()):
        raise _unknown(
            inputs, "num_bits", f"{scheme.format} weights are not modelled with activations of "
            f"{bits} bits ({kind})"
        )  # fmt: skip
    fixed = inputs.has("dynamic") and inputs.value("dynamic") is False
    return scheme._replace(activations=name, static=fixed and bits == 8)


def _modelopt(q: Fields) -> Read:
    """NVIDIA's Model Optimizer: one algorithm for all, or one for each of the layers listed, which
    may be in groups as compressed-tensors has them."""
    algorithm = q.text("quant_algo")
    if algorithm != "MIXED_PRECISION":
        return ((None, _algorithm(q)),), _left_out(q)
    if not _given(q, "quantized_layers") and _given(q, "config_groups"):
        return _compressed(q)
    layers, by_scheme = q.inner("quantized_layers"), dict[Scheme, list[str]]()
    for name in layers:
        by_scheme.setdefault(_algorithm(layers.inner(name)), []).append(name)
    found = tuple((Patterns.of(names), scheme) for scheme, names in by_scheme.items())
    return found, _left_out(q)


def _algorithm(q: Fields) -> Scheme:
    """The scheme of one of Model Optimizer's algorithms."""
    name = q.text("quant_algo")
    if name in ("W4A16_AWQ", "INT4_AWQ"):
        return _integers(q, "quant_algo", 4, _whole(q, "group_size", 128), zero=False)
    if name not in ALGORITHMS:
        raise _unknown(q, "quant_algo", f"modelled are {', '.join(ALGORITHMS)}, W4A16_AWQ")
    return ALGORITHMS[name]


def _mxfp4(q: Fields) -> Read:
    """mxfp4 as gpt-oss has it: engines store the experts so, and multiply them at 16 bits."""
    return ((Patterns.of(["experts"]), _plain("mxfp4", "bf16")),), _left_out(q)


def _plain(name: str, activations: str) -> Scheme:
    return Scheme(name, precision_bytes(name), activations)


EXPERT_TYPES: Mapping[Any, Scheme | None] = {
    **dict.fromkeys(("fp4", None), _plain("mxfp4", "fp8")),
    "fp8": None,
}
"""How experts are stored by ``expert_dtype``; None as the other weights."""

COMPRESSED = "deepseek_v4"

COMPRESSED_CACHE = "fp8"
"""The cache of that model where none is asked for (vLLM 0.33, ``_resolve_dsv4_kv_cache_dtype``)."""

ALGORITHMS = {
    "FP8": Scheme("fp8", 1.0, "fp8", static=True),
    "FP8_PER_CHANNEL_PER_TOKEN": Scheme("fp8", 1.0, "fp8"),
    "FP8_PB_WO": _plain("fp8-block", "fp8"),
    "FP8_BLOCK_SCALES": _plain("fp8-block", "fp8"),
    "NVFP4": _plain("nvfp4", "nvfp4"),
    "NVFP4_AWQ": _plain("nvfp4", "nvfp4"),
    "W4A16_NVFP4": _plain("nvfp4", "bf16"),
    "INT8_SQ": Scheme("int8", 1.0, "int8"),
    "W8A16": Scheme("int8", 1.0, "bf16"),
}
"""By the name that Model Optimizer writes (modelopt.torch.export, quant_utils.py)."""

METHODS: Mapping[str, Callable[[Fields], Read]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "mxfp4": _mxfp4,
}
"""By ``quant_method``; vLLM's names of faster kernels for a checkpoint end in _marlin."""


def _integers(q: Fields, key: str, bits: int, group: int, *, zero: bool) -> Scheme:
    """Whole numbers of so many bits, of which ``group`` share a scale, and perhaps a zero point;
    they are widened as they are read."""
    shared = (SCALE + (ZERO if zero else 0.0)) / group if group > 0 else 0.0
    if bits == 8:
        return Scheme("int8", 1.0 + shared, "bf16")
    if bits != 4:
        raise _unknown(q, key, "weights of 4 and 8 bits are modelled")
    if group not in INT4_GROUPS:
        sizes = ", ".join(str(size) for size in INT4_GROUPS if size > 0)
        raise _unknown(q, "group_size", f"groups of {sizes} and whole rows are modelled")
    return Scheme(INT4_GROUPS[group], 0.5 + shared, "bf16")


def _kv_cache(q: Fields) -> str | None:
    """The format of the KV cache, which engines take where they are asked for none (vLLM,
    utils/torch_utils.py, resolve_kv_cache_dtype_string); None for that of the model."""
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        if not _given(q, key):
            continue
        value = q.value(key)
        if isinstance(value, Mapping):
            value = f"{value.get('type')}{value.get('num_bits')}"
        name = str(value).lower()
        if name in ("none", "auto"):
            continue
        known = {"fp8": "fp8", "float8": "fp8", "int8": "int8"}
        if name not in known:
            raise _unknown(q, key, "a KV cache of fp8 and int8 is modelled")
        return known[name]
    return None


def _left_out(q: Fields) -> list[str]:
    return [name for key in LEFT_OUT for name in _texts(q, key)]


def _texts(q: Fields, key: str) -> list[str]:
    """The texts of the list under ``key``; none where it is missing or null."""
    value: Any = q.value(key) if _given(q, key) else []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise q.error(key, "expected a list of names of modules")
    return value


def _whole(q: Fields, key: str, absent: int | None = None) -> int:
    """A whole number, perhaps -1; ``absent`` where it is missing or null."""
    if absent is not None and not _given(q, key):
        return absent
    value = q.value(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise q.error(key, f"expected a whole number, found {_shown(value)}")
    return value


def _given(q: Fields, key: str) -> bool:
    return q.has(key) and q.value(key) is not None


def _shown(value: object) -> str:
    return shorten(repr(value))


def _unknown(q: Fields, key: str, known: str) -> UsageError:
    """The complaint about a value that stands for no format here."""
    return q.error(key, f"{_shown(q.value(key))} cannot be represented: {known}")
