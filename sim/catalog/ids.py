"""Reads the ids of models on Hugging Face, and their other spellings, as names of the catalogue.

An id names a checkpoint: ``Qwen/Qwen3-32B-FP8`` has the shape of ``qwen3-32b`` and other numbers. A
name is read without upper case, organisation, and the words that are known to change no shape; a
word that is not known leaves a name unread. Words for a number format say how the weights are
stored, as their publishers use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from sim.catalog.entries import names
from sim.specs.published import PublishedFormat

FORMAT_WORDS = (
    *("fp8", "fp16", "bf16", "fp4", "nvfp4", "w8a8", "w4a16", "int8", "int4", "awq", "gptq"),
    *("dynamic", "quantized", "block", "kv", "autoround", "bnb", "4bit", "8bit", "gguf", "q4_k_m"),
)
"""Words of names that say how weights are stored."""

NO_SHAPE = (
    *FORMAT_WORDS,
    *("instruct", "chat", "hf", "it", "pt", "thinking", "think", "base"),
    *("2407", "2410", "2411", "2501", "2503", "2505", "2506", "2507", "2512", "0528"),
)
"""Words of names that change no size of a model."""

SAME_SHAPE = {
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1-terminus": "deepseek-v3.1",
    "deepseek-v3.2-exp": "deepseek-v3.2",
    "deepseek-v3.2-speciale": "deepseek-v3.2",
    "deepseek-v4-flash-0731": "deepseek-v4-flash",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "kimi-k2-0905": "kimi-k2",
    "kimi-k2.6": "kimi-k2.5",
    "kimi-k2-thinking": "kimi-k2.5",
    "glm-5.1": "glm-5",
    "glm-5.3": "glm-5.2",
    "glm-4.7": "glm-4.6",
    "qwen2.5-coder-7b": "qwen2.5-7b",
    "qwen2.5-coder-14b": "qwen2.5-14b",
    "qwen2.5-coder-32b": "qwen2.5-32b",
    "qwen3-coder-next": "qwen3-next-80b-a3b",
    "qwen3.6-27b": "qwen3.5-27b",
    "qwen3.8-27b": "qwen3.5-27b",
    "qwen3.6-35b-a3b": "qwen3.5-35b-a3b",
    "mistral-small-3.1-24b": "mistral-small-3.2-24b",
    "devstral-small": "mistral-small-3.2-24b",
    "exaone-4.0.1-32b": "exaone-4.0-32b",
    "gpt-oss-safeguard-20b": "gpt-oss-20b",
    "gpt-oss-safeguard-120b": "gpt-oss-120b",
    "olmo-3.1-32b": "olmo-3-32b",
    "llama-3.1-nemotron-70b": "llama-3.1-70b",
    "llama-3.1-nemotron-nano-8b-v1": "llama-3.1-8b",
    "llama-3-3-nemotron-super-49b-v1": "nemotron-super-49b",
    "llama-3-3-nemotron-super-49b-v1-5": "nemotron-super-49b",
    "nemotron-3-super": "nemotron-3-super-120b-a12b",
    "nemotron-3-ultra": "nemotron-3-ultra-550b-a55b",
    "gptj-6b": "gpt-j-6b",
    "gpt-j": "gpt-j-6b",
    "minimax-m2.1": "minimax-m2",
    "minimax-m2.5": "minimax-m2",
    "minimax-m2.7": "minimax-m2",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "mistral-large": "mistral-large-2",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-7b-v0.2": "mistral-7b",
    "mistral-7b-v0.3": "mistral-7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "nemotron-h-56b-base-8k": "nemotron-h-56b",
}
"""Models that differ from one of the catalogue in their training only."""

PUBLISHERS = ("meta", "nvidia", "mistralai", "qwen", "openai", "neuralmagic")
"""Words with which the names of some checkpoints begin, and which belong to no model."""

CONTEXTS = {"2507": 262144}
"""``max_position_embeddings`` by a word of a name of Qwen3: config.json of
Qwen3-235B-A22B-Instruct-2507, -Thinking-2507 and the other Qwen3 of that month."""

BY_BLOCKS = (
    *("qwen/", "deepseek-ai/", "zai-org/glm-5", "minimaxai/", "moonshotai/"),
    "sgl-project/deepseek-v4",
)
"""How the ids of fp8 checkpoints with a scale for each block of 128 x 128 weights begin:
config.json of Qwen/Qwen3-32B-FP8, deepseek-ai/DeepSeek-V3, zai-org/GLM-5-FP8,
MiniMaxAI/MiniMax-M2.5, moonshotai/Kimi-K2-Instruct and sgl-project/DeepSeek-V4-Pro-FP8."""

MODEL_OPTIMIZER = "nvidia"
"""The publisher whose checkpoints hold the scales of fp8 activations and say that the KV cache is
in fp8: hf_quant_config.json of nvidia/Llama-3.1-70B-Instruct-FP8, nvidia/Qwen3-235B-A22B-NVFP4. So
do those of AMD that are called FP8-KV."""


EXPERTS_ALONE = (
    *("kimi-k2.5", "glm-5", "minimax-m2", "deepseek-v4-flash", "deepseek-v4-pro"),
    *("qwen3.5-122b-a10b", "qwen3.5-397b-a17b"),
)
"""Models of whose NVFP4 checkpoints by NVIDIA the experts alone, or they and little else, are in
nvfp4; the rest is as in the model's own checkpoint where that mixes formats, else at 16 bits:
hf_quant_config.json or config.json of nvidia/Kimi-K2.5-NVFP4, GLM-5-NVFP4, MiniMax-M2.5-NVFP4,
Qwen3.5-122B-A10B-NVFP4, Qwen3.5-397B-A17B-NVFP4, DeepSeek-V4-Flash-NVFP4 and -Pro-NVFP4. Of
DeepSeek-V3.1-NVFP4 and Qwen3-235B-A22B-NVFP4 most of the attention is, too."""


class Named(NamedTuple):
    """A checkpoint: the name of the catalogue's model of its shape, ``text`` as written, and the
    words left out to get there."""

    entry: str
    text: str
    words: tuple[str, ...]

    @property
    def context(self) -> int | None:
        """``max_position_embeddings``, where it is another than that of the catalogue's model."""
        if not self.entry.startswith("qwen3"):
            return None
        return next((CONTEXTS[word] for word in self.words if word in CONTEXTS), None)

    @property
    def remark(self) -> str:
        """A sentence on what it was read as."""
        return f"{self.text} is read as {self.entry} of the catalogue."

    def published(self, own: PublishedFormat | None) -> PublishedFormat | None:
        """How it is stored: as its name says, or else as the catalogue's model, ``own``."""
        words = {word for word in self.words if word in FORMAT_WORDS}
        owner = self.text.lower().partition("/")[0] if "/" in self.text else ""
        source = f"the name of {self.text}"
        if not words:
            return own
        if words <= {"bf16", "fp16"}:
            return PublishedFormat("bf16", None, source) if own else None
        found = _stored(words, self.text.lower())
        if found is None:
            told = ", ".join(sorted(words))
            problem = f"{source} does not say which format {told} stands for"
            if "gguf" in words:
                problem += "; the header of a .gguf file says it"
            return PublishedFormat("bf16", None, source, problem=problem)
        weights, activations = found
        optimised = owner == MODEL_OPTIMIZER and weights != "fp8-block"
        alone = weights == "nvfp4" and optimised and self.entry in EXPERTS_ALONE
        around = own.weights if own is not None and own.experts is not None else "bf16"
        usual = None if own is None else own.kv_cache
        return PublishedFormat(
            around if alone else weights,
            weights if alone else None,
            source,
            activations=activations,
            kv_cache="fp8" if optimised or "kv" in words else usual,
            static=weights == "fp8" and (optimised or "kv" in words),
            note=None
            if alone
            else f"Which layers of {self.text} stay at 16 bits is not in its name; its config.json "
            "says it.",
        )


def _stored(words: set[str], name: str) -> tuple[str, str] | None:
    """Formats of weights and activations by the words of a name; None for words that fit none."""
    plain = words - {"dynamic", "quantized"}
    if plain in ({"fp8"}, {"fp8", "kv"}):
        blocks = name.startswith(BY_BLOCKS) and "dynamic" not in words
        return ("fp8-block" if blocks else "fp8"), "fp8"
    return STORED.get(frozenset(plain))


STORED: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset({"fp8", "block"}): ("fp8-block", "fp8"),
    frozenset({"nvfp4"}): ("nvfp4", "nvfp4"),
    frozenset({"fp4"}): ("nvfp4", "nvfp4"),
    frozenset({"w8a8"}): ("int8", "int8"),
    frozenset({"w8a8", "int8"}): ("int8", "int8"),
    frozenset({"w4a16"}): ("int4-group", "bf16"),
    frozenset({"awq"}): ("int4-group", "bf16"),
    frozenset({"awq", "int4"}): ("int4-group", "bf16"),
    frozenset({"autoround", "int4"}): ("int4-group", "bf16"),
    frozenset({"gptq", "int4"}): ("int4-group", "bf16"),
    frozenset({"gptq", "int8"}): ("int8", "bf16"),
    frozenset({"gguf", "q4_k_m"}): ("q4_k_m", "bf16"),
}
"""Formats of weights and activations by words for a format: ``quantized.w8a8``, ``w4a16`` and
``FP8-block`` as Red Hat AI has them, ``AWQ`` and ``GPTQ-Int4`` as Qwen, ``AWQ-INT4`` as
hugging-quants, ``int4-AutoRound`` as Intel (all in groups of 128), ``FP4`` and ``NVFP4`` as NVIDIA.
A repository of GGUF files has one format only if its name ends in it."""


@cache
def named(text: str) -> Named | None:
    """The checkpoint that ``text`` names; None where that is no model of the catalogue in another
    spelling.

    >>> named("Qwen/Qwen3-32B-FP8").entry, named("meta-llama/Llama-3.1-8B-Instruct").entry
    ('qwen3-32b', 'llama-3.1-8b')
    >>> named("Qwen/Qwen3-32B-Foo"), named("qwen3-32b/config.json")
    (None, None)
    """
    if text.count("/") > 1 or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text, re.ASCII):
        return None
    found = spelt(text, SAME_SHAPE)
    return None if found is None else Named(found[0], text, found[1])


def spelt(
    text: str, same: Mapping[str, str], no_shape: tuple[str, ...] = NO_SHAPE
) -> tuple[str, tuple[str, ...]] | None:
    """The name of the catalogue that is meant by ``text``, and the words left out; None if there
    is none. ``same`` are models of the same shape, ``no_shape`` the words that change none."""
    known = frozenset(names("models"))
    name = text.lower().rsplit("/", 1)[-1]
    name = re.sub(rf"^({'|'.join(PUBLISHERS)})[-_](?=\w)", "", name)
    longest_first = sorted(map(re.escape, no_shape), key=len, reverse=True)
    word = re.compile(rf"[-_ .]({'|'.join(longest_first)})(?=$|[-_ .])")
    left_out: list[str] = []
    while True:
        plain = _plain(name)
        entry = same.get(plain, plain)
        if entry in known:
            return entry, tuple(left_out)
        found = word.search(name)
        if found is None:
            return None
        left_out.append(found[1])
        name = name[: found.start()] + name[found.end() :]


def _plain(name: str) -> str:
    """A name with the hyphens that the catalogue has."""
    name = re.sub(r"[\s_]+", "-", name)
    name = re.sub(r"(?<=llama)-?v?(?=\d)", "-", name)
    return re.sub(r"(?<=qwen)-(?=\d)", "", name)
