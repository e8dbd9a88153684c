"""Makes the paths of a scenario absolute: those of files, and those of a user's own parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog.ids import named
from sim.plugins import absolute

PATHS: Mapping[tuple[str, ...], catalog.Kind | None] = {
    ("model",): "models",
    ("model", "path"): "models",
    ("engine",): "engines",
    ("fleet", "model"): "models",
    ("fleet", "gpu"): "gpus",
    ("fleet", "engine"): "engines",
    ("speculative", "draft_model"): "models",
    ("workload", "prompt_tokens", "path"): None,
    ("workload", "output_tokens", "path"): None,
    ("workload", "lengths", "path"): None,
    ("workload", "lengths", "parts", "prompt_tokens", "path"): None,
    ("workload", "lengths", "parts", "output_tokens", "path"): None,
    ("workload", "trace", "path"): None,
    ("workload", "classes", "model"): "models",
}
"""The keys that hold a path, and the part of the catalogue whose names may stand there instead."""


OWN = (
    ("scheduler", "batching"), ("scheduler", "order"), ("fleet", "scheduler", "batching"),
    ("fleet", "scheduler", "order"), ("router",), ("metrics",),
)  # fmt: skip
"""The keys at which a part of one's own may stand."""


def absolute_paths(data: dict[str, Any], base: Path, folders: Sequence[Path]) -> dict[str, Any]:
    """``data`` with every path that is relative to ``base`` made absolute, and every part of one's
    own that is in one of ``folders``; names stay names."""
    data = copy.deepcopy(data)
    for *steps, key in OWN:
        for section in _sections_at(data, steps):
            value = section.get(key)
            if isinstance(value, str):
                section[key] = absolute(value, folders)
            elif isinstance(value, list):
                section[key] = [
                    absolute(item, folders) if isinstance(item, str) else item for item in value
                ]
    for (*steps, key), kind in PATHS.items():
        for section in _sections_at(data, steps):
            value = section.get(key)
            if isinstance(value, str) and _is_path(value, kind, base):
                section[key] = str(Path(base, Path(value).expanduser()))
    return data


def _sections_at(data: dict[str, Any], steps: Sequence[str]) -> list[dict[str, Any]]:
    """The mappings below these keys; each of them where a key holds a list."""
    found: list[Any] = [data]
    for step in steps:
        values = [section[step] for section in found if step in section]
        items = [
            item for value in values for item in (value if isinstance(value, list) else [value])
        ]
        found = [item for item in items if isinstance(item, dict)]
    return found


def _is_path(value: str, kind: catalog.Kind | None, base: Path) -> bool:
    """Whether a value is meant as a path: a misspelt name of the catalogue is none."""
    try:
        exists = Path(base, Path(value).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, an unknown ~user
        return False
    if kind is None or exists:
        return kind is None or value not in catalog.names(kind)
    if kind == "models" and named(value):
        return False
    return "/" in value or Path(value).suffix in (".yaml", ".yml", ".json")
