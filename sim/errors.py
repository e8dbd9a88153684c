"""Defines what can go wrong, as one tree; each error knows the exit code of the command it ends.

    InfersimError                1  anything infersim itself reports
    ├── UsageError               2  an argument, a catalogue name or an option is wrong
    │   └── ScenarioError        2  a scenario is wrong (file:line:column, caret, nearest match)
    ├── TraceError               2  a trace file cannot be read (file:line)
    └── InfeasibleError          3  the question is well put and its answer is "it does not fit"

A user's mistake always surfaces as one of these and never as a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

TRACEBACK = "INFERSIM_TRACEBACK"
"""The variable of the environment with which commands show the whole traceback of an error."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


LISTED = 12
"""Layouts or names that the message of an error lists."""


class InfersimError(Exception):
    """Root of every error that infersim raises on purpose."""

    exit_code = 1


class UsageError(InfersimError):
    """An argument, option or catalogue name is not one that exists."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario breaks its contract; the message carries position, value and what is allowed."""


class TraceError(InfersimError):
    """A trace file breaks its format; the message carries file and line."""

    exit_code = 2


class InfeasibleError(InfersimError):
    """The scenario is valid, but nothing could be served (say, the model exceeds the memory).

    ``title`` says what is not possible, ``detail`` why. ``layouts`` are those that were tried, each
    with what speaks against it. ``parts``, where memory is what is missing, are the bytes of a GPU:
    what each part takes, and under ``usable`` what there is.

    >>> tried = [("1 x l4", "too slow"), ("1 x t4", "no fp8"), ("2 x l4", "too slow")]
    >>> print(InfeasibleError("no fleet holds", layouts=tried))
    no fleet holds:
      1 x l4, 2 x l4: too slow
      1 x t4: no fp8
    """

    exit_code = 3

    def __init__(
        self,
        title: str,
        detail: str = "",
        *,
        layouts: Sequence[tuple[str, str]] = (),
        parts: Mapping[str, float] | None = None,
    ) -> None:
        alike: dict[str, list[str]] = {}
        for layout, why in layouts:
            alike.setdefault(why, []).append(layout)
        shown = list(alike.items())[:LISTED]
        listed = [f"  {_several(names)}: {why}" for why, names in shown]
        left = len(layouts) - sum(len(names) for _, names in shown)
        more = [f"  and {left} more"] if left else []
        first = ": ".join(filter(None, (title, detail)))
        super().__init__("\n".join([f"{first}:" if listed else first, *listed, *more]))
        self.title, self.detail = title, detail
        self.layouts = tuple(layouts)
        self.parts = dict(parts or {})


def _several(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The entry of ``known`` that ``word`` most likely meant, or None when nothing is close.

    Names that begin with ``word`` go before others.

    >>> nearest("continous", ["static", "request", "continuous"])
    'continuous'
    """
    names = list(known)
    longer = [name for name in names if word and name.startswith(word.lower())]
    cutoff = 0.0 if longer else 0.5
    import difflib  # noqa: PLC0415 - only for errors

    matches = difflib.get_close_matches(word.lower(), longer or names, n=1, cutoff=cutoff)
    return matches[0] if matches else None


def nearest_few(word: str, known: Sequence[str]) -> list[str]:
    """The four entries of ``known`` that are most like ``word``, the nearest first.

    >>> nearest_few("fp9", ["int4", "fp8", "bf16", "fp32", "int8"])
    ['fp8', 'fp32', 'bf16', 'int8']
    """
    import difflib  # noqa: PLC0415 - only for errors

    return difflib.get_close_matches(word.lower(), known, n=4, cutoff=0.0)


def shorten(text: str) -> str:
    """A text of at most 60 characters, its middle left out if it is longer.

    >>> shorten("x" * 100 + "yz")
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxyz'
    """
    return text if len(text) <= 60 else f"{text[:50]}...{text[-7:]}"


def printable(text: str) -> str:
    r"""``text`` with control characters, and those that turn the direction of text, as escapes.

    What a file holds must not steer a terminal. Line ends and tabs stay.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\nc'
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def known_names(kind: str, known: Sequence[str], name: str = "") -> str:
    """What the catalogue has of a ``kind`` in the plural, for a message: all of a few, of many
    those that begin with ``name``.

    >>> known_names("gpus", ["h100-sxm", "l40s"])
    'the catalogue has h100-sxm, l40s'
    """
    if len(known) <= LISTED:
        return f"the catalogue has {', '.join(known) or 'none'}"
    alike = [each for each in known if name and each.startswith(name.lower())]
    some = f"the catalogue has {', '.join(alike)}; " if 0 < len(alike) <= LISTED else ""
    return f"{some}`infersim list {kind}` shows all {len(known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, ready to append to a message, or an empty string.

    >>> did_you_mean("h100sxm", ["h100-sxm", "l40s"])
    " (did you mean 'h100-sxm'?)"
    """
    match = nearest(word, known)
    return f" (did you mean {match!r}?)" if match else ""
