"""States a band for every headline figure of a run, from named parts.

What a figure depends on follows from the run's own passes (``sim.metrics.bands.dependence``), how
far each part is usually off from published runs (``sim.metrics.bands.bands``). Where the run was
repeated with faster and slower iterations (``sim.band_runs``), what came of that takes the place
of the part of the times: so the band of an unstable fleet reaches to an overload. The chance of a
percentile of this run comes on top. Milliseconds, rates per second, US dollars, as in the summary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sim.catalog.spreads import Spreads, learnt
from sim.metrics.bands.bands import (
    CAUSES,
    LARGEST,
    LEVELS,
    OF_TIMES,
    Situation,
    by_part,
    of_side,
    scaled,
    setting,
    situation,
    spread_of,
    weights,
)
from sim.metrics.bands.dependence import LATENCIES, RANKS, TIMES, Dependence, Dependences
from sim.metrics.bands.trust import verdict_trust
from sim.metrics.latency.intervals import Z95
from sim.metrics.question.question_text import asked
from sim.metrics.record.links import OpenLinks
from sim.metrics.record.pools import names
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.units import show_number, show_time

RISING = ("median", *RANKS)
"""Percentiles, from the lowest."""

OF_TOKENS = ("_tpot_ms", "_itl_ms")
"""Ends of the names of times that a full batch bounds: an overload does not make them grow."""

HALF, NINETY = 0.6745, 1.6449
"""Standard deviations within which half and nine tenths of a normal law lie."""

CHANCE = "chance"


def figure_bands(
    run: RunRecord, summary: Mapping[str, Any], ends: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The entry ``infersim.bands``: by figure ``band50`` and ``band90`` ([low, high], high is None
    where the slower end of the band is overloaded), what each part comes to alone (``parts``, at
    90 %), and what ``sim.metrics.bands.ratio_bands`` needs: its ``causes`` with their weights, and
    ``ends``, the logarithm of the figure at the faster and at the slower end over this one; what
    the error of each part belongs to (``kin``), the ``origin`` of the spreads, the ``trust``
    in the verdict (None where there is nothing to decide), and a ``text``.
    None without a completed request."""
    if not run.completed.any() or run.observed:
        return None
    spreads, at = learnt().everything, situation(run)
    figures = {}
    for key, dependence in Dependences(run).figures().items():
        value = _value(summary, key)
        if value:
            causes = scaled(weights(key, dependence, at), spreads.scale(setting(key, at)))
            other = _other_case(key, dependence, at, run.open_links)
            figures[key] = _figure(key, value, causes, spreads, summary, ends, other)
    _keep_in_order(figures)
    figures |= dict(_costs(summary, figures))
    text = _text(summary, figures, overload=_overload(ends), compared=at.compared)
    verdict = summary["infersim"]["verdict"]
    sure = verdict_trust(verdict, figures, ends, compared=at.compared)
    return {
        "figures": figures,
        "kin": kin(run),
        "origin": learnt().origin,
        "trust": None if sure is None else sure["word"],
        "text": f"{text} {sure['text']}" if sure else text,
    }


def _keep_in_order(figures: Mapping[str, dict[str, Any]]) -> None:
    """Widen bands so that their ends are in the order of the figures: a percentile is not below a
    lower one, and no answer is complete before its first token."""
    for metric in (*LATENCIES, "itl"):
        ranks = [key for rank in RISING if (key := f"{rank}_{metric}_ms") in figures]
        _widen([figures[key] for key in ranks])
    for rank in ("mean", *RISING):
        pair = [f"{rank}_ttft_ms", f"{rank}_e2el_ms"]
        if all(key in figures for key in pair):
            _widen([figures[key] for key in pair])


def _widen(rising: Sequence[dict[str, Any]]) -> None:
    """Bands of figures none of which is less than the one before it."""
    for level in LEVELS:
        for fewer, more in pairwise(rising):
            tops = [figure[level][1] for figure in (fewer, more)]
            more[level][1] = None if None in tops else max(tops)
        for more, fewer in pairwise(reversed(rising)):
            fewer[level][0] = min(figure[level][0] for figure in (fewer, more))


def kin(run: RunRecord) -> dict[str, str]:
    """The group that each part's error belongs to: two runs that name the same err alike in it."""
    deployments = [pool.deployment for pool in run.pools]
    gpus, engines = (
        names(found)
        for found in (
            [d.gpu.name for d in deployments],
            [d.engine.name for d in deployments],
        )
    )
    formats = names(f"{d.weights} with KV in {d.kv_cache}" for d in deployments)
    models = names(d.model.name for d in deployments)
    served = f"{models} in {formats} on {gpus}, {engines}"
    policies = names(pool.settings.scheduler.batching for pool in run.pools)
    traffic = asked(run.scenario)
    return {
        "kernels": served,
        "links": f"{gpus}, {engines}",
        "engine": engines,
        "memory": served,
        "front end": engines,
        "schedule": f"{engines}, {policies}",
        "traffic": f"{traffic['traffic']}; {traffic['lengths']}",
        "run": served,
        "left out": served,
    }


def _value(summary: Mapping[str, Any], key: str) -> float | None:
    """A figure of the summary; the capacity as a multiple of the traffic."""
    if key != "capacity":
        return summary.get(key)
    used = summary["infersim"]["verdict"]["utilisation"]
    return 1 / used if used else None


def _figure(
    key: str,
    value: float,
    causes: Mapping[str, float],
    spreads: Spreads,
    summary: Mapping[str, Any],
    ends: Mapping[str, Any] | None,
    other: tuple[float, float],
) -> dict[str, Any]:
    """The bands of one figure; ``other`` is how far that of 90 % reaches down and up at least."""
    times = _of_times(causes)
    others = {name: each for name, each in causes.items() if name not in times}
    chance = _chance(summary, key, value)
    moved = None if ends is None or key == "capacity" else _moved(key, value, ends)
    found: dict[str, Any] = {}
    for name, multiple, normal in (
        ("band50", spreads.half, HALF),
        ("band90", spreads.ninety, NINETY),
    ):
        of_times = multiple * spread_of(times, spreads)
        down = up = of_times
        if name == "band90":
            down, up = max(down, other[0]), max(up, other[1])
        if moved is not None:
            share = multiple / spreads.ninety
            down, up = share * max(0.0, -min(moved)), share * max(0.0, *moved)
        low, high = (
            min(
                math.hypot(
                    each,
                    multiple * spread_of(of_side(others, larger=larger), spreads),
                    normal * chance,
                ),
                LARGEST,
            )
            for each, larger in ((down, False), (up, True))
        )
        found[name] = [value * math.exp(-low), value * math.exp(high)]
    if _overload(ends) and key.endswith("_ms") and not key.endswith(OF_TOKENS):
        found["band90"][1] = None
    parts = by_part(causes, spreads)
    if chance:
        parts[CHANCE] = math.expm1(NINETY * chance)
    causes = {name: float(f"{weight:.4g}") for name, weight in causes.items()}
    found |= {"parts": parts, "causes": causes}
    return found if moved is None else found | {"ends": moved}


def _of_times(causes: Mapping[str, float]) -> dict[str, float]:
    return {name: each for name, each in causes.items() if CAUSES[name].part in OF_TIMES}


def _other_case(
    key: str, dependence: Dependence, at: Situation, links: OpenLinks | None
) -> tuple[float, float]:
    """How far down and up (logarithms) the band of a figure's times reaches where cards reach each
    other otherwise than assumed: from what longer iterations make of the figure, by what is usual
    where links are known."""
    whole = sum(dependence[name] for name in TIMES)
    if links is None or not whole:
        return 0.0, 0.0
    first = key.endswith("_ttft_ms")  # most of which is passes with prompts
    more = links.prompts if first else max(links.prompts, links.decodes)
    longer = more * dependence["links"] / whole
    spreads, known = learnt().everything, at._replace(links=False)
    causes = scaled(weights(key, dependence, known), spreads.scale(setting(key, known)))
    reach = spreads.ninety * spread_of(_of_times(causes), spreads)
    reach += abs(whole) * math.log1p(max(0.0, longer))
    return (0.0, reach) if whole > 0 else (reach, 0.0)


def _overload(ends: Mapping[str, Any] | None) -> bool:
    """Whether a fleet that is not overloaded at the predicted times is at the slower end."""
    if ends is None:
        return False
    states = [ends[name]["verdict"]["state"] for name in ("faster", "slower")]
    return bool(states[1] == State.OVERLOADED != states[0])


def _moved(key: str, value: float, ends: Mapping[str, Any]) -> list[float] | None:
    """The logarithm of a figure at the faster and at the slower end of the band of times over the
    predicted one; None where they do not have it."""
    values = [ends[name].get(key) for name in ("faster", "slower")]
    return None if any(not each for each in values) else [math.log(v / value) for v in values]


def _chance(summary: Mapping[str, Any], key: str, value: float) -> float:
    """How far chance may have moved a percentile of this run (a standard deviation of its
    logarithm), by the 95 % interval of the run."""
    entry = summary["infersim"]["precision"].get(key)
    if not isinstance(entry, Mapping) or not entry.get("low") or not entry.get("high"):
        return 0.0
    return math.log(entry["high"] / entry["low"]) / (2 * Z95)


def _costs(
    summary: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A token costs what the throughput makes of it."""
    cost = summary["infersim"]["cost"] or {}
    for key, rate in (
        ("usd_per_million_output_tokens", "output_throughput"),
        ("usd_per_million_tokens", "total_token_throughput"),
    ):
        value, known = cost.get(key), figures.get(rate)
        if value and known is not None:
            served = summary[rate]
            yield (
                key,
                {
                    **{
                        name: [value * served / known[name][1], value * served / known[name][0]]
                        for name in ("band50", "band90")
                    },
                    "parts": known["parts"],
                    "causes": {name: -weight for name, weight in known["causes"].items()},
                    **({"ends": [-x for x in known["ends"]]} if "ends" in known else {}),
                },
            )


def _text(
    summary: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
    *,
    overload: bool,
    compared: bool,
) -> str:
    """The 90 % bands in a sentence; ``compared``: whether they were learnt from runs of the same
    engine and GPU, too."""
    told = []
    for key in _shown(summary["infersim"]["verdict"]):
        if key not in figures:
            continue
        low, high = figures[key]["band90"]
        if key.endswith("_ms"):
            rank, metric, _ = key.split("_")
            top = "an overload" if high is None else show_time(high / 1e3)
            told.append(f"{metric.upper()} {rank} {show_time(low / 1e3)} to {top}")
        else:
            told.append(f"{show_number(low)} to {show_number(high)} output tokens/s")
    ending = " The slower end is overloaded: then latencies grow for as long as it lasts."
    within = (
        "With a chance of 90 % a real run lies within"
        if compared
        else "With which chance a real run lies within is not known, since the bands are those of "
        "other engines or GPUs"
    )
    text = f"{within}: {', '.join(told)}."
    return text + (ending if overload else "")


def _shown(verdict: Mapping[str, Any]) -> list[str]:
    """The figures that the text names: of each latency the mean, and the percentile that an SLO
    limits, else the p99.

    >>> _shown({"limits": {"ttft_p95": {"percentile": 95.0}}})[:2]
    ['mean_ttft_ms', 'p95_ttft_ms']
    """
    ranks = {"ttft": "p99", "tpot": "p99"}
    for name, limit in reversed(verdict["limits"].items()):
        ranks[name.partition("_")[0]] = f"p{limit['percentile']:g}"
    return [
        *(f"{rank}_{name}_ms" for name, own in ranks.items() for rank in ("mean", own)),
        "output_throughput",
    ]
