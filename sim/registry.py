"""Provides registries: the parts of one kind that ship with infersim, by the names they give
themselves.

A part says everything that others must know of it in attributes of its class, so that a new one is
a file of its own: a registry of a package has what the package's files define. Schema, reference,
messages, pages and planning read the registry; none of them repeats a name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from sim.errors import UsageError, did_you_mean
from sim.plugins import load_class


class RegisteredPart(Protocol):
    """A class that can be chosen by name."""

    name: ClassVar[str]
    """Its name in scenarios; not asked of a user's own class."""

    about: ClassVar[str]
    """Its behaviour in a few words."""


T = TypeVar("T", bound=RegisteredPart)


class Registry(Mapping[str, type[T]]):
    """The parts that the key ``key`` of a scenario names, in the order in which lists show them."""

    def __init__(self, key: str, base: type, *parts: type[T], package: str | None = None) -> None:
        """``base`` is what a user's own class must be a subclass of.

        ``parts`` come first in lists, then those of other files of ``package``, by file.
        """
        self.key = key
        self._base = base
        self._parts = {part.name: part for part in parts}
        if package is not None:
            for part in _parts_of(package, base):
                self._parts.setdefault(part.name, part)

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


def _parts_of(package: str, base: type) -> Iterator[type[Any]]:
    """The subclasses of ``base`` with a ``name`` and an ``about`` of their own, in all files of a
    package that is being imported."""
    for folder in sys.modules[package].__path__:
        for file in sorted(Path(folder).glob("[!_]*.py")):
            module = import_module(f"{package}.{file.stem}")
            for part in vars(module).values():
                if not isinstance(part, type) or part.__module__ != module.__name__:
                    continue
                if issubclass(part, base) and vars(part).get("name") and "about" in vars(part):
                    yield part
