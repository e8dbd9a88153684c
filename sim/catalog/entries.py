"""Lists what the catalogue has under names: GPUs, models and engines, a file each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

Kind = Literal["gpus", "models", "engines"]
KINDS: tuple[Kind, ...] = ("gpus", "models", "engines")

FOLDER = Path(__file__).parent


def names(kind: Kind) -> list[str]:
    """The names in one part of the catalogue, sorted.

    >>> names("engines")  # doctest: +ELLIPSIS
    ['ideal', 'llama.cpp', 'reference', 'sglang', ...]
    """
    return list(_names(kind))


@cache
def _names(kind: Kind) -> tuple[str, ...]:
    """Cached ``names``: nothing is added to the catalogue while a program runs."""
    return tuple(sorted(path.stem for path in (FOLDER / kind).glob("*.yaml")))


def shipped(kind: Kind, path: Path) -> bool:
    """Whether ``path`` is the file of an entry of the catalogue."""
    return path.parent == FOLDER / kind
