"""Writes one figure of a run to a page of its own, from a run directory or from made-up data.

``python -m reports.figures.<name> [RUN_DIR] [-o FILE] [--open]`` writes one offline HTML file.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.decimate import Floats
from reports.latency_bands import PARTS
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
    return Run(_summary(tpot), _with_parts(requests), timeseries, "", charts=_charts(tpot))


def _with_parts(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency of each request cut into parts that add up to it."""
    prefill, decode = requests["ttft_s"] - requests["queue_s"], requests["e2el_s"]
    decode = decode - requests["ttft_s"]
    parts = dict.fromkeys(PARTS["e2el"], 0.0 * prefill) | {
        "queue": requests["queue_s"],
        "prefill": 0.8 * prefill,
        "prefill_delay": prefill - 0.8 * prefill,
        "decode": 0.9 * decode,
        "decode_delay": decode - 0.9 * decode,
    }
    return requests.assign(**{f"{name}_s": part for name, part in parts.items()})


def _summary(tpot: Floats) -> dict[str, Any]:
    shares = {"gate and up projection": 0.45, "decode attention": 0.35, "host": 0.2}
    bounds = {"compute": 10.0, "memory": 20.0, "latency": 2.0, "communication": 0.0}
    percentiles = {f"p{p}_itl_ms": 1e3 * float(np.percentile(tpot, p)) for p in (50, 90, 99)}
    limits = {
        "ttft": {"limit_ms": 500.0, "attainment": 0.994, "low": 0.988, "high": 0.997},
        "tpot": {"limit_ms": 40.0, "attainment": 0.97, "low": 0.96, "high": 0.978},
    }
    return percentiles | {
        "infersim": {
            "kv_cache": {"tokens": KV_TOKENS},
            "time_by_operator": shares,
            "operators": {name: bounds for name in shares if name != "host"},
            "memory": {
                "gpu_bytes": 80e9,
                "weights_bytes": 16e9,
                "activations_bytes": 1e9,
                "reserve_bytes": 1e9,
                "kv_cache_bytes": 131072.0 * KV_TOKENS,
                "kv_bytes_per_token": 131072.0,
            },
            "verdict": {"limits": limits, "attainment": 0.967},
        }
    }


def _charts(tpot: Floats) -> dict[str, Any]:
    values = np.sort(tpot)
    intensity = 2.0 ** np.arange(0, 10, 0.5)
    points = [
        {
            "kind": "decode" if at < 64 else "mixed",
            "iterations": 100,
            "seconds": 1 + 30 * float(np.exp(-((np.log2(at) - 4) ** 2))),
            "flops": 0.6e12 * min(at * 3.35, 989) * 1.5,
            "bytes": 0.6e12 * min(at * 3.35, 989) * 1.5 / at,
        }
        for at in intensity.tolist()
    ]
    roof = {"precision": "bf16", "peak_flops": 989e12, "bandwidth": 3.35e12, "points": points}
    share = (np.arange(values.size) + 1) / values.size
    return {
        "itl": {"ms": (1e3 * values).tolist(), "share": share.tolist()},
        "roofline": roof,
    }
