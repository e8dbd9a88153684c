"""Provides texts that carry what they are made of, named parts or the settings they miss, and the
name of a replica in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


SENT_MOST = "which the router sends the most work"
"""What singles the busiest replica out."""


def replica_name(number: int) -> str:
    """The replica of this number, which scenarios and tables count from 0, in a sentence.

    >>> replica_name(1), replica_name(12)
    ('the second replica (1)', 'replica 12, counted from 0')
    """
    if 0 <= number < len(ORDINALS):
        return f"the {ORDINALS[number]} replica ({number})"
    return f"replica {number}, counted from 0"


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


Settings = Mapping[str, Any]
"""Values of a scenario by dotted key."""


class OpenNote(str):
    """A sentence on what is not stated, with the ``settings`` of each other case: what a run that
    does not agree with a measured one is compared with first.

    >>> OpenNote("Nothing says it.", {"max_model_len": 4096}).settings
    ({'max_model_len': 4096},)
    """

    settings: tuple[Settings, ...]

    def __new__(cls, text: str, *settings: Settings) -> OpenNote:
        """The sentence ``text``, with ``settings``, one for each other case."""
        note = super().__new__(cls, text)
        note.settings = settings
        return note
