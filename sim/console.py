"""What a run, a memory question and a roofline look like in a terminal of 88 columns."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.units import show_time

WIDTH = 88

STATE_STYLES = {
    "stable": "green",
    "near saturation": "yellow",
    "too short to tell": "yellow",
    "overloaded": "red",
    "no traffic served": "red",
}


def stdout() -> Console:
    """The console results are written to; it obeys NO_COLOR and draws no wider than ``WIDTH``."""
    console = _plain(stderr=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def stderr() -> Console:
    """The console progress and complaints are written to."""
    return _plain(stderr=True)


def _plain(*, stderr: bool) -> Console:
    """A console that takes no text for markup, and under NO_COLOR writes no escape code at all."""
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, color_system=system)


def run_view(summary: dict[str, Any]) -> Group:
    """The figures of one run."""
    return Group(*_run_parts(summary))


def _run_parts(summary: dict[str, Any]) -> Iterator[RenderableType]:
    own = summary["infersim"]
    gpus = f"{own['gpus']} x {own['gpu']}"
    yield Text.assemble(
        (own["scenario"], "bold"), f"  {own['model']} on {gpus}, {own['engine']}, {own['batching']}"
    )
    verdict = own["verdict"]
    yield Text(verdict["text"], style=STATE_STYLES.get(verdict["state"], ""))
    if verdict["limits"]:
        yield _slo_line(verdict)
    kv = own["kv_cache"]
    yield Text(
        f"KV cache size: {kv['tokens']:,} tokens\n"
        f"Maximum concurrency for {kv['max_model_len']:,} tokens per request: "
        f"{kv['max_concurrency']:,.1f}x"
    )
    yield _latency_table(summary)
    yield _facts_table(summary)
    bounds = ", ".join(
        f"{name} {share:.0%}" for name, share in own["bound_by"].items() if share >= 0.005
    )
    yield Text(f"Bound by: {bounds or '-'}")
    yield Text(f"Prices: {own['provenance']}", style="dim")
    yield Text(f"How sure: {own['error_band']['text']}", style="dim")
    for note in own["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _slo_line(verdict: dict[str, Any]) -> Text:
    limits = ", ".join(
        f"{name.upper()} <= {show_time(entry['limit_ms'] / 1e3)} {_share(entry['attainment'])}"
        for name, entry in verdict["limits"].items()
    )
    if verdict["slo_met"] is None:
        return Text(f"SLO: not judged ({limits})")
    if verdict["slo_met"]:
        word = "met"
    else:
        first = verdict["first_limit"]
        word = f"missed, first by {first.upper()}" if first else "missed"
    style = "green" if verdict["slo_met"] else "red"
    share, target = _share(verdict["attainment"]), _share(verdict["target"])
    return Text(f"SLO {word}: {share} of requests, {target} wanted ({limits})", style=style)


def _latency_table(summary: dict[str, Any]) -> Table:
    table = Table(title="Latency", title_justify="left", expand=True)
    table.add_column("")
    for name in ("mean", "p50", "p90", "p95", "p99"):
        table.add_column(name, justify="right")
    labels = {
        "ttft": "TTFT  time to first token",
        "tpot": "TPOT  time per output token",
        "itl": "ITL   inter-token latency",
        "e2el": "E2EL  end-to-end latency",
    }
    for key, label in labels.items():
        cells = [_ms(summary[f"{rank}_{key}_ms"]) for rank in ("mean", "p50", "p90", "p95", "p99")]
        table.add_row(label, *cells)
    queue = summary["infersim"]["queue_ms"]
    table.add_row(
        "      of it in the queue", *(_ms(value) for value in queue.values()), style="dim"
    )
    return table


def _facts_table(summary: dict[str, Any]) -> Table:
    own = summary["infersim"]
    requests, batch, kv, use = own["requests"], own["batch"], own["kv_cache"], own["utilisation"]
    cost = own["cost"]
    table = Table(show_header=False, expand=True)
    for _ in range(2):
        table.add_column(ratio=3)
        table.add_column(justify="right", ratio=2)
    usd = cost and cost["usd_per_million_output_tokens"]
    rows = [
        ("completed", f"{requests['completed']:,}"),
        ("of requests", f"{requests['submitted']:,}"),
        ("rejected", f"{requests['rejected']:,}"),
        ("unfinished", f"{requests['unfinished']:,}"),
        ("requests/s", _number(summary["request_throughput"])),
        ("goodput, requests/s", _number(summary["request_goodput"])),
        ("output tokens/s", _number(summary["output_throughput"])),
        ("all tokens/s", _number(summary["total_token_throughput"])),
        ("simulated time", show_time(summary["duration"])),
        ("preemptions", f"{own['preemptions']:,}"),
        ("iterations", f"{batch['iterations']:,}"),
        ("mean iteration", _ms(batch["mean_iteration_ms"])),
        ("running (peak)", f"{batch['mean_running']:.1f} ({batch['peak_running']:,})"),
        ("waiting (peak)", f"{batch['mean_waiting']:.1f} ({batch['peak_waiting']:,})"),
        ("KV used (peak)", f"{_share(kv['mean_used'])} ({_share(kv['peak_used'])})"),
        ("reserved KV empty", _share(kv["fragmentation"])),
        ("time busy", _share(use["busy"])),
        ("MFU / MBU", f"{_share(use['mfu'])} / {_share(use['mbu'])}"),
        ("USD per GPU hour", _number(cost and cost["usd_per_gpu_hour"])),
        ("USD per 1M output", _number(usd)),
    ]
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        table.add_row(*left, *right)
    return table


def paths_view(directory: Path, report: Path | None) -> Text:
    """Where the run was written to."""
    lines = [f"Run: {directory}"]
    if report is not None:
        lines.append(f"Report: {report}")
    return Text("\n".join(lines))


def _ms(value: float | None) -> str:
    return "-" if value is None else show_time(value / 1e3)


def _share(value: float | None) -> str:
    """A share as a percentage that neither rounds up to all nor down to nothing."""
    if value is None:
        return "-"
    if 0.99 < value < 1 or 0 < value < 0.01:
        return f"{math.floor(value * 1e4) / 1e4:.2%}"
    return f"{value:.0%}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
