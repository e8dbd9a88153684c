"""What do figures of ``find`` and ``plan`` show when nobody has simulated? Plausible answers."""

from __future__ import annotations

import argparse
import json
import math
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
    """``python -m reports.planning.<name> [RESULT_JSON] [-o FILE]``: the figure as one file."""
    parser = argparse.ArgumentParser(prog=f"python -m reports.planning.{name}")
    parser.add_argument("result", nargs="?", type=Path, help="a result.json; made-up without")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{name}.html"))
    given = parser.parse_args(arguments)
    found = made_up() if given.result is None else json.loads(given.result.read_text("utf-8"))
    config = {"displayModeBar": False, "responsive": True}
    build(found).write_html(given.output, include_plotlyjs=True, config=config)
    print(given.output.resolve())


def find_document() -> Document:
    """A highest rate of 20 requests per second."""
    probes = [_probe(float(load)) for load in (2, 5, 8, 11, 14, 17, 19, 20, 21, 23)]
    return {
        "unit": "requests/s",
        "load": 20.0,
        "fails_at": 21.0,
        "promises": ["99% within ttft 500 ms and tpot 40 ms"],
        "own": {"load": 11.0, "holds": True},
        "knee": {"load": 14.0, "between": [11.0, 17.0], "at_end": False},
        "limits_ms": {"ttft": 500.0, "tpot": 40.0},
        "probes": probes,
    }


def _probe(load: float) -> dict[str, Any]:
    kept = 1 / (1 + math.exp(3 * (load - 22)))
    return {
        "load": load,
        "holds": load <= 20,
        "sure": load != 20,
        "breaks": "tpot",
        "runs": 3,
        "promises": [
            {"target": 0.99, "attainment": kept, "low": 0.99 * kept, "high": min(1, kept * 1.005)}
        ],
        "request_throughput": load,
        "p99_ttft_ms": 100 + 400 / max(0.4, 22 - load),
        "p99_tpot_ms": 8 + 32 * load / 20,
        "mean_e2el_ms": 2000 / max(0.1, 1 - load / 24),
    }


def plan_document() -> Document:
    """Five fleets, two of which are on the front."""
    rows = (
        ("2 x h200-sxm", 184.0, 470.0, 38.0),
        ("4 x h200-sxm", 202.0, 380.0, 34.0),
        ("4 x h100-sxm", 208.0, 385.0, 36.0),
        ("8 x h100-sxm", 255.0, 300.0, 29.0),
        ("8 x a100-sxm-80gb", 386.0, 640.0, 44.0),
    )
    sized = [
        {
            "layout": layout,
            "gpu": layout.split(" ")[-1],
            "replicas": 8,
            "gpus": 32,
            "usd_per_hour": cost,
            "p99_ttft_ms": ttft,
            "p99_tpot_ms": tpot,
            "front_p99_ttft_ms": ttft in (470.0, 380.0, 300.0),
            "front_p99_tpot_ms": tpot in (38.0, 34.0, 29.0),
        }
        for layout, cost, ttft, tpot in rows
    ]
    return {"sized": sized, "limits_ms": {"ttft": 500.0, "tpot": 40.0}}
