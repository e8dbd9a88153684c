"""Lays out the answer of ``infersim ablate``: what techniques bring together and alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.findings import Cell, Column, Drawing, Drawings, Findings, Heading, Headline, Lines, Table
from sim.metrics.states import State
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import (
    CHANGES,
    HEADS,
    Document,
    answered,
    failures,
    text,
    value,
    value_text,
)
from sim.planning.answers.drawings import BarChart, ChartAxis, ChartBar
from sim.units import milliseconds, number

Figure = Mapping[str, Any]

ORDER = ("capacity", "output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms")
"""The capacity first: it is what techniques bring where the traffic sets the throughput."""

WORDS: Mapping[str, str] = {"capacity": "the capacity", "output_throughput": "the throughput"}

SAME = 1e-3
"""A ratio this near 1, or a part of the whole this small, is no change."""


def figures(document: Document) -> list[Figure]:
    """The metrics, the one that says most first; those that no set has come last."""
    found = {figure["key"]: figure for figure in document["figures"]}
    order = [found[key] for key in ORDER if key in found]
    return sorted(order, key=lambda figure: figure["full"] is None)


def headline(document: Document) -> str:
    """The gain of all techniques together: capacity or throughput, and the TTFT p99."""
    found = {figure["key"]: figure for figure in document["figures"]}
    main = next((key for key in ORDER[:2] if found[key]["factor"] is not None), None)
    if main is None:
        return "Not comparable with the naive baseline."
    text = f"{number(found[main]['factor'])}x {WORDS[main]} of the naive baseline"
    sets = sorted(document["subsets"], key=lambda row: len(row["with"]))
    if sets and not sets[0]["with"] and sets[0]["state"] == State.OVERLOADED:  # the baseline
        both = sets[-1]["state"] == State.OVERLOADED
        text += f", {'and both are' if both else 'which is'} overloaded by this traffic"
    before, after = (found["p99_ttft_ms"][key] for key in ("baseline", "full"))
    if before is None or after is None:
        return f"{text}."
    return f"{text}; TTFT p99 is {milliseconds(after)} instead of {milliseconds(before)}."


def kind(figure: Figure) -> str:
    """Whether its parts are factors or, where one has none, differences."""
    has = all(part["factor"] is not None for part in figure["parts"])
    return "factor" if has else "difference"


def adds_up(figure: Figure) -> bool:
    """Whether its parts are differences that add up to the whole."""
    known = [part["difference"] is not None for part in figure["parts"]]
    return kind(figure) == "difference" and all(known)


def part_text(figure: Figure, part: Mapping[str, Any]) -> str:
    """The effect of a technique on a metric: a factor, or a difference with its sign."""
    of = kind(figure)
    value = part[of]
    if value is None:
        return "-"
    if of == "factor":
        return factor_text(value)
    whole = figure["difference"]
    if value == 0 or (whole and abs(value / whole) < SAME):
        return "no change"
    return f"{'-' if value < 0 else '+'}{value_text(figure['key'], abs(value))}"


def factor_text(ratio: float) -> str:
    """A factor in the form of a multiplication, whatever it is of.

    >>> factor_text(0.18), factor_text(15.7), factor_text(1.0002)
    ('x 0.18', 'x 15.7', 'no change')
    """
    return "no change" if abs(ratio - 1) <= SAME else f"x {number(ratio)}"


def findings(document: Document) -> Findings:
    """The gain from all techniques together, and from each."""
    traffic = "all at once" if document["saturated"] else "as the scenario has it"
    of_what = document["baseline"]["text"]
    baseline = f"The baseline: {of_what}. {document['orders']['text']}"
    reasons = [(", ".join(e["with"]) or "the baseline", e["why"]) for e in document["infeasible"]]
    return answered(
        document,
        "ablation",
        Headline("neutral", headline(document), baseline, f"The baseline: {of_what}."),
        (
            Heading("summary", "Summary"),
            Heading("figures", "Waterfalls", (Drawings(tuple(_waterfalls(document))),)),
            Heading(
                "numbers",
                "Numbers",
                (
                    *(_steps(document), _parts(document), _subsets(document)),
                    Lines(tuple(document["notes"]), "warn"),
                ),
            ),
            *failures("What does not run", reasons),
        ),
        (
            ("Setup", document["setup"]),
            ("Techniques", str(len(document["techniques"]))),
            ("Traffic", traffic),
        ),
    )


def _waterfalls(document: Document) -> Iterator[Drawing]:
    for figure in figures(document):
        if not (figure["full"] or figure["baseline"]):
            continue
        note = "In the order asked for; what a technique brings depends on those before it."
        gone = [step["title"] for step in figure["steps"] if step["value"] is None]
        if gone:
            note += f" Left out, as it has no such figure: {', '.join(gone)}."
        metric = METRIC[figure["key"]]
        name = f"waterfall-{metric.key}"
        yield Drawing(name, metric.head, metric.definition, note, waterfall(document, metric.key))


def waterfall(document: Document, key: str) -> BarChart:
    """The metric ``key`` without any technique, with each one more in the order asked for, and with
    all of them. A step that does not run is left out: the next one counts from before it."""
    figure = next(each for each in document["figures"] if each["key"] == key)
    title, unit, at = METRIC[key].head, figure["unit"], figure["baseline"]
    bars = [] if at is None else [_whole(key, "baseline", at, "")]
    for step in figure["steps"]:
        value = step["value"]
        if value is not None and at is not None:
            tone = "good" if (value >= at) == figure["more"] else "bad"
            name, reached = f"+ {step['title']}", value_text(key, value)
            low, high = sorted((at, value))
            words = _step_words(key, at, value)
            bars.append(ChartBar(name, high, f"{name}: {reached}", words, tone, start=low))
            at = value
    if figure["full"] is not None:
        bars.append(_whole(key, "all together", figure["full"], "all"))
    if unit == "ms":
        return BarChart(ChartAxis(title, "ms"), tuple(bars))
    return BarChart(ChartAxis(title if unit in title else f"{title} ({unit})"), tuple(bars))


def _whole(key: str, name: str, value: float, tone: str) -> ChartBar:
    shown = value_text(key, value)
    return ChartBar(name, value, f"{name}: {shown}", shown, tone)


def _step_words(key: str, before: float, after: float) -> str:
    change = after - before
    if abs(change) <= SAME * max(abs(before), abs(after)):
        return "no change"
    return f"{'+' if change >= 0 else '−'}{value_text(key, abs(change))}"


def _columns(document: Document, first: str) -> tuple[Column, ...]:
    return (Column(first, False), *(HEADS[figure["key"]] for figure in figures(document)))


def _steps(document: Document) -> Table:
    found = figures(document)
    rows = [(text("baseline"), *(value(f["key"], f["baseline"]) for f in found))]
    for index, step in enumerate(found[0]["steps"]):
        reached = (value(f["key"], f["steps"][index]["value"]) for f in found)
        rows.append((text(f"+ {step['title']}"), *reached))
    columns = (
        column._replace(in_brief=column != HEADS["request_goodput"])
        for column in _columns(document, "Configuration")
    )
    return Table("steps", "Added one after the other", tuple(columns), tuple(rows))


def _parts(document: Document) -> Table:
    found = figures(document)
    rows = [
        (text(part["title"]), *(_part(f, f["parts"][index]) for f in found))
        for index, part in enumerate(found[0]["parts"])
    ]
    rows.append((text("all together"), *(_part(f, f) for f in found)))
    caption = "What each brings, whatever the order: factors, whose product is the whole"
    if any(map(adds_up, found)):
        caption += ", or differences (+, -), which add up to it"
    plain = (CHANGES[figure["key"]]._replace(unit="") for figure in found)
    columns = (Column("Technique", False), *plain)
    return Table("parts", caption, columns, tuple(rows), ruled=(len(rows) - 2,))


def _part(figure: Mapping[str, Any], part: Mapping[str, Any]) -> Cell:
    return Cell(part_text(figure, part), part[kind(figure)])


def _subsets(document: Document) -> Table:
    rows = tuple(
        (
            text(", ".join(row["with"]) or "baseline"),
            text(row["state"]),
            *(value(f["key"], row["figures"][f["key"]]) for f in figures(document)),
        )
        for row in document["subsets"]
    )
    first, *columns = _columns(document, "With")
    columns = [first, Column("State", False), *columns]
    caption = "Every set that was simulated"
    return Table("subsets", caption, tuple(columns), rows, on_terminal=False)
