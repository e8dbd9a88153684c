"""The words of an ablation: what all techniques together bring, and what each does.

The terminal and the page use the same ones, and have the metrics in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.states import State
from sim.units import milliseconds, number

Document = Mapping[str, Any]
Figure = Mapping[str, Any]

ORDER = ("capacity", "output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms")
"""The capacity first: it is what techniques bring where the traffic sets the throughput."""

WORDS: Mapping[str, str] = {
    "capacity": "the capacity",
    "output_throughput": "the throughput",
}


SAME = 1e-3
"""A ratio this near 1, or a part of the whole this small, is no change."""


def figures(document: Document) -> list[Figure]:
    """The metrics, the one that says most first; those that no set has come last."""
    found = {figure["key"]: figure for figure in document["figures"]}
    order = [found[key] for key in ORDER if key in found]
    return sorted(order, key=lambda figure: figure["full"] is None)


def headline(document: Document) -> str:
    """The gain of all techniques together: capacity or throughput, and the TTFT p99."""
    found = {figure["key"]: figure for figure in document["figures"]}
    main = next((key for key in ORDER[:2] if found[key]["factor"] is not None), None)
    if main is None:
        return "Not comparable with the naive baseline."
    text = f"{number(found[main]['factor'])}x {WORDS[main]} of the naive baseline"
    if _baseline_state(document) == State.OVERLOADED:
        both = _state_of_all(document) == State.OVERLOADED
        text += f", {'and both are' if both else 'which is'} overloaded by this traffic"
    before, after = (found["p99_ttft_ms"][key] for key in ("baseline", "full"))
    if before is None or after is None:
        return f"{text}."
    return f"{text}; TTFT p99 is {milliseconds(after)} instead of {milliseconds(before)}."


def _baseline_state(document: Document) -> str | None:
    """The state of the set without any technique, if that ran."""
    return next((row["state"] for row in document["subsets"] if not row["with"]), None)


def _state_of_all(document: Document) -> str | None:
    """The state of the set with the most techniques."""
    ran = max(document["subsets"], key=lambda row: len(row["with"]), default=None)
    return None if ran is None else ran["state"]


def value_text(key: str, value: float | None) -> str:
    """A metric with its unit, as columns have them."""
    if key.endswith("_ms"):
        return milliseconds(value)
    return f"{number(value)}x" if key == "capacity" and value is not None else number(value)


def kind(figure: Figure) -> str:
    """Whether its parts are factors or, where one has none, differences."""
    has = all(part["factor"] is not None for part in figure["parts"])
    return "factor" if has else "difference"


def adds_up(figure: Figure) -> bool:
    """Whether its parts are differences that add up to the whole."""
    known = [part["difference"] is not None for part in figure["parts"]]
    return kind(figure) == "difference" and all(known)


def part_text(figure: Figure, part: Mapping[str, Any]) -> str:
    """The effect of a technique on a metric: a factor, or a difference with its sign."""
    of = kind(figure)
    value = part[of]
    if value is None:
        return "-"
    if of == "factor":
        return factor_text(value)
    whole = figure["difference"]
    if value == 0 or (whole and abs(value / whole) < SAME):
        return "no change"
    return f"{'-' if value < 0 else '+'}{value_text(figure['key'], abs(value))}"


def factor_text(ratio: float) -> str:
    """A factor in the form of a multiplication, whatever it is of.

    >>> factor_text(0.18), factor_text(15.7), factor_text(1.0002)
    ('x 0.18', 'x 15.7', 'no change')
    """
    return "no change" if abs(ratio - 1) <= SAME else f"x {number(ratio)}"
