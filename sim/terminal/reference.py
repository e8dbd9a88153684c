"""Shows the reference of a scenario's keys, and what does not go together, in 88 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

from rich.console import Group
from rich.text import Text

from sim.scenario.reference.keys import Key
from sim.terminal.console import line_width

INDENT = "    "


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
