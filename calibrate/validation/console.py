"""Renders a validation as tables and sentences for a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calibrate.validation.engine_fit import NOTHING_IN_FRONT, EngineFit
from calibrate.validation.figures import HEADLINES
from calibrate.validation.wording import metric_name
from sim.units import show_time

_BAND = {
    True: Text("yes"),
    False: Text("no <", style="yellow"),
    None: Text("-"),
}
_CONFIDENCE_STYLES = {"certain": "green", "high": "green", "medium": "yellow", "low": "red"}


def validation_view(document: Mapping[str, Any]) -> Group:
    """A validation as ``calibrate.validation.document`` describes it."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    seen, asked = document["observed"], document["predicted"]
    yield Text.assemble(
        (seen["name"], "bold"),
        f"  {seen['engine']} on {seen['device']}, {seen['requests']:,} requests",
    )
    yield Text(f"Predicted: {asked['model']} on {asked['gpu']}, engine {asked['engine']}")
    yield Text(f"{document['headline']}.", style="bold")
    sample = document["sample"]
    style = "bold red" if sample["state"] == "in sample" else "dim"
    yield Text(sample["text"], style=style)
    yield _figures(document)
    yield Text(_legend(document), style="dim")
    if document["iterations"] is not None:
        yield _regimes(document["iterations"])
        yield Text(_busy(document["iterations"]), style="dim")
    yield from _composition(document["composition"])
    yield from _advice(document["advice"])
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")
    yield Text(f"Kernel timings: {asked['provenance']}", style="dim")


def _figures(document: Mapping[str, Any]) -> Table:
    table = Table(title="Observed and predicted", title_justify="left", expand=True)
    table.add_column("", ratio=1, no_wrap=True)
    noise = any(row["noise"] is not None for row in document["figures"])
    for name in ("observed", "predicted", "error", *(["noise"] if noise else []), "in band"):
        table.add_column(name, justify="right", no_wrap=True)
    last = ""
    for row in document["figures"]:
        group = row["figure"].split("_")[-2] if row["unit"] == "ms" else "totals"
        if last and group != last:
            table.add_section()
        last = group
        table.add_row(
            metric_name(row["figure"]),
            _value(row["observed"], row["unit"]),
            _value(row["predicted"], row["unit"]),
            signed(row["error"]),
            *([_noise(row["noise"])] if noise else []),
            _BAND[row["within_band"]],
            style="bold" if row["figure"] in HEADLINES else "",
        )
    return table


def _noise(value: float | None) -> str:
    return "-" if value is None else f"± {value:.1%}"


def _value(value: float, unit: str) -> str:
    if unit == "ms":
        return show_time(value / 1e3)
    if unit == "s":
        return show_time(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def signed(error: float) -> str:
    """An error with its sign.

    >>> signed(0.0512), signed(-0.2), signed(12.3)
    ('+5.1%', '-20.0%', '+1,230%')
    """
    return f"{error:+,.0%}" if abs(error) >= 9.995 else f"{error:+.1%}"


def _legend(document: Mapping[str, Any]) -> str:
    """The meaning of the last columns of the table of metrics."""
    band = document["band"]["throughput"]
    told = "The prediction has no error band."
    if band is not None:
        told = (
            "in band: whether the observed value lies in the 90 % band of the predicted one; where "
            f"a figure has none, within ± {band:.0%}, by which iterations may be off."
        )
    if document["repeats"]:
        told += " noise: relative standard deviation of repeated observations."
    return told


def _regimes(iterations: Mapping[str, Any]) -> Table:
    table = Table(
        title="Observed iterations, predicted as they were composed",
        title_justify="left",
        expand=True,
    )
    table.add_column("", ratio=1, no_wrap=True)
    for name in ("count", "time", "observed", "predicted", "error", "typical"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in iterations["regimes"]:
        table.add_row(row["name"], *_regime_cells(row))
    table.add_section()
    table.add_row("all", *_regime_cells(iterations["all"]), style="bold")
    return table


def _regime_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['iterations']:,}",
        f"{row['share']:.0%}",
        show_time(row["observed"]),
        show_time(row["predicted"]),
        signed(row["error"]),
        f"{row['typical']:.1%}",
    )


def _busy(iterations: Mapping[str, Any]) -> str:
    whole = iterations["all"]
    text = (
        f"Busy {show_time(whole['busy_observed'])}, predicted "
        f"{show_time(whole['busy_predicted'])}. observed, predicted: medians; error: of their sum; "
        "typical: of one iteration."
    )
    if iterations["busy_noise"] is not None:
        text += f" Repetitions differ by ± {iterations['busy_noise']:.1%} in busy time."
    if iterations["scatter"] is not None:
        text += f" Neighbours of equal size differ by {iterations['scatter']:.1%}."
    return text


def _composition(composition: Mapping[str, Any]) -> Iterator[RenderableType]:
    if all(level["observed"] is None for level in composition["levels"]):
        yield Text("Batches and memory: not in the record.", style="dim")
        return
    table = Table(title="Batches and memory", title_justify="left", expand=True)
    table.add_column("", ratio=1)
    for name in ("observed", "predicted"):
        table.add_column(name, justify="right")
    for level in composition["levels"]:
        kind = level["kind"]
        table.add_row(
            level["name"], _level(level["observed"], kind), _level(level["predicted"], kind)
        )
    yield table
    if composition["text"]:
        yield Text(composition["text"])


def _level(value: float | None, kind: str) -> str:
    if value is None:
        return "-"
    if kind == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}" if kind == "count" else f"{value:.2f}"


def _advice(advice: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text("What to change", style="bold")
    if advice["text"]:
        yield Text(advice["text"])
    for number, change in enumerate(advice["changes"], 1):
        told = Text.assemble(
            f"{number}. ",
            (change["title"], "bold"),
            f"  {change['share_text']}, confidence ",
            (change["confidence"], _CONFIDENCE_STYLES[change["confidence"]]),
        )
        yield told
        yield Padding(Text(change["text"]), (0, 0, 0, 3))
    if advice["summary"]:
        yield Text(advice["summary"], style="dim")


def next_steps(correction: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The corrected engine file and the commands that use it; each command stays in one line, so
    that it can be pasted."""
    if correction["engine"] is not None:
        yield Text(f"Corrected engine: {correction['engine']}")
    elif correction["unwritten"]:
        yield Text(f"To write a corrected engine file: {correction['unwritten']}")
    if correction["commands"]:
        yield Text("Check the correction, then plan with it:")
    for command in correction["commands"]:
        yield Text(f"  {command}")
    if correction["text"]:
        yield Text(correction["text"], style="dim")


def fit_view(fit: EngineFit) -> Group:
    """The terms of a fitted engine, and how well they predict the runs."""
    return Group(*_fit_parts(fit))


def _fit_parts(fit: EngineFit) -> Iterator[RenderableType]:
    table = Table(title=f"Fitted from {fit.base.name}", title_justify="left", expand=True)
    table.add_column("", no_wrap=True)
    for name in ("preset", "fitted", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for term in (*fit.terms, fit.front_end):
        before = show_time(getattr(fit.base, term.name))
        between = f"{show_time(term.low)} to {show_time(term.high)}"
        kept = term.why if term.why == NOTHING_IN_FRONT else f"kept: {term.why}"
        told = kept if term.why else between
        table.add_row(term.name, before, show_time(term.value), told)
    for term in fit.factors:
        told = f"kept: {term.why}" if term.why else f"{term.low:.2f} to {term.high:.2f}"
        before = f"x {getattr(fit.base.factors, term.name):.2f}"
        table.add_row(f"{term.name} kernels", before, f"x {term.value:.2f}", told)
    yield table
    table = Table(title="Iterations, IN SAMPLE", title_justify="left", expand=True)
    table.add_column("", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in ("iterations", "busy before", "busy after", "typical before", "typical after"):
        table.add_column(name, justify="right", no_wrap=True)
    for preset, fitted in zip(fit.before, fit.after, strict=True):
        errors = (signed(preset.error), signed(fitted.error))
        typical = (f"{preset.typical:.1%}", f"{fitted.typical:.1%}")
        table.add_row(fitted.run, f"{fitted.iterations:,}", *errors, *typical)
    yield table
    yield Text(
        f"On stretches of the runs that the fit had not seen, an iteration is off by "
        f"{fit.held_out:.1%} (median). Judge the engine on runs that it was not fitted to.",
        style="dim",
    )
    if fit.short > MANY:
        yield Text(
            f"Note: {fit.short:.0%} of the iterations took less than is predicted for their "
            "kernels alone: the host's times come out too small. Calibrate the device first.",
            style="yellow",
        )


MANY = 0.2
"""Share of iterations shorter than their kernels from which on their timings are in doubt."""
