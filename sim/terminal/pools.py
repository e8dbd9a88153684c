"""Renders what each pool of a fleet did as a table of 88 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.units import number, show_share, show_time, show_utilisation


def pool_lines(own: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Lines on the pools of a run, from its ``infersim`` part: none for a single one of fixed
    size."""
    if "pools" in own:
        yield pools_table(own["pools"])
    for scaled in own.get("scaling", ()):
        yield Text(scaled["text"])
    if "failures" in own:
        yield Text(own["failures"]["text"])
    if "handover" in own:
        yield Text(handover_line(own["handover"]))


def handover_line(found: Mapping[str, Any]) -> str:
    """The cost of a hand-over, in a sentence."""
    parts = {"memory": "admission", "link": "the link", "transfer": "the transfer"}
    parts["first_token"] = "the first token"
    spent = [
        f"{title} {show_time(found[f'{name}_ms']['mean'] / 1e3)}"
        for name, title in parts.items()
        if found[f"{name}_ms"]["mean"] is not None
    ]
    total = found["total_ms"]
    if total["mean"] is None:
        return "Hand-over: no request was handed over."
    return (
        f"Hand-over, prompt to first token: {show_time(total['mean'] / 1e3)} (p99 "
        f"{show_time(total['p99'] / 1e3)}), of it waiting for {', '.join(spent)}; the busiest link "
        f"is held {show_share(found['link_busy'])} of the time."
    )


def pools_table(pools: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each pool: its replicas, the share of requests that ended there, output tokens,
    load of its own capacity, busy time, KV memory, median TPOT, and dollars an hour."""
    table = Table(title="Pools", title_justify="left", expand=True)
    table.add_column("", ratio=1, no_wrap=True)
    columns = ("served", "tok/s", "load", "busy", "KV (peak)", "TPOT", "USD/h")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for pool in pools:
        load, price, tpot = pool["utilisation"], pool["usd_per_gpu_hour"], pool["p50_tpot_ms"]
        role = "" if pool["role"] == "both" else f", {pool['role']}"
        table.add_row(
            f"{pool['name']}: {pool['replicas']} x {pool['gpu']}{role}",
            show_share(pool["share"]),
            number(pool["output_throughput"]),
            "-" if load is None else show_utilisation(load),
            show_share(pool["busy"]),
            f"{show_share(pool['kv_mean_used'])} ({show_share(pool['kv_peak_used'])})",
            "-" if tpot is None else show_time(tpot / 1e3),
            "-" if price is None else f"{price * pool['gpus']:,.2f}",
        )
    return table
