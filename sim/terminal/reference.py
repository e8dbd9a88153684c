"""Shows the reference of a scenario's keys, and what does not go together, in 88 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import shorten, wrap
from typing import Any

from rich.console import Group
from rich.text import Text

from sim.scenario.reference.keys import Key
from sim.terminal.console import line_width

INDENT = "    "

FEW = 3
"""Keys that are explained whole where others have a line each."""


def reference_view(keys: Sequence[Key], whole: bool) -> Group:
    """The ``keys``, each with its default, meaning, values and example; ``whole``: all there are,
    so that laws which two keys share are listed once."""
    lines: list[Text] = []
    if whole:
        lines.extend(_wrapped(_HEAD, ""))
    seen: dict[str, str] = {}
    skipped: tuple[str, str] | None = None
    for key in keys:
        if whole and key.kind and key.holds and seen.setdefault(key.holds, key.path) != key.path:
            if skipped is None or skipped[0] != key.path:
                lines.extend(_wrapped(f"The kinds are those of {seen[key.holds]}.", INDENT))
            skipped = key.path, key.kind
        elif skipped is not None and (key.path.startswith(f"{skipped[0]}.")):
            continue
        else:
            skipped = None
            lines.extend(_lines(key))
    return Group(*lines)


def first_view(keys: Sequence[Key], whole: bool) -> Group:
    """The sections that ``keys`` begin with, each in a line with what it directly holds, or where
    ``whole`` without; a few keys as in ``reference_view``."""
    if len(keys) <= FEW:
        return reference_view(keys, whole)
    top = min(key.path.count(".") for key in keys)
    near = [key for key in keys if _near(key, top, 0 if whole else 1)]
    lines = [(f"{key.path}{f' ({key.kind})' if key.kind else ''}", key.meaning) for key in near]
    return Group(*(_wrapped(_HEAD, "") if whole else ()), *_in_lines(lines))


def _near(key: Key, top: int, below: int) -> bool:
    """Whether ``key`` is at most so many steps ``below`` the ``top``; a law none at all."""
    depth = key.path.count(".") - top
    return depth <= (0 if key.kind and key.holds and below else below)


def _in_lines(rows: Sequence[tuple[str, str]]) -> Iterator[Text]:
    """Names and as much of their text as a line has room for, in two columns."""
    width = max(len(name) for name, _ in rows) + 2
    for name, meaning in rows:
        told = shorten(meaning, line_width() - width, placeholder=" ...")
        yield Text.assemble((name.ljust(width), "bold"), told)


_HEAD = (
    "Every key of a scenario: model, fleet and workload are required, everything else has a "
    "default. `infersim explain scenario KEY` shows one part; `infersim init NAME` writes a file "
    "to start from."
)


def limits_view(rows: Iterable[Mapping[str, Any]]) -> Group:
    """The ``rows`` of what does not go together, under what they are about."""
    lines = list(_wrapped(_LIMITS, ""))
    for what, listed in groupby(rows, key=lambda row: row["what"]):
        lines += [Text(), Text(what, style="bold")]
        for row in listed:
            keys = ", ".join(row["keys"])
            lines += _wrapped(f"with {row['with']} ({keys})", "  ", "cyan")
            why = f"{row['why']}; {row['hint']}" if row["hint"] else row["why"]
            lines += _wrapped(why, INDENT)
    return Group(*lines)


def first_limits(rows: Iterable[Mapping[str, Any]]) -> Group:
    """What the ``rows`` are about, each in a line with what it does not go with."""
    listed = [
        (what, "; ".join(dict.fromkeys(row["with"] for row in each)))
        for what, each in groupby(rows, key=lambda row: row["what"])
    ]
    return Group(*_wrapped(_LIMITS.partition(", the keys")[0] + ".", ""), *_in_lines(listed))


_LIMITS = (
    "What does not go together in a scenario, the keys to change, why, and what works instead. "
    "WORDS in capitals stand for what the scenario has there."
)


def _lines(key: Key) -> Iterator[Text]:
    """One key: its path and default, what it means, what may stand there."""
    yield Text()
    if key.kind and key.holds:
        yield Text.assemble((key.path, "bold"), f"  kind: {key.kind}")
        yield from _wrapped(key.meaning, INDENT)
        return
    state = "required" if key.required else f"default: {key.default}" if key.default else ""
    of_kind = f"  ({key.kind})" if key.kind else ""
    yield Text.assemble((key.path, "bold"), of_kind, "  " if state else "", (state, "cyan"))
    yield from _wrapped(key.meaning, INDENT)
    if key.holds and key.values in ("a mapping", "a mapping; null"):
        facts = []
    else:
        facts = [f"Values: {key.values}", *([f"Unit: {key.unit}"] if key.unit else [])]
    name = key.path.rpartition(".")[2]
    facts.extend(f"Example: {name}: {example}" for example in key.examples)
    for fact in facts:
        yield from _wrapped(fact, INDENT, "dim")


def _wrapped(text: str, indent: str, style: str = "") -> Iterator[Text]:
    """``text`` in lines of ``line_width``; those after the first are indented too."""
    for line in wrap(text, line_width(), initial_indent=indent, subsequent_indent=indent):
        yield Text(line, style=style)
