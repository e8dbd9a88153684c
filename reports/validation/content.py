"""What stands in each section of the page of a validation, as plain data for the template?"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any, NamedTuple

import numpy as np

from reports.content import Card, Plot, to_json
from reports.figures.latency_cdf import TITLES, sample
from reports.formats import phrase
from reports.validation import Frames, distributions, iterations, timelines
from reports.validation.distributions import Sample

GOOD, FAIR = 0.10, 0.25
"""Errors up to which a prediction is called good, and up to which fair."""

JUDGED: Mapping[str, str] = {
    "mean_ttft_ms": "Mean TTFT",
    "mean_tpot_ms": "Mean TPOT",
    "mean_e2el_ms": "Mean E2EL",
    "output_throughput": "Output throughput",
}


class Headline(NamedTuple):
    """The page in a sentence; ``tone`` colours it."""

    tone: str
    title: str
    text: str


def headline(document: Mapping[str, Any]) -> Headline:
    """How far off the worst of the main figures is."""
    rows = {row["figure"]: row for row in document["figures"] if row["figure"] in JUDGED}
    if not rows:
        return Headline("neutral", "Nothing that was observed can be compared", "")
    worst = max(rows.values(), key=lambda row: abs(log(row["predicted"] / row["observed"])))
    told = ", ".join(f"{JUDGED[key]} {signed(row['error'])}" for key, row in rows.items())
    title = f"{JUDGED[worst['figure']]} is predicted {_side(worst['error'])}"
    return Headline(tone(worst["error"]), title, f"{told}. {document['sample']['text']}")


def _side(error: float) -> str:
    size = phrase(round(abs(error), 3), "share")
    return "exactly" if not error else f"{size} too {'high' if error > 0 else 'low'}"


def tone(error: float) -> str:
    """How good an error is."""
    size = abs(error)
    return "good" if size <= GOOD else "warn" if size <= FAIR else "bad"


def signed(error: float) -> str:
    """An error in percent with its sign."""
    return f"{'+' if error >= 0 else '-'}{phrase(round(abs(error), 3), 'share')}"


def cards(document: Mapping[str, Any]) -> list[Card]:
    """The errors that most readers look for."""
    found = []
    for row in document["figures"]:
        if row["figure"] not in JUDGED:
            continue
        details = [
            f"observed {phrase(row['observed'], 'number', row['unit'])}",
            f"predicted {phrase(row['predicted'], 'number', row['unit'])}",
        ]
        if row["within_band"] is not None:
            details.append(f"{'inside' if row['within_band'] else 'outside'} the error band")
        error = row["error"]
        name = JUDGED[row["figure"]]
        found.append(Card("error", name, signed(error), "error", tuple(details), tone(error)))
    if document["iterations"] is not None:
        whole = document["iterations"]["all"]
        details = [f"typical iteration {phrase(round(whole['typical'], 3), 'share')}"]
        error = whole["error"]
        card = Card("priced", "Busy time", signed(error), "of the same batches", tuple(details))
        found.append(card._replace(tone=tone(error)))
    agreed = document["composition"]["agreement"]
    if agreed is not None:
        same = f"{agreed['same']:,} of {agreed['observed']:,}"
        share = phrase(round(agreed["share"], 3), "share")
        found.append(Card("composition", "Same batches", share, "from the start", (same,)))
    return found


def plots(
    document: Mapping[str, Any], observed: Frames, predicted: Frames, series: Mapping[str, Any]
) -> dict[str, list[Plot]]:
    """Section -> its figures; a section without any has an empty list."""
    kv = document["composition"]["kv_tokens"]
    timeline = to_json(timelines.figure(observed, predicted, kv))
    note = "Tokens per second are means over equal bins; long series are thinned for the screen."
    if not len(observed.timeseries):
        note = f"Nobody noted when what ran: only the prediction is drawn. {note}"
    return {
        "latency": _latencies(observed, predicted, series),
        "timeline": [
            Plot("timelines", "Both runs over time", None, note, timeline, kind="timeline")
        ],
        "iterations": _iterations(series["iterations"]),
    }


def _latencies(observed: Frames, predicted: Frames, series: Mapping[str, Any]) -> list[Plot]:
    found = []
    for name in ("ttft", "tpot", "e2el"):
        sides = [Sample(_column(frames, name)) for frames in (observed, predicted)]
        found.append(_cdf(name, TITLES[name], *sides))
    gaps = [_weighted(series["itl"][side]) for side in ("observed", "predicted")]
    found.insert(2, _cdf("itl", "ITL", *gaps))
    return found


def _column(frames: Frames, name: str) -> Any:
    known = f"{name}_s" in frames.requests
    return sample(frames.requests, name) if known else np.zeros(0)


def _weighted(columns: Mapping[str, Any] | None) -> Sample:
    if columns is None:
        return Sample(np.zeros(0))
    return Sample(np.asarray(columns["values"]), np.asarray(columns["weights"]))


def _cdf(name: str, title: str, observed: Sample, predicted: Sample) -> Plot:
    if not len(observed) and not len(predicted):
        note = f"No completed request has a {title}, so there is nothing to draw."
        return Plot(f"cdf-{name}", title, name, note, None)
    drawn = distributions.figure(title, observed, predicted)
    is_log = drawn.layout.xaxis.type == "log"
    counts = f"{_count(observed)} observed, {_count(predicted)} predicted"
    return Plot(f"cdf-{name}", title, name, counts, to_json(drawn), is_log)


def _count(values: Sample) -> str:
    return phrase(float(values.weights.sum()), "count", "values")


def _iterations(columns: Mapping[str, Any] | None) -> list[Plot]:
    if columns is None or not iterations.by_regime(columns):
        return []
    count = phrase(len(columns["observed"]), "count", "iterations")
    note = f"{count}; dotted: {phrase(iterations.AWAY - 1, 'share')} away."
    return [
        Plot(
            *("against", "Predicted against observed", "priced", note),
            to_json(iterations.against(columns)),
            kind="tall",
        ),
        Plot(
            *("over-time", "Price over observed duration", "priced"),
            "Below 1 an iteration took longer than it is priced at.",
            to_json(iterations.over_time(columns)),
            kind="tall",
        ),
    ]
