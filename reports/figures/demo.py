"""How can one figure be looked at alone? From a run directory, or from made-up data.

``python -m reports.figures.<name> [RUN_DIR] [-o FILE] [--open]`` writes one offline HTML file.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.run_directory import Run, read
from sim.errors import InfersimError

KV_TOKENS = 400_000
"""KV cache of the made-up replica."""


def main(name: str, build: Callable[[Run], go.Figure]) -> None:
    """The demo's command line: build the figure of a run, write it, say where."""
    parser = argparse.ArgumentParser(prog=f"python -m reports.figures.{name}")
    parser.add_argument("run_dir", nargs="?", type=Path, help="a run directory; made-up without")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{name}.html"))
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    arguments = parser.parse_args()
    try:
        run = synthetic() if arguments.run_dir is None else read(arguments.run_dir)
    except InfersimError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    config = {"displayModeBar": False, "responsive": True}
    build(run).write_html(arguments.output, include_plotlyjs=True, config=config)
    print(arguments.output.resolve())
    if arguments.open:
        webbrowser.open(arguments.output.resolve().as_uri())


def synthetic(count: int = 2000, seed: int = 1) -> Run:
    """A made-up run of one replica whose load swells and falls; plausible, not simulated."""
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(0.15, count))
    swell = 1 + 0.8 * np.sin(arrival / arrival[-1] * 2 * np.pi)
    output = random.integers(20, 500, count)
    queue = random.exponential(0.02, count) * swell**4
    ttft = queue + random.lognormal(-2.3, 0.4, count)
    tpot = 0.018 + 0.008 * swell + random.gamma(4, 0.0006, count)
    requests = pd.DataFrame(
        {
            "request_id": np.arange(count),
            "arrival_s": arrival,
            "prompt_tokens": 400,
            "output_tokens": output,
            "generated_tokens": output,
            "preemptions": 0,
            "status": "completed",
            "replica": 0,
            "scheduled_s": arrival + queue,
            "first_token_s": arrival + ttft,
            "queue_s": queue,
            "ttft_s": ttft,
            "tpot_s": tpot,
            "finish_s": arrival + ttft + tpot * (output - 1),
            "e2el_s": ttft + tpot * (output - 1),
            "warmup": arrival < arrival[-1] * 0.08,
        }
    )
    start = np.linspace(0, arrival[-1], 4 * count)
    wave = 1 + 0.8 * np.sin(start / start[-1] * 2 * np.pi)
    running = np.round(40 * wave + random.normal(0, 2, start.size)).clip(0).astype(int)
    timeseries = pd.DataFrame(
        {
            "replica": 0,
            "start_s": start,
            "end_s": np.append(start[1:], start[-1] + 0.03),
            "iterations": 2,
            "decode_seqs": running,
            "prefill_seqs": 1,
            "prefill_tokens": random.integers(0, 2, start.size) * random.integers(0, 900, 1),
            "running": running,
            "waiting": random.poisson(wave**5 / 3),
            "kv_used_tokens": running * 2000,
            "kv_reserved_tokens": running * 2300,
            "preemptions": 0,
        }
    )
    return Run({"infersim": {"kv_cache": {"tokens": KV_TOKENS}}}, requests, timeseries, "")
