"""Provides registries: the parts of one kind that ship with infersim, by the names they give
themselves.

A part says everything that others must know of it in attributes of its class, so that a new one is
a file of its own and a word in its registry. Schema, reference, messages, pages and planning read
the registry; none of them repeats a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from sim.errors import UsageError, did_you_mean
from sim.own import load_class


class RegisteredPart(Protocol):
    """A class that can be chosen by name."""

    name: ClassVar[str]
    """What scenarios call it; of a user's own class nobody asks."""

    about: ClassVar[str]
    """What it does, in a few words."""


T = TypeVar("T", bound=RegisteredPart)


class Registry(Mapping[str, type[T]]):
    """The parts that the key ``key`` of a scenario names, in the order in which lists show them."""

    def __init__(self, key: str, base: type, *parts: type[T]) -> None:
        """``base`` is what a user's own class must be a subclass of."""
        self.key = key
        self._base = base
        self._parts = {part.name: part for part in parts}

    def __getitem__(self, name: str) -> type[T]:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, name: str, folders: Sequence[Path] = ()) -> type[T]:
        """The class that ``name`` names; one with a colon is imported, ``folders`` first.

        Raises UsageError for a name that leads nowhere.
        """
        if ":" in name:
            own: type[T] = load_class(name, self._base, self._base.__name__.lower(), folders)
            return own
        if name not in self._parts:
            raise UsageError(
                f"unknown {self.key} {name!r}{did_you_mean(name, self._parts)}; "
                f"known: {', '.join(self._parts)}, or package.module:Class"
            )
        return self._parts[name]

    def described(self) -> str:
        """Every name with what it does, as a sentence or more.

        >>> from sim.routers import ROUTERS
        >>> ROUTERS.described()[:40]
        'round-robin: the replicas take turns; ra'
        """
        return "; ".join(f"{name}: {part.about}" for name, part in self._parts.items())
