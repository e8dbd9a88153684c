"""Provides notes on what a scenario leaves open, which carry the settings that would say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
