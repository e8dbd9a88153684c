"""What a verification looks like in a terminal, and as CSV. 88 columns."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from calibrate.verify.score import Document, counts, rows
from sim.units import show_time

TITLES = {
    "tpot": "mean TPOT",
    "throughput": "output tokens/s",
    "mean_ttft": "mean TTFT",
    "p90_ttft": "p90 TTFT",
}


def view(document: Document) -> Group:
    """Every trace: what was predicted and measured, the error, and the engine's own noise."""
    parts: list[RenderableType] = []
    for result in document["traces"]:
        parts += [_scores(document, result), _notes(result)]
    found = [row for row in rows(document) if row["error"] is not None]
    within = sum(abs(row["error"]) <= row["wanted"] for row in found)
    parts.append(Text(f"{within} of {len(found)} figures are within what is wanted."))
    return Group(*parts)


def write_csv(path: Path, document: Document) -> None:
    """A line for each trace, discipline and metric."""
    names = ("trace", "batching", "metric", "predicted", "measured", "error", "noise", "wanted")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, (*names, "runs"), lineterminator="\n")
        table.writeheader()
        table.writerows(rows(document))


def _scores(document: Document, result: Document) -> Table:
    title = f"{result['trace']}: {result['requests']} requests"
    if "rate" in result["arrivals"]:
        title += f", {result['arrivals']['rate']:.3g} a second"
    if "concurrency" in result["arrivals"]:
        title += f", {result['arrivals']['concurrency']} at a time"
    table = Table(title=title, title_justify="left", expand=True)
    table.add_column("batching")
    table.add_column("figure", no_wrap=True)
    for name in ("predicted", "measured", "error", "noise", "wanted"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows({**document, "traces": [result]}):
        beyond = row["error"] is not None and abs(row["error"]) > row["wanted"]
        table.add_row(
            row["batching"],
            TITLES[row["metric"]],
            _amount(row["metric"], row["predicted"]),
            _amount(row["metric"], row["measured"]),
            _share(row["error"]),
            "-" if row["noise"] is None else f"{row['noise']:.1%}",
            f"{row['wanted']:.0%}",
            style="yellow" if beyond else "",
        )
    return table


def _notes(result: Document) -> Text:
    """Drift, runs that were disturbed, and how far single iterations are off."""
    anchor = result["anchor"]
    change = anchor["after_s"] / anchor["before_s"] - 1
    lines = [
        f"Anchor step {show_time(anchor['before_s'])} before, {show_time(anchor['after_s'])} "
        f"after ({change:+.1%}); second calibration against the first: "
        + ", ".join(f"{name} {value:+.1%}" for name, value in result["drift"].items())
    ]
    for discipline in result["disciplines"]:
        found = ", ".join(
            f"{kind} {entry['median']:.1%} (bias {entry['bias']:+.1%}, {entry['share']:.0%} of "
            "the time)"
            for kind, entry in discipline["iterations"].items()
        )
        lines.append(f"Iterations of {discipline['batching']}: {found}")
        left_out = [told["repeat"] for told in discipline["runs"] if not counts(told)]
        if left_out:
            runs = ", ".join(map(str, left_out))
            lines.append(f"Disturbed by others, not scored: {discipline['batching']} run {runs}")
    return Text("\n".join(lines) + "\n")


def _amount(metric: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if metric == "throughput" else show_time(value / 1e3)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
