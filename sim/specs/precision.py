"""Provides the formats of numbers by name: the bytes that one takes, and what multiplies what.

Formats of 4 bits and fp8 by blocks carry scales for groups of numbers; their bytes are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Format(NamedTuple):
    """``bits`` of a number, and the ``scale`` bytes that each ``group`` of numbers shares.

    >>> Format(4, 1, 32).bytes, Format(4, 1, 16).bytes
    (0.53125, 0.5625)
    """

    bits: float
    scale: float = 0.0
    group: int = 1

    @property
    def bytes(self) -> float:
        """Bytes of one number, its part of the scale included."""
        return self.bits / 8 + self.scale / self.group


GGUF: Mapping[str, Format] = {
    "q4_0": Format(4, 2, 32),
    "q4_1": Format(4, 4, 32),
    "q5_0": Format(5, 2, 32),
    "q5_1": Format(5, 4, 32),
    "q8_0": Format(8, 2, 32),
    "q6_k": Format(6, 18, 256),
    "q2_k": Format(3.1593),
    "q3_k_s": Format(3.6429),
    "q3_k_l": Format(4.2979),
    "iq4_xs": Format(4.4597),
    "iq4_nl": Format(4.6818),
    "q4_k_s": Format(4.6672),
    "q4_k_m": Format(4.8944),
    "q5_k_s": Format(5.5704),
    "q5_k_m": Format(5.7036),
}
"""Formats of llama.cpp's files. Those up to q6_k are blocks with scales (ggml/src/ggml-common.h).
The others mix blocks of several kinds: bits of a weight in the mean over Llama-3.1-8B, embedding
and LM head included (tools/quantize/README.md); other models are some percent off."""

GGUF_KV = ("q8_0", "q4_0")
"""The formats of GGUF in which a KV cache may be."""

FORMATS: Mapping[str, Format] = {
    "fp32": Format(32),
    "bf16": Format(16),
    "fp16": Format(16),
    "fp8": Format(8),
    "fp8-block": Format(8, 4, 128 * 128),
    "int8": Format(8),
    "int4": Format(4),
    "int4-group": Format(4, 2.5, 128),
    "int4-group64": Format(4, 2, 64),
    "int4-group32": Format(4, 2, 32),
    "mxfp4": Format(4, 1, 32),
    "nvfp4": Format(4, 1, 16),
    **GGUF,
}
"""fp8, int8 and int4 have a scale for a whole tensor, a row or a column, which is not counted.
fp8-block has 32 bits for each block of 128 x 128 weights (DeepSeek-V3, arXiv 2412.19437, section
3.3). int4-group has 16 bits and a zero point of 4 bits for 128 weights (GPTQ and AWQ checkpoints);
int4-group64 and int4-group32 have 16 bits for 64 and 32 weights, without zero points (checkpoints
of compressed-tensors that state ``symmetric: true``, such as moonshotai/Kimi-K2.5 with 32).
mxfp4 has 8 bits for 32 (OCP Microscaling Formats 1.0), nvfp4 8 bits for 16 (NVIDIA Blackwell)."""

PRECISION_BYTES: Mapping[str, float] = {name: each.bytes for name, each in FORMATS.items()}
"""Bytes of one number stored in each format, scales of groups included."""

INT4 = tuple(name for name in FORMATS if name.startswith("int4"))
"""Formats of weights alone that are widened as they are read, whatever their groups: to 16 bits, or
to 8 where activations are in int8."""

MULTIPLIES: Mapping[str, tuple[str, ...]] = {
    "fp8": ("fp8", "fp8-block", "mxfp4"),
    "int8": ("int8", *INT4),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("mxfp4",),
}
"""The weights that activations of fewer than 16 bits are multiplied by. Activations of 16 bits and
more are multiplied by any: narrower weights are widened as they are read. Marlin widens int4 to
int8 on cards from Turing on (vLLM 0.28, get_marlin_input_dtype in marlin_utils.py)."""

WIDE_ACTIVATIONS: Mapping[str, str] = {
    **dict.fromkeys((*INT4, *GGUF), "bf16"),
    "mxfp4": "bf16",
    "fp8-block": "fp8",
}
"""The activations that usually go with weights in a format, where those differ."""

PLAIN = ("bf16", "fp16", "fp32")
"""Formats of 16 bits and more."""


def formats_of(name: str) -> dict[str, str]:
    """The keys of a scenario's ``precision`` that a format stands for, as ``infersim plan
    --precision`` and the page of ``infersim ui`` take it: weights, or weights and experts as in
    ``bf16/mxfp4``, with the activations that go with the narrower of both. A name that is no format
    is left to the check of its key.

    >>> formats_of("fp8"), formats_of("int4")["activations"]
    ({'weights': 'fp8', 'activations': 'fp8'}, 'bf16')
    """
    weights, slash, experts = name.partition("/")
    narrow = experts if slash and weights in PLAIN else weights
    found = {"weights": weights}
    if narrow in FORMATS:
        found["activations"] = WIDE_ACTIVATIONS.get(narrow, narrow)
    return found | ({"experts": experts} if slash else {})


STORED: Mapping[str, str] = {
    **{"weights": "weights", "experts": "experts"},
    **{"activations": "activations", "kv_cache": "KV cache"},
}
"""Key of ``precision`` in a scenario -> what is of that format."""


def narrow_formats(given: Mapping[str, str | None]) -> str:
    """The formats of fewer than 16 bits, by the keys of ``STORED``; empty if there are none.

    >>> narrow_formats({"weights": "bf16", "experts": "mxfp4", "kv_cache": "fp8"})
    'mxfp4 experts, fp8 KV cache'
    """
    named = {key: given.get(key) for key in STORED}
    if named["experts"] == named["weights"]:
        del named["experts"]
    narrow = {key: name for key, name in named.items() if name and name not in PLAIN}
    return ", ".join(f"{name} {STORED[key]}" for key, name in narrow.items())


def precision_bytes(precision: str) -> float:
    """Bytes of one number in ``precision``; ValueError, naming the known ones, if it is not known.

    >>> precision_bytes("int4"), precision_bytes("nvfp4")
    (0.5, 0.5625)
    """
    if precision not in PRECISION_BYTES:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(PRECISION_BYTES)}")
    return PRECISION_BYTES[precision]
