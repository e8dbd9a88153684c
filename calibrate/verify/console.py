"""Shows a verification in a terminal (88 columns), and writes it as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import median
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
    "p90_ttft": "TTFT p90",
}

NOTHING = "No metric is scored: other programs used the processors during every run."


def view(document: Document) -> Group:
    """Every trace: what was predicted and measured, the error, and the engine's own noise."""
    parts: list[RenderableType] = []
    for result in document["traces"]:
        parts += [_scores(result), _notes(result)]
    found = [row for row in rows(document) if row["error"] is not None]
    within = sum(abs(row["error"]) <= row["wanted"] for row in found)
    judged = f"{within} of {len(found)} metrics are within the wanted error."
    level = sum(abs(row["steady"]) <= row["wanted"] for row in found)
    if level != within:
        judged += f" With the machine's own drift taken out (steady), {level} are."
    judged += _by_drift(found)
    parts.append(Text(judged if found else NOTHING))
    parts += [Text(line) for line in _left_out(document)]
    return Group(*parts)


def _by_drift(found: Sequence[Document]) -> str:
    """What only the drift of the machine puts outside the wanted error, in a sentence."""
    names = [
        f"{row['trace']} {row['batching']} {TITLES[row['metric']]}"
        for row in found
        if abs(row["error"]) > row["wanted"] >= abs(row["steady"])
    ]
    return f" Drift alone is the reason for: {', '.join(names)}." if names else ""


def write_csv(path: Path, document: Document) -> None:
    """A line for each trace, discipline and metric."""
    names = (
        *("trace", "batching", "metric", "predicted", "measured"),
        *("error", "steady", "noise", "wanted"),
    )
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, (*names, "runs"), lineterminator="\n")
        table.writeheader()
        table.writerows(rows(document))


def _scores(result: Document) -> Table:
    title = f"{result['trace']}: {result['requests']} requests"
    if "rate" in result["arrivals"]:
        title += f", {result['arrivals']['rate']:.3g} a second"
    if "concurrency" in result["arrivals"]:
        title += f", {result['arrivals']['concurrency']} at a time"
    table = Table(title=title, title_justify="left", expand=True)
    table.add_column("batching")
    table.add_column("metric", no_wrap=True)
    for name in ("predicted", "measured", "error", "steady", "noise", "wanted"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result["scores"]:
        beyond = row["error"] is not None and abs(row["error"]) > row["wanted"]
        table.add_row(
            row["batching"],
            TITLES[row["metric"]],
            _amount(row["metric"], row["predicted"]),
            _amount(row["metric"], row["measured"]),
            _share(row["error"]),
            _share(row["steady"]),
            "-" if row["noise"] is None else f"{row['noise']:.1%}",
            f"{row['wanted']:.0%}",
            style="yellow" if beyond else "",
        )
    return table


def _notes(result: Document) -> Text:
    """Drift, runs that were disturbed, and how far single iterations are off."""
    anchors = result["anchors_s"]
    lines = []
    if result.get("cut_short"):
        lines.append(
            "The calibration after the runs was cut short: predictions rest mostly on the one "
            "before."
        )
    lines += ["Anchor step: " + ", ".join(show_time(seconds) for seconds in anchors)]
    for number, change in enumerate(result["drift"], start=1):
        told = ", ".join(f"{name} {value:+.0%}" for name, value in change.items())
        lines.append(f"Calibration {number} against the one before: {told}")
    for batching in dict.fromkeys(told["batching"] for told in result["runs"]):
        runs = [told for told in result["runs"] if told["batching"] == batching]
        for kind in ("decode", "prefill"):
            found = [told["iterations"][kind] for told in runs if kind in told["iterations"]]
            if found:
                bias = ", ".join(f"{entry['bias']:+.1%}" for entry in found)
                share = median(entry["share"] for entry in found)
                lines.append(f"Iterations of {batching}, {kind} ({share:.0%} of the time): {bias}")
        drifted = [f"{told['drift']:+.1%}" for told in runs if "drift" in told]
        if drifted:
            lines.append(
                f"Machine during {batching}, slower (+) or faster (-) than while it was "
                f"calibrated: {', '.join(drifted)}"
            )
        left_out = [str(told["round"]) for told in runs if not counts(told)]
        if left_out:
            lines.append(f"Disturbed, not scored: {batching} run {', '.join(left_out)}")
    return Text("\n".join(lines) + "\n")


def _left_out(document: Document) -> list[str]:
    """What there was no time for."""
    missing, setting = document["left_out"], document["setting"]
    lines = [f"{name}: no run" for name in missing["traces"]]
    lines += [f"{trace}: no {' or '.join(ways)}" for trace, ways in missing["batchings"].items()]
    lines += [
        f"{trace}: {made} of {setting['repeats']} runs of each kind"
        for trace, made in missing["repeats"].items()
    ]
    if not lines:
        return []
    total = f" {show_time(setting['total'])}" if setting["total"] else ""
    title = f"Left out for lack of time (--total-time{total}):"
    more = ["The same command runs the traces that are left."] if missing["traces"] else []
    return [title, *(f"  {line}" for line in lines), *more]


def _amount(metric: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if metric == "throughput" else show_time(value / 1e3)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
