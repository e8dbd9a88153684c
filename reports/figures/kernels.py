"""Draws what is known of the kernels of a GPU: fitted forms, errors, rooflines.

Predicted against measured times, an operator's time as it grows, the errors that the fit leaves in
each kind of shape, and how close kernels come to the device's limits. The grey dashed roofs are the
device's ceilings, the solid ones the share of them that products reach according to the fits.
Without measurements the lines of the fitted forms stand in for the points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from math import inf, log10
from typing import Any, NamedTuple

import plotly.graph_objects as go

from reports.figures.axes import equality, logarithmic
from reports.frame import draw, theme

TITLES: Mapping[str, str] = {
    "gemm": "Matrix products",
    "decode_attention": "Decode attention",
    "prefill_attention": "Prefill attention",
    "mla_decode": "Decode attention, latent",
    "mla_prefill": "Prefill attention, latent",
    "dsa_decode": "Decode attention, sparse",
    "dsa_prefill": "Prefill attention, sparse",
    "window_decode": "Decode attention, window",
    "window_prefill": "Prefill attention, window",
    "moe": "Experts",
    "moe_ranks": "Experts, shared out whole",
    "moe_older": "Experts, older release",
    "decode_attention_older": "Decode attention, older release",
    "decode_attention_triton": "Decode attention by Triton",
    "prefill_attention_triton": "Prefill attention by Triton",
    "all_reduce_older": "All-reduce, older release",
    "all_reduce_fused": "All-reduce, fused with a norm",
    "ll_dispatch": "Tokens to experts, low latency",
    "ll_combine": "Tokens back, low latency",
    "ht_dispatch": "Tokens to experts, high throughput",
    "ht_combine": "Tokens back, high throughput",
    "all_reduce": "All-reduce",
    "stream": "Element-wise operators",
    "norm": "Norms with their residual",
    "rotary": "Rotary embedding",
    "kv_write": "Writes to the KV cache",
    "activation": "Gated activation",
    "embedding": "Embedding look-up",
    "quantise": "Quantisation of activations",
    "sampling": "Sampling",
    "memory": "Copies in memory",
    "memory_read": "Reads of memory",
    "host_to_device": "Copies host to device",
    "host_to_device_pageable": "Copies host to device, pageable",
    "device_to_host": "Copies device to host",
    "device_to_host_pageable": "Copies device to host, pageable",
    "device_to_device": "Copies device to device",
    "file_to_device": "Loading files",
    "file_to_device_warm": "Loading files from the page cache",
}
"""Operator -> its name; an operator that is not here has no form and is in no figure."""

AXES: Mapping[str, str] = {
    "m": "rows",
    "context": "tokens of context",
    "tokens": "new tokens of a prompt",
    "bytes": "bytes",
}

MOST_POINTS = 2000
"""So many points are drawn in one figure; of more, evenly spaced ones."""


class Own(NamedTuple):
    """Points of one operator, as columns; there are ``total`` of them, not all of them here."""

    operator: str
    columns: Mapping[str, Sequence[Any]]
    total: int

    def __len__(self) -> int:
        return len(self.columns["measured"])

    @property
    def precisions(self) -> list[str]:
        """The precisions of the kernel, in the order of the points."""
        return list(dict.fromkeys(self.columns["precision"]))

    def where(self, **wanted: Any) -> dict[str, list[Any]]:
        """The columns of those points that have these values."""
        chosen = [
            index
            for index in range(len(self))
            if all(self.columns[name][index] == value for name, value in wanted.items())
        ]
        return {name: [column[i] for i in chosen] for name, column in self.columns.items()}


def by_operator(points: Mapping[str, Sequence[Any]]) -> list[Own]:
    """The points of each operator, thinned to what can be drawn."""
    found = []
    for operator in dict.fromkeys(points["operator"]):
        chosen = [i for i, name in enumerate(points["operator"]) if name == operator]
        step = -(-len(chosen) // MOST_POINTS)
        columns = {name: [c[i] for i in chosen[::step]] for name, c in points.items()}
        found.append(Own(operator, columns, len(chosen)))
    return found


def operator_title(operator: str) -> str:
    """The operator's name on the page."""
    return TITLES.get(operator, operator)


AWAY = 1.2
"""The dashed lines are this ratio away from equality."""


def predicted(own: Own) -> go.Figure:
    """The points of one operator, coloured by precision; hollow ones were noisy."""
    both = [*own.columns["measured"], *own.columns["predicted"]]
    ends = [min(both) / 1.5, max(both) * 1.5]
    traces = equality(ends, AWAY)
    for precision in own.precisions:
        traces.append(_predicted_points(own.where(precision=precision), precision))
    return draw.assemble(
        traces,
        logarithmic("measured", both, "s"),
        logarithmic("predicted", both, "s"),
        showlegend=len(own.precisions) > 1,
    )


def _predicted_points(columns: dict[str, list[Any]], precision: str) -> dict[str, Any]:
    errors = [p / m - 1 for p, m in zip(columns["predicted"], columns["measured"], strict=True)]
    marker = {
        "size": 6,
        "opacity": 0.75,
        "color": theme.precision(precision).light,
        "symbol": ["circle-open" if noisy else "circle" for noisy in columns["noisy"]],
    }
    return draw.points(
        columns["measured"],
        columns["predicted"],
        marker,
        precision,
        "%{customdata[0]}<br>measured %{x:.3~s}s, predicted %{y:.3~s}s (%{customdata[1]:+.1%})",
        customdata=list(zip(columns["shape"], errors, strict=True)),
    )


SEPARATOR = ", "

NOTHING = "nothing cached before"
"""A line of prompts whose label names no context."""


def shared(curves: Sequence[Mapping[str, Any]]) -> str:
    """The common part of the labels of all lines, for the caption."""
    parts = [curve["label"].split(SEPARATOR) for curve in curves]
    return SEPARATOR.join(part for part in parts[0] if all(part in other for other in parts))


def fitted(curves: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The lines of one operator in one precision, at most as many as there are colours."""
    traces = []
    common = shared(curves).split(SEPARATOR)
    for curve, tone in zip(curves, theme.SERIES, strict=False):
        own = [part for part in curve["label"].split(SEPARATOR) if part not in common]
        name, hover = (
            SEPARATOR.join(own) or NOTHING,
            "%{x:,.0f}: %{y:.3~s}s predicted<extra></extra>",
        )
        traces.append(draw.line(curve["at"], curve["seconds"], tone.light, name, hover))
        if curve["measured"]:
            traces.append(_measured_points(curve, tone))
    seconds = [second for curve in curves for second in curve["seconds"]]
    return draw.assemble(
        traces,
        logarithmic(AXES[curves[0]["variable"]], curves[0]["at"]),
        logarithmic(None, seconds, "s"),
        showlegend=len(curves) > 1,
    )


def _measured_points(curve: Mapping[str, Any], tone: theme.Tone) -> draw.Trace:
    marker = {"size": 7, "color": tone.light, "symbol": "circle-open", "line": {"width": 1.5}}
    hover = "%{x:,.0f}: %{y:.3~s}s measured<extra></extra>"
    return draw.points(
        curve["measured_at"], curve["measured"], marker, hover=hover, showlegend=False
    )


TICKS = {
    1.3: (0.8, 0.9, 1.0, 1.1, 1.25),
    2.5: (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0),
    inf: (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0),
}
"""Labels of the axis, by the largest ratio that it has to hold."""

LEAST_SPAN = 1.25
"""The axis reaches at least from one over this to this."""

LEAST_SHARE = 0.01
"""Decades beyond that at both ends."""


def residuals(own: Own, regimes: Sequence[str]) -> go.Figure:
    """A box for each regime (in the order of ``regimes``) and precision, with every point next to
    it."""
    traces = []
    largest = LEAST_SPAN
    for precision in reversed(own.precisions):  # upwards, so that the first one is on top
        columns = own.where(precision=precision)
        pairs = zip(columns["predicted"], columns["measured"], strict=True)
        ratios = [predicted / measured for predicted, measured in pairs]
        largest = max([largest, *ratios, *(1 / ratio for ratio in ratios)])
        traces.append(_boxes(columns, ratios, precision))
    ticks = next(each for bound, each in TICKS.items() if largest <= bound)
    reach = log10(largest) + LEAST_SHARE
    return draw.assemble(
        traces,
        theme.axis(
            "predicted / measured",
            type="log",
            tickvals=ticks,
            ticktext=[f"{tick:g}" for tick in ticks],
            range=[-reach, reach],
        ),
        theme.axis(
            None, categoryorder="array", categoryarray=list(reversed(regimes)), showgrid=False
        ),
        boxmode="group",
        showlegend=len(own.precisions) > 1,
        legend={"traceorder": "reversed"},
        shapes=[draw.upright(1, "muted", 1, layer="below")],
    )


def _boxes(columns: dict[str, list[Any]], ratios: list[float], precision: str) -> dict[str, Any]:
    tone = theme.precision(precision)
    return {
        "type": "box",
        "orientation": "h",
        "name": precision,
        "x": ratios,
        "y": columns["regime"],
        "customdata": columns["shape"],
        "boxpoints": "all",
        "jitter": 0.5,
        "pointpos": 0,
        "line": {"color": tone.light, "width": 1.5},
        "fillcolor": theme.faint(tone).light,
        "marker": {"size": 4, "opacity": 0.5, "color": tone.light},
        "hoveron": "points",
        "hovertemplate": "%{customdata}<br>%{x:.2f}",
    }


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
            lines.append(_reached(own.operator, columns, "flop"))
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
        _reached(own.operator, own.where(), "bytes") for own in owns if not any(own.columns["flop"])
    ]
    if not lines:
        lines = [_curve(curve, "bytes") for curve in curves if not any(curve["flop"])]
    if not lines:
        return None
    reach = [x for line in lines for x in line["x"]]
    ends = [min(reach) / MARGIN, max(reach) * MARGIN]
    linked = [line["name"] == operator_title("all_reduce") for line in lines]
    ceilings = []
    if not all(linked):
        ceilings.append(_roof(ends, [roofs["bandwidth"]] * 2, "memory bandwidth", "dash"))
    if any(linked):
        ceilings.append(_roof(ends, [roofs["link"]] * 2, "link between GPUs", "dot"))
    return _figure([*ceilings, *_once(lines)], "bytes moved", "B/s")


def _figure(traces: list[dict[str, Any]], x: str, unit: str) -> go.Figure:
    return draw.assemble(
        traces,
        logarithmic(x, [value for trace in traces for value in trace["x"]]),
        logarithmic(None, [value for trace in traces for value in trace["y"]], unit),
        showlegend=True,
    )


def _reached(operator: str, columns: Mapping[str, list[Any]], of: str) -> dict[str, Any]:
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
        operator_title(operator),
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
        operator_title(operator),
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


CEILINGS = ("dash", "dot", "dashdot", "longdash")
"""The lines of ceilings, one for each number format."""


def _roofs(roofs: Mapping[str, Any], ends: list[float]) -> Iterator[dict[str, Any]]:
    for (precision, peak), dash in zip(roofs["peaks"].items(), cycle(CEILINGS), strict=False):
        yield _bent(ends, roofs["bandwidth"], peak, f"ceiling {precision}", dash)
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
    """A ceiling of the device is no solid line and has its name in the legend."""
    ceiling = dash != "solid"
    tone = theme.PAGE["muted" if ceiling else "ink"].light
    look = {"width": 1.2, "dash": dash, "showlegend": ceiling}
    return draw.line(x, y, tone, name, f"{name}: %{{y:.3~s}}", **look)
