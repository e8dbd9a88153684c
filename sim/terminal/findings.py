"""Renders the findings of any decision in a terminal of 88 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent, wrap
from typing import Any, cast

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from sim.findings import (
    Actions,
    Cell,
    Column,
    Commands,
    Findings,
    Lines,
    Part,
    RunCourse,
    Table,
    Thesis,
    TonedLine,
)
from sim.metrics.latency.timeline import Timeline
from sim.planning.answers import brief, findings_of, run
from sim.terminal.console import axis_columns, folded, head_words, line_width
from sim.terminal.sparkline import Sparks

STYLES = {"good": "green", "bad": "red", "warn": "yellow", "none": "dim"}
STYLES |= {"strong": "bold", "alarm": "bold red"}
"""Tone -> style."""

FOLDS = (("", 2), ("heads", 2), ("heads", 1), ("words", 1))
"""Parts that take several lines where a table is too wide: nothing, headings, words of cells too;
and how many blanks are behind a column."""

MOST_LINES = 60
"""Lines of one kind that a terminal is shown."""

MOST_NAME = 30
"""Characters of a column that names the rows for which there always is room."""


def findings_view(findings: Findings) -> Group:
    """The headline, then tables and lines in the order of their sections; figures are drawn on the
    page alone, and ``actions_view`` has the actions."""
    return Group(*_parts(findings))


def actions_view(findings: Findings) -> Text:
    """The actions, to be printed unchanged: commands are whole, however wide, to be copied."""
    found = [p for section in findings.sections for p in section.parts if isinstance(p, Actions)]
    return Text("").join(Text("\n").join([*_actions(each), Text("")]) for each in found)


def command_view(command: str, document: Mapping[str, Any], *, full: bool = True) -> Group:
    """The findings of ``document``, the result of ``command``; without ``full`` the first lines."""
    return findings_view(_of(command, document, full=full))


def command_actions(command: str, document: Mapping[str, Any], *, full: bool = True) -> Text:
    """The actions of ``document``, the result of ``command``; without ``full`` the first one."""
    return actions_view(_of(command, document, full=full))


def _of(command: str, document: Mapping[str, Any], *, full: bool) -> Findings:
    found = findings_of(command, document)
    return brief.every_row(found) if full else brief.first_lines(found)


def _parts(findings: Findings) -> Iterator[RenderableType]:
    headline = findings.headline
    setup = "; ".join(text if key == "Setup" else f"{key}: {text}" for key, text in findings.setup)
    yield Text.assemble((findings.name, "bold"), f"  {setup}")
    answer = f"{headline.title} {headline.sure}".rstrip()
    yield Text(answer, style=f"bold {STYLES.get(headline.tone, '')}")
    if headline.text:
        yield Text(headline.text)
    for section in findings.sections:
        yield from parts_of(section.parts, section.title)


def parts_of(parts: Iterable[Part], heading: str = "") -> Iterator[RenderableType]:
    """What a terminal shows of ``parts`` under a ``heading``."""
    for part in parts:
        match part:
            case TonedLine():
                yield Text.assemble(*((text, STYLES.get(tone, "")) for text, tone in part.each))
            case RunCourse():
                yield Sparks(cast("Timeline", part.timeline), of_first=part.of_first)
            case Lines():
                style, left = STYLES.get(part.tone, ""), len(part.each) - MOST_LINES
                lines = [Text(line, style=style) for line in part.each[:MOST_LINES]]
                yield from (Padding(x, (0, 0, 0, part.indent)) if part.indent else x for x in lines)
                yield from _more(left, "lines")
            case Thesis():
                verdict = (f"{part.verdict} ", STYLES[part.tone])
                yield Text.assemble("\n", verdict, (part.title, "bold"))
                yield Text(part.text, style="dim")
            case Commands(on_terminal=True):
                yield Text(f"{part.title}:", style="bold")
                yield from (Text(f"{use}:\n{_continued(text)}") for use, text in part.each)
            case Table(look="framed" | "compact"):
                yield _whole(part)
            case Table(on_terminal=True, columns=(_, Column(prose=True))):
                for what, why in _rows(part):
                    yield Text(f"{heading}: {what.text}: {why.text}", style="dim")
                yield from _more(len(part.rows) - len(_rows(part)), "rows")
            case Table(on_terminal=True) if part.rows:
                yield from _tables(part)
                yield from _more(len(part.rows) - len(_rows(part)), "rows")


def parts_view(parts: Iterable[Part]) -> Group:
    """Parts one below the other."""
    return Group(*parts_of(parts))


def run_view(
    summary: Mapping[str, Any], timeline: Timeline | None = None, *, full: bool = True
) -> Group:
    """The figures of one run, and what went on in it; without ``full`` the first lines."""
    return parts_view(run.parts(summary, timeline) if full else brief.run_parts(summary))


def _whole(found: Table) -> RichTable:
    """A table with a look of its own, all of it."""
    framed, titles = found.look == "framed", [column.title for column in found.columns]
    table = RichTable(
        title=found.headed() or None,
        title_justify="left",
        expand=framed,
        show_header=any(titles),
        box=box.HEAVY_HEAD if framed else None,
        show_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
        caption=found.note or None,
    )
    for column in found.columns:
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            ratio=column.fold or None,
            no_wrap=not column.prose,
            overflow="fold" if column.prose else "ellipsis",
        )
    for place, row in enumerate(found.rows):
        table.add_row(*map(_cell, row))
        if place in found.ruled:
            table.add_section()
    return table


def _more(left: int, what: str) -> Iterator[Text]:
    """Where the rest is of what is too long for a terminal."""
    if left > 0:
        yield Text(f"{left:,} more {what} in result.json (--json) and on the page", style="dim")


def _rows(found: Table) -> Sequence[tuple[Cell, ...]]:
    """The rows that a terminal is shown."""
    return [found.rows[place] for place in found.shown] if found.shown else found.rows


def _tables(found: Table) -> Iterator[RichTable]:
    """The columns for a terminal, in as many tables as they need, each with those that name the
    row. Headings, then words of cells, take several lines where they would not fit in one."""
    shown = [index for index, column in enumerate(found.columns) if column.on_terminal]
    keys = [index for index in shown if index < found.keys]
    others = shown[len(keys) :]
    for folds, blanks in FOLDS:
        named = [min(MOST_NAME, _width(found, key, folds)) for key in keys]
        widths = {index: _width(found, index, folds) for index in others}
        if _total([*named, *widths.values()], blanks) <= line_width():
            break
    room = line_width() - _total(named, 1)
    fewest = len(_blocks(widths, room))
    even = next((less for less in range(1, room) if len(_blocks(widths, less)) == fewest), room)
    for place, block in enumerate(_blocks(widths, even)):
        yield _table(found, found.headed(shown) if place == 0 else None, keys, block)


def _blocks(widths: Mapping[int, int], room: int) -> list[dict[int, int]]:
    """Columns that stand in one table each, which have ``room`` next to those that name the row."""
    blocks: list[dict[int, int]] = [{}]
    for index, width in widths.items():
        if blocks[-1] and _total([*blocks[-1].values(), width], 1) > room + 1:
            blocks.append({})
        blocks[-1][index] = width
    return blocks


def _total(widths: Sequence[int], blanks: int) -> int:
    """Characters of a line whose columns have so many blanks behind them."""
    return 1 + sum(width + blanks for width in widths)


def _width(found: Table, index: int, folds: str) -> int:
    """Characters that a column takes where its heading, or its words too, fold; of a column that
    names the row, values stay whole unless it folds."""
    column, texts = found.columns[index], [row[index].text for row in _rows(found)]
    key = index < found.keys
    if (folds and column.fold) or (folds == "words" and not key and not column.numeric):
        texts = [word for text in texts for word in text.split()]
    head = [column.title]
    if folds:
        head = column.title.split() if not key else head_words(column.title) * (found.keys == 1)
    return max((len(line) for text in [*head, *texts] for line in text.splitlines()), default=1)


def _table(
    found: Table, caption: str | None, keys: Sequence[int], widths: Mapping[int, int]
) -> RichTable:
    """The columns of ``keys`` and those with ``widths``. Columns that fold share the room that the
    others leave; where none does, the only one of ``keys`` has it."""
    shares = {index: found.columns[index].fold for index in (*keys, *widths)}
    heads = [found.columns[key].title for key in keys]
    values = [[row[key].text for row in _rows(found)] for key in keys]
    blank, named = axis_columns(heads, values, list(widths.values()), line_width())
    if len(keys) == 1 and not any(shares.values()):
        room = line_width() - _total([*widths.values(), 0], 1 + blank)
        named = [(room, folded(heads[0], room))]
    table = RichTable(
        title=caption,
        title_justify="left",
        expand=True,
        box=None if found.first else box.SIMPLE,
        show_edge=False,
        padding=(0, blank + found.first, 0, 0),  # the blank that a box has between columns
        pad_edge=False,
    )
    others = [(width, found.columns[index].title) for index, width in widths.items()]
    for (index, share), (width, head) in zip(shares.items(), [*named, *others], strict=True):
        column = found.columns[index]
        table.add_column(
            column.title if share else head,
            justify="right" if column.numeric and index not in keys else "left",
            overflow="fold",
            width=None if share else width,
            ratio=share or None,
        )
    for place, row in enumerate(found.rows):
        if found.shown and place not in found.shown:
            continue
        table.add_row(*(_cell(row[index]) for index in (*keys, *widths)))
        if place in found.ruled:
            table.add_section()
    return table


def _cell(cell: Cell) -> Text:
    return Text(cell.text, style=STYLES.get(cell.tone, ""))


def _continued(command: str) -> str:
    """A long command as lines that a shell reads as one."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1].strip() and len(lines[-1]) + len(word) > line_width() - 3:
            lines.append("  ")
        lines[-1] += f"{' ' if lines[-1].strip() else ''}{word}"
    return " \\\n".join(lines)


def _actions(actions: Actions) -> Iterator[Text]:
    yield Text(actions.intro, style="bold")
    for place, action in enumerate(actions.each, 1):
        head = f"{place}. {action.title}"
        whole = f"{head} ({action.effort})" if action.effort else head
        fits = len(whole) <= line_width()
        yield Text(whole if fits else head)
        yield Text(indent("\n".join(wrap(action.text, line_width() - 3)), "   "))
        if not fits:
            yield Text(f"   {action.effort}")
        yield Text(f"   {action.command}", style="dim")
    if actions.also:
        yield Text(actions.also)
