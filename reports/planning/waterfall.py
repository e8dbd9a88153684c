"""How does one figure grow, technique by technique? Bars that begin where the last one ended.

Run it: ``python -m reports.planning.waterfall [RESULT_JSON]`` with the result of an ablation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from reports import theme
from reports.planning.naming import plain


def figure(document: Mapping[str, Any], key: str) -> go.Figure:
    """The steps of the figure called ``key`` in the order asked for, and the whole at the end.

    Green is better, red is worse; a step that does not run is left out.
    """
    found = next(entry for entry in document["figures"] if entry["key"] == key)
    bars = [("baseline", 0.0, found["baseline"], theme.GREY)]
    height = found["baseline"]
    for step in found["steps"]:
        if step["value"] is None or height is None:
            continue
        better = (step["value"] >= height) == found["more"]
        tone = theme.GREEN if better else theme.VERMILLION
        bars.append((f"+ {step['title']}", height, step["value"], tone))
        height = step["value"]
    bars.append(("all together", 0.0, found["full"], theme.BLUE))
    drawn = [bar for bar in bars if bar[2] is not None]
    trace = {
        "type": "bar",
        "x": [plain(name) for name, *_ in drawn],
        "y": [end - start for _, start, end, _ in drawn],
        "base": [start for _, start, _, _ in drawn],
        "marker": {"color": [tone.light for *_, tone in drawn]},
        "customdata": [end for _, _, end, _ in drawn],
        "hovertemplate": "%{x}: %{customdata:,.4~g}<extra></extra>",
    }
    layout = theme.layout() | {
        "xaxis": theme.axis(None) | {"type": "category"},
        "yaxis": theme.axis(f"{found['title']} ({found['unit']})") | {"rangemode": "tozero"},
        "bargap": 0.3,
    }
    return go.Figure(data=[trace], layout=layout)


if __name__ == "__main__":
    from reports.planning.demo import main
    from reports.planning.made_up import ablation

    main("waterfall", lambda document: figure(document, "output_throughput"), ablation)
