"""Reads the lengths of prompts and answers that a published row states, in tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from calibrate.published_names import Unrepresentable

ARENA_PROMPT = 354
"""Mean tokens of a prompt of the task lm-arena-chat, which are not published. The benchmark
(github.com/ml-energy/benchmark, mlenergy/llm/datasets.py) makes a request of every turn, with all
turns before it. Conversations of that service have 2.0 turns on average, of 69.5 tokens with
answers of 214.5 (LMSYS-Chat-1M, arXiv 2309.11998, table 1); with geometrically many turns one comes
before each on average: 69.5 + 1.0 (69.5 + 214.5)."""

GPQA_PROMPT = 250
"""Tokens of a prompt of GPQA: a question of a paragraph and four answers. The length is not
published, and matters little next to answers of two thousand tokens."""

UNPUBLISHED = {
    "lm-arena-chat prompts": (
        ARENA_PROMPT,
        f"prompts have {ARENA_PROMPT} tokens on average: two turns of LMSYS-Chat-1M, each with "
        "those before it",
    ),
    "gpqa prompts": (GPQA_PROMPT, f"prompts have {GPQA_PROMPT} tokens on average"),
}
"""Mean lengths of prompts of which only the kind is stated, and what is said of them."""

MOST_MEANS = 4
"""Where a law of lengths of which only the mean is known is cut off, in means."""

AS_WIDE = 2.9
"""The 95th percentile of a lognormal law that is as wide as its mean, in means."""

MEAN_ALONE = "lengths only the mean is known"

_WHOLE = re.compile(r"[\d,]+(?![\d.,]*\.)")
_P95 = re.compile(r"p95 (\d+\.?\d*)")
_MEAN = re.compile(r"mean\D{0,3}(?P<mean>\d+\.?\d*)|^(?P<first>\d+\.?\d*)")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers: equally likely from ``low`` to ``high``; or ``varied`` around
    their mean, which both then are: lognormal, with the 95th percentile ``p95``, None for that of a
    law as wide as its mean."""

    low: int
    high: int
    varied: bool = False
    p95: float | None = None

    @property
    def mean(self) -> float:
        """Mean tokens."""
        return (self.low + self.high) / 2

    @property
    def fixed(self) -> bool:
        """Whether all are the same."""
        return self.low == self.high and not self.varied

    @property
    def longest(self) -> int:
        """The most tokens that a request may have."""
        return self.high * (MOST_MEANS if self.varied else 1)

    @property
    def law(self) -> dict[str, Any]:
        """The law of a scenario."""
        if self.varied:
            p95 = AS_WIDE * self.low if self.p95 is None else self.p95
            return {"kind": "lognormal", "mean": self.low, "p95": p95, "max": self.longest}
        if self.fixed:
            return {"kind": "fixed", "value": self.low}
        return {"kind": "uniform", "low": self.low, "high": self.high}


def lengths_of(cell: str, what: str, spread: tuple[float, float], assumed: list[str]) -> Lengths:
    """The lengths that a ``cell`` states: a nominal number such as ``1024``, of which ``spread``
    has the shortest and the longest as shares, or ``mean 202, p95 586`` where they vary."""
    if tokens := _WHOLE.match(cell):
        nominal = int(tokens[0].replace(",", ""))
        if not nominal:
            raise Unrepresentable(f"{what} lengths of {cell} tokens are none")
        low, high = (max(1, round(share * nominal)) for share in spread)
        return Lengths(low, high)
    found = _MEAN.search(cell)
    for kind, (tokens_of_kind, remark) in UNPUBLISHED.items():
        if cell.startswith(kind):
            assumed.append(remark)
            return Lengths(tokens_of_kind, tokens_of_kind, varied=True)
    if found is None:
        raise Unrepresentable(f"{what} lengths are stated only as {cell!r}")
    mean = max(1, round(float(found["mean"] or found["first"])))
    if (p95 := _P95.search(cell)) is not None:
        return Lengths(mean, mean, varied=True, p95=float(p95[1]))
    assumed.append(f"of {what} {MEAN_ALONE}: spread as far as it is large")
    return Lengths(mean, mean, varied=True)
