"""Writes the page "How far to trust this": whether bands held, where they did not, and a sentence a
reader can act on for each engine, GPU and kind of measurement. Markdown, regenerated whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from calibrate.scoring.errors import Coverage, coverage, grouped, groups, kind, source
from calibrate.scoring.floors import every_group, floors
from calibrate.scoring.predict import Scored
from calibrate.scoring.ratios import ratios
from calibrate.scoring.report import TITLES, as_inferred
from calibrate.scoring.uses import LOW, Use, uses
from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import CAUSES
from sim.version import version

FEW = 10
"""Measurements of fewer rows say little of a coverage."""

BAR = 20
"""Characters of a bar that stands for all measurements."""

WORST = 12
"""Rows named at the end: the farthest outside their bands."""

LEANS = 10.0
"""Distance in % of the median measurement from its prediction that a reader is warned of."""


FLOORS = (
    "`85 %` and `90 %`: half the width of one band for all these rows that holds so many of them, "
    "by their own errors. `± 90`: that of the bands that are stated, which know nothing of the "
    "source that they are judged on. Where the stated ones are no wider than that of `90 %`, only "
    "smaller errors can make them narrower."
)


INFERRED = (
    "Predictions count what publishers state, and what engines and clients document. Some "
    "conditions were read off the measured results instead (`calibrate/scoring/facts.yaml`, "
    "`basis: outcome`): no error or band counts those. Median and 90th percentile of the absolute "
    "error, in percent, of all rows of kinds that such a fact changes."
)


def trust_page(rows: Sequence[Scored]) -> str:
    """The page."""
    known = [row for row in rows if row.bands is not None]
    parts = [
        "# How far to trust this",
        f"Made by `make validation` with infersim {version()} on "
        f"{date.today():%Y-%m-%d}, from {len(known):,} published figures. A 90 % band is meant to "
        "hold nine of ten measurements, a 50 % band five of ten. Each measurement is judged by "
        "bands that were learnt without its source (engine, GPU and model), so that what is said "
        "here is what to expect of a source that was not measured. Widths are half of the "
        "median 90 % band, in percent of the prediction. `runs/trust.html` draws them all.",
        "## Do the bands hold?",
        _table(("of",), known, lambda row: (TITLES[str(row.quantity)],), bars=True),
        "## What do facts that were read off the results change?",
        INFERRED,
        _inferred(known),
        "## How narrow could they be?",
        FLOORS,
        _floors(known),
        _every_group(known),
        "## Do differences hold?",
        "What two runs on the same kernels and engine share cancels in part in their ratio, as "
        "`compare` counts it. Pairs of measurements of one source under other conditions; "
        "`± 90 alone`: the width if nothing were shared.",
        _ratios(rows),
        "## By engine, GPU and kind of measurement",
        _sentences(known),
        "## Groups of ten and more whose 90 % band was too narrow",
        _too_narrow(known),
        "## Farthest outside their bands",
        _worst(known),
        "## What the bands are made of",
        f"Spreads are scales of the logarithm of measured over predicted: {learnt().origin}.",
        _spreads(),
    ]
    return "\n\n".join(parts) + "\n"


def _held(rows: Sequence[Scored]) -> Coverage:
    found = coverage(rows)
    assert found is not None, "only rows with bands are asked for"
    return found


def _bar(share: float) -> str:
    """A share (in %) as a bar."""
    full = round(share / 100 * BAR)
    return "█" * full + "░" * (BAR - full)


def _table(
    names: tuple[str, ...],
    rows: Sequence[Scored],
    key: Callable[[Scored], tuple[str, ...]],
    *,
    bars: bool = False,
) -> str:
    head = (*names, "rows", "in 50 %", "in 90 %", *(("in 90 %, drawn",) if bars else ()), "± 90")
    lines = [_line(head), _line(["---"] * len(head))]
    groups = {("all",): list(rows)} | grouped(rows, key) if bars else grouped(rows, key)
    for name, members in groups.items():
        found = _held(members)
        shares = (f"{found.covered50:.0f}", f"{found.covered90:.0f}")
        drawn = (_bar(found.covered90),) if bars else ()
        lines.append(
            _line((*name, f"{len(members):,}", *shares, *drawn, f"{found.half_width90:.0f}"))
        )
    return "\n".join(lines)


def _inferred(rows: Sequence[Scored]) -> str:
    head = ("kind", "of", "rows", "changed", "as stated", "as inferred")
    lines = [_line(head), _line(["---"] * 2 + ["---:"] * 4)]
    for group in groups(rows, kind):
        for quantity, found in group.errors.items():
            if found.inferred is not None:
                numbers = (f"{found.count:,}", f"{found.inferred.count:,}")
                stated = f"{found.median:.1f} / {found.p90:.1f}"
                cells = (*group.name, TITLES[quantity], *numbers, stated, as_inferred(found))
                lines.append(_line(cells))
    return "\n".join(lines)


def _floors(rows: Sequence[Scored]) -> str:
    head = ("of", "clients", "rows", "85 %", "90 %", "± 90")
    lines = [_line(head), _line(["---"] * len(head))]
    for each in floors(rows):
        widths = (f"{width:.0f}" for width in each[3:])
        lines.append(_line((TITLES[each.quantity], each.of, f"{each.rows:,}", *widths)))
    return "\n".join(lines)


def _every_group(rows: Sequence[Scored]) -> str:
    found = every_group(rows)
    if found is None:
        return "No group has ten rows."
    if found.times == 1.0:
        return (
            f"Of every group of ten rows and more at least {LOW:.0f} % lie in their bands. A group "
            "is a figure of one model on one GPU under one release of an engine, in one "
            "publication."
        )
    widths = ", ".join(f"{TITLES[name]} {width:.0f} %" for name, width in found.widths.items())
    return (
        f"To hold {LOW:.0f} % of every group of ten rows and more, all bands would have to reach "
        f"{found.times:.1f} times as far (half-widths: {widths}): what is said of a source that "
        "was not measured cannot be narrower because others turned out well."
    )


def _ratios(rows: Sequence[Scored]) -> str:
    head = ("of", "pairs", "in 50 %", "in 90 %", "± 90", "± 90 alone")
    lines = [_line(head), _line(["---"] * len(head))]
    for each in ratios(rows):
        shares = (f"{share:.0f}" for share in each[2:])
        lines.append(_line((TITLES[each.quantity], f"{each.pairs:,}", *shares)))
    return "\n".join(lines)


def _sentences(rows: Sequence[Scored]) -> str:
    told: dict[str, list[str]] = {}
    for each in uses(rows):
        told.setdefault(f"{each.engine}, {each.gpu}, {each.kind}", []).append(_sentence(each))
    return "\n".join(f"- **{name}**: {'; '.join(parts)}." for name, parts in told.items())


def _sentence(of: Use) -> str:
    """What to do with the predictions of one quantity."""
    width = f"± {of.half_width90:.0f} %" if of.half_width90 < 1000 else "no usable band"
    held = f"{width}, {of.covered90:.0f} % of {of.rows:,} held{_lean(of)}"
    return f"{TITLES[of.quantity]} {of.text} ({held})"


def _lean(of: Use) -> str:
    """To which side measurements lie, where they do."""
    if abs(of.above) < LEANS:
        return ""
    side = "above" if of.above > 0 else "below"
    return f"; in the median {abs(of.above):.0f} % {side} the prediction"


def _too_narrow(rows: Sequence[Scored]) -> str:
    large = {
        name: members
        for name, members in grouped(rows, lambda row: (*source(row), str(row.quantity))).items()
        if len(members) >= FEW
    }
    narrow = {name: each for name, each in large.items() if _held(each).covered90 < LOW}
    lines = [
        f"- {' '.join(part for part in name if part)}: {_held(members).covered90:.0f} % of "
        f"{len(members):,} in the band (± {_held(members).half_width90:.0f} %)"
        for name, members in narrow.items()
    ]
    first = f"{len(narrow)} of {len(large)} hold less than {LOW:.0f} % of their measurements."
    return "\n".join([first, "", *lines]) if lines else first


def _worst(rows: Sequence[Scored]) -> str:
    def outside(row: Scored) -> float:
        assert row.bands is not None
        low, high = row.bands[1]
        value = float(row.measured or 0.0)
        return max(value / high, low / value)

    head = ("row", "engine", "model", "metric", "measured / predicted", "90 % band / predicted")
    lines = [_line(head), _line(["---"] * len(head))]
    for row in sorted(rows, key=outside, reverse=True)[:WORST]:
        assert row.bands is not None
        assert row.predicted is not None
        low, high = (each / row.predicted for each in row.bands[1])
        published = row.row
        lines.append(
            _line(
                (
                    f"{published.file}:{published.line}",
                    row.engine,
                    published["model"],
                    published["metric"].split("(")[0],
                    f"{float(row.measured or 0) / row.predicted:.2g}",
                    f"{low:.2g} to {high:.2g}",
                )
            )
        )
    return "\n".join(lines)


def _spreads() -> str:
    found = learnt()
    head = ("part", "cause", "spread", "sources")
    lines = [_line(head), _line(["---"] * len(head))]
    for name, cause in CAUSES.items():
        spread, sources = found.everything.of[name], found.sources[name]
        lines.append(_line((cause.part, cause.title, f"{spread:.2f}", str(sources))))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
