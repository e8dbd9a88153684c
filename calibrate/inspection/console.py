"""Renders a profile, or two of them side by side, in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from calibrate.inspection.compare import Pair, ProfileComparison
from sim.specs.profile import KernelFit

LEAST = 0.005
"""Differences below half a percent are not pointed out."""

FACTS_SHOWN = 300
"""Characters of facts in a terminal; a page has them all."""


def profile_view(document: Mapping[str, Any], *, parameters: bool = False) -> Group:
    """A profile as ``calibrate.inspection.document`` describes it; ``parameters`` too if wanted."""
    return Group(*_profile_parts(document, parameters))


def _profile_parts(document: Mapping[str, Any], parameters: bool) -> Iterator[RenderableType]:
    yield Text.assemble((document["name"], "bold"), f"  {document['title']}")
    yield Text(f"Source: {document['source']} ({document['date']})")
    facts = ", ".join(f"{name} {value}" for name, value in document["facts"].items())
    if facts:
        yield Text(shorten(facts, FACTS_SHOWN, placeholder=" ..."), style="dim")
    measurements = document["measurements"]
    whole = measurements is not None and not measurements["sampled"]
    yield _errors(document["errors"], measured=whole)
    if whole:
        yield Text(
            "fits: median over all measurements, which the final fit has seen; noise: between two "
            "looks at one point",
            style="dim",
        )
    yield Text("table: a residual table corrects the form", style="dim")
    yield _ranges(document["errors"])
    if whole:
        counts = ", ".join(f"{n:,} {status}" for status, n in measurements["statuses"].items())
        yield Text(f"Measurements: {measurements['file']}: {counts or 'none'}")
    if parameters:
        for entry in document["parameters"]:
            yield _parameters(entry)
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _errors(errors: list[dict[str, Any]], *, measured: bool) -> Table:
    table = Table(title="Error on shapes held out of the fit", title_justify="left", expand=True)
    table.add_column("operator, precision", ratio=1, overflow="fold")
    beside = ("fits", "noise") if measured else ()
    for name in ("points", "median", "p90", "bias", *beside, "table"):
        table.add_column(name, justify="right", no_wrap=True)
    for error in errors:
        own, noise = error["all_points"], error["noise"]
        told = [
            "-" if own is None else share(own["median"]),
            "-" if noise is None else share(noise),
        ]
        table.add_row(
            f"{error['operator']} {error['precision']}",
            *_score(error),
            *(told if measured else ()),
            "yes" if error["residual"] else "no",
        )
        for regime in error["regimes"]:
            table.add_row(f"  {regime['name']}", *_score(regime), style="dim")
    return table


def _ranges(errors: list[dict[str, Any]]) -> Table:
    table = Table(title="Measured shapes", title_justify="left", expand=True)
    table.add_column("operator, precision", no_wrap=True)
    table.add_column("ranges, kernel", ratio=1, overflow="fold")
    for error in errors:
        told = ", ".join(f"{name} {_span(*pair)}" for name, pair in error["ranges"].items())
        kernel = f"; {error['kernel']}" if error["kernel"] else ""
        table.add_row(f"{error['operator']} {error['precision']}", f"{told}{kernel}")
    return table


def _score(score: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (
        f"{score['points']:,}",
        share(score["median"]),
        share(score["p90"]),
        share(score["bias"], signed=True),
    )


def _span(low: float, high: float) -> str:
    """A range as people read it.

    >>> _span(1.0, 16384.0), _span(1.0, 1.0)
    ('1 to 16,384', '1')
    """
    return f"{low:,.4g}" if low == high else f"{_number(low)} to {_number(high)}"


def _parameters(entry: Mapping[str, Any]) -> Table:
    table = Table(title=f"Parameters: {entry['operator']}", title_justify="left", expand=True)
    for name in ("parameter", "precision", "value", "95 % interval", "unit"):
        right = name in ("value", "95 % interval")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in entry["rows"]:
        for precision, value in row["values"].items():
            between = {
                "given": "given",
                "open": "not determined",
                "fitted": "-"
                if value["low"] is None
                else f"{value['low']:.4g} to {value['high']:.4g}",
            }[value["state"]]
            table.add_row(row["name"], precision, f"{value['value']:.4g}", between, row["unit"])
    return table


def comparison_view(comparison: ProfileComparison) -> Group:
    """Two profiles side by side."""
    return Group(*_comparison_parts(comparison))


def _comparison_parts(comparison: ProfileComparison) -> Iterator[RenderableType]:
    for letter, found in (("A", comparison.first), ("B", comparison.second)):
        told = f"  {found.gpu.title}; {found.profile.source} ({found.profile.date})"
        yield Text.assemble(f"{letter} ", (found.name, "bold"), told)
    yield _ratios(comparison.pairs)
    yield from _extremes(comparison.pairs)
    for pair in comparison.pairs:
        if pair.ratios is None:
            yield Text(f"Note: {pair.operator} {pair.precision}: {pair.why}", style="yellow")
    for letter, names in (("A", comparison.only_first), ("B", comparison.only_second)):
        if names:
            yield Text(f"Only in {letter}: {', '.join(names)}")
    for pair in comparison.pairs:
        yield _side_by_side(pair)


def _ratios(pairs: list[Pair]) -> Table:
    table = Table(title="Time of B over time of A", title_justify="left", expand=True)
    table.add_column("operator, precision", ratio=1, overflow="fold")
    for name in ("shapes", "median", "p10", "p90", "most", "error A", "error B"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in pairs:
        errors = (share(pair.first.holdout.median), share(pair.second.holdout.median))
        ratios = pair.ratios
        numbers: tuple[str, ...] = ("-",) * 5
        if ratios is not None:
            found = (ratios.median, ratios.p10, ratios.p90, ratios.extreme)
            numbers = (f"{ratios.shapes:,}", *(ratio(value) for value in found))
        table.add_row(f"{pair.operator} {pair.precision}", *numbers, *errors)
    return table


def _extremes(pairs: list[Pair]) -> Iterator[Text]:
    """Where each operator differs most, if anywhere."""
    for pair in pairs:
        if pair.ratios is not None and abs(pair.ratios.extreme - 1) >= LEAST:
            name = f"{pair.operator} {pair.precision}"
            yield Text(f"{name}: {ratio(pair.ratios.extreme)} at {pair.ratios.at}", style="dim")


def _side_by_side(pair: Pair) -> Table:
    table = Table(
        title=f"Parameters: {pair.operator} {pair.precision}", title_justify="left", expand=True
    )
    for name in ("parameter", "A", "B", "B / A"):
        table.add_column(name, justify="left" if name == "parameter" else "right", overflow="fold")
    for name in dict.fromkeys([*pair.first.parameters, *pair.second.parameters]):
        one, other = (_value(fit, name) for fit in (pair.first, pair.second))
        over = "-" if not one or other is None else f"{other / one:.3g}"
        table.add_row(name, *("-" if v is None else f"{v:.4g}" for v in (one, other)), over)
    return table


def _value(fit: KernelFit, name: str) -> float | None:
    return fit.parameters.get(name)


def ratio(value: float) -> str:
    """A ratio of times with three digits.

    >>> ratio(1.0), ratio(1.998), ratio(12.34)
    ('1.00', '2.00', '12.3')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.3g}"


def share(value: float, *, signed: bool = False) -> str:
    """An error as a percentage; very large ones as a multiple.

    >>> share(0.0391), share(-0.002, signed=True), share(2.31)
    ('3.9%', '-0.2%', '231%')
    """
    digits = 0 if abs(value) >= 1 else 1
    return f"{value:+.{digits}%}" if signed else f"{value:.{digits}%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else f"{value:.3g}"
