"""Cuts an answer down to its first lines: the verdict, the figures that decide, cost, what limits,
how sure it is, and what to watch. ``--full`` prints everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sim.band_runs import verdicts_at_ends
from sim.findings import Actions, Cell, Column, Findings, Lines, Part, Table, Thesis
from sim.metrics.bands.trust import reasoned
from sim.metrics.states import State
from sim.metrics.terms.definitions import bound_name
from sim.metrics.words.format_words import leading
from sim.metrics.words.slo_text import usd_per_good_request
from sim.planning.answers.run import line, setup_line, verdict_lines
from sim.planning.answers.run_tables import Spread, turns_text
from sim.units import (
    HOURS_OF,
    PER_OUTPUT_TOKENS,
    between,
    dollars,
    milliseconds,
    show_cost,
    show_number,
)

MORE = "More: --full prints every table and note (or set INFERSIM_FULL=1)."
"""The last line of an answer that was cut down."""

DECIDING = ("ttft", "tpot")
"""Quantities that are shown where no SLO says which ones count."""

ALSO = 4
"""Further actions that are named."""

OWN = 10
"""Values of metrics of the user's own that are shown."""

FEW = 3
"""Theses of which the figures and the reason are shown, too."""

BOUNDS = 2
"""Limits that are named, the largest first."""


def run_parts(summary: Mapping[str, Any]) -> Iterator[Part]:
    """The first lines on one run."""
    own, spread = summary["infersim"], Spread(summary)
    observed = own["verdict"]["state"] == State.OBSERVED
    yield setup_line(own)
    yield from (line(f"Note: {note}", "warn") for note in leading(own["notes"]))
    yield from verdict_lines(own, spread)
    yield _latencies(summary)
    yield from _served(summary)
    if own.get("metrics"):
        yield _own_metrics(own["metrics"])
    yield from _cost(summary)
    bounds = [
        f"{bound_name(name)} {share:.0%}"
        for name, share in sorted(own["bound_by"].items(), key=lambda each: -each[1])[:BOUNDS]
        if share >= 0.005
    ]
    if bounds and not observed:
        yield line(f"Bound by: {', '.join(bounds)}")
    band = own["error_band"]
    basis = band.get("basis", band["text"])  # which runs of before lack
    yield line(f"How sure: {_certainty(own)}{basis}", "none")
    if own["ends"] is not None and (told := verdicts_at_ends(own)):
        yield line(told, "" if own["ends"]["decided"] else "warn")
    yield from _watch(summary)


def _certainty(own: Mapping[str, Any]) -> str:
    """How sure the decision of the verdict is, and why; empty where it decides nothing."""
    word = (own.get("bands") or {}).get("trust")
    return "" if word is None else f"{reasoned(own['verdict'], word, own['error_band'])}. "


def _latencies(summary: Mapping[str, Any]) -> Table:
    """The latencies that the SLO is about, each with the band of real runs and its limit."""
    own = summary["infersim"]
    bands = (own.get("bands") or {}).get("figures", {})
    rows = []
    for key, limit in _limits(own):
        quantity = key.partition("_")[0]
        percentile = f"p{limit['percentile']:g}"
        name = f"{percentile}_{quantity}_ms"
        value = limit.get("value_ms") or summary.get(name)
        low, high = bands.get(name, {}).get("band90", (None, None))
        texts = (
            f"{quantity.upper()} {percentile}",
            milliseconds(value),
            "-" if low is None else between(milliseconds(low), high and milliseconds(high)),
            milliseconds(limit.get("limit_ms")),
        )
        rows.append(tuple(Cell(text, None) for text in texts))
    columns = (
        Column("", numeric=False),
        Column("predicted"),
        Column("nine of ten real runs"),
        Column("limit"),
    )
    return Table("latency", "", columns, tuple(rows), look="compact")


def _served(summary: Mapping[str, Any]) -> Iterator[Part]:
    """Tokens a second of the fleet and of a user, what was found in a prefix cache, and the first
    tokens of turns."""
    own, rate, gap = summary["infersim"], summary["output_throughput"], summary["mean_tpot_ms"]
    if rate and gap:
        each = f", {show_number(1000 / gap)} to each user"
        yield line(f"Output: {show_number(rate)} tokens/s{each}", "none")
    hits = (own.get("prefix_cache") or {}).get("hit_rate") or 0.0
    told = [f"Prefix hits {hits:.0%}"] if hits >= 0.005 else []
    told.append(turns_text(own.get("sessions", {})))
    if any(told):
        yield line("; ".join(each for each in told if each), "none")


def _own_metrics(metrics: Mapping[str, float | None]) -> Lines:
    """The first values of metrics of the user's own."""
    shown = [
        f"{name} {'-' if value is None else show_number(value)}" for name, value in metrics.items()
    ]
    rest = f" and {len(shown) - OWN} more" if len(shown) > OWN else ""
    return line(f"Own metrics: {', '.join(shown[:OWN])}{rest}", "none")


def _limits(own: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    stated = own["verdict"]["limits"]
    for key, limit in stated.items():
        if limit.get("percentile") is not None:
            yield key, limit
    if not stated:
        yield from ((key, {"percentile": 99.0}) for key in DECIDING)


def _cost(summary: Mapping[str, Any]) -> Iterator[Part]:
    """Dollars by the hour and month, and of tokens."""
    cost = summary["infersim"]["cost"]
    if cost is None or cost["usd_per_million_output_tokens"] is None:
        return
    hour = cost["usd_per_gpu_hour"] * summary["infersim"]["gpus"]
    token = show_cost(cost["usd_per_million_output_tokens"])
    told = [f"{token} {PER_OUTPUT_TOKENS}"]
    if isinstance(hour, float):
        told = [f"{dollars(hour)} USD/h", f"{hour * HOURS_OF['month']:,.0f} USD a month", *told]
        good = usd_per_good_request(summary)
        if good is not None:
            told = [f"{show_cost(1000 * good)} USD per 1,000 requests within the SLO", *told]
        yield line(f"Cost: {', '.join(told)}")


def _watch(summary: Mapping[str, Any]) -> Iterator[Part]:
    """What is not zero and should be."""
    own = summary["infersim"]
    counts = {
        "rejected": own["requests"]["rejected"],
        "unfinished": own["requests"]["unfinished"],
        "failed": summary.get("failed") or 0,
        "preempted": own.get("preemptions") or 0,
    }
    told = [f"{count:,} {name}" for name, count in counts.items() if count]
    if told:
        yield line(f"Watch: {', '.join(told)}", "warn")


def first_lines(findings: Findings) -> Findings:
    """``findings`` with their headline, and their first table, brief sentences, leading notes and
    first action alone, or of theses the verdicts."""
    parts = [part for section in findings.sections for part in section.parts]
    tables = [p for p in parts if isinstance(p, Table) and p.rows and p.on_terminal]
    actions = [p for p in parts if isinstance(p, Actions) and p.each]
    kept: list[Part] = []
    theses = [part for part in parts if isinstance(part, Thesis)]
    if theses:
        lines_of = _explained if len(theses) <= FEW else _verdict
        kept.append(Lines(tuple(line for each in theses for line in lines_of(each))))
    elif tables:
        kept.append(_cut(tables[0]))
    lines = [part for part in parts if isinstance(part, Lines)]
    kept += [part for part in lines if part.brief]
    kept += [Lines((note,), "warn") for note in _leading(lines)]
    if actions:
        kept.append(_first_of(actions[0]))
    section = findings.sections[0]._replace(parts=tuple(kept))
    head = findings.headline
    head = head if head.brief is None else head._replace(text=head.brief)
    return replace(findings, headline=head, sections=(section,))


def _verdict(thesis: Thesis) -> tuple[str, ...]:
    return (f"{thesis.verdict} {thesis.title}",)


def _explained(thesis: Thesis) -> tuple[str, ...]:
    return (*_verdict(thesis), thesis.brief, thesis.text)


def _leading(lines: Iterable[Lines]) -> Iterator[str]:
    """The notes of first lines among ``lines`` that are not brief, each once."""
    yield from dict.fromkeys(
        note for part in lines if not part.brief for note in leading(part.each)
    )


def every_row(findings: Findings) -> Findings:
    """``findings`` with all rows of their tables on a terminal, which are apart."""

    def whole(part: Part) -> Part:
        if not isinstance(part, Table):
            return part
        return part._replace(shown=(), caption=f"\n{part.caption}" if part.caption else "")

    sections = (each._replace(parts=tuple(map(whole, each.parts))) for each in findings.sections)
    return replace(findings, sections=tuple(sections))


def _first_of(actions: Actions) -> Actions:
    """The first action, and the names of others that meet the SLO as surely."""
    first, *others = actions.each
    also = [each.title for each in others if each.meets and each.effect == first.effect]
    more = f" and {len(also) - ALSO} more" if len(also) > ALSO else ""
    text = f"also: {'; '.join(also[:ALSO])}{more}" if also else ""
    return actions._replace(each=(first,), also=text)


def _cut(table: Table) -> Table:
    """The first rows of ``table``, of those that a terminal shows, in the columns of first lines;
    of rows that begin alike the first one goes before all others. The caption says how many rows
    there are where that is not all."""
    kept = [place for place, column in enumerate(table.columns) if column.in_brief]
    table = table._replace(
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
        first=True,
    )
    names = [row[0].text for row in table.rows]
    order = table.shown or sorted(
        range(len(names)), key=lambda index: names.index(names[index]) < index
    )
    rows = tuple(table.rows[place] for place in sorted(order[: table.most]))
    cut = f"{len(rows)} of {len(names)}" if len(rows) < len(names) else ""
    caption = f"{table.caption} ({cut})" if table.caption and cut else table.caption or cut
    return table._replace(rows=rows, shown=(), caption=caption)
