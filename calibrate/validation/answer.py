"""Lays out a validation, and an engine fitted to runs, as tables and sentences of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from calibrate.validation.engine_fit import NOTHING_IN_FRONT, EngineFit
from calibrate.validation.figures import HEADLINES
from calibrate.validation.wording import metric_name
from sim.findings import Lines, Part, Table, TonedLine
from sim.planning.answers.cells import Document, framed, text, toned
from sim.planning.answers.validated import ErrorRow, LevelRow, RegimeRow, rows_of
from sim.units import counted, show_time

_BAND = {
    True: text("yes"),
    False: text("no <")._replace(tone="warn"),
    None: text("-"),
}
_CONFIDENCE = {"certain": "good", "high": "good", "medium": "warn", "low": "bad"}


def parts(document: Document) -> Iterator[Part]:
    """A validation as ``calibrate.validation.document`` describes it."""
    seen, asked = document["observed"], document["predicted"]
    setup = f"  {seen['engine']} on {seen['device']}, {counted(seen['requests'])} requests"
    yield TonedLine(((seen["name"], "strong"), (setup, "")))
    yield Lines((f"Predicted: {asked['model']} on {asked['gpu']}, engine {asked['engine']}",), "")
    yield Lines((f"{document['headline']}.",), "strong")
    sample = document["sample"]
    yield Lines((sample["text"],), "alarm" if sample["state"] == "in sample" else "none")
    rows = rows_of(document)
    yield _figures(rows.errors)
    yield Lines((_legend(document),))
    if rows.whole is not None:
        yield _regimes(rows.regimes, rows.whole)
        yield Lines((_busy(document["iterations"], rows.whole),))
    yield from _composition(rows.levels, document["composition"]["text"])
    yield from _advice(document["advice"])
    yield Lines(tuple(f"Note: {note}" for note in document["notes"]), "warn")
    yield Lines((f"Kernel timings: {asked['provenance']}",))


def _figures(found: Sequence[ErrorRow]) -> Table:
    noise = any(row.noise is not None for row in found)
    rows = []
    for row in found:
        cells = (
            metric_name(row.figure),
            *(_value(value, row.unit) for value in (row.observed, row.predicted)),
            signed(row.error),
            *([_noise(row.noise)] if noise else []),
        )
        strong, band = "strong" if row.figure in HEADLINES else "", _BAND[row.within_band]
        rows.append((*toned(cells, strong), band._replace(tone=band.tone or strong)))
    groups = [row.figure.split("_")[-2] if row.unit == "ms" else "totals" for row in found]
    ruled = tuple(at for at, pair in enumerate(pairwise(groups)) if pair[0] != pair[1])
    heads = ("", "observed", "predicted", "error", *(["noise"] if noise else []), "in band")
    return framed("Observed and predicted", heads, rows, room=1, whole=True, ruled=ruled)


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


def _regimes(regimes: Sequence[RegimeRow], whole: RegimeRow) -> Table:
    rows = [toned((row.name, *_regime_cells(row)), "") for row in regimes]
    ruled = (len(rows) - 1,)
    rows.append(toned(("all", *_regime_cells(whole)), "strong"))
    caption = "Observed iterations, predicted as they were composed"
    heads = ("", "count", "time", "observed", "predicted", "error", "typical")
    return framed(caption, heads, rows, room=1, whole=True, ruled=ruled)


def _regime_cells(row: RegimeRow) -> tuple[str, ...]:
    return (
        f"{row.iterations:,}",
        f"{row.share:.0%}",
        *map(show_time, (row.observed, row.predicted)),
        signed(row.error),
        f"{row.typical:.1%}",
    )


def _busy(iterations: Mapping[str, Any], whole: RegimeRow) -> str:
    text = (
        f"Busy {show_time(whole.busy_observed)}, predicted "
        f"{show_time(whole.busy_predicted)}. observed, predicted: medians; error: of their sum; "
        "typical: of one iteration."
    )
    if iterations["busy_noise"] is not None:
        text += f" Repetitions differ by ± {iterations['busy_noise']:.1%} in busy time."
    if iterations["scatter"] is not None:
        text += f" Neighbours of equal size differ by {iterations['scatter']:.1%}."
    return text


def _composition(levels: Sequence[LevelRow], text: str) -> Iterator[Part]:
    if not levels:
        yield Lines(("Batches and memory: not in the record.",))
        return
    rows = [
        (level.name, *(_level(value, level.kind) for value in (level.observed, level.predicted)))
        for level in levels
    ]
    yield framed("Batches and memory", ("", "observed", "predicted"), rows, room=1)
    if text:
        yield Lines((text,), "")


def _level(value: float | None, kind: str) -> str:
    if value is None:
        return "-"
    if kind == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}" if kind == "count" else f"{value:.2f}"


def _advice(advice: Mapping[str, Any]) -> Iterator[Part]:
    yield Lines(("What to change",), "strong")
    if advice["text"]:
        yield Lines((advice["text"],), "")
    for number, change in enumerate(advice["changes"], 1):
        title, sure = (change["title"], "strong"), change["confidence"]
        share = (f"  {change['share_text']}, confidence ", "")
        yield TonedLine(((f"{number}. ", ""), title, share, (sure, _CONFIDENCE[sure])))
        yield Lines((change["text"],), "", indent=3)
    if advice["summary"]:
        yield Lines((advice["summary"],))


def next_steps(correction: Mapping[str, Any]) -> Iterator[Part]:
    """The corrected engine file and the commands that use it; each command stays in one line, so
    that it can be pasted."""
    if correction["engine"] is not None:
        named = "Engine with this run" if correction["confirmed"] else "Corrected engine"
        yield Lines((f"{named}: {correction['engine']}",), "")
    elif correction["unwritten"]:
        yield Lines((f"To write a corrected engine file: {correction['unwritten']}",), "")
    if correction["commands"]:
        told = "Plan" if correction["confirmed"] else "Check the correction, then plan"
        yield Lines((f"{told} with it:",), "")
    yield Lines(tuple(f"  {command}" for command in correction["commands"]), "")
    if correction["text"]:
        yield Lines((correction["text"],))


def fitted(fit: EngineFit) -> Iterator[Part]:
    """The terms of a fitted engine, and how well they predict the runs."""
    rows: list[tuple[str, ...]] = []
    for term in (*fit.terms, fit.front_end):
        before = show_time(getattr(fit.base, term.name))
        between = f"{show_time(term.low)} to {show_time(term.high)}"
        kept = term.why if term.why == NOTHING_IN_FRONT else f"kept: {term.why}"
        told = kept if term.why else between
        rows.append((term.name, before, show_time(term.value), told))
    for term in fit.factors:
        told = f"kept: {term.why}" if term.why else f"{term.low:.2f} to {term.high:.2f}"
        before = f"x {getattr(fit.base.factors, term.name):.2f}"
        rows.append((f"{term.name} kernels", before, f"x {term.value:.2f}", told))
    caption = f"Fitted from {fit.base.name}"
    yield framed(caption, ("", "preset", "fitted", "95 %"), rows, whole=True)
    rows = [
        (
            after.run,
            f"{after.iterations:,}",
            *(signed(each.error) for each in (before, after)),
            *(f"{each.typical:.1%}" for each in (before, after)),
        )
        for before, after in zip(fit.before, fit.after, strict=True)
    ]
    heads = ("", "iterations", "busy before", "busy after", "typical before", "typical after")
    yield framed("Iterations, IN SAMPLE", heads, rows, room=1, whole=True)
    yield Lines(
        (
            f"On stretches of the runs that the fit had not seen, an iteration is off by "
            f"{fit.held_out:.1%} (median). Judge the engine on runs that it was not fitted to.",
        )
    )
    if fit.short > MANY:
        told = (
            f"Note: {fit.short:.0%} of the iterations took less than is predicted for their "
            "kernels alone: the host's times come out too small. Calibrate the device first."
        )
        yield Lines((told,), "warn")


MANY = 0.2
"""Share of iterations shorter than their kernels from which on their timings are in doubt."""
