"""Provides the page of a validation: an observed run and its prediction side by side.

It takes what ``infersim validate-run`` has gathered: a mapping of texts, numbers and lists, the
tables of both runs, and series for the figures. Times in seconds unless a key says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports.figures import validated
from reports.figures.latency_cdf import TITLES, sample
from reports.figures.validated import LatencySample
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase, show
from reports.frame.page import fill, foot
from reports.frame.run_directory import Frames
from reports.pages.validation import tables
from sim.findings import Card, Headline
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.metric import Definition
from sim.planning.answers.validated import ErrorRow, ValidatedRows, rows_of
from sim.units import counted

DEFINITIONS: Mapping[str, Definition] = {
    "error": Definition(
        "Error", "Predicted over observed, minus one: above 0 the prediction is too large."
    ),
    "noise": Definition(
        "Noise",
        "Relative standard deviation of the same metric over repeated observations of the same "
        "traffic: no prediction can do better. Known only where the run was repeated.",
    ),
    "band": Definition(
        "In band",
        "Whether the observed value lies within the error band that the prediction gave around its "
        "own value, before anything was observed.",
    ),
    **{name: OF_RUNS[name] for name in ("ttft", "tpot", "itl", "e2el")},
    "regime": Definition(
        "Regime", "A kind of iteration: decodes of a certain batch size, prompts, or both."
    ),
    "predicted": Definition(
        "Predicted as composed",
        "The cost model predicts each observed iteration from the sequences, contexts and prompt "
        "tokens that were actually in it. These errors are therefore the cost model's alone, and "
        "do not depend on whether the simulator would have formed the same batches.",
    ),
    "typical": Definition(
        "Typical error", "Median of the errors of single iterations, without their sign."
    ),
    "composition": Definition(
        "Same batches",
        "Share of the iterations that agree from the start in decoding sequences, context, prompts "
        "and prompt tokens. Where all requests come at once it should be all of them; where "
        "arrivals meet iterations of other lengths, the two sequences part sooner or later.",
    ),
    "share": Definition(
        "Share of the error",
        "Every change is tried by simulating the run again with it. The share says by how much it "
        "reduces the mean error of all metrics, on top of the changes before it.",
    ),
    "sample": Definition(
        "In sample, held out",
        "Whether the engine's times were fitted to this run. Only errors on held-out runs show "
        "how well another run would be predicted.",
    ),
}
"""Every term that the page links to."""

GOOD, FAIR = 0.10, 0.25
"""Errors up to which a prediction is called good, and up to which fair."""

JUDGED: Mapping[str, str] = {
    **{f"mean_{name}_ms": f"{OF_RUNS[name].title} mean" for name in ("ttft", "tpot", "e2el")},
    "output_throughput": OF_RUNS["output_throughput"].title,
}


def headline(document: Mapping[str, Any], errors: Sequence[ErrorRow]) -> Headline:
    """How many metrics are within the band and which is off most, then the main ones."""
    told = [f"{JUDGED[row.figure]} {signed(row.error)}" for row in errors if row.figure in JUDGED]
    text = f"{', '.join(told)}. {document['sample']['text']}" if told else ""
    return Headline(_tone_of_all(errors), document["headline"], text)


def _tone_of_all(rows: Sequence[ErrorRow]) -> str:
    """Good where most metrics are within the band and none is far off."""
    if not rows:
        return "neutral"
    worst = max((row.error for row in rows), key=abs)
    outside = sum(row.within_band is False for row in rows)
    found = tone(worst)
    return "warn" if found == "good" and 2 * outside > len(rows) else found


def tone(error: float) -> str:
    """How good an error is."""
    size = abs(error)
    return "good" if size <= GOOD else "warn" if size <= FAIR else "bad"


def signed(error: float) -> str:
    """An error in percent with its sign."""
    return f"{'+' if error >= 0 else '-'}{phrase(round(abs(error), 3), 'share')}"


def cards(document: Mapping[str, Any], rows: ValidatedRows) -> list[Card]:
    """The errors that most readers look for."""
    found = []
    for row in rows.errors:
        if row.figure not in JUDGED:
            continue
        details = [
            f"{side} {phrase(value, 'ms')}"
            if row.unit == "ms"
            else f"{side} {phrase(value, 'number', row.unit)}"
            for side, value in (("observed", row.observed), ("predicted", row.predicted))
        ]
        if row.within_band is not None:
            details.append(f"{'within' if row.within_band else 'outside'} the error band")
        name, shown = JUDGED[row.figure], signed(row.error)
        found.append(Card("error", name, shown, "error", tuple(details), tone(row.error)))
    if rows.whole is not None:
        error, typical = rows.whole.error, phrase(round(rows.whole.typical, 3), "share")
        details = [f"typical iteration {typical}"]
        card = Card("predicted", "Busy time", signed(error), "of the same batches", tuple(details))
        found.append(card._replace(tone=tone(error)))
    agreed = document["composition"]["agreement"]
    if agreed is not None:
        same = f"{agreed['same']:,} of {agreed['observed']:,}"
        share = phrase(round(agreed["share"], 3), "share")
        found.append(Card("composition", "Same batches", share, "from the start", (same,)))
    return found


def figures_of(
    document: Mapping[str, Any],
    errors: Sequence[ErrorRow],
    observed: Frames,
    predicted: Frames,
    series: Mapping[str, Any],
) -> dict[str, list[Plot]]:
    """Section -> its figures; a section without any has an empty list."""
    kv = document["composition"]["kv_tokens"]
    note = "Tokens per second are means over equal bins; long series are thinned for the screen."
    drawn = (
        [
            Plot(
                "timelines",
                "Both runs over time",
                None,
                note,
                to_json(validated.timelines(observed, predicted, kv)),
                kind="timeline",
            )
        ]
        if len(observed.timeseries)
        else []
    )
    return {
        "errors": _errors(errors, document["band"]["throughput"]),
        "latency": _latencies(observed, predicted, series),
        "timeline": drawn,
        "iterations": _iterations(series["iterations"]),
    }


def _errors(errors: Sequence[ErrorRow], band: float | None) -> list[Plot]:
    """Every error with the error band, in one figure."""
    if not errors:
        return []
    rows = [(tables.figure_title(row.figure, unit=False)[0], row) for row in errors]
    note = "Above 0 % the prediction is too large. Crosses: outside the 90 % band of the figure. "
    note += "Dashed: the errors that iterations may have."
    drawn = to_json(validated.all_errors(rows, band))
    return [Plot("errors", "Errors of all metrics", "error", note, drawn, kind="own")]


def _latencies(observed: Frames, predicted: Frames, series: Mapping[str, Any]) -> list[Plot]:
    sides = {
        name: [LatencySample(_column(frames, name)) for frames in (observed, predicted)]
        for name in ("ttft", "tpot", "itl", "e2el")
    }
    sides["itl"] = [_weighted(series["itl"][side]) for side in ("observed", "predicted")]
    titles = {**TITLES, "itl": "ITL"}
    return [_cdf(name, titles[name], *both) for name, both in sides.items() if len(both[0])]


def _column(frames: Frames, name: str) -> Any:
    known = f"{name}_s" in frames.requests
    return sample(frames.requests, name) if known else np.zeros(0)


def _weighted(columns: Mapping[str, Any] | None) -> LatencySample:
    if columns is None:
        return LatencySample(np.zeros(0))
    return LatencySample(np.asarray(columns["values"]), np.asarray(columns["weights"]))


def _cdf(name: str, title: str, observed: LatencySample, predicted: LatencySample) -> Plot:
    drawn = validated.latencies(title, observed, predicted)
    is_log = drawn.layout.xaxis.type == "log"
    counts = f"{_count(observed)} observed, {_count(predicted)} predicted"
    return Plot(f"cdf-{name}", title, name, counts, to_json(drawn), is_log)


def _count(values: LatencySample) -> str:
    return phrase(float(values.weights.sum()), "count", "values")


def _iterations(columns: Mapping[str, Any] | None) -> list[Plot]:
    if columns is None or not validated.by_regime(columns):
        return []
    count = phrase(len(columns["observed"]), "count", "iterations")
    note = f"{count}; dotted: {phrase(validated.AWAY - 1, 'share')} away."
    return [
        Plot(
            *("against", "Predicted against observed", "predicted", note),
            to_json(validated.against(columns)),
            kind="tall",
        ),
        Plot(
            *("over-time", "Predicted over observed duration", "predicted"),
            "Below 1 an iteration took longer than predicted.",
            to_json(validated.over_time(columns)),
            kind="tall",
        ),
    ]


def load(requests: Any) -> list[tuple[str, str]]:
    """How much traffic it was: mean rate and mean lengths of the requests that were sent."""
    if len(requests) < 2:
        return []
    arrivals = requests["arrival_s"]
    span = float(arrivals.max() - arrivals.min())
    rate = (
        f"{show((len(requests) - 1) / span, 'number').text} requests/s" if span else "all at once"
    )
    lengths = [
        show(float(requests[name].mean()), "number").text
        for name in ("prompt_tokens", "output_tokens")
    ]
    return [("Load", rate), ("Mean lengths", f"{lengths[0]} in, {lengths[1]} out")]


SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "advice": "What to change",
    "figures": "Metrics",
    "latency": "Latency",
    "timeline": "Timeline",
    "iterations": "Iterations",
    "batches": "Batches and memory",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""


def render_validation(
    document: Mapping[str, Any], observed: Frames, predicted: Frames, series: Mapping[str, Any]
) -> str:
    """The page as HTML; a function of its arguments alone."""
    seen, asked = document["observed"], document["predicted"]
    rows = rows_of(document)
    plots = figures_of(document, rows.errors, observed, predicted, series)
    regimes, levels = tables.regimes(rows), tables.levels(rows.levels)
    known = {
        "timeline": bool(plots["timeline"]),
        "iterations": regimes is not None,
        "batches": levels is not None,
    }
    missing = [SECTIONS[name].lower() for name, there in known.items() if not there]
    return fill(
        "validation.html.j2",
        {name: title for name, title in SECTIONS.items() if known.get(name, True)},
        DEFINITIONS,
        header={
            "name": seen["name"],
            "lead": f"{seen['engine']} on {seen['device']}",
            "setup": [
                ("Requests", counted(seen["requests"])),
                *load(observed.requests),
                ("Observed", seen["date"]),
                ("Predicted with", f"{asked['model']} on {asked['gpu']}"),
                ("Engine", asked["engine"]),
                ("Sample", document["sample"]["state"] or "engine not fitted to runs"),
            ],
        },
        headline=headline(document, rows.errors),
        cards=cards(document, rows),
        advice=document["advice"],
        sample=document["sample"],
        plots=plots,
        missing=missing,
        correction=document.get("correction"),
        tables={"figures": tables.figures(rows.errors), "regimes": regimes, "levels": levels},
        agreement=document["composition"]["text"],
        observed=seen,
        predicted=asked,
        repeats=document["repeats"],
        notes=document["notes"],
        provenance=foot(document["infersim"], document),
    )
