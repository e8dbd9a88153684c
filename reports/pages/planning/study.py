"""Provides what the pages of studies share: sections, definitions, headline, rendering to HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.figures import tornado
from reports.figures.naming import TITLES
from reports.frame.asked import provenance, question
from reports.frame.content import Headline, Plot, to_json
from reports.frame.formats import MISSING, NARROW_SPACE, show
from reports.frame.page import fill
from reports.frame.tables import Cell, PageColumn, PageTable
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.definitions import METRIC, STUDIED
from sim.metrics.terms.metric import Definition
from sim.planning.points.footnote_words import doubt_mark
from sim.planning.points.wording import promise_name, share
from sim.units import TWICE, milliseconds, number

DEFINITIONS: Mapping[str, Definition] = {
    **{name: OF_RUNS[name] for name in ("ttft", "tpot", "goodput", "output_throughput")},
    "capacity": Definition(
        "Capacity",
        "What full batches could serve, in multiples of the traffic: 2 means that twice as many "
        "requests per second could be served. Not defined for closed-loop traffic.",
    ),
}


HEADS: Mapping[str, PageColumn] = {
    key: PageColumn(
        "Capacity (x traffic)" if key == "capacity" else METRIC[key].head,
        definition=METRIC[key].definition,
        unit="ms" if METRIC[key].kind == "ms" else "",
    )
    for key in STUDIED
}
"""A column for each figure, in the order of tables; latencies have their units in the cells."""

CHANGES: Mapping[str, PageColumn] = {
    key: column._replace(title=column.title.partition(" (")[0], unit="%")
    for key, column in HEADS.items()
}
"""The same where the cells are changes."""


class StudyHead(NamedTuple):
    """The ``kind`` of a study, the sections of its page (anchor -> heading), its answer, and the
    facts on its setup."""

    kind: str
    sections: Mapping[str, str]
    headline: Headline
    setup: Sequence[tuple[str, str]]


def page(
    document: Mapping[str, Any],
    head: StudyHead,
    *,
    plots: Sequence[Plot],
    wide: Sequence[Plot] = (),
    tables: Sequence[PageTable],
    failures: PageTable | None,
    definitions: Mapping[str, Definition] = DEFINITIONS,
    **content: Any,
) -> str:
    """The page of a study as HTML; ``wide`` figures have the width of the page."""
    kept = {key: title for key, title in head.sections.items() if failures or key != "failures"}
    return fill(
        "study.html.j2",
        kept,
        definitions,
        header={
            "name": document["scenario"],
            "kind": head.kind,
            **question(
                document["scenario"], head.kind, document.get("asked"), document["description"]
            ),
            "setup": head.setup,
        },
        headline=head.headline,
        notes=document["notes"],
        plots=plots,
        wide=wide,
        tables=tables,
        failures=failures,
        provenance=provenance(document),
        **content,
    )


def tornado_plots(document: Mapping[str, Any], note: str) -> list[Plot]:
    """A figure for each metric of a diagnosis or a study of sensitivity that moves."""
    return [
        Plot(
            f"tornado-{entry['key']}",
            TITLES[entry["key"]],
            METRIC[entry["key"]].definition,
            _cut(note, bars),
            to_json(tornado.figure(TITLES[entry["key"]], entry["more"], bars)),
            kind="own",
        )
        for entry in document["figures"]
        if (bars := tornado.bars_of(document, entry["key"]))
    ]


def _cut(note: str, bars: Sequence[tornado.TornadoBar]) -> str:
    count, most = len({bar.row for bar in bars}), tornado.MOST_ROWS
    return note if count <= most else f"{note} The {most} widest of {count:,}."


def values(found: Mapping[str, float | None]) -> list[Cell]:
    """A cell for each figure of ``HEADS``."""
    return [value(key, found[key]) for key in HEADS]


def value(key: str, number: float | None) -> Cell:
    """A cell of one figure: a latency with its unit."""
    shown = show(number, "number")
    return Cell(milliseconds(shown.value) if key.endswith("_ms") and shown.value is not None
                else shown.text, shown.value)  # fmt: skip


def percent(change: float | None) -> Cell:
    """A relative change: in percent with its sign, from twice on as a multiple."""
    if change is None:
        return Cell(MISSING, None)
    value = 100 * change
    if 1 + change >= TWICE:
        return Cell(f"{number(1 + change)}x", round(value, 4))
    told = f"{value:+,.1f}{NARROW_SPACE}%" if round(value, 1) else f"0{NARROW_SPACE}%"
    return Cell(told, round(value, 4))


def effect(document: Mapping[str, Any], key: str, change: float | None) -> Cell:
    """A relative change of one figure: green where it is better and red where it is worse, the
    stronger the more it changes (full from twice or half on); grey where chance alone moves the
    figure as far."""
    cell = percent(change)
    if change is None:
        return cell
    figure = next(entry for entry in document["figures"] if entry["key"] == key)
    if abs(change) < max(tornado.NOTHING, figure.get("chance") or 0.0):
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
        return Cell(MISSING, None)
    return Cell(f"{share(value).rstrip('%')}{doubt_mark(slo)}", round(100 * value, 6))


def share_columns(document: Mapping[str, Any]) -> list[PageColumn]:
    """The columns of a share of requests within the SLO: of several parts of it, of the one that is
    nearest to breaking, which is named."""
    if len(document["promises"]) < 2:
        return [PageColumn("Within SLO (%)", definition="attainment")]
    return [
        PageColumn("Nearest limit", False),
        PageColumn("Within it (%)", definition="attainment"),
    ]


def named(promise: Mapping[str, Any]) -> Cell:
    """The cell of ``Nearest limit``."""
    return text(promise_name(promise))


def text(value: str) -> Cell:
    """A cell of words."""
    return Cell(value, value)


def reasons(rows: Sequence[tuple[str, str]]) -> PageTable | None:
    """What did not run, and why; None if all did."""
    if not rows:
        return None
    columns = (PageColumn("What", False), PageColumn("Why", False, prose=True))
    cells = tuple((text(what), text(why)) for what, why in rows)
    return PageTable("failures", "What does not run", columns, cells)
