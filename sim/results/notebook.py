"""Renders the verdict and the headline metrics of a summary as the small table of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.terms.definitions import METRIC
from sim.units import PER_OUTPUT_TOKENS, counted, milliseconds, number

RANKS = ("mean", "p50", "p95", "p99")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def result_html(summary: Mapping[str, Any]) -> str:
    """The verdict, the latencies and the throughput of ``summary``, as in ``summary.json``."""
    own = summary["infersim"]
    setup = f"{own['scenario']}: {own['model']} on {fleet_text(own)}, {own['engine']}"
    head = _row("th", ["", *RANKS])
    latencies = [
        _row("td", [label, *(milliseconds(summary[f"{rank}_{key}_ms"]) for rank in RANKS)])
        for key, label in LATENCIES.items()
    ]
    facts = [_wide(label, value) for label, value in _facts(summary).items()]
    return (
        f"<table><caption>{escape(setup)}<br>{escape(own['verdict']['text'])}</caption>"
        f"<thead>{head}</thead><tbody>{''.join([*latencies, *facts])}</tbody></table>"
    )


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """The facts next to the latencies, by label."""
    own = summary["infersim"]
    attainment, met = own["verdict"]["attainment"], own["verdict"]["slo_met"]
    facts = {
        "completed requests": f"{counted(summary['completed'])} of "
        f"{counted(own['requests']['submitted'])}",
        **{
            METRIC[key].called: number(summary[key])
            for key in ("request_throughput", "output_throughput")
        },
    }
    if met is not None:
        facts["within the SLO"] = f"{attainment:.2%}: SLO {own['verdict']['slo_state']}"
    if own["cost"]:
        facts[PER_OUTPUT_TOKENS] = number(own["cost"]["usd_per_million_output_tokens"])
    return facts


def _row(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _wide(label: str, value: str) -> str:
    span = len(RANKS)
    return f'<tr><td>{escape(label)}</td><td colspan="{span}">{escape(value)}</td></tr>'
