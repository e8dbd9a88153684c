"""Writes a scoring as a page of text: Markdown, regenerated whole. Errors in %.

Published settings made some constants of the engine presets; ``SPLITS`` says which rows those were
fitted on, so that both halves stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import NamedTuple

from calibrate.scoring.errors import (
    QUANTITIES,
    ErrorGroup,
    Errors,
    errors_of,
    groups,
    held,
    kind,
    left_open,
    source,
)
from calibrate.scoring.predict import Scored
from sim.version import version

WORST = 5
"""Rows named for each kind of measurement."""

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


class Split(NamedTuple):
    """Rows of a kind, of which those that ``fitted`` picks made the constants named in ``what``."""

    kind: str
    what: str
    fitted: Callable[[Scored], bool]
    halves: tuple[str, str]


IN_SAMPLE = (
    "The log of `replay, vllm` is in sample as a whole: the efficiencies of `rtx-4090` were "
    "adjusted to it, so that its errors say nothing of other runs."
)
"""What was fitted to all rows of a kind, so that none is left to judge it on."""

SPLITS = (
    Split(
        "closed loop, vllm",
        "host time of `vllm`",
        lambda row: row.row["tp"] in ("2", "4"),
        ("2 and 4 GPUs", "8 GPUs"),
    ),
    Split(
        "closed loop, tensorrt-llm",
        "host time and launches of `tensorrt-llm`",
        lambda row: row.row["tp"] in ("1", "4"),
        ("1 and 4 GPUs", "2 and 8 GPUs"),
    ),
    Split(
        "online, tensorrt-llm-triton",
        "host time and front end of `tensorrt-llm-triton`",
        lambda row: row.row["isl"].startswith("467"),
        ("prompts of 467", "prompts of 202"),
    ),
)


def markdown(rows: Sequence[Scored], *, dense: bool = False) -> str:
    """The page; ``dense`` if models with experts were left out."""
    predicted = [row for row in rows if row.error is not None]
    made = "Published tables of dense models. Made by" if dense else "Made by"
    option = " --dense" if dense else ""
    parts = [
        "# Predictions compared with published measurements",
        f"{made} `infersim score{option} --output` with infersim {version()} on "
        f"{date.today():%Y-%m-%d}: {len(predicted):,} of {len(rows):,} published rows are "
        "predicted, the others are listed below with the reason. Errors are those of the "
        "prediction over the measurement in percent: the median with its sign (bias), the median "
        "and the 90th percentile of the absolute error, and Spearman's rank correlation. The same "
        "published cell moves by 3 to 8 % from one release of an engine to the next. "
        "`in 50` and `in 90` are the shares of measurements within the 50 % and the 90 % band of "
        "their predictions, `± 90` half the median width of the latter, all in percent: bands are "
        "learnt without the source (engine, GPU and model) that they are judged on. Predictions "
        "count what publishers state, and what engines and clients document. `as inferred`: "
        "median and p90 where facts that were read off the measured results count, too "
        "(`calibrate/scoring/facts.yaml`, `basis: outcome`); empty where there are none.",
        "## By kind of measurement",
        _table(("kind",), groups(predicted, kind)),
        "## Fitted here, judged there",
        "Kernels come from profiles, which know nothing of these rows. A few constants of engine "
        "presets were fitted to some of them (the sources are in `sim/catalog/engines` and "
        "`calibrate/scoring/engines`):",
        _splits(predicted),
        IN_SAMPLE,
        "## By source, engine, GPU and model",
        _table(("source", "engine", "version", "GPU", "model"), groups(predicted, source)),
        "## Where it is not published how requests were sent",
        OPEN,
        _left_open(predicted),
        "## Where predictions are worst",
        _worst(predicted),
        "## What was assumed",
        _counted(
            [remark for row in predicted if row.known for remark in row.known.assumed], "rows"
        ),
        "## What is not predicted, and why",
        _counted([row.reason for row in rows if row.error is None], "rows"),
    ]
    return "\n\n".join(parts) + "\n"


def _table(names: tuple[str, ...], found: Sequence[ErrorGroup]) -> str:
    head = (*names, "of", "rows", "bias", "median", "p90", "rank", "in 50", "in 90", "± 90")
    head = (*head, "as inferred")
    lines = [_line(head), _line(["---"] * len(names) + ["---"] + ["---:"] * 9)]
    for group in found:
        for quantity in QUANTITIES:
            if quantity in group.errors:
                cells = _cells(group.errors[quantity])
                lines.append(_line((*group.name, TITLES[quantity], *cells)))
    return "\n".join(lines)


def _cells(found: Errors) -> tuple[str, ...]:
    rank = "" if found.rank_correlation is None else f"{found.rank_correlation:.3f}"
    bias = f"{found.signed_median:+.1f}"
    cells = (f"{found.count:,}", bias, f"{found.median:.1f}", f"{found.p90:.1f}", rank)
    return (*cells, *held(found.bands), as_inferred(found))


def as_inferred(found: Errors) -> str:
    """Median and 90th percentile with facts that were read off results; empty without any."""
    inferred = found.inferred
    return "" if inferred is None else f"{inferred.median:.1f} / {inferred.p90:.1f}"


def _splits(rows: Sequence[Scored]) -> str:
    head = ("kind", "constants", "of", "fitted on", "median / p90", "judged on", "median / p90")
    lines = [_line(head), _line(["---"] * 7)]
    for split in SPLITS:
        members = [row for row in rows if kind(row) == (split.kind,)]
        for quantity in QUANTITIES:
            of_it = [row for row in members if row.quantity == quantity]
            halves = [[row for row in of_it if split.fitted(row) == wanted] for wanted in (1, 0)]
            if not all(halves):
                continue
            errors = [errors_of(half) for half in halves]
            shown = [f"{each.median:.1f} / {each.p90:.1f}" for each in errors]
            lines.append(
                _line(
                    (
                        split.kind,
                        split.what,
                        TITLES[quantity],
                        *(split.halves[0], shown[0]),
                        *(split.halves[1], shown[1]),
                    )
                )
            )
    return "\n".join(lines)


OPEN = (
    "Such rows are predicted under each plausible way: errors as bias and, after the slash, the "
    "median of the absolute error. `between` is the share of measurements within the least and the "
    "largest of these predictions. The tables above count the first way, unless the assumptions "
    "below say why another one."
)


def _left_open(rows: Sequence[Scored]) -> str:
    head = ("source", "of", "rows", "between", "under each way")
    lines = [_line(head), _line(["---", "---", "---:", "---:", "---"])]
    for name, quantity, found in left_open(rows):
        ways = "; ".join(f"{way.name} {way.bias:+.0f} / {way.median:.0f}" for way in found.ways)
        cells = (name, TITLES[quantity], f"{found.rows:,}", f"{found.between:.0f}", ways)
        lines.append(_line(cells))
    return "\n".join(lines)


def _worst(rows: Sequence[Scored]) -> str:
    head = ("kind", "row", "conditions", "metric", "measured", "predicted", "error")
    lines = [_line(head), _line(["---"] * 4 + ["---:"] * 3)]
    for group in groups(rows, kind):
        members = [row for row in rows if kind(row) == group.name]
        members.sort(key=lambda row: -abs(row.error or 0.0))
        for row in members[:WORST]:
            lines.append(_line(_worst_cells(group.name[0], row)))
    return "\n".join(lines)


def _worst_cells(name: str, row: Scored) -> tuple[str, ...]:
    published, conditions = row.row, conditions_of(row)
    unit = 1e3 if row.quantity in ("ttft", "tpot", "itl", "e2el") else 1.0
    figures = [f"{unit * value:,.4g}" for value in (row.measured, row.predicted) if value]
    place = f"{published.file}:{published.line}" if published.line else published.file
    error = f"{100 * (row.error or 0.0):+.0f}"
    return (name, place, conditions, published["metric"].split("(")[0], *figures, error)


def conditions_of(row: Scored) -> str:
    """Model, GPUs, precision, lengths and load as they are published."""
    published = row.row
    return (
        f"{published['model']}, {published['gpu'].split('(')[0].strip()} x {published['n_gpus']}, "
        f"{published['weight_dtype']}, {published['isl']}/{published['osl'].split(' ')[0]}, "
        f"{published['batch_or_concurrency'] or published['request_rate_rps']}"
    )


def _counted(texts: Sequence[str], what: str) -> str:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    order = sorted(counts.items(), key=lambda item: -item[1])
    return "\n".join(f"- {count:,} {what}: {text}" for text, count in order) or "Nothing."


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
