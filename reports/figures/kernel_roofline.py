"""Draws how close kernels come to the device's limits: rooflines of arithmetic and of traffic.

The grey dashed roofs are the device's ceilings, the solid ones the share of them that products
reach according to the fits. Without measurements the lines of the fitted forms stand in for the
points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.axes import logarithmic
from reports.figures.kernel_names import Own, title
from reports.frame import draw, theme

MARGIN = 1.6


def arithmetic(
    roofs: Mapping[str, Any], owns: Sequence[Own], curves: Sequence[Mapping[str, Any]]
) -> go.Figure | None:
    """FLOP/s over FLOP per byte; None if nothing computes."""
    lines: list[dict[str, Any]] = []
    for own in owns:
        found = own.where()
        kept = [i for i, flop in enumerate(found["flop"]) if flop > 0]
        if kept:
            columns = {name: [column[i] for i in kept] for name, column in found.items()}
            lines.append(_points(own.operator, columns, "flop"))
    if not lines:
        lines = [_curve(curve, "flop") for curve in curves if max(curve["flop"]) > 0]
    if not lines:
        return None
    reach = [x for line in lines for x in line["x"]]
    ends = [min(reach) / MARGIN, max(reach) * MARGIN]
    lines = [*_roofs(roofs, ends), *_once(lines)]
    return _figure(lines, "FLOP per byte", "FLOP/s")


def traffic(
    roofs: Mapping[str, Any], owns: Sequence[Own], curves: Sequence[Mapping[str, Any]]
) -> go.Figure | None:
    """Bytes/s over bytes, for operators that do not compute; None if there are none."""
    lines = [
        _points(own.operator, own.where(), "bytes") for own in owns if not any(own.columns["flop"])
    ]
    if not lines:
        lines = [_curve(curve, "bytes") for curve in curves if not any(curve["flop"])]
    if not lines:
        return None
    reach = [x for line in lines for x in line["x"]]
    ends = [min(reach) / MARGIN, max(reach) * MARGIN]
    linked = [line["name"] == title("all_reduce") for line in lines]
    ceilings = []
    if not all(linked):
        ceilings.append(_roof(ends, [roofs["bandwidth"]] * 2, "memory bandwidth", "dash"))
    if any(linked):
        ceilings.append(_roof(ends, [roofs["link"]] * 2, "link between GPUs", "dash"))
    return _figure([*ceilings, *_once(lines)], "bytes moved", "B/s")


def _figure(traces: list[dict[str, Any]], x: str, unit: str) -> go.Figure:
    return draw.assemble(
        traces,
        logarithmic(x, [value for trace in traces for value in trace["x"]]),
        logarithmic(None, [value for trace in traces for value in trace["y"]], unit),
        showlegend=True,
    )


def _points(operator: str, columns: Mapping[str, list[Any]], of: str) -> dict[str, Any]:
    seconds = columns["measured"]
    rates = [amount / time for amount, time in zip(columns[of], seconds, strict=True)]
    labels = [
        f"{precision}, {shape}"
        for precision, shape in zip(columns["precision"], columns["shape"], strict=True)
    ]
    unit = "FLOP/s" if of == "flop" else "B/s"
    return draw.points(
        _across(columns, of),
        rates,
        {"size": 6, "opacity": 0.7, "color": theme.operator(operator).light},
        title(operator),
        f"%{{customdata}}<br>%{{y:.3~s}}{unit}",
        customdata=labels,
    )


def _curve(curve: Mapping[str, Any], of: str) -> dict[str, Any]:
    rates = [amount / time for amount, time in zip(curve[of], curve["seconds"], strict=True)]
    precision, operator = curve["precision"], curve["operator"]
    unit = "FLOP/s" if of == "flop" else "B/s"
    return draw.line(
        _across(curve, of),
        rates,
        theme.operator(operator).light,
        title(operator),
        f"{precision}, {curve['label']}<br>%{{y:.3~s}}{unit}",
        width=1.5,
    )


def _across(columns: Mapping[str, list[Any]], of: str) -> list[float]:
    if of == "bytes":
        return columns["bytes"]
    return [flop / moved for flop, moved in zip(columns["flop"], columns["bytes"], strict=True)]


def _once(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with each name in the legend once; a click there hides all of that name."""
    seen: set[str] = set()
    for line in lines:
        line |= {"legendgroup": line["name"], "showlegend": line["name"] not in seen}
        seen.add(line["name"])
    return lines


def _roofs(roofs: Mapping[str, Any], ends: list[float]) -> Iterator[dict[str, Any]]:
    for precision, peak in roofs["peaks"].items():
        yield _bent(ends, roofs["bandwidth"], peak, f"ceiling {precision}", "dash")
    for reached in roofs["reached"]:
        if reached["compute"] is not None and reached["bandwidth"] is not None:
            name = f"reached {reached['precision']}"
            yield _bent(ends, reached["bandwidth"], reached["compute"], name, "solid")


def _bent(ends: list[float], bandwidth: float, peak: float, name: str, dash: str) -> dict[str, Any]:
    """Rising with the intensity until the peak is reached."""
    low, high = ends
    ridge = min(max(peak / bandwidth, low), high)
    x = [low, ridge, high]
    return _roof(x, [min(bandwidth * at, peak) for at in x], name, dash)


def _roof(x: list[float], y: list[float], name: str, dash: str) -> dict[str, Any]:
    """A ceiling of the device is dashed and has its name at the right end."""
    ceiling = dash == "dash"
    tone = theme.PAGE["muted"] if ceiling else theme.PAGE["ink"]
    named = {
        "mode": "lines+text",
        "text": [*[""] * (len(x) - 1), name],
        "textposition": "top left",
        "textfont": {"size": 11, "color": tone.light},
    }
    look = {"width": 1.2, "dash": dash, "showlegend": False, **(named if ceiling else {})}
    return draw.line(x, y, tone.light, name, f"{name}: %{{y:.3~s}}", **look)
