"""How can one figure of a decision be looked at alone? From a result.json, or from made-up data.

``python -m reports.planning.<name> [RESULT_JSON] [-o FILE]`` writes one offline HTML file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

Document = Mapping[str, Any]


def main(
    name: str,
    build: Callable[[Document], go.Figure],
    made_up: Callable[[], Document],
    arguments: list[str] | None = None,
) -> None:
    """The demo's command line: build the figure of a result, write it, say where."""
    parser = argparse.ArgumentParser(prog=f"python -m reports.planning.{name}")
    parser.add_argument("result", nargs="?", type=Path, help="a result.json; made-up without")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{name}.html"))
    given = parser.parse_args(arguments)
    found = made_up() if given.result is None else json.loads(given.result.read_text("utf-8"))
    config = {"displayModeBar": False, "responsive": True}
    build(found).write_html(given.output, include_plotlyjs=True, config=config)
    print(given.output.resolve())


def made_up_sweep() -> Document:
    """Two variants over a growing rate; plausible, not simulated."""
    results: list[dict[str, Any]] = []
    for capacity in (12.0, 26.0):
        for rate in range(2, 31, 2):
            settings = {"workload.arrivals.rate": float(rate), "seats": capacity}
            results.append(_row(len(results), settings, rate / capacity, min(rate, capacity)))
    axes = [("workload.arrivals.rate", "rate"), ("seats", "seats")]
    return _document(axes, results, "workload.arrivals.rate")


def made_up_grid() -> Document:
    """Seats and tokens of a batch; plausible, not simulated."""
    results: list[dict[str, Any]] = []
    for seats in (16, 32, 64, 128):
        for tokens in (1024, 2048, 4096):
            load = 64 / seats + tokens / 8192
            results.append(_row(len(results), {"seats": seats, "tokens": tokens}, load, seats / 4))
    return _document([("seats", "seats"), ("tokens", "tokens")], results, None)


def _row(index: int, settings: dict[str, float], load: float, served: float) -> dict[str, Any]:
    slow = 1 / (1 - load) if load < 0.95 else 20 * load
    state = "overloaded" if load > 1 else "stable"
    limits = {"ttft": {"limit_ms": 500.0, "attainment": 1.0}}
    summary = {
        "request_throughput": served,
        "output_throughput": 200 * served,
        "p50_ttft_ms": 20 * slow,
        "p99_ttft_ms": 60 * slow,
        "p99_tpot_ms": 8 + 4 * min(load, 2.0),
        "infersim": {
            "verdict": {"state": state, "limits": limits, "slo_met": load < 1, "attainment": 1.0}
        },
    }
    label = ", ".join(f"{key.rpartition('.')[2]}={value:g}" for key, value in settings.items())
    return {
        "index": index,
        "settings": settings,
        "exit_code": 0,
        "error": None,
        "summary": summary,
        "label": label,
    }


def _document(
    axes: list[tuple[str, str]], results: list[dict[str, Any]], load: str | None
) -> Document:
    values = {key: list(dict.fromkeys(row["settings"][key] for row in results)) for key, _ in axes}
    return {
        "command": "sweep",
        "infersim": "made up",
        "name": "made up",
        "axes": [{"key": key, "name": name, "values": values[key]} for key, name in axes],
        "load": load,
        "points": len(results),
        "failed": 0,
        "answers": [],
        "results": results,
    }


def made_up_comparison() -> Document:
    """Three variants, the first being the base; plausible, not simulated."""
    entries = [
        ("p99_ttft_ms", "TTFT p99", "ms", "lower", [812.0, 365.0, 798.0]),
        ("output_throughput", "Output tokens", "1/s", "higher", [900.0, 1310.0, 905.0]),
    ]
    figures = []
    for key, title, unit, better, means in entries:
        shares = [None, *(mean / means[0] - 1 for mean in means[1:])]
        apart = [
            None
            if share is None
            else {
                "mean": share * means[0],
                "low": (share - 0.03) * means[0],
                "high": (share + 0.03) * means[0],
                "relative": share,
                "relative_half_width": 0.03,
                "certain": abs(share) > 0.03,
                "pairs": 5,
            }
            for share in shares
        ]
        figure = {"key": key, "title": title, "unit": unit, "better": better, "means": means}
        figures.append({**figure, "best": [1], "differences": apart})
    variants: list[dict[str, Any]] = [
        {"label": label, "settings": {}, "error": None, "exit_code": 0, "state": "stable"}
        for label in ("static", "continuous", "request")
    ]
    return {
        "command": "compare",
        "infersim": "made up",
        "name": "made up",
        "pairing": "5 runs of each variant",
        "same_traffic": True,
        "base": 0,
        "variants": variants,
        "figures": figures,
        "notes": [],
    }
