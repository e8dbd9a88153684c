"""Renders what first and later turns of conversations saw, and what became of the conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from sim.metrics.terms.definitions import METRIC
from sim.units import milliseconds, show_time


def sessions_table(sessions: Mapping[str, Any]) -> Table:
    """The entry ``sessions`` of a summary as a table; its caption is about the sessions."""
    table = Table(title="Sessions", title_justify="left", expand=True)
    table.add_column("", ratio=1)
    seen = [f"{rank}_{name}_ms" for name in ("ttft", "tpot") for rank in ("p50", "p99")]
    for title in ("requests", "prompt (mean)", *(METRIC[key].title for key in seen)):
        table.add_column(title, justify="right")
    for part, label in (("first_turns", "first turns"), ("later_turns", "later turns")):
        entry = sessions[part]
        prompt = entry["mean_prompt_tokens"]
        table.add_row(
            label,
            f"{entry['requests']:,}",
            "-" if prompt is None else f"{prompt:,.0f}",
            *(milliseconds(entry[key]) for key in seen),
        )
    table.caption = sessions_text(sessions)
    table.caption_justify = "left"
    return table


def sessions_text(sessions: Mapping[str, Any]) -> str:
    """The fate of a run's sessions, and how long they last, in sentences.

    >>> sessions_text({"started": 1200, "finished": 900, "outgrown": 3, "refused": 0,
    ...     "duration_s": {"mean": 40.0, "p90": 95.0}, "expected_duration_s": 62.0,
    ...     "requests": 4.214})  # doctest: +NORMALIZE_WHITESPACE
    '1,200 sessions of 4.21 requests on average: 900 finished, 3 outgrew max_model_len. Those that
     ended took 40 s on average (p90 95 s); with those under way, a session takes 62 s.'
    """
    many, count = sessions["requests"], sessions["started"]
    told = [f"{sessions['finished']:,} finished"]
    for key, words in (
        ("outgrown", "outgrew max_model_len"),
        ("refused", "were refused a request"),
        ("given_up", "were given up"),
    ):
        if sessions.get(key):
            told.append(f"{sessions[key]:,} {words}")
    size = "" if many is None else f" of {many:.3g} requests on average"
    text = f"{count:,} session{'s' * (count != 1)}{size}: {', '.join(told)}."
    lasted, expected = sessions["duration_s"], sessions.get("expected_duration_s")
    if lasted["mean"] is not None:
        text += f" Those that ended took {show_time(lasted['mean'])} on average"
        text += f" (p90 {show_time(lasted['p90'])})"
        if expected is not None:
            text += f"; with those under way, a session takes {show_time(expected)}"
        return f"{text}."
    return text if expected is None else f"{text} A session takes {show_time(expected)} on average."
