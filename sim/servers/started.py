"""Defines how a server was started: its engine, the words of its command, and where both stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMAGES = {
    "vllm": r"vllm(?!.*(router|sim|operator|gateway|bench|proxy|syncer|exporter|controller))[^/]*$|"
    r"(^|/)llm-d(-cuda|-rocm|-xpu|-hpu|-cpu|-aws)?(:|$)",
    "sglang": r"sglang(?![^/]*(router|gateway))|(^|/)sgl-dev",
    "tensorrt-llm": r"tensorrt-?llm",
    "llama.cpp": r"llama\.?cpp",
}
"""A pattern of the names of images by the engine that they hold."""

NUMBERED = r"(^|/)llm-d|^nvcr\.io/nvidia/(?!tensorrt-?llm)|^rocm/"
"""Images whose tags count their own releases, not those of the engine inside."""

PROGRAM = re.compile(
    r"vllm serve|vllm\.entrypoints|sglang\.launch_server|sglang serve|trtllm-serve|llama-server|"
    r"dynamo\.(?:vllm|sglang|trtllm)"
)
"""How a text names the program of a server."""

PROGRAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "vllm": (
        *(("vllm", "serve"), ("-m", "vllm.entrypoints.openai.api_server")),
        *(("-m", "vllm.entrypoints.cli.main", "serve"), ("-m", "dynamo.vllm")),
    ),
    "sglang": (("-m", "sglang.launch_server"), ("sglang", "serve"), ("-m", "dynamo.sglang")),
    "tensorrt-llm": (("trtllm-serve",), ("-m", "dynamo.trtllm")),
    "llama.cpp": (("llama-server",),),
}
"""The words after which the options of each engine's server begin."""

VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w*|\d|@)(?::?-([^}]*)|[:[?][^}]*)?\}|\(([A-Za-z_]\w*)\)|"
    r"([A-Za-z_]\w*|\d|@))"
)
"""A variable: ``$NAME``, ``${NAME}`` and ``${NAME:-default}`` of a shell, ``$1`` and ``$@`` of a
script, ``$(NAME)`` of a manifest."""


@dataclass(frozen=True)
class Started:
    """A server: the ``words`` after its program's name, and what its surroundings say of it.

    ``where`` names the file and the part of it; ``gpus`` are those of all nodes; ``settings`` are
    values that the surroundings state under dotted keys of a scenario, each with where it stands;
    ``log`` holds an engine's own settings, as it prints them at its start, by the names of its
    options without dashes, and ``given`` those that its command stated; ``files`` are texts that
    the surroundings hold, by the names of files; ``notes`` are for who reads the scenario.
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
    given: frozenset[str] = frozenset()
    version: str = ""
    folder: Path = Path()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """The release of the engine, as a log or the tag of the image states it; else empty."""
        if self.version:
            return self.version
        name, _, tag = self.image.partition("@")[0].rpartition(":")
        found = re.search(rf"{self.engine}[_-]v?(\d+\.\d+(?:\.\d+)?)", tag)
        if found is None and engine_of_image(name) and not re.search(NUMBERED, name):
            found = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", tag)
        return found[1] if found else ""

    def numbers(self, option: str) -> int | None:
        """The whole number that the command gives ``option``; None where it does not."""
        text = f" {' '.join(self.words)} ".replace("_", "-")
        found = re.search(rf" --{option}[ =](\d+) ", text)
        return int(found[1]) if found else None


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
        if name in values and not re.search(r"\[|:[^-?]", found[0]):
            return values[name]
        return found[2] if found[2] is not None else found[0]

    return VARIABLE.sub(value, text)
