"""Builds the section about the time of operators, what bound them, and the roofline of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import operator_work
from reports.frame import theme
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, show
from reports.frame.run_directory import known, pick
from reports.pages.run.missing import is_observed, reason
from sim.findings import Cell, Column, Table
from sim.metrics.terms.definitions import bound_name
from sim.units import show_rate

NOT_COUNTED = (
    "The FLOP and the bytes of a real device are not counted, so that it has no points here."
)


def operators(summary: Mapping[str, Any]) -> Plot:
    """The share of the busy time of each operator, by what bound it."""
    title = "Time by operator"
    shares = pick(summary, "infersim.time_by_operator") or {}
    shares = {str(name): share for name, share in shares.items() if share}
    if not shares:
        note = reason(summary, "The record does not say what the engine spent its time on.")
        return Plot("operators", title, "operator", note, None)
    work = known(summary, "infersim.operators") or {}
    caption = "Colours: what each operator waited for (see 'Bound by')."
    if not work:
        caption = (
            "By phase of an iteration, as measured."
            if is_observed(summary)
            else (
                "What bound each operator is not in this run directory: an older version wrote it."
            )
        )
    drawn = operator_work.operator_time(shares, work)
    return Plot("operators", title, "operator", caption, to_json(drawn), kind="own")


def operator_table(summary: Mapping[str, Any]) -> Table:
    """Each operator's share of the busy time, largest first, and what it moved and computed."""
    shares = pick(summary, "infersim.time_by_operator") or {}
    work = known(summary, "infersim.operators") or {}
    if not any(shares.values()):
        shares = {}
    largest = max([share for share in shares.values() if share], default=1.0)
    rows = []
    for name, share in sorted(shares.items(), key=lambda item: -(item[1] or 0.0)):
        shown = show(share, "share")
        row = [Cell(str(name), str(name)), Cell(*shown, None, (share or 0.0) / largest)]
        if work:
            row += _work(work[name]) if name in work else _host(name, share, work)
        rows.append(tuple(row))
    columns = [Column("Operator", False, "operator"), Column("Share of busy time (%)")]
    if work:
        columns += [
            Column("Seconds"),
            Column("FLOP", definition="flop"),
            Column("Bytes", definition="flop"),
            Column("FLOP/B", definition="intensity"),
            Column("FLOP/s", definition="flop"),
            Column("Bound by", False, "bound_by"),
        ]
    return Table("operators", "Time by operator", tuple(columns), tuple(rows))


def _work(done: Mapping[str, float]) -> list[Cell]:
    flop, moved = done["flops"], done["bytes"]
    parts = {bound: done[bound] for bound in theme.BOUNDS if bound in done}
    seconds = sum(parts.values())
    bound = max(parts, key=lambda name: parts[name])
    return [
        Cell(*show(seconds, "number")),
        _prefixed(flop),
        _prefixed(moved),
        Cell(*show(flop / moved if flop and moved else None, "number")),
        _prefixed(flop / seconds if flop and seconds else 0.0),
        Cell(bound_name(bound), bound_name(bound)),
    ]


def _host(name: str, share: float | None, work: Mapping[str, Mapping[str, float]]) -> list[Cell]:
    """The rest of the busy time, which computes and moves nothing."""
    kernels = sum(done[bound] for done in work.values() for bound in theme.BOUNDS if bound in done)
    seconds = None if share is None or share >= 1 else kernels * share / (1 - share)
    nothing = Cell(*show(None, "number"))
    bound = name if name in theme.BOUNDS else MISSING
    return [Cell(*show(seconds, "number")), *[nothing] * 4, Cell(bound, bound)]


def _prefixed(amount: float) -> Cell:
    """``1.2 P`` to read, all digits to sort and to copy; nothing for 0."""
    if not amount:
        return Cell(*show(None, "number"))
    return Cell(show_rate(amount, "").rstrip(), amount)


def operating_points(summary: Mapping[str, Any], charts: Mapping[str, Any]) -> Plot:
    """The points at which the run worked, under the roof of its GPU."""
    title = "Roofline"
    found = charts.get("roofline")
    if found is None or not any(point["flops"] for point in found["points"]):
        return Plot("roofline", title, "roofline", reason(summary, NOT_COUNTED), None)
    ridge = found["peak_flops"] / found["bandwidth"]
    seconds = sum(point["seconds"] for point in found["points"])
    left = sum(
        point["seconds"] for point in found["points"] if point["flops"] < ridge * point["bytes"]
    )
    caption = (
        f"{100 * left / seconds:.3g} % of the busy time lies left of the ridge, where the memory "
        "bandwidth is the limit. The area of a circle is its share of the busy time. The distance "
        "to the roof is what kernels do not reach, what operators take in turn, and the host."
    )
    drawn = operator_work.roofline(found)
    return Plot("roofline", title, "roofline", caption, to_json(drawn), kind="tall")
