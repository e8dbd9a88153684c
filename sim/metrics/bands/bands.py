"""Provides bands around the figures of a run: between which values the truth lies, and why so wide.

A figure depends on each part of a run by so many percent a percent
(``sim.metrics.bands.dependence``); how far a part is usually off was learnt from published
measurements (``sim.catalog.spreads``). Causes are independent, so that their squares add up; those
of ``ONE_SIDED`` count on one side alone. Bands are relative: a figure may be so many times larger
or smaller. Of one hundred measurements under conditions as stated, the 90 % band is meant to hold
ninety and the 50 % band fifty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from sim.catalog.spreads import Spreads, compared, learnt
from sim.metrics.bands.crowding import crowded, outside
from sim.metrics.bands.dependence import MEMORY, TIMES, Dependence
from sim.metrics.record.links import links_open
from sim.metrics.record.run_record import RunRecord


class ErrorCause(NamedTuple):
    """Why a prediction may be off: the named ``part`` of a band it belongs to, and what it is."""

    part: str
    title: str


CAUSES: Mapping[str, ErrorCause] = {
    "prompts": ErrorCause("kernels", "kernels of passes with prompts, in measured shapes"),
    "decodes": ErrorCause("kernels", "kernels of passes without prompts, in measured shapes"),
    "unmeasured": ErrorCause("kernels", "kernels in shapes that were not measured on the GPU"),
    "data sheet": ErrorCause("kernels", "kernels of a GPU known from its data sheet"),
    "experts": ErrorCause("kernels", "experts"),
    "host": ErrorCause("engine", "host time of an engine that was fitted to measured runs"),
    "host estimate": ErrorCause("engine", "host time of an engine that is an estimate"),
    "older release": ErrorCause(
        "engine", "an engine of an older release than those whose kernels were timed"
    ),
    "estimate, first token": ErrorCause(
        "engine", "first tokens of such an engine, with experts: later than predicted"
    ),
    "estimate, tokens": ErrorCause("engine", "the same: times of tokens"),
    "links": ErrorCause("links", "collectives over links that are known"),
    "open links": ErrorCause(
        "links", "collectives over PCIe, where nothing says if cards reach each other"
    ),
    "memory": ErrorCause("memory", "KV blocks"),
    "front end": ErrorCause("front end", "time before the scheduler: HTTP, tokeniser"),
    "crowding": ErrorCause("front end", "a front end that is busy: first tokens wait for others"),
    "crowding, tokens": ErrorCause(
        "front end", "the same: fewer requests are in the engine at once, or more come at once"
    ),
    "hand-over": ErrorCause(
        "hand-over", "first tokens between workers that prefill and decode apart: later"
    ),
    "mixing": ErrorCause("schedule", "how prompts and decodes share passes"),
    "open mixing": ErrorCause("schedule", "the same, where the client is not described"),
    "admission": ErrorCause(
        "schedule", "when prompts are let in, with clients that wait for answers"
    ),
    "open admission": ErrorCause("schedule", "the same, where the client is not described"),
    "admission at a rate": ErrorCause(
        "schedule", "when prompts are let in, with arrivals at a rate"
    ),
    "lengths": ErrorCause(
        "traffic", "lengths of which only the mean is known: latencies under arrivals at a rate"
    ),
    "lengths, closed": ErrorCause("traffic", "the same, with clients that wait for answers"),
    "lengths, rates": ErrorCause("traffic", "lengths of which only the mean is known: throughput"),
    "open client": ErrorCause("traffic", "how requests were sent: the range of plausible ways"),
    "open client, tokens": ErrorCause("traffic", "the same, for times of tokens and throughput"),
    "arrivals": ErrorCause("traffic", "chance in arrivals, and how long the last answers take"),
    "tail": ErrorCause("schedule", "percentiles of 90 and more"),
    "gaps": ErrorCause("schedule", "single gaps between tokens"),
    "lengths, long gaps": ErrorCause(
        "traffic", "lengths of prompts that are not published: the longest gaps between tokens"
    ),
    "left out, first token": ErrorCause(
        "left out", "what is not modelled and delays a first token: later, never earlier"
    ),
    "left out, rates": ErrorCause("left out", "what is not modelled and takes time: throughput"),
    "left out, tokens": ErrorCause("left out", "the same: times of tokens"),
    "run, first token": ErrorCause("run", "what whole runs add: time to first token"),
    "run, rates": ErrorCause("run", "what whole runs add: throughput"),
    "run, tokens": ErrorCause("run", "what whole runs add: times of tokens"),
}
"""By name in ``spreads.yaml``."""

FITTED = ("vllm", "gpt-fast", "tensorrt-llm")
"""Engines whose host times were fitted to published runs, by the start of their presets' names."""

OLDER = ("tensorrt-llm-0", "tensorrt-llm-triton", "tensorrt-llm-executor")
"""Presets of releases of 2023 and 2024, by the start of their names; kernels were timed under those
of 2025 and later (``calibrate/KERNELS.md``)."""

LEVELS = ("band50", "band90")

OF_TIMES = ("kernels", "links", "engine", "run")
"""Parts of a band that make iterations faster or slower."""

ONE_SIDED = frozenset(
    {
        *("left out, first token", "left out, rates", "left out, tokens"),
        *("estimate, first token", "estimate, tokens", "crowding", "hand-over"),
    }
)
"""Causes that only make a figure larger (or, with a negative weight, only smaller): what a
simulator leaves out of an engine takes time there and gives none back. Of 25 published sources of
times to first token 21 have longer ones than predicted in the median."""

LARGEST = 30.0
"""No figure is said to be off by more than e to this power: what is wider says nothing."""


MANY = 16
"""Experts from which on a model has many. Of 8, two to a token, a batch of some tens reads all, and
each has about its share of the tokens; of 32 to 384 the choices of tokens, which are not published,
decide how many are read and which has most."""


class Situation(NamedTuple):
    """The facts that decide which causes apply: whether the GPU's kernels were ``measured``,
    whether its ``links`` are open, whether the engine was ``fitted`` to measured runs, how requests
    are ``driven`` (``sim.metrics.question.question_text.driven_by``), what is left open of the
    ``client`` and of the ``lengths`` of requests, whether the model has ``experts`` and ``many`` of
    them, whether the engine is of an ``older`` release, whether prefill and decode are ``apart``,
    and how ``crowded`` its front end is, with what share of the requests ``outside`` the engine
    (``sim.metrics.bands.crowding``), and whether published runs of the engine on the GPU were
    ``compared`` with predictions at all: bands of others stand in where none was."""

    measured: bool
    links: bool
    fitted: bool
    driven: str
    client: bool = False
    lengths: bool = False
    experts: bool = False
    older: bool = False
    apart: bool = False
    crowded: float = 0.0
    many: bool = False
    outside: float = 0.0
    compared: bool = True


def situation(run: RunRecord, *, client: bool = False, lengths: bool = False) -> Situation:
    """The situation of ``run``; of several pools the less known counts."""
    from sim.metrics.question.question_text import driven_by  # noqa: PLC0415 - it needs the scenario's words

    deployments = [pool.deployment for pool in run.pools]
    return Situation(
        measured=all(d.gpu.profile is not None for d in deployments),
        links=not run.observed and links_open(run.pools),
        fitted=all(
            pool.deployment.engine.name.startswith(FITTED) or bool(pool.deployment.engine.fitted_to)
            for pool in run.pools
        ),
        driven=driven_by(run.scenario),
        client=client,
        lengths=lengths,
        experts=any(d.model.has_experts for d in deployments),
        older=any(pool.deployment.engine.name.startswith(OLDER) for pool in run.pools),
        apart=any(pool.settings.role == "decode" for pool in run.pools),
        crowded=crowded(run),
        outside=outside(run),
        many=any(d.model.num_experts >= MANY for d in deployments),
        compared=all(
            compared(pool.deployment.engine.name, pool.deployment.gpu.name)
            or bool(pool.deployment.engine.fitted_to)
            for pool in run.pools
        ),
    )


def setting(key: str, at: Situation) -> str:
    """The setting of a figure, in which errors are larger or smaller as a whole: published rows are
    enough to tell quantities apart, models with experts from others, rates by whether there are
    many of them, times to first token by what is known of clients, token times by whether prefill
    and decode are apart, and no more than that.

    >>> setting("p99_tpot_ms", Situation(True, False, True, "closed loop"))
    'tpot, dense'
    >>> experts = Situation(True, False, True, "offline", experts=True, many=True)
    >>> setting("output_throughput", experts)
    'rate, experts, many'
    >>> setting("mean_ttft_ms", Situation(True, False, True, "closed loop", client=True))
    'ttft, dense, open client'
    >>> setting("mean_ttft_ms", Situation(True, False, True, "closed loop"))
    'ttft, dense, closed loop'
    """
    metric = _metric(key)
    found = f"{metric}, {'experts' if at.experts else 'dense'}"
    if metric == "rate" and at.many:
        return f"{found}, many"
    if metric == "tpot" and at.apart:
        return f"{found}, apart"
    if metric != "ttft" or at.driven != "closed loop":
        return found
    return f"{found}, {'open client' if at.client else 'closed loop'}"


def scaled(causes: Mapping[str, float], by: float) -> dict[str, float]:
    """Causes that weigh so many times as much."""
    return {name: by * weight for name, weight in causes.items()}


def weights(key: str, dependence: Dependence, at: Situation) -> dict[str, float]:
    """With how much of its spread each cause moves the figure ``key``; negative where the figure
    falls as the cause grows."""
    d = dependence
    metric, rank = _metric(key), key.partition("_")[0]
    found = {name: d[name] for name in ("prompts", "decodes", "experts", "front end", MEMORY)}
    found["unmeasured" if at.measured else "data sheet"] = d["unmeasured"]
    found["open links" if at.links else "links"] = d["links"]
    found["host" if at.fitted else "host estimate"] = d["host"]
    whole = sum(dependence[name] for name in TIMES)
    kind = {"ttft": "first token", "rate": "rates"}.get(metric, "tokens")
    found[f"run, {kind}"] = whole
    found[f"left out, {kind}"] = whole if metric == "rate" else 1.0
    if at.older and metric != "ttft":
        found["older release"] = math.copysign(1.0, whole)
    if metric == "ttft":
        found["crowding"] = at.crowded
        found["hand-over"] = float(at.apart)
    elif at.driven == "closed loop":
        found["crowding, tokens"] = at.outside
    if not at.fitted and at.experts:
        found[f"estimate, {'tokens' if kind == 'rates' else kind}"] = math.copysign(1.0, whole)
    if at.driven != "static batch":
        found |= _of_schedule(key, d, whole, at)
    if at.lengths:
        closed = "lengths, closed" if at.driven == "closed loop" else "lengths"
        found["lengths, rates" if metric == "rate" else closed] = 1.0
    tail = rank in ("p90", "p95", "p99")
    if metric == "itl":
        found["gaps"] = 1.0
        if tail and at.lengths:
            found["lengths, long gaps"] = 1.0
    if tail:
        found["tail"] = 1.0
    return {name: weight for name, weight in found.items() if weight}


def _metric(key: str) -> str:
    parts = key.split("_")
    return parts[1] if parts[-1] == "ms" else "rate"


def _of_schedule(key: str, d: Mapping[str, float], whole: float, at: Situation) -> dict[str, float]:
    """Causes that exist where an engine decides which requests share a pass."""
    metric = _metric(key)
    if metric == "ttft":
        if at.driven != "closed loop":
            return {"admission at a rate": 1.0}
        return {"open admission" if at.client else "admission": 1.0}
    if metric == "rate":
        return {"arrivals": max(0.0, 1.0 - abs(whole))} if key != "capacity" else {}
    return {"open mixing" if at.client else "mixing": d["prompts"]}


def of_side(causes: Mapping[str, float], *, larger: bool) -> dict[str, float]:
    """The causes that can make a figure ``larger``, or else smaller, than predicted.

    >>> of_side({"left out, rates": -1.0, "prompts": -0.5}, larger=True)
    {'prompts': -0.5}
    """
    return {
        name: weight
        for name, weight in causes.items()
        if name not in ONE_SIDED or (weight > 0) is larger
    }


def spread_of(causes: Mapping[str, float], spreads: Spreads) -> float:
    """The spread of a figure on which causes weigh so much."""
    return math.sqrt(sum((weight * spreads.of[name]) ** 2 for name, weight in causes.items()))


def by_part(causes: Mapping[str, float], spreads: Spreads) -> dict[str, float]:
    """By how much each named part alone may make a figure larger with a chance of 90 %, or smaller
    where it only can do that; the largest first."""
    squares: dict[str, float] = {}
    for name, weight in causes.items():
        part = CAUSES[name].part
        squares[part] = squares.get(part, 0.0) + (weight * spreads.of[name]) ** 2
    order = sorted(squares.items(), key=lambda item: -item[1])
    reach = {part: spreads.ninety * math.sqrt(square) for part, square in order}
    return {part: math.expm1(min(each, LARGEST)) for part, each in reach.items() if each}


def half_of(error: float) -> float:
    """The 50 % band of times whose 90 % band reaches to ``error`` (both as shares).

    >>> 0 < half_of(0.2) < 0.2
    True
    """
    spreads = learnt().everything
    return math.expm1(math.log1p(error) * spreads.half / spreads.ninety)


def without(parts: Mapping[str, float], name: str) -> float:
    """The width of a band of such ``parts`` if the one called ``name`` were known exactly.

    >>> round(without({"kernels": 0.3, "engine": 0.1}, "kernels"), 3)
    0.1
    """
    rest = sum(math.log1p(share) ** 2 for part, share in parts.items() if part != name)
    return math.expm1(math.sqrt(rest))


def band(value: float, reach: float) -> tuple[float, float]:
    """The values that are by a factor of e to the ``reach`` smaller and larger.

    >>> low, high = band(100.0, 0.1)
    >>> round(low, 1), round(high, 1)
    (90.5, 110.5)
    """
    factor = math.exp(min(reach, LARGEST))
    return value / factor, value * factor
