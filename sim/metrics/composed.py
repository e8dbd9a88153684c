"""Provides texts that remember the parts they are made of, so that a part can be put otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Composed(str):
    """A text of named parts, one behind the other; a part that says nothing is empty.

    >>> text = Composed({"found": "Too few requests.", "asks": " Simulate 200."})
    >>> text, text.saying(asks=" Simulate 500.")
    ('Too few requests. Simulate 200.', 'Too few requests. Simulate 500.')
    """

    parts: Mapping[str, str]

    def __new__(cls, parts: Mapping[str, str]) -> Composed:
        """The text of ``parts``."""
        text = super().__new__(cls, "".join(parts.values()))
        text.parts = parts
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return Composed, (dict(self.parts),)

    def saying(self, **parts: str) -> Composed:
        """The text with these parts instead, each in its place; a new one comes last."""
        return Composed({**self.parts, **parts})
