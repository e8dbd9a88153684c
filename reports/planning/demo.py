"""Writes one figure of a planning command to a page of its own, from result.json or made-up data.

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
