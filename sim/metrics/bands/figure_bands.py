"""States a band for every headline figure of a run, from named parts.

How far a kind of figure is off follows from published runs, by how far this one is from them
(``sim.metrics.bands.bands``). Where the run was repeated with faster and slower iterations
(``sim.band_runs``), the band reaches at least to what came of that: so the band of an unstable
fleet reaches to an overload. The chance of a percentile of this run comes on top. No throughput
reaches above what arrives in an open loop. Milliseconds, rates per second, US dollars, as in the
summary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sim.catalog.spreads import NORMAL, learnt
from sim.metrics.bands.bands import (
    CHANCE,
    LEAN,
    LEVELS,
    SERVED,
    Question,
    band,
    kind,
    question,
    reach,
    shares,
    with_longer,
)
from sim.metrics.bands.trust import verdict_trust
from sim.metrics.fleet.drain import offered
from sim.metrics.latency.intervals import Z95
from sim.metrics.latency.percentiles import PERCENTILES
from sim.metrics.record.links import OpenLinks
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.units import between, show_number, show_time

RATES = ("request_throughput", "output_throughput", "total_token_throughput")
LATENCIES = ("ttft", "tpot", "e2el", "itl")

RISING = ("median", *(f"p{rank}" for rank in PERCENTILES))
"""Percentiles, from the lowest."""

KEYS = (
    *RATES,
    *(f"{rank}_{name}_ms" for name in LATENCIES for rank in ("mean", *RISING)),
    "capacity",
)
"""The figures that have bands, next to costs; ``capacity`` is that of full batches as a multiple of
the traffic."""

NAMED = 2
"""Parts of the band of TTFT that its sentence names."""

OF_TOKENS = ("_tpot_ms", "_itl_ms")
"""Ends of the names of times that a full batch bounds: an overload does not make them grow."""


def figure_bands(
    run: RunRecord,
    summary: Mapping[str, Any],
    ends: Mapping[str, Any] | None,
    *,
    skipped: bool = False,
) -> dict[str, Any] | None:
    """The entry ``infersim.bands``: by figure ``band50`` and ``band90`` ([low, high], high is None
    where the slower end of the band is overloaded), what each part comes to alone (``parts``, at
    90 %), and what ``sim.metrics.bands.ratio_bands`` needs: the ``kind`` of figure, and ``ends``,
    the logarithm of the figure at the faster and at the slower end over this one; the ``place``
    among the runs that were compared, the ``origin`` of what is known of those, the ``trust``
    in the verdict (None where there is nothing to decide), and a ``text``. ``skipped`` says that
    the ``ends`` matter and were not simulated. None without a completed request."""
    if not run.completed.any() or run.observed:
        return None
    at = question(run, str(summary["infersim"]["verdict"]["state"]))
    figures = {
        key: _figure(key, value, at, run.open_links, summary, ends)
        for key in KEYS
        if (value := _value(summary, key))
    }
    _keep_in_order(figures)
    arriving = offered(run)
    for key, most in arriving.items():
        _keep_below(figures.get(key, {}), max(most, summary[key] or 0.0))
    figures |= dict(_costs(summary, figures))
    text = _text(summary, figures, arriving, overload=_overload(ends), compared=at.compared)
    verdict = summary["infersim"]["verdict"]
    sure = verdict_trust(verdict, figures, ends, compared=at.compared, skipped=skipped)
    return {
        "figures": figures,
        "place": {**at.place._asdict(), "own": at.own, "kernels": at.kernels},
        "origin": learnt().origin,
        "trust": None if sure is None else sure["word"],
        "text": f"{text} {sure['text']}" if sure else text,
    }


def _keep_in_order(figures: Mapping[str, dict[str, Any]]) -> None:
    """Widen bands so that their ends are in the order of the figures: a percentile is not below a
    lower one, and no answer is complete before its first token."""
    for metric in LATENCIES:
        ranks = [key for rank in RISING if (key := f"{rank}_{metric}_ms") in figures]
        _widen([figures[key] for key in ranks])
    for rank in ("mean", *RISING):
        pair = [f"{rank}_ttft_ms", f"{rank}_e2el_ms"]
        if all(key in figures for key in pair):
            _widen([figures[key] for key in pair])


def _keep_below(figure: dict[str, Any], most: float) -> None:
    """Cut bands at ``most``, which the figure cannot exceed."""
    for level in LEVELS:
        if level in figure:
            figure[level] = [min(end, most) for end in figure[level]]


def _widen(rising: Sequence[dict[str, Any]]) -> None:
    """Bands of figures none of which is less than the one before it."""
    for level in LEVELS:
        for fewer, more in pairwise(rising):
            tops = [figure[level][1] for figure in (fewer, more)]
            more[level][1] = None if None in tops else max(tops)
        for more, fewer in pairwise(reversed(rising)):
            fewer[level][0] = min(figure[level][0] for figure in (fewer, more))


def _value(summary: Mapping[str, Any], key: str) -> float | None:
    """A figure of the summary; the capacity as a multiple of the traffic."""
    if key != "capacity":
        return summary.get(key)
    used = summary["infersim"]["verdict"]["utilisation"]
    return 1 / used if used else None


def _figure(
    key: str,
    value: float,
    at: Question,
    links: OpenLinks | None,
    summary: Mapping[str, Any],
    ends: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The bands of one figure."""
    usual, of = reach(key, at), kind(key, at)
    parts = shares(usual.parts, usual.ninety, usual.centre)
    chance = _chance(summary, key, value)
    moved = None if ends is None or key == "capacity" else _moved(key, value, ends)
    found: dict[str, Any] = {}
    for level, normal in zip(LEVELS, NORMAL, strict=True):
        down, up = usual.ends(level)
        if level == "band90" and of.startswith("rate"):
            parts, down = with_longer(parts, down, None if of.startswith(SERVED) else links)
        elif level == "band90":
            parts, up = with_longer(parts, up, links)
        if moved is not None:
            share = usual.half / usual.ninety if level == "band50" else 1.0
            down, up = max(down, -share * min(moved)), max(up, share * max(moved))
        found[level] = list(
            band(value, *(math.hypot(each, normal * chance) for each in (down, up)))
        )
    if _overload(ends) and key.endswith("_ms") and not key.endswith(OF_TOKENS):
        found["band90"][1] = None
    if chance:
        parts[CHANCE] = math.expm1(NORMAL.ninety * chance)
    found |= {"parts": parts, "kind": of}
    return found if moved is None else found | {"ends": moved}


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
                    "kind": known["kind"],
                    **({"ends": [-x for x in known["ends"]]} if "ends" in known else {}),
                },
            )


def _text(
    summary: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
    arriving: Mapping[str, float],
    *,
    overload: bool,
    compared: bool,
) -> str:
    """The 90 % bands in a sentence; ``arriving`` is what comes per second, and ``compared`` whether
    they were learnt from runs of the same engine and GPU, too."""
    told = []
    for key in _shown(summary["infersim"]["verdict"]):
        if key not in figures:
            continue
        low, high = figures[key]["band90"]
        if key.endswith("_ms"):
            rank, metric, _ = key.split("_")
            span = between(show_time(low / 1e3), None if high is None else show_time(high / 1e3))
            told.append(f"{metric.upper()} {rank} {span}")
        else:
            bound = ", no more than arrive" if high >= arriving.get(key, math.inf) else ""
            told.append(f"{show_number(low)} to {show_number(high)} output tokens/s{bound}")
    ending = " The slower end is overloaded: then latencies grow for as long as it lasts."
    within = (
        "With a chance of 90 % a real run lies within"
        if compared
        else "As runs of other engines and GPUs were off, nine of ten real runs lie within"
    )
    text = f"{within}: {', '.join(told)}." + (ending if overload else "")
    return text + _why_first_tokens(figures)


def _why_first_tokens(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Why the mean TTFT is less sure than the mean TPOT, where it is: the parts of its band that
    are the largest."""
    ttft, tpot = (figures.get(f"mean_{name}_ms", {}).get("parts") for name in ("ttft", "tpot"))
    if not ttft or not tpot or max(ttft.values()) <= max(tpot.values()):
        return ""
    most = sorted((share, name) for name, share in ttft.items() if name != LEAN)[-NAMED:]
    told = " and ".join(f"{name} {share:.0%}" for share, name in reversed(most))
    return f" TTFT is less sure than TPOT: its largest parts are {told}."


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
