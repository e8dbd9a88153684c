"""Shows the headline metrics of a run as a small HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from sim.units import show_time

RANKS = ("mean", "p50", "p95", "p99")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def result_html(summary: Mapping[str, Any]) -> str:
    """The verdict, the latencies and the throughput of ``summary``, as in ``summary.json``."""
    own = summary["infersim"]
    setup = f"{own['scenario']}: {own['model']} on {own['gpus']} x {own['gpu']}, {own['engine']}"
    head = _row("th", ["", *RANKS])
    latencies = [
        _row("td", [label, *(_time(summary[f"{rank}_{key}_ms"]) for rank in RANKS)])
        for key, label in LATENCIES.items()
    ]
    facts = [_wide(label, value) for label, value in _facts(summary).items()]
    return (
        f"<table><caption>{escape(setup)}<br>{escape(own['verdict']['text'])}</caption>"
        f"<thead>{head}</thead><tbody>{''.join([*latencies, *facts])}</tbody></table>"
    )


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """What is stated next to the latencies, by its label."""
    own = summary["infersim"]
    attainment, met = own["verdict"]["attainment"], own["verdict"]["slo_met"]
    facts = {
        "completed requests": f"{summary['completed']:,} of {own['requests']['submitted']:,}",
        "requests/s": _number(summary["request_throughput"]),
        "output tokens/s": _number(summary["output_throughput"]),
    }
    if met is not None:
        facts["within the SLO"] = f"{attainment:.2%}: SLO {'met' if met else 'missed'}"
    if own["cost"]:
        facts["USD per 1M output tokens"] = _number(own["cost"]["usd_per_million_output_tokens"])
    return facts


def _row(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _wide(label: str, value: str) -> str:
    span = len(RANKS)
    return f'<tr><td>{escape(label)}</td><td colspan="{span}">{escape(value)}</td></tr>'


def _time(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else show_time(milliseconds / 1e3)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
