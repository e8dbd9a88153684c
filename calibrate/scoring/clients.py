"""Lists how requests may have been sent where a publisher does not say, and compares the outcomes.

The time to first token depends on this more than on any kernel. A row whose client is not described
is predicted under each of ``plausible``; its own prediction is the first of them, unless more is
known of the publication. So are the two ends of prompt lengths that are not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calibrate.scoring.conditions import ROUNDS, Conditions
from calibrate.scoring.lengths import UNPUBLISHED, Lengths
from calibrate.scoring.workers import split_settings

KEPT = "clients that wait for answers"
SETTLED = "the same, without their first requests"
SPREAD = "clients that wait, lengths of 0.8 to 1 of those stated"
BURST = "one burst, a request for each client"

TOGETHER = "first tokens come with those that are streamed together"
AT_ONCE = "first tokens come at once, before those that are streamed together"

SHORTEST = 0.8
"""Of a stated length, in the protocol of InferenceMAX. Requests alike that start together end
together, so that such clients stay in step; lengths that differ put them out of it."""

ENDS = (0.5, 2.0)
"""Shares of an assumed length between which the true one is taken to be."""


def plausible(known: Conditions) -> dict[str, Conditions]:
    """By name, the conditions that ``known`` may stand for; none where all is published."""
    if known.driver != "closed" or known.size is None:
        return {}
    if known.described:
        return _splits(known) or _streams(known) or _lengths(known)
    kept = known.under({"run.requests": ROUNDS * known.size})
    burst = {"workload.arrivals": {"kind": "burst"}, "run.requests": known.size}
    return {
        KEPT: kept,
        SETTLED: kept.under({"run.warmup": known.size}),
        **_spread(kept),
        **dict(list(_streams(kept).items())[1:]),  # the first is that of all the above
        BURST: kept.under(burst),
        **dict(list(_splits(kept).items())[1:]),
    }


def _splits(known: Conditions) -> dict[str, Conditions]:
    """The numbers of workers that prefill and decode, where several are plausible."""
    apart = known.apart
    if apart is None or len(apart.plausible) < 2:
        return {}
    found = {}
    for split in apart.plausible:
        other, scheduler = replace(apart, split=split), known.document["scheduler"]
        settings = split_settings(other, known.model, known.gpu, scheduler)
        found[split.name] = known.under(settings, apart=other, gpus=other.gpus)
    return found


def _streams(known: Conditions) -> dict[str, Conditions]:
    """Both ways in which the first token may come, where several are streamed together."""
    if known.streamed == 1:
        return {}
    return {TOGETHER: known, AT_ONCE: replace(known, streamed=1)}


def _spread(kept: Conditions) -> dict[str, Conditions]:
    """Lengths that differ, where those that are stated do not."""
    prompt, output = kept.prompt, kept.output
    if not (prompt.fixed and output.fixed):
        return {}
    prompt, output = (
        Lengths(max(1, round(SHORTEST * each.low)), each.high) for each in (prompt, output)
    )
    laws = {"workload.prompt_tokens": prompt.law, "workload.output_tokens": output.law}
    return {SPREAD: kept.under(laws, prompt=prompt, output=output)}


def _lengths(known: Conditions) -> dict[str, Conditions]:
    """Both ends of the length of prompts, where only their kind is published."""
    if not any(remark in known.assumed for _, remark in UNPUBLISHED.values()):
        return {}
    found = {}
    for share in ENDS:
        tokens = max(1, round(share * known.prompt.mean))
        prompt = Lengths(tokens, tokens, varied=True)
        longest = prompt.longest + known.output.longest
        settings = {"workload.prompt_tokens": prompt.law, "max_model_len": longest}
        found[f"prompts of {tokens:,} tokens"] = known.under(settings, prompt=prompt)
    return found


class Compared(NamedTuple):
    """Errors of some rows under one of the plausible ways, in %: the median with its sign, and the
    median of the absolute error."""

    name: str
    bias: float
    median: float


class LeftOpen(NamedTuple):
    """The uncertainty over that many rows: the errors under each way, and for how many of them, in
    %, the measurement is between the least and the largest prediction."""

    rows: int
    between: float
    ways: tuple[Compared, ...]


Outcome = tuple[float, Mapping[str, float]]
"""A measurement, and its predictions by name."""


def compared(outcomes: Sequence[Outcome]) -> LeftOpen:
    """The uncertainty over rows, at least one, whose predictions have the same names."""
    names = list(outcomes[0][1])
    measured = np.array([value for value, _ in outcomes])
    found = np.array([[ways[name] for name in names] for _, ways in outcomes])
    errors = 100 * (found / measured[:, None] - 1)
    between = (found.min(axis=1) <= measured) & (measured <= found.max(axis=1))
    bias, size = np.median(errors, axis=0), np.median(np.abs(errors), axis=0)
    ways = tuple(map(Compared, names, bias.tolist(), size.tolist()))
    return LeftOpen(len(outcomes), float(100 * between.mean()), ways)
