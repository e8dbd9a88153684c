"""Defines how a server was started: its engine, the words of its command, and where both stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMAGES = {
    "vllm": r"(^|/)vllm(-openai|/|:|-cpu|-rocm|-tpu|$)|llm-d(-cuda)?(:|$)",
    "sglang": r"sglang",
    "tensorrt-llm": r"tensorrt-?llm",
    "llama.cpp": r"llama\.?cpp",
}
"""A pattern of the names of images by the engine that they hold."""

PROGRAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "vllm": (("vllm", "serve"), ("-m", "vllm.entrypoints.openai.api_server")),
    "sglang": (("-m", "sglang.launch_server"), ("sglang", "serve")),
    "tensorrt-llm": (("trtllm-serve",),),
    "llama.cpp": (("llama-server",),),
}
"""The words after which the options of each engine's server begin."""

VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\(([A-Za-z_]\w*)\)|([A-Za-z_]\w*))")
"""A variable: ``$NAME``, ``${NAME}`` and ``${NAME:-default}`` of a shell, ``$(NAME)`` of a
manifest."""


@dataclass(frozen=True)
class Started:
    """A server: the ``words`` after its program's name, and what its surroundings say of it.

    ``where`` names the file and the part of it; ``settings`` are values that the surroundings state
    under dotted keys of a scenario, each with where it stands; ``log`` holds an engine's own
    settings, as it prints them at its start, by the names of its options without dashes.
    """

    engine: str
    words: tuple[str, ...]
    where: str
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None
    gpu_label: str = ""
    settings: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    log: Mapping[str, Any] | None = None
    version: str = ""
    folder: Path = Path()

    @property
    def release(self) -> str:
        """The release of the engine, as a log or the tag of the image states it; else empty."""
        if self.version:
            return self.version
        tag = self.image.rpartition(":")[2] if ":" in self.image else ""
        found = re.search(r"(?<![\d.])v?(\d+\.\d+(?:\.\d+)?)", tag)
        return found[1] if found else ""


def engine_of_image(image: str) -> str:
    """The engine that an image holds, by its name; empty for another.

    >>> engine_of_image("vllm/vllm-openai:v0.11.0"), engine_of_image("nginx")
    ('vllm', '')
    """
    name = image.lower().partition("@")[0]
    return next((engine for engine, each in IMAGES.items() if re.search(each, name)), "")


def program_in(words: Sequence[str]) -> tuple[str, int] | None:
    """The engine whose server ``words`` start, and the number of the first word after its name.

    >>> program_in(["python3", "-m", "sglang.launch_server", "--model-path", "m"])
    ('sglang', 3)
    """
    for at, word in enumerate(words):
        for engine, spellings in PROGRAMS.items():
            for spelling in spellings:
                size = len(spelling)
                name = word.rpartition("/")[2]
                if (name, *words[at + 1 : at + size]) == spelling:
                    skipped = words[at + size : at + size + 1] == ["serve"]
                    return engine, at + size + (engine == "tensorrt-llm" and skipped)
    return None


def substituted(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the variables whose ``values`` are known; the others stay as they are.

    >>> substituted("--tp $TP --port ${PORT:-8000} $X", {"TP": "2"})
    '--tp 2 --port 8000 $X'
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3] or found[4]
        if name in values:
            return values[name]
        return found[2] if found[2] is not None else found[0]

    return VARIABLE.sub(value, text)
