"""Writes the errors of predictions as a page of text: Markdown, regenerated whole. Errors in %.

A page is made of a summary of ``calibrate.scoring.evidence``, which holds more than the page shows:
errors by source, the worst rows, what was assumed, and rows whose client is left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calibrate.scoring.errors import QUANTITIES

TITLES = {
    "throughput": "throughput",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2el": "E2EL",
    "running": "running",
    "bandwidth": "bandwidth",
    "power": "power",
    "energy": "energy",
}

IN_SAMPLE = (
    "The log of `replay, vllm` is in sample as a whole: the efficiencies of `rtx-4090` were "
    "adjusted to it, so that its errors say nothing of other runs."
)
"""The values fitted to all rows of a kind, so that none is left to judge it on."""

HELD = ("covered50", "covered90", "half_width90")

Part = Mapping[str, Any]
"""A part of the evidence."""


def markdown(summary: Part, *, dense: bool = False) -> str:
    """The page of a summary; ``dense`` if models with experts were left out."""
    option = " --dense" if dense else ""
    parts = [
        "# Predictions compared with published measurements",
        f"{'Published tables of dense models. ' if dense else ''}Made by `infersim score{option}` "
        f"with infersim {summary['version']} on {summary['date']}: {summary['predicted']:,} of "
        f"{summary['rows']:,} published rows are predicted, the others are listed below with the "
        "reason. Errors are those of the prediction over the measurement in percent: the median "
        "with its sign (bias), the median and the 90th percentile of the absolute error, and "
        "Spearman's rank correlation. The same published cell moves by 3 to 8 % from one release "
        "of an engine to the next. `in 50` and `in 90` are the shares of measurements within the "
        "50 % and the 90 % band of their predictions, `± 90` half the median width of the latter, "
        "all in percent: bands are learnt without the source (engine, GPU and model) that they are "
        "judged on. Predictions count what publishers state, and what engines and clients "
        "document. `as inferred`: median and p90 where facts that were read off the measured "
        "results count, too (`calibrate/scoring/facts.yaml`, `basis: outcome`); empty where there "
        "are none. Errors by source, the worst rows and all assumptions are in "
        "`calibrate/evidence.json`.",
        "## By kind of measurement",
        _kinds(summary["kinds"]),
        "## Fitted here, judged there",
        "Kernels come from profiles, which know nothing of these rows. A few constants of engine "
        "presets were fitted to some of them (the sources are in `sim/catalog/engines` and "
        "`calibrate/scoring/engines`):",
        _fitted(summary["fitted"]),
        IN_SAMPLE,
        "## What is not predicted, and why",
        "\n".join(f"- {each['rows']:,} rows: {each['text']}" for each in summary["reasons"])
        or "Nothing.",
    ]
    return "\n\n".join(parts) + "\n"


def _kinds(found: Sequence[Part]) -> str:
    head = ("kind", "of", "rows", "bias", "median", "p90", "rank", "in 50", "in 90", "± 90")
    return table(
        (*head, "as inferred"),
        [
            (group["kind"], TITLES[quantity], *_cells(group["errors"][quantity]))
            for group in found
            for quantity in QUANTITIES
            if quantity in group["errors"]
        ],
        words=2,
    )


def _cells(found: Part) -> tuple[str, ...]:
    rank, bands = found["rank_correlation"], found["bands"]
    held = [f"{bands[key]:.0f}" if bands else "" for key in HELD]
    return (
        f"{found['count']:,}",
        f"{found['signed_median']:+.1f}",
        f"{found['median']:.1f}",
        f"{found['p90']:.1f}",
        "" if rank is None else f"{rank:.3f}",
        *held,
        as_inferred(found),
    )


def as_inferred(found: Part) -> str:
    """Median and 90th percentile with facts that were read off results; empty without any."""
    return "" if found["inferred"] is None else median_p90(found["inferred"])


def median_p90(found: Part) -> str:
    """Median and 90th percentile of an error, as cells have them."""
    return f"{found['median']:.1f} / {found['p90']:.1f}"


def _fitted(found: Sequence[Part]) -> str:
    head = ("kind", "constants", "of", "fitted on", "median / p90", "judged on", "median / p90")
    return table(
        head,
        [
            (
                each["kind"],
                each["constants"],
                TITLES[each["of"]],
                *(each["fitted"]["rows"], median_p90(each["fitted"])),
                *(each["judged"]["rows"], median_p90(each["judged"])),
            )
            for each in found
        ],
        words=len(head),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """A table of Markdown whose first ``words`` columns are text, the others numbers."""
    rule = ["---" if at < words else "---:" for at in range(len(head))]
    return "\n".join(map(_line, [head, rule, *rows]))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
