"""Defines the findings of a decision as plain records, which terminal and page draw alike.

A decision lays out its answer once: a headline, and sections of tables, drawings, lines and
actions. ``sim.terminal.findings`` prints them, ``reports.pages.planning.findings`` makes the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Headline(NamedTuple):
    """The answer in a sentence, and what explains it, of which the first lines on a terminal have
    but ``brief`` where that is not None; ``tone`` colours it. ``sure`` says how sure the answer is:
    a terminal has it with the answer, a page below it."""

    tone: str
    title: str
    text: str = ""
    brief: str | None = None
    sure: str = ""


class Card(NamedTuple):
    """One number, large; ``tone`` colours it when it meets or misses a limit."""

    definition: str
    label: str
    value: str
    unit: str
    details: tuple[str, ...]
    tone: str = "neutral"


class Column(NamedTuple):
    """A heading; ``definition`` is the key of the definition that it links to, ``prose`` text that
    may take several lines, ``unit`` that of the values that are copied, where cells show others.
    A terminal, which has 88 columns, leaves out what is not ``on_terminal``, and its first lines
    what is not ``in_brief``. Columns that ``fold`` there share the room that others leave, in these
    parts; where none does, the first has it."""

    title: str
    numeric: bool = True
    definition: str | None = None
    prose: bool = False
    unit: str = ""
    on_terminal: bool = True
    fold: int = 0
    in_brief: bool = True


class Cell(NamedTuple):
    """A cell: its text, its sort key (None comes last), the width of a bar, 0..1, if any, what is
    shown under the pointer, and the colour of an effect (good or bad) with its strength, 0..1.
    A value in USD that grows in proportion to the price of one GPU is ``priced`` by that GPU: the
    reader of a page may change the price."""

    text: str
    value: float | str | None
    definition: str | None = None
    bar: float | None = None
    hint: str = ""
    tone: str = ""
    strength: float = 0.0
    priced: str = ""


class Table(NamedTuple):
    """Rows under a caption; ``name`` is unique among the findings. The first ``keys`` columns name
    the row. A terminal draws a line after each of the rows ``ruled``, and where rows are ``shown``,
    no others. Its ``first`` lines have the first ``most`` of them, and no line below the heads;
    columns that do not fit next to each other go on below, under the same names. A table with a
    ``look`` stands whole there: framed and as wide as the terminal, or compact. Its numbers and
    names stay in one line, ``prose`` folds, and ``note`` is below it. The ``legend`` says of marks
    before numbers what they mean."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    on_terminal: bool = True
    ruled: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()
    keys: int = 1
    look: Literal["", "framed", "compact"] = ""
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    most: int = 5
    first: bool = False

    def headed(self, places: Iterable[int] | None = None) -> str:
        """The caption, with the legend of those marks that cells of the columns at ``places`` begin
        with; None: of all columns."""
        at = range(len(self.columns)) if places is None else tuple(places)
        begins = [row[place].text for row in self.rows for place in at]
        told = [
            f"{mark.strip()} {words}"
            for mark, words in self.legend
            if any(text.startswith(mark) for text in begins)
        ]
        return ": ".join(filter(None, (self.caption, ", ".join(told))))


class Drawing(NamedTuple):
    """A figure of a page: ``data`` is a record of ``sim.planning.answers.drawings``, or the drawn
    figure; ``wide`` drawings have the width of the page; ``kind`` is what the style calls its
    size."""

    name: str
    title: str
    definition: str | None
    caption: str
    data: object
    wide: bool = False
    kind: str = "own"


class Drawings(NamedTuple):
    """Figures next to each other; ``nothing`` stands for them where there are none."""

    each: tuple[Drawing, ...]
    nothing: str = "There is nothing to draw."


class Lines(NamedTuple):
    """Sentences, each on a line of its own; ``tone`` colours them on a terminal, which indents them
    by so many blanks. Those that are ``brief`` are among the first lines of an answer."""

    each: tuple[str, ...]
    tone: str = "none"
    indent: int = 0
    brief: bool = False


class TonedLine(NamedTuple):
    """A line of a terminal: its words, each with its tone."""

    each: tuple[tuple[str, str], ...]


class RunCourse(NamedTuple):
    """The requests that run and wait, over the time of a run, as lines of a terminal: a
    ``sim.metrics.latency.timeline.Timeline``, perhaps ``of_first`` of several repetitions."""

    timeline: object
    of_first: bool = False


class Links(NamedTuple):
    """A sentence, and the names and addresses of other pages that it leads to; a terminal leaves
    them out."""

    text: str
    each: tuple[tuple[str, str], ...]


class Action(NamedTuple):
    """A change that could be made, with its effect, its effort and the command that tries it;
    ``meets`` says whether it meets the SLO at the predicted times."""

    effect: str
    effort: str
    title: str
    text: str
    command: str
    meets: bool = False


class Actions(NamedTuple):
    """Changes in an order, which ``intro`` states. A terminal shows them last; the line ``also`` is
    on those that were cut."""

    intro: str
    each: tuple[Action, ...]
    also: str = ""


class Commands(NamedTuple):
    """Commands to copy, each after what it is for; what is not ``on_terminal`` is folded on a
    page."""

    title: str
    each: tuple[tuple[str, str], ...]
    on_terminal: bool = True


class Thesis(NamedTuple):
    """A statement of many, which the parts after it explain: its ``verdict``, and why. The summary
    of a page lists all boxes by their ``name`` (an anchor), each with its ``brief`` figures."""

    name: str
    tone: str
    title: str
    verdict: str
    text: str
    brief: str


class Cards(NamedTuple):
    """Numbers that a page shows large; sentences say them on a terminal."""

    each: tuple[Card, ...]


Part = (
    Table | Cards | Drawings | Lines | Links | Actions | Commands | Thesis | TonedLine | RunCourse
)


class Heading(NamedTuple):
    """Parts of the findings under a heading of the page; ``name`` is its anchor."""

    name: str
    title: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Findings:
    """The answer to a question about a scenario.

    ``asked`` is that of ``sim.metrics.question.question_text``, None where nothing says it;
    ``version`` that of the program, ``hardware`` the GPUs if the title of the page names them.
    """

    name: str
    kind: str
    version: str
    headline: Headline
    sections: tuple[Heading, ...]
    setup: tuple[tuple[str, str], ...] = ()
    asked: Mapping[str, Any] | None = None
    description: str = ""
    hardware: str = ""
