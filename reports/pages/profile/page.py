"""Provides the page of a profile: what is known of a GPU's kernels, and how well.

It takes what ``infersim calibrate report`` has gathered: a mapping of texts, numbers and lists, and
the measured points as columns. Errors are shares, times seconds, work FLOP and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures import kernels
from reports.figures.kernels import Own, by_operator, operator_title
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase
from reports.frame.page import fill, foot
from reports.pages.profile import tables
from reports.pages.profile.tables import is_sample
from sim.findings import Card, Headline
from sim.metrics.terms.metric import Definition

DEFINITIONS: Mapping[str, Definition] = {
    "holdout": Definition(
        "Held-out shapes",
        "Shapes that a fit had not seen when it predicted them. All points of a shape are held out "
        "together, since its neighbours would give the answer away.",
    ),
    "median": Definition(
        "Median error",
        "Half of the points are predicted closer than this: the median of |predicted / measured "
        "- 1|.",
    ),
    "p90": Definition("p90", "Nine of ten points are predicted closer than this."),
    "bias": Definition(
        "Bias",
        "The median of predicted / measured - 1 with its sign: above 0 predictions are too slow. "
        "Errors without bias cancel in the sum over a model's layers, a bias does not.",
    ),
    "fits": Definition(
        "Final fit",
        "The median error of the final fit over all measured points. It has seen them, so it is a "
        "lower bound of the error to expect, not an estimate.",
    ),
    "noise": Definition(
        "Noise",
        "By how much (median) a second timing of the same point differed from the first. No fit "
        "can do better.",
    ),
    "residual": Definition(
        "Residual table",
        "A smooth correction on a coarse grid of shapes, on top of the form. It is used only where "
        "cross-validation over shapes says that it lowers the error.",
    ),
    "regime": Definition("Regime", "A kind of shape, by what limits a kernel there."),
    "range": Definition(
        "Measured ranges",
        "The smallest and largest measured value of each variable. Times outside are predicted, "
        "but marked as not measured and trusted no more than those from a data sheet.",
    ),
    "interval": Definition(
        "Confidence interval",
        "95 %, from the curvature of the error at its minimum. “Given” was not left to the fit; "
        "“not determined” means that every possible value explains the measurements as well.",
    ),
    "ceiling": Definition(
        "Ceiling",
        "What a device can do at most, by its data sheet; of a device without one, the best that "
        "was measured. Parameters that are shares refer to it.",
    ),
    "roofline": Definition(
        "Roofline",
        "Work done per second over work done per byte moved: left of the bend memory limits, right "
        "of it arithmetic. Bytes are what has to move at least once.",
    ),
}
"""Every term that the page links to."""

GOOD, FAIR = 0.10, 0.25
"""Worst median error up to which a profile is called good, and up to which fair."""

MOST_CARDS = 6

USUAL = ("gemm", "decode_attention", "prefill_attention", "all_reduce")
"""Operators of nearly every model: their curves are shown, those of others are folded away."""


def headline(document: Mapping[str, Any]) -> Headline:
    """How well shapes that no fit had seen are predicted, from the best operator to the worst."""
    errors = sorted(document["errors"], key=lambda error: float(error["median"]))
    if not errors:
        return Headline("neutral", "This profile holds no kernels", "")
    best, worst = errors[0], errors[-1]
    tone = "good" if worst["median"] <= GOOD else "warn" if worst["median"] <= FAIR else "bad"
    shares = [_percent(error["median"]) for error in (best, worst)]
    span = shares[0] if shares[0] == shares[1] else f"{shares[0]} to {shares[1]}"
    text = f"Best: {_name(best)}. Worst: {_name(worst)}, p90 {_percent(worst['p90'])}."
    return Headline(tone, f"Median error on held-out shapes: {span}", text)


def _name(error: Mapping[str, Any]) -> str:
    return f"{operator_title(error['operator']).lower()} in {error['precision']}"


def _percent(share: float) -> str:
    return phrase(round(share, 3), "share")


def cards(document: Mapping[str, Any]) -> list[Card]:
    """The error of each operator in its first precision."""
    found: dict[str, Card] = {}
    for error in document["errors"]:
        if error["operator"] in found:
            continue
        details = [f"p90 {_percent(error['p90'])}", phrase(error["points"], "count", "points")]
        if error["noise"] is not None:
            details.append(f"noise {_percent(error['noise'])}")
        value = phrase(round(error["median"], 3), "share")
        label = operator_title(error["operator"])
        found[error["operator"]] = Card(
            "median", label, value, f"median error, {error['precision']}", tuple(details)
        )
    return list(found.values())[:MOST_CARDS]


def figures_of(
    document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]
) -> dict[str, list[Plot]]:
    """Section -> its figures; a section without any has an empty list."""
    owns = by_operator(points)
    return {
        "predicted": [_predicted(own) for own in owns],
        "residuals": [_residuals(own, document) for own in owns],
        "roofline": _rooflines(document, owns),
        "curves": _curves(document["curves"]),
    }


def _predicted(own: Own) -> Plot:
    drawn = to_json(kernels.predicted(own))
    noisy = sum(own.columns["noisy"])
    caption = f"{_count(own)}{f', {noisy:,} of them noisy (hollow)' if noisy else ''}. "
    caption += f"Dotted: {_percent(kernels.AWAY - 1)} away."
    return Plot(
        f"predicted-{own.operator}", operator_title(own.operator), None, caption, drawn, kind="tall"
    )


def _residuals(own: Own, document: Mapping[str, Any]) -> Plot:
    order = document["regimes"].get(own.operator, [])
    drawn = to_json(kernels.residuals(own, order))
    caption = f"{_count(own)}. Above 1 the prediction is too slow."
    return Plot(
        f"residuals-{own.operator}", operator_title(own.operator), None, caption, drawn, kind="tall"
    )


def _count(own: Own) -> str:
    text = phrase(len(own), "count", "point" if len(own) == 1 else "points")
    return text if own.total == len(own) else f"{text} of {own.total:,}"


def _rooflines(document: Mapping[str, Any], owns: Sequence[Own]) -> list[Plot]:
    roofs, lines = document["roofline"], document["curves"]
    what = "Every measured point" if owns else "Lines: the fitted forms at usual shapes"
    what = "Measured points" if is_sample(document) else what
    lines = [line for line in lines if line["operator"] in USUAL] or lines
    found = []
    drawn = kernels.arithmetic(roofs, owns, lines)
    if drawn is not None:
        caption = (
            f"{what}. Dashed: ceilings of the device. Solid: what products reach according to "
            "their fits."
        )
        plot = Plot("roofline", "Arithmetic", "roofline", caption, to_json(drawn), kind="tall")
        found.append(plot)
    drawn = kernels.traffic(roofs, owns, lines)
    if drawn is not None:
        caption = f"{what}. Dashed: ceilings. Caches may lift small tensors above them."
        plot = Plot("traffic", "Moving bytes", None, caption, to_json(drawn), kind="tall")
        found.append(plot)
    return found


def _curves(lines: Sequence[Mapping[str, Any]]) -> list[Plot]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["operator"], line["precision"]), []).append(line)
    found = []
    for (operator, precision), own in groups.items():
        name, heading = f"curve-{operator}-{precision}", f"{operator_title(operator)}, {precision}"
        any_measured = any(line["measured"] for line in own)
        caption = "Lines: the fitted form."
        if any_measured:
            caption = "Lines: the fitted form; circles: measured."
        if common := kernels.shared(own):
            caption = f"{common[0].upper()}{common[1:]}. {caption}"
        drawn = to_json(kernels.fitted(own))
        found.append(Plot(name, heading, None, caption, drawn, kind=operator))
    return found


SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "predicted": "Predicted against measured",
    "errors": "Errors",
    "residuals": "Residuals by regime",
    "roofline": "Roofline",
    "curves": "Curves",
    "parameters": "Parameters",
    "provenance": "Provenance",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page; those without content are left out."""


def _shown_as(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The words for the measurements in the head of the page."""
    measured = document["measurements"]
    if measured is None:
        return "not shipped with the profile"
    if tables.is_sample(document):
        return f"a sample of {len(points['operator']):,} timings"
    return str(measured["file"])


def render_profile(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The page as HTML; a function of its arguments alone."""
    plots, regimes = figures_of(document, points), tables.regimes(document)
    empty = {"predicted": not plots["predicted"]}
    empty["residuals"] = not plots["residuals"] and not regimes.rows
    return fill(
        "profile.html.j2",
        {key: heading for key, heading in SECTIONS.items() if not empty.get(key)},
        DEFINITIONS,
        header={
            "name": document["name"],
            "title": document["title"],
            "source": document["source"],
            "date": document["date"],
        },
        headline=headline(document),
        cards=cards(document),
        plots=plots,
        tables={
            "errors": tables.errors(document),
            "regimes": regimes,
            "ranges": tables.ranges(document),
            "ceilings": tables.ceilings(document),
            "layers": tables.layers(document),
        },
        parameters=[
            tables.parameters(entry, index) for index, entry in enumerate(document["parameters"])
        ],
        measurements=document["measurements"],
        shown_as=_shown_as(document, points),
        usual=USUAL,
        facts=document["facts"],
        notes=document["notes"],
        provenance=foot(document["version"], document),
    )
