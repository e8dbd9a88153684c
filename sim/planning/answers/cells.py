"""Provides the columns and cells that the tables of decisions share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Findings, Heading, Headline, Table
from sim.metrics.states import SloState, State
from sim.metrics.terms.definitions import METRIC, STUDIED
from sim.planning.answers.drawings import ChartPoint, Series
from sim.planning.points.footnote_words import doubt_mark
from sim.planning.points.wording import LATENCIES, LoadOutcome, promise_name, rank, share
from sim.units import TWICE, milliseconds, number

Document = Mapping[str, Any]

MOST_ROWS = 24
"""Rows that one figure shows."""

NOTHING = 5e-4
"""Relative changes below this are none."""

HEADS: Mapping[str, Column] = {
    key: Column(
        "Capacity (x traffic)" if key == "capacity" else METRIC[key].head,
        definition=METRIC[key].definition,
        unit="ms" if METRIC[key].kind == "ms" else "",
    )
    for key in STUDIED
}
"""A column for each figure, in the order of tables; latencies have their units in the cells."""

CHANGES: Mapping[str, Column] = {
    key: column._replace(title=METRIC[key].short_head, unit="%") for key, column in HEADS.items()
}
"""The columns of ``HEADS`` where the cells are changes."""

WITHIN = Column("Within SLO (%)", definition="attainment")

STATES: Mapping[str | None, str] = {
    State.STABLE: "good",
    State.NEAR_SATURATION: "warn",
    State.TOO_SHORT: "warn",
    State.OVERLOADED: "bad",
    State.NOTHING_SERVED: "bad",
    SloState.MET: "good",
    SloState.OPEN: "warn",
    SloState.MISSED: "bad",
}
"""State of a fleet, or of its SLO -> tone."""

OUTCOMES: Mapping[str, str] = {
    LoadOutcome.HOLDS: "good",
    LoadOutcome.OPEN: "warn",
    LoadOutcome.FAILS: "bad",
}
"""Outcome of a load -> tone."""


def answered(
    document: Document,
    kind: str,
    headline: Headline,
    sections: Iterable[Heading],
    setup: Iterable[tuple[str, str]] = (),
) -> Findings:
    """The findings of that ``kind`` in ``document``, which says what it is about."""
    return Findings(
        document["name"] if "name" in document else document["scenario"],
        kind,
        document["infersim"],
        headline,
        tuple(sections),
        tuple(setup),
        document.get("asked"),
        document.get("description", ""),
        document.get("hardware", ""),
    )


def by_outcome(points: Sequence[tuple[str, ChartPoint]]) -> tuple[Series, ...]:
    """A series of points for each outcome of a load that occurs."""
    found = {
        outcome: tuple(point._replace(state=outcome) for own, point in points if own == outcome)
        for outcome in OUTCOMES
    }
    return tuple(Series(each, mine, OUTCOMES[each]) for each, mine in found.items() if mine)


def setup(document: Document) -> Iterator[tuple[str, str]]:
    """The model and the GPUs of a study, as far as it says them."""
    known = [each for each in (model_text(document), document.get("hardware")) if each]
    if known:
        yield "Setup", " on ".join(known)


def model_text(document: Document) -> str:
    """The model of an answer, with its formats of fewer than 16 bits; empty where it has none."""
    model: str = document.get("model") or ""
    return f"{model} ({document['formats']})" if model and document.get("formats") else model


def text(value: str) -> Cell:
    """A cell of words."""
    return Cell(value, value)


def framed(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    room: int = 0,
    whole: bool = False,
    note: str = "",
    ruled: tuple[int, ...] = (),
) -> Table:
    """A table of a terminal, whose first column names the rows and takes the ``room`` that others
    leave, if any; ``whole``: no cell folds."""
    first, *others = heads
    columns = (
        Column(first, False, prose=not whole, fold=room),
        *(Column(head, prose=not whole) for head in others),
    )
    cells = tuple(tuple(text(c) if isinstance(c, str) else c for c in row) for row in rows)
    return Table(caption, caption, columns, cells, ruled=ruled, look="framed", note=note)


def toned(row: Iterable[str], tone: str) -> tuple[Cell, ...]:
    """Cells of words in one tone."""
    return tuple(text(each)._replace(tone=tone) for each in row)


def figure(found: float | None, write: Callable[[float], str]) -> Cell:
    """A cell of a number as ``write`` has it; of nothing where it is not finite."""
    if found is None or not math.isfinite(found):
        return Cell("-", None)
    return Cell(write(found), found)


def value_text(key: str, value: float | None) -> str:
    """A metric with its unit, as columns have them."""
    if key.endswith("_ms"):
        return milliseconds(value)
    return f"{number(value)}x" if key == "capacity" and value is not None else number(value)


def value(key: str, found: float | None) -> Cell:
    """A cell of one figure: a latency with its unit."""
    return Cell(value_text(key, found), found)


def values(found: Mapping[str, float | None]) -> list[Cell]:
    """A cell for each figure of ``HEADS``."""
    return [value(key, found[key]) for key in HEADS]


def percent(change: float | None) -> Cell:
    """A relative change: in percent with its sign, from twice on as a multiple."""
    if change is None:
        return Cell("-", None)
    value = round(100 * change, 4)
    if 1 + change >= TWICE:
        return Cell(f"{number(1 + change)}x", value)
    return Cell(f"{value:+,.1f}%" if round(value, 1) else "0%", value)


def effect(document: Document, key: str, change: float | None) -> Cell:
    """A relative change of one figure: green where it is better and red where it is worse, the
    stronger the more it changes (full from twice or half on); grey where chance alone moves the
    figure as far."""
    cell = percent(change)
    if change is None:
        return cell
    figure = next(entry for entry in document["figures"] if entry["key"] == key)
    if figure.get("scant") and 1 + change >= TWICE:
        cell = cell._replace(text="from almost none")
    if abs(change) < max(NOTHING, figure.get("chance") or 0.0):
        return cell._replace(tone="none", hint="chance alone moves it as far")
    better = (change > 0) == figure["more"]
    strength = 1.0 if change <= -0.5 else min(1.0, abs(math.log2(1 + change)))
    return cell._replace(
        tone="good" if better else "bad", strength=strength, hint="better" if better else "worse"
    )


def within(value: float | None, slo: str | None = None) -> Cell:
    """A share of requests within the SLO in percent, with the digits that decide; marked where the
    state of the SLO, ``slo``, is too close to call."""
    if value is None:
        return Cell("-", None)
    return Cell(f"{share(value).rstrip('%')}{doubt_mark(slo)}", round(100 * value, 6))


def share_columns(document: Document) -> list[Column]:
    """The columns of a share of requests within the SLO: of several parts of it, of the one that is
    nearest to breaking, which is named."""
    if len(document["promises"]) < 2:
        return [WITHIN]
    return [Column("Nearest limit", False), Column("Within it (%)", definition="attainment")]


def latency_columns(document: Document) -> list[Column]:
    """The columns of ``slo_latencies``, with the percentiles that the SLO judges."""
    ranks = {name: rank(document["shares"][name]) for name in LATENCIES}
    return [
        Column(f"{name.upper()} {at}", definition=name, unit="ms") for name, at in ranks.items()
    ]


def slo_latencies(seen: Mapping[str, Any]) -> list[Cell]:
    """Cells of the latencies of a fleet or a load, at the percentiles that the SLO judges."""
    return [value(key, seen[key]) for key in (f"slo_{name}_ms" for name in LATENCIES)]


def named(promise: Mapping[str, Any]) -> Cell:
    """The cell of ``Nearest limit``."""
    return text(promise_name(promise))


def reasons(rows: Sequence[tuple[str, str]], caption: str = "What does not run") -> Table | None:
    """Table of what did not run, with reasons; None if all did."""
    if not rows:
        return None
    columns = (Column("What", False), Column("Why", False, prose=True))
    cells = tuple((text(what), text(why)) for what, why in rows)
    return Table("failures", caption, columns, cells)


def failures(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[Heading]:
    """The section of what did not run, and why; none if all did."""
    found = reasons(rows)
    if found is not None:
        yield Heading("failures", title, (found,))
