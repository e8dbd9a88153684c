"""Says in words what checked claims came to, for terminal and page alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.units import milliseconds, number


def headline(document: Mapping[str, Any]) -> str:
    """How many claims hold, and which came out otherwise than their authors say."""
    verdicts, wrong = [e["verdict"] for e in document["claims"]], document["unexpected"]
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "fails")}
    told = ", ".join(
        f"{count} {_said(verdict, count)}" for verdict, count in counts.items() if count
    )
    of = f"Of {len(verdicts)} claim{'s' * (len(verdicts) != 1)}"
    if not wrong:
        return f"{of} {told}, as was expected."
    return f"{of} {told}. Unexpected: {', '.join(wrong)}."


def _said(verdict: str, count: int) -> str:
    return verdict if count == 1 else verdict.removesuffix("s")


def shown(figure: Mapping[str, Any], value: float | None) -> str:
    """The value of a metric with its unit."""
    if value is None:
        return "-"
    match figure["kind"]:
        case "ms":
            return milliseconds(value)
        case "share":
            return f"{100 * value:.1f} %"
        case "usd":
            return f"${value:,.2f}"
        case "count":
            return f"{value:,.0f}"
    return number(value)
