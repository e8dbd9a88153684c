"""Formats keys, limits and metrics as the tables and sentences of decisions write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.bands.trust import Trust
from sim.metrics.states import State, Word, is_apart

PROBABLY_TOO_MUCH = "overload?"
"""Near saturation, with more arriving than can be served: probably overloaded."""

SETTING = re.compile(r"(?<![\w.])([a-z][a-z_0-9]*)=([^\s,:;]*[^\s,:;.)])")
"""A setting as it is written in commands."""

MEASURED: Mapping[str, str] = {"rate": "requests/s", "concurrency": "users"}
"""Setting -> what its value counts."""

SPEAKING = ("gpu", "model", "engine", "batching", "router", "order", "precision")
"""Settings whose values say by themselves what they are."""

USUAL_PERCENTILE = 99.0
"""Percentile that is shown where the SLO says nothing of it."""


class LoadOutcome(Word):
    """Whether a load holds; open where the intervals leave open whether it does."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "too close to call"


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each dotted key, and the shortest end of it that no other one has.

    >>> short_keys(["workload.arrivals.rate", "workload.prompt_tokens.mean", "other.mean"])
    {'workload.arrivals.rate': 'rate', 'workload.prompt_tokens.mean': 'prompt_tokens.mean', \
'other.mean': 'other.mean'}
    """
    return {key: _ending(key, [other for other in keys if other != key]) for key in keys}


def _ending(key: str, others: Sequence[str]) -> str:
    steps = key.split(".")
    for length in range(1, len(steps)):
        ending = steps[-length:]
        if not ending[0].isdecimal() and all(o.split(".")[-length:] != ending for o in others):
            return ".".join(ending)
    return key


def share(value: float | None) -> str:
    """A share in percent with the digits that decide: it neither rounds up to a target, or to all,
    nor down to nothing.

    >>> share(0.99996), share(1.0), share(0.98666), share(0.5), share(0.0), share(None)
    ('99.99%', '100%', '98.66%', '50%', '0%', '-')
    >>> share(0.74808), share(0.00004)
    ('74.8%', '<0.01%')
    """
    if value is None:
        return "-"
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    if value < 1e-4:
        return "<0.01%"
    digits = 2 if value > 0.9 or value < 0.1 else 1
    scale = 10**digits
    text = f"{math.floor(round(value * 100 * scale, 6)) / scale:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.')}%"


def rank(value: float) -> str:
    """The percentile that a share of requests is judged by.

    >>> rank(0.99), rank(0.999), rank(0.5)
    ('p99', 'p99.9', 'p50')
    """
    return f"p{100 * value:.6g}"


def limit_name(name: str) -> str:
    """The name of a limit that breaks, in tables and sentences.

    >>> limit_name("ttft"), limit_name("ttft_p95"), limit_name("capacity")
    ('TTFT', 'TTFT p95', 'capacity')
    """
    if name in ("capacity", "rejected"):
        return name
    metric, _, percentile = name.partition("_")
    return f"{metric.upper()} {percentile}".strip()


def counted(count: int, noun: str) -> str:
    """A count with its noun, in words.

    >>> counted(1, "replica"), counted(1200, "GPU")
    ('1 replica', '1,200 GPUs')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def fleet_text(replicas: int, layout: str) -> str:
    """Replicas of one layout, for a table.

    >>> fleet_text(3, "1 x h100-sxm"), fleet_text(1, "2 x l4, fp8")
    ('3 x (1 x h100-sxm)', '2 x l4, fp8')
    """
    return layout if replicas == 1 else f"{replicas} x ({layout})"


def nearest_promise(probe: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of the SLO that decides what is said of a load: of one that fails the part that
    ``breaks``, else where chance leaves it open one that is, else the one that uses up most of the
    requests it may miss; None without an SLO. Parts with other percentiles are not compared by
    their shares.

    >>> loose = {"target": 0.5, "attainment": 0.7, "low": 0.65, "high": 0.75}
    >>> strict = {"target": 0.95, "attainment": 1.0, "low": 0.99, "high": 1.0}
    >>> nearest_promise({"outcome": "holds", "promises": [strict, loose]})["target"]
    0.5
    """
    promises: list[Mapping[str, Any]] = list(probe["promises"])
    if probe.get("holds") is False:
        broken = [each for each in promises if probe.get("breaks") in each.get("within", ())]
        promises = broken or promises
    if probe.get("outcome") == LoadOutcome.OPEN:
        left = [each for each in promises if each["low"] < each["target"] <= each["high"]]
        promises = left or promises
    return max(promises, key=_used, default=None)


def _used(promise: Mapping[str, Any]) -> tuple[bool, float, float]:
    """How near a part of the SLO is to breaking: whether it is missed, how many of the requests
    that may miss it do, and the highest of its latencies over their limits."""
    missed, allowed = 1 - promise["attainment"], 1 - promise["target"]
    latencies = promise.get("pressure", {}).values()
    highest = max((math.inf if each is None else each for each in latencies), default=0.0)
    used = missed / allowed if allowed else missed
    return promise["attainment"] < promise["target"], used, highest


def promise_name(promise: Mapping[str, Any]) -> str:
    """The limits of a part of the SLO, by name.

    >>> promise_name({"within": {"tpot_p50": 0.7}})
    'TPOT p50'
    >>> promise_name({"within": {"ttft": 1.0, "tpot": 1.0}})
    'TTFT and TPOT'
    """
    return " and ".join(map(limit_name, promise["within"]))


def outcome_text(probe: Mapping[str, Any]) -> str:
    """``holds``, ``fails: TPOT`` or ``too close to call``; without an SLO what the verdict says
    instead of stable. A load that is too close to call, of which it is known how sure that is
    (``trust``), ``holds, likely``, say, or ``fails: TPOT, likely``.

    >>> probe = {"outcome": "too close to call", "holds": False, "breaks": "tpot"}
    >>> outcome_text(probe), outcome_text({**probe, "trust": "likely"})
    ('too close to call', 'fails: TPOT, likely')
    """
    is_open, trust = probe["outcome"] == LoadOutcome.OPEN, probe.get("trust")
    if is_open and trust is None:
        return str(LoadOutcome.OPEN)
    fails = not probe["holds"] if is_open else probe["outcome"] == LoadOutcome.FAILS
    text = f"{LoadOutcome.FAILS}: {breaking(probe)}" if fails else str(LoadOutcome.HOLDS)
    return f"{text}, {trust}" if is_open else text


def breaking(probe: Mapping[str, Any]) -> str:
    """The limit that a failing load breaks; without an SLO the verdict's word instead of stable."""
    if probe.get("promises") == [] and "state" in probe:
        return str(probe["state"])
    return limit_name(probe["breaks"])


def verdict_word(slo: str | None, holds: bool | None) -> str:
    """``met`` or ``missed``, with a ``?`` where chance leaves it open; without an SLO whether the
    traffic is held.

    >>> verdict_word("met", True), verdict_word("too close to call", False)
    ('met', 'missed ?')
    >>> verdict_word(None, True)
    'held'
    """
    if holds is None:
        return "-"
    if slo is None:
        return "held" if holds else "not held"
    word = "met" if holds else "missed"
    return f"{word} ?" if slo == LoadOutcome.OPEN else word


def state_word(verdict: Mapping[str, Any]) -> str:
    """The state of a fleet: ``PROBABLY_TOO_MUCH`` where it is near saturation, and more arrives
    than can be served.

    >>> state_word({"state": "near saturation", "utilisation": 1.05})
    'overload?'
    >>> state_word({"state": "near saturation", "utilisation": 0.95})
    'near saturation'
    """
    state = str(verdict["state"])
    if state == State.NEAR_SATURATION and (verdict["utilisation"] or 0.0) > 1:
        return PROBABLY_TOO_MUCH
    return state


def slo_percentile(summaries: Sequence[Mapping[str, Any]], metric: str) -> float:
    """The percentile of ``metric`` to show for these runs: the one that the SLO asks for in all of
    them that have one, else p99."""
    found = (_asked(summary, metric) for summary in summaries)
    asked = {percentile for percentile in found if percentile is not None}
    return asked.pop() if len(asked) == 1 else USUAL_PERCENTILE


def _asked(summary: Mapping[str, Any], metric: str) -> float | None:
    """The percentile at which the SLO limits ``metric``: with other limits together, else by the
    highest of its own. Without one it is that of the limits of other metrics that hold together,
    if the run has it; None without any."""
    limits = summary["infersim"]["verdict"]["limits"]
    if metric in limits:
        return float(limits[metric]["percentile"])
    alone = [each["percentile"] for name, each in limits.items() if name.startswith(f"{metric}_p")]
    if alone:
        return float(max(alone))
    others = [each["percentile"] for name, each in limits.items() if not is_apart(name)]
    stated = [at for at in others if f"{rank(at / 100)}_{metric}_ms" in summary]
    return float(stated[0]) if stated else None


LATENCIES = ("ttft", "tpot")
"""Latencies that are shown at the percentile of the SLO."""


def percentiles(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The percentile of each latency that the SLO of these runs judges."""
    return {name: slo_percentile(summaries, name) for name in LATENCIES}


def slo_keys(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The key of each latency at the percentile that the SLO of these runs judges, and those of
    further percentiles with limits, by the names of the limits."""
    at = percentiles(summaries)
    keys = {name: f"{rank(at[name] / 100)}_{name}_ms" for name in LATENCIES}
    for summary in summaries:
        for name in summary["infersim"]["verdict"]["limits"]:
            metric, _, percentile = name.partition("_")
            key = f"{percentile}_{metric}_ms"
            if is_apart(name) and key in summary and key not in keys.values():
                keys[name] = key
    return keys


def at_slo(summary: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, float | None]:
    """The latencies of a run (ms) by their ``slo_keys``."""
    split = {key: key.split("_") for key in keys.values()}
    return {key: latency_ms(summary, at[1], float(at[0][1:])) for key, at in split.items()}


def latency_ms(summary: Mapping[str, Any], metric: str, value: float) -> float | None:
    """The latency at a percentile that ``slo_percentile`` gave; None where it is not defined."""
    key = f"{rank(value / 100)}_{metric}_ms"
    if key in summary:
        found = summary[key]
    else:
        limit = summary["infersim"]["verdict"]["limits"].get(metric)
        found = None if limit is None else limit["value_ms"]
    return None if found is None else float(found)


def held_text(trust: str, load: str = "the rate") -> tuple[bool, str]:
    """Whether it is sure that a fleet holds its ``load``, and how sure it is in a sentence.

    >>> held_text("likely")
    (False, 'It is likely to hold the rate.')
    """
    told: Mapping[str, str] = {
        Trust.SURE: f"It is sure to hold {load}.",
        Trust.LIKELY: f"It is likely to hold {load}.",
        Trust.GUESS: f"That it holds {load} is a guess.",
    }
    return trust == Trust.SURE, told[trust]


def as_cheap_text(ranking: Mapping[str, Any]) -> str:
    """The text behind the cost of the cheapest fleet where others cost as much; empty where none
    does, and in results of older versions, which do not say so.

    >>> as_cheap_text({"as_cheap": ["#2", "#3"]}), as_cheap_text({"as_cheap": []})
    ('; as cheap: #2, #3', '')
    """
    others = ranking.get("as_cheap")
    return f"; as cheap: {', '.join(others)}" if others else ""


def spoken(text: str) -> str:
    """``text`` with its settings as people say them.

    >>> spoken("rate=18, gpu=h100-sxm: SLO met"), spoken("max_num_seqs=8")
    ('18 requests/s, h100-sxm: SLO met', 'max_num_seqs 8')
    >>> spoken("twice rate=0.5. That is sure")
    'twice 0.5 requests/s. That is sure'
    """

    def said(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name in MEASURED:
            return f"{value} {MEASURED[name]}"
        return value if name in SPEAKING else f"{name} {value}"

    return SETTING.sub(said, text)


def axis_name(name: str) -> str:
    """A setting along an axis, with what its values count.

    >>> axis_name("rate"), axis_name("max_num_seqs")
    ('rate (requests/s)', 'max_num_seqs')
    """
    return f"{name} ({MEASURED[name]})" if name in MEASURED else name


def listed(names: Sequence[str], most: int = 3, apart: str = ", ") -> str:
    """The first few names, and how many more there are.

    >>> listed(["a", "b", "c", "d", "e"]), listed(["a"])
    ('a, b, c and 2 more', 'a')
    """
    more = len(names) - most
    return apart.join(names[:most]) + (f" and {more} more" if more > 0 else "")
