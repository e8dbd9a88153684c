"""Builds the tables of a profile's page; errors and shares in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures.kernels import operator_title
from reports.frame.formats import MISSING, show
from sim.findings import Cell, Column, Table
from sim.units import show_number, show_rate, show_time

_STATES = {"given": "given", "open": "not determined"}


def errors(document: Mapping[str, Any]) -> Table:
    """One row for each operator and precision."""
    measured = document["measurements"] is not None and not is_sample(document)
    columns = [Column("Operator", False), Column("Precision", False), *_SCORE]
    if measured:
        columns += [
            Column("Final fit (%)", definition="fits"),
            Column("Noise (%)", definition="noise"),
        ]
    columns += [Column("Residual table", False, "residual"), Column("Kernel", False, prose=True)]
    rows = []
    for error in document["errors"]:
        cells = [*_named(error), *_score(error)]
        if measured:
            own = error["all_points"]
            cells += [_share(own["median"] if own else None), _share(error["noise"])]
        used = "used" if error["residual"] else "not used"
        rows.append((*cells, Cell(used, used), Cell(error["kernel"], error["kernel"])))
    return Table("errors", "Error on held-out shapes", tuple(columns), tuple(rows))


def is_sample(document: Mapping[str, Any]) -> bool:
    """Whether only some of the measurements are at hand, which say nothing of all of them."""
    measured = document["measurements"]
    return measured is not None and bool(measured.get("sampled"))


_SCORE = (
    Column("Points", definition="holdout"),
    Column("Median (%)", definition="median"),
    Column("p90 (%)", definition="p90"),
    Column("Bias (%)", definition="bias"),
)


def regimes(document: Mapping[str, Any]) -> Table:
    """One row for each regime, its median with a bar."""
    scores = [(error, regime) for error in document["errors"] for regime in error["regimes"]]
    largest = max([regime["median"] for _, regime in scores], default=0.0) or 1.0
    rows = []
    for error, regime in scores:
        points, median, *rest = _score(regime)
        name = Cell(regime["name"], regime["name"])
        bar = median._replace(bar=regime["median"] / largest)
        rows.append((*_named(error), name, points, bar, *rest))
    columns = (
        *(Column("Operator", False), Column("Precision", False), Column("Regime", False, "regime")),
        *_SCORE,
    )
    return Table("regimes", "Error on held-out shapes by regime", columns, tuple(rows))


def ranges(document: Mapping[str, Any]) -> Table:
    """The measured ranges of each operator."""
    rows = []
    for error in document["errors"]:
        told = ", ".join(_range(name, *pair) for name, pair in error["ranges"].items())
        rows.append((*_named(error), Cell(told, told)))
    columns = (
        Column("Operator", False),
        Column("Precision", False),
        Column("Ranges", False, "range", prose=True),
    )
    return Table("ranges", "Measured shapes", columns, tuple(rows))


def ceilings(document: Mapping[str, Any]) -> Table:
    """The device's ceilings, and the shares of them that the fits find reached."""
    rows = []
    for ceiling in document["ceilings"]:
        text = show_rate(ceiling["value"], ceiling["unit"])
        source = Cell(ceiling["source"], ceiling["source"])
        rows.append((Cell(ceiling["name"], ceiling["name"]), Cell(text, ceiling["value"]), source))
    for reached in document["roofline"]["reached"]:
        for kind, unit in (("bandwidth", "B/s"), ("compute", "FLOP/s")):
            if (value := reached[kind]) is None:
                continue
            what = "FLOP/s inside large tiles" if kind == "compute" else kind
            name = f"{operator_title(reached['operator'])}, {reached['precision']}: {what}"
            rows.append((Cell(name, name), Cell(show_rate(value, unit), value), Cell("fit", "fit")))
    columns = (
        Column("Ceiling", False, "ceiling"),
        Column("Value"),
        Column("Source", False, prose=True),
    )
    return Table("ceilings", "Ceilings, and what is reached of them", columns, tuple(rows))


def layers(document: Mapping[str, Any]) -> Table | None:
    """Whole layers against the sum of their parts, where they were measured."""
    found = document["measurements"]["layers"] if document["measurements"] is not None else []
    rows = []
    for name, shape, excess in found:
        difference = show(excess, "share")
        rows.append((Cell(name, name), Cell(shape, shape), Cell(*difference)))
    if not rows:
        return None
    columns = (Column("Layer", False), Column("Shape", False), Column("Over its parts (%)"))
    return Table("layers", "Layers against the sum of their parts", columns, tuple(rows))


def parameters(entry: Mapping[str, Any], index: int) -> Table:
    """The parameters of one operator, a column for each precision."""
    precisions: Sequence[str] = entry["precisions"]
    columns = (
        Column("Parameter", False),
        Column("Unit", False),
        *(Column(f"{precision} (95 %)", definition="interval") for precision in precisions),
        Column("Meaning", False, prose=True),
    )
    rows = []
    for row in entry["rows"]:
        timed = row["unit"] == "s"
        values = [_value(row["values"].get(precision), timed=timed) for precision in precisions]
        name = Cell(row["name"], row["name"])
        unit = Cell("time" if timed else row["unit"], row["unit"])
        rows.append((name, unit, *values, Cell(row["meaning"], row["meaning"])))
    return Table(f"parameters-{index}", operator_title(entry["operator"]), columns, tuple(rows))


def _value(value: Mapping[str, Any] | None, *, timed: bool) -> Cell:
    """A parameter with its interval; a time (s) has the unit that suits it in the text."""
    if value is None:
        return Cell(MISSING, None)
    write = show_time if timed else small
    text = write(value["value"])
    if value["state"] in _STATES:
        text += f" ({_STATES[value['state']]})"
    elif value["low"] is not None:
        text += f" ({write(value['low'])} to {write(value['high'])})"
    return Cell(text, value["value"])


def small(value: float) -> str:
    """A parameter with three digits, in powers of ten where it is tiny or huge.

    >>> small(0.8123), small(3.25e-6), small(8388608.0), small(96)
    ('0.812', '3.25e-6', '8.39e6', '96')
    """
    if value and not 1e-3 <= abs(value) < 1e5:
        digits, _, exponent = f"{value:.3g}".partition("e")
        if exponent:
            return f"{digits}e{int(exponent)}"
        power = f"{value:.2e}".partition("e")
        return f"{float(power[0]):g}e{int(power[2])}"
    return show_number(value)


def _named(error: Mapping[str, Any]) -> tuple[Cell, Cell]:
    name = operator_title(error["operator"])
    return Cell(name, name), Cell(error["precision"], error["precision"])


def _score(score: Mapping[str, Any]) -> tuple[Cell, Cell, Cell, Cell]:
    return (
        Cell(*show(score["points"], "count")),
        _share(score["median"]),
        _share(score["p90"]),
        _share(score["bias"], signed=True),
    )


def _share(value: float | None, *, signed: bool = False) -> Cell:
    """Percent with one decimal: more is not known of an error."""
    if value is None:
        return Cell(MISSING, None)
    percent = 100 * value
    text = f"{percent:+,.1f}" if signed else f"{percent:,.1f}"
    return Cell(text, round(percent, 4))


def _range(name: str, low: float, high: float) -> str:
    return f"{name} {low:,.4g}" if low == high else f"{name} {_whole(low)} to {_whole(high)}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else small(value)
