"""Writes a server's scenario as text, each key with its origin, over traffic that is assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.planning.fleet.launch import TITLES
from sim.scenario.text.writing import write_yaml
from sim.servers.draft import Draft, plain
from sim.servers.started import Started

PROMPT, ANSWER = 1000, 250
"""Mean tokens of the traffic that stands in for the user's own."""


def assumed_traffic(longest: Any) -> dict[str, Any]:
    """Traffic that stands in for the user's own, with requests of no more than ``longest``."""
    most = longest if isinstance(longest, int) else 8192
    prompt = max(1, min(PROMPT, most // 8))
    answer = max(1, min(ANSWER, most // 16))
    return {
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1.0},
            "prompt_tokens": _lengths(prompt, most // 2),
            "output_tokens": _lengths(answer, most // 4),
        },
        "run": {"requests": 1000},
    }


def _lengths(mean: int, most: int) -> dict[str, Any]:
    if mean < 16:
        return {"kind": "fixed", "value": mean}
    return {"kind": "lognormal", "mean": mean, "p95": 3 * mean, "max": max(3 * mean, most)}


def scenario_text(
    started: Started,
    data: Mapping[str, Any],
    origins: Mapping[str, str],
    draft: Draft,
    chosen: Mapping[str, Any],
    overrides: Sequence[str],
) -> str:
    """The text of the scenario, each key with its origin."""
    own = {text.partition("=")[0].strip() for text in overrides}
    known = dict(origins) | {plain(key): "--set of this import" for key in own}
    head = [f"{TITLES[started.engine]} as started by {started.where}."]
    head += _remarks(started, draft, chosen)
    lines = [f"# {printable}" for printable in map(_printable, head)]
    lines += _lines({key: value for key, value in data.items() if key not in TRAFFIC}, known)
    lines.append("# A server does not say its traffic: this is assumed, put your own here.")
    lines += write_yaml({key: data[key] for key in TRAFFIC if key in data}).splitlines()
    return "\n".join(lines) + "\n"


TRAFFIC = ("workload", "slo", "run")


def _remarks(started: Started, draft: Draft, chosen: Mapping[str, Any]) -> list[str]:
    told = list(draft.notes)
    if chosen:
        listed = ", ".join(f"{key} {shown(value)}" for key, value in chosen.items())
        told.append(f"Not stated, so what {TITLES[started.engine]} chooses: {listed}.")
    return told + draft.shortcomings()


def _lines(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> Iterator[str]:
    pad = "  " * prefix.count(".")
    for key, value in data.items():
        if key == "fleet" and isinstance(value, list) and len(value) == 1:
            value = value[0]  # noqa: PLW2901 - a fleet of one pool is written without a list
        if isinstance(value, Mapping) and value and f"{prefix}{key}" not in origins:
            yield f"{pad}{key}:"
            yield from _lines(value, origins, f"{prefix}{key}.")
            continue
        text = write_yaml({key: value}).rstrip("\n").replace("\n", f"\n{pad}")
        origin = origins.get(f"{prefix}{key}", "")
        yield f"{pad}{text}  # {_printable(origin)}" if origin else f"{pad}{text}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def shown(value: object) -> str:
    """A value for a line of text."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
