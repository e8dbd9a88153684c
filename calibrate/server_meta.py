"""Reads the ``meta.json`` of a logged vLLM server, part by part.

What the engine was started with (``engine_kwargs``), what it made of that (``resolved_config``),
the KV cache it found room for (``kv_cache``) and the machine (``hardware``). Each part may be
missing; a value that is there must be of the right kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import shown
from sim.workload.traffic import MAX_TOKENS

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
"""Our names of vLLM's number formats."""

KV_DTYPES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
"""Our names of the number formats that only a KV cache has."""


class ServerMeta:
    """The parts of ``path``, empty where it does not exist: what the engine resolved goes before
    what it was ``started`` with. TraceError for a part that is no mapping."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.document: Mapping[str, Any] = document(path) if path.is_file() else {}
        self.started = self._part(self.document, "engine_kwargs")
        resolved = self._part(self.document, "resolved_config")
        found = self._part(self.document, "kv_cache")
        stated = {name: value for name, value in found.items() if value is not None}
        self.cache = found | self._part(resolved, "cache_config") | stated
        self.scheduler = self.started | self._part(resolved, "scheduler_config")
        self.model = self.started | self._part(resolved, "model_config")
        self.parallel = self.started | self._part(resolved, "parallel_config")
        self.hardware = self._part(self.document, "hardware")

    @property
    def served_model(self) -> str | None:
        """The model as the server calls it."""
        return self.text(self.document, "model") or self.text(self.started, "model")

    def number_format(self, name: str, known: Mapping[str, str]) -> str | None:
        """Our name of the format of the weights (``dtype``) or of the KV cache (``cache_dtype``);
        None where it is left to the model. TraceError for one that is not ``known``."""
        if name == "dtype":
            stated = self.text(self.model, name)
        else:
            name = name if name in self.cache else f"kv_{name}"
            stated = self.text({**self.started, **self.cache}, name)
        if stated is None or stated == "auto":
            return None
        plain = stated.removeprefix("torch.")
        if plain not in known:
            raise TraceError(
                f"{self.path}: {name} is {shown(stated)}; known: {', '.join([*known, 'auto'])}"
            )
        return known[plain]

    def text(self, found: Mapping[str, object], name: str) -> str | None:
        """The text ``name`` of a part; None for none, TraceError for anything else."""
        value = found.get(name)
        if value is not None and not isinstance(value, str):
            raise TraceError(f"{self.path}: {name} is {shown(value)}; allowed: a text")
        return value or None

    def whole(self, found: Mapping[str, object], name: str) -> int | None:
        """The whole number ``name`` of a part; None for none, TraceError for anything else."""
        value = found.get(name)
        if value is None:
            return None
        if type(value) is not int or not 1 <= value <= MAX_TOKENS:
            raise TraceError(
                f"{self.path}: {name} is {shown(value)}; "
                f"allowed: a whole number from 1 to {MAX_TOKENS:,}"
            )
        return value

    def _part(self, found: Mapping[str, object], name: str) -> dict[str, Any]:
        part = found.get(name)
        if part is None:
            return {}
        if not isinstance(part, dict):
            raise TraceError(f"{self.path}: {name} is {shown(part)}; allowed: a mapping")
        return part
