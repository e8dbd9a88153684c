"""Renders the findings of any decision in a terminal of 88 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from textwrap import indent, wrap
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from sim.findings import Actions, Cell, Column, Commands, Findings, Lines, Table, Thesis
from sim.planning.answers import findings_of
from sim.terminal.console import WIDTH

STYLES = {"good": "green", "bad": "red", "warn": "yellow", "none": "dim"}
"""Tone -> style."""


def findings_view(findings: Findings) -> Group:
    """The headline, then tables and lines in the order of their sections; figures are drawn on the
    page alone, and ``actions_view`` has the actions."""
    return Group(*_parts(findings))


def actions_view(findings: Findings) -> Text:
    """The actions, to be printed unchanged: commands are whole, however wide, to be copied."""
    found = [p for section in findings.sections for p in section.parts if isinstance(p, Actions)]
    return Text("").join(Text("\n").join([*_actions(each), Text("")]) for each in found)


def command_view(command: str, document: Mapping[str, Any]) -> Group:
    """The findings of ``document``, the result of ``command``."""
    return findings_view(findings_of(command, document))


def command_actions(command: str, document: Mapping[str, Any]) -> Text:
    """The actions of ``document``, the result of ``command``."""
    return actions_view(findings_of(command, document))


def _parts(findings: Findings) -> Iterator[RenderableType]:
    headline = findings.headline
    setup = "; ".join(text if key == "Setup" else f"{key}: {text}" for key, text in findings.setup)
    yield Text.assemble((findings.name, "bold"), f"  {setup}")
    yield Text(headline.title, style=f"bold {STYLES.get(headline.tone, '')}")
    if headline.text:
        yield Text(headline.text)
    for section in findings.sections:
        for part in section.parts:
            match part:
                case Lines():
                    yield from (Text(line, style=STYLES.get(part.tone, "")) for line in part.each)
                case Thesis():
                    verdict = (f"{part.verdict} ", STYLES[part.tone])
                    yield Text.assemble("\n", verdict, (part.title, "bold"))
                    yield Text(part.text, style="dim")
                case Commands(on_terminal=True):
                    yield Text(f"{part.title}:", style="bold")
                    yield from (Text(f"{use}:\n{_continued(text)}") for use, text in part.each)
                case Table(on_terminal=True, columns=(_, Column(prose=True))):
                    for what, why in part.rows:
                        yield Text(f"{section.title}: {what.text}: {why.text}", style="dim")
                case Table(on_terminal=True):
                    yield _table(part)
                    if part.shown and (left := len(part.rows) - len(part.shown)):
                        more = f"{left:,} more rows in result.json (--json) and on the page"
                        yield Text(more, style="dim")


def _table(found: Table) -> RichTable:
    """The columns for a terminal: those that fold have the room that the others leave; headings
    take several lines where they would not fit in one."""
    table = RichTable(
        title=found.caption,
        title_justify="left",
        expand=True,
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    shown = [index for index, column in enumerate(found.columns) if column.on_terminal]
    columns = [[column.title, *(row[index].text for row in found.rows)]
               for index, column in enumerate(found.columns)]  # fmt: skip
    whole = 1 + sum(2 + max(map(len, columns[index])) for index in shown) <= WIDTH
    folding = [index for index in shown if found.columns[index].fold] or shown[:1]
    for index in shown:
        title, *texts = columns[index]
        if index in folding:
            table.add_column(title, ratio=found.columns[index].fold or 1, overflow="fold")
            continue
        width = max(map(len, [*([title] if whole else title.split()), *texts]))
        numeric = found.columns[index].numeric
        table.add_column(title, justify="right" if numeric else "left", width=width)
    for place, row in enumerate(found.rows):
        if found.shown and place not in found.shown:
            continue
        table.add_row(*(_cell(row[index]) for index in shown))
        if place in found.ruled:
            table.add_section()
    return table


def _cell(cell: Cell) -> Text:
    return Text(cell.text, style=STYLES.get(cell.tone, ""))


def _continued(command: str) -> str:
    """A long command as lines that a shell reads as one."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1].strip() and len(lines[-1]) + len(word) > WIDTH - 3:
            lines.append("  ")
        lines[-1] += f"{' ' if lines[-1].strip() else ''}{word}"
    return " \\\n".join(lines)


def _actions(actions: Actions) -> Iterator[Text]:
    yield Text(actions.intro, style="bold")
    for place, action in enumerate(actions.each, 1):
        yield Text(f"{place}. {action.title}")
        yield Text(indent("\n".join(wrap(action.text, WIDTH - 3)), "   "))
        if action.effort:
            yield Text(f"   {action.effort}")
        yield Text(f"   {action.command}", style="dim")
