"""Combines independent repetitions of a run, with the uncertainty of their means.

A repetition is the same scenario under another seed. The spread between repetitions is the chance
in the traffic; the error of the cost model, which all of them share, is not in it (``error_band``
is that). Keys and units are those of ``summary.json``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.metrics.enough.precision import METRICS, conclusion
from sim.metrics.latency.intervals import Z95, rounded_up, times_to_decide
from sim.metrics.own import PREFIX, headline_metrics, mean_metrics
from sim.metrics.slo.attainment import slo_state
from sim.metrics.states import DoubtKind, SloState, State, too_short_for
from sim.metrics.terms import definitions
from sim.metrics.words.notes import without_numbers

CONFIDENCE = 0.95

DETAILS = tuple(metric for metric in definitions.METRICS if metric.repeated)
"""Headline figures below ``infersim``; so are all numbers at the top of the summary."""

SHARES = ("verdict.", "utilisation.", "kv_cache.")
"""Of these the interval ends at 1."""

P99 = ("p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms")


def headlines(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures that have an interval: ``p99_ttft_ms``, ``queue_ms.p99``, ...; None: undefined.

    A key with a dot is the path of an entry below ``infersim``.
    """
    figures = {key: value for key, value in summary.items() if key != "infersim"}
    own = summary["infersim"]
    details = [m.key for m in DETAILS if not m.optional or m.key.partition(".")[0] in own]
    for path in (*details, *_further(summary)):
        value: Any = summary["infersim"]
        for step in path.split("."):
            value = None if value is None else value[step]
        figures[path] = value
    return figures | headline_metrics(summary["infersim"])


def _further(summary: Mapping[str, Any]) -> Iterator[str]:
    """Attainment of each limit."""
    for name in summary["infersim"]["verdict"]["limits"]:
        yield f"verdict.limits.{name}.attainment"


def combine(summaries: Sequence[Mapping[str, Any]], wanted: int | None = None) -> dict[str, Any]:
    """One summary of the summaries of repetitions, the first being the scenario's own seed.

    - A number is the mean over the repetitions in which it is defined. An integer that differs
      is the mean rounded to an integer, so that sums of counts may be off by one. An entry that
      some repetitions lack (a reason of rejection, an operator) is 0 there.
    - Whatever is no number is that of the first, and so is ``error_band``.
    - The verdict's state is the most frequent one, of equally frequent ones the worse; the SLO is
      judged by the mean attainment, whose interval is the one over the repetitions. Notes are those
      of all repetitions.
    - ``infersim.repetitions`` has the 95 % interval of each headline figure.

    ``wanted`` is how many repetitions were asked for, if they were interrupted.
    """
    first = summaries[0]["infersim"]
    combined: dict[str, Any] = _mean(list(summaries))
    own = combined["infersim"]
    details = [summary["infersim"] for summary in summaries]
    found = intervals([headlines(summary) for summary in summaries])
    own["seed"] = first["seed"]
    own["error_band"] = first["error_band"]
    own["metrics"] = mean_metrics(details)
    own["verdict"] = _verdict([detail["verdict"] for detail in details])
    _widen(own["verdict"], found)
    requests = sum(detail["requests"]["submitted"] for detail in details)
    _decide(own["verdict"], requests, [detail["verdict"] for detail in details])
    own["precision"] = _precision(combined, details, found)
    own["repetitions"] = {
        "count": len(summaries),
        "confidence": CONFIDENCE,
        "seeds": [detail["seed"] for detail in details],
        "intervals": found,
    }
    own["notes"] = _notes(details, own["precision"])
    if wanted is not None and len(summaries) < wanted:
        finished = sum(not detail["interrupted"] for detail in details)
        own["interrupted"] = True
        own["notes"].append(
            f"Interrupted: {finished} of {wanted} repetitions had finished; the figures are of "
            f"{'those' if finished else 'the first, as far as it came'}."
        )
    return combined


def intervals(
    repetitions: Sequence[Mapping[str, float | None]],
) -> dict[str, dict[str, float | None]]:
    """``mean``, ``low``, ``high`` and ``half_width`` of each figure, by Student's t.

    The bounds are None with fewer than two defined values; they do not leave the range of the
    figure: none is negative, except a user's own metrics.
    """
    keys = dict.fromkeys(key for figures in repetitions for key in figures)
    return {
        key: _interval(
            [value for figures in repetitions if (value := figures.get(key)) is not None],
            0.0 if not key.startswith(PREFIX) else -math.inf,
            1.0 if key.startswith(SHARES) else math.inf,
        )
        for key in keys
    }


def _interval(values: list[float], least: float, most: float) -> dict[str, float | None]:
    n = len(values)
    if n < 2:
        mean = values[0] if values else None
        return {"mean": mean, "low": None, "high": None, "half_width": None}
    from scipy.special import stdtrit  # noqa: PLC0415 - only repetitions pay for its import

    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / n)
    low, high = max(least, mean - half), min(most, mean + half)
    return {"mean": mean, "low": low, "high": high, "half_width": half}


def _mean(leaves: Sequence[Any]) -> Any:
    """The mean of numbers, entry by entry of mappings; else the first that is not None."""
    present = [leaf for leaf in leaves if leaf is not None]
    if not present:
        return None
    first = present[0]
    mappings = [leaf for leaf in present if isinstance(leaf, Mapping)]
    if mappings:
        keys = dict.fromkeys(key for mapping in mappings for key in mapping)
        # an entry that one lacks: nothing of that kind happened there
        return {key: _mean([m.get(key, 0) for m in mappings]) for key in keys}
    if isinstance(first, list) and first and isinstance(first[0], Mapping):
        return [_mean(alike) for alike in zip(*present, strict=True)]
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first
    if all(leaf == first for leaf in present):
        return first
    mean = math.fsum(present) / len(present)
    return round(mean) if all(isinstance(leaf, int) for leaf in present) else mean


def _verdict(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    states = Counter(State(verdict["state"]) for verdict in verdicts)
    state = max(states, key=lambda each: (states[each], -each.severity))
    text = next(verdict["text"] for verdict in verdicts if verdict["state"] == state)
    if len(verdicts) > 1:
        others = [f"{states[each]} {each}" for each in State if each in states]
        told = f"; all: {', '.join(others)}" if len(states) > 1 else ""
        so_in = f" (So in {states[state]} of {len(verdicts)} repetitions{told}.)"
        text = text.saying(repetitions=so_in)
    judged = [verdict for verdict in verdicts if verdict["limits"]]
    breaks = Counter(v["first_limit"] for v in verdicts if v["first_limit"] is not None)
    attainment = _mean([verdict["attainment"] for verdict in judged])
    target = judged[0]["target"] if judged else None
    figures: dict[str, Any] = _mean(verdicts)
    limits: dict[str, Any] = _mean([verdict["limits"] for verdict in judged]) if judged else {}
    return figures | {
        "state": state,
        "text": text,
        "slo_met": None if attainment is None else attainment >= target and _apart_met(limits),
        "attainment": attainment,
        "target": target,
        "first_limit": breaks.most_common(1)[0][0] if breaks else None,
        "limits": limits,
    }


def _apart_met(limits: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the limits that are judged apart, such as ``ttft_p95``, are met."""
    apart = [entry for name, entry in limits.items() if "_p" in name]
    return all(entry["attainment"] >= entry["target"] for entry in apart)


def _decide(verdict: dict[str, Any], requests: int, each: Sequence[Mapping[str, Any]]) -> None:
    """Say whether the SLO is met for sure, now that the shares have their intervals over the
    repetitions, of that many ``requests`` in all; and how many would decide it.

    Repetitions begin empty like a single run: where half of them are too short for a verdict
    (``long_enough``), so are all together.
    """
    if verdict["attainment"] is None:
        return
    together = [verdict[key] for key in ("attainment", "attainment_low", "attainment_high")]
    shares = [(*together, verdict["target"])]
    shares += [
        (entry["attainment"], entry["low"], entry["high"], entry["target"])
        for name, entry in verdict["limits"].items()
        if "_p" in name
    ]
    state = slo_state(shares)
    wanted = None
    if state == SloState.OPEN:
        factors = [_times(*each) for each in shares if each[1] < each[3] <= each[2]]
        wanted = rounded_up(requests * max(factors)) if all(map(math.isfinite, factors)) else None
    doubts = [DoubtKind.CHANCE] if state == SloState.OPEN else []
    short = [one for one in each if too_short_for(one.get("slo_doubts", ()))]
    if state != SloState.MISSED and short and 2 * len(short) >= len(each):
        state, doubts = SloState.OPEN, [short[0]["slo_doubts"][0], *doubts]
        known = [one["requests_to_decide"] for one in short]
        wanted = max((number for number in known if number is not None), default=None)
    left = [one for one in each if DoubtKind.UNFINISHED in one.get("slo_doubts", ())]
    if state == SloState.MISSED and 2 * len(left) >= len(each):
        state, doubts = SloState.OPEN, [DoubtKind.UNFINISHED]
    verdict |= {"slo_state": state, "slo_doubts": doubts, "requests_to_decide": wanted}
    if state == SloState.MISSED:
        verdict["slo_headroom"] = 0.0
    elif state == SloState.OPEN:
        verdict["slo_headroom"] = None


def _times(share: float, low: float, high: float, target: float) -> float:
    """How many times the requests will probably narrow an interval so that it leaves the target
    out."""
    half, apart = (
        (share - low, share - target) if share >= target else (high - share, target - share)
    )
    return times_to_decide(Z95 * apart / half) if half else math.inf


def _widen(verdict: dict[str, Any], found: Mapping[str, Mapping[str, float | None]]) -> None:
    """Give the attainment, of all limits and of each, its interval over the repetitions; that of
    single ones stays where all repetitions are alike, so that nothing is seen of their spread."""
    together = found["verdict.attainment"]
    if together["half_width"]:
        verdict |= {"attainment_low": together["low"], "attainment_high": together["high"]}
    for name, entry in verdict["limits"].items():
        interval = found[f"verdict.limits.{name}.attainment"]
        if interval["half_width"]:
            entry |= {"low": interval["low"], "high": interval["high"]}


def _precision(
    combined: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    found: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    """How sure the p99s are together: their intervals over the repetitions.

    Where a single repetition is too short to have any bound, so that its p99 is off towards one
    side, more of them do not help: then what was said of that one holds.
    """
    precisions: list[dict[str, Any]] = [detail["precision"] for detail in details]
    unstated = [precision for precision in precisions if precision["sufficient"] is None]
    if unstated or len(precisions) < 2:
        return dict((unstated or precisions)[0])
    asked = [f"{precisions[0]['percentile']}_{name}_ms" for name in METRICS]
    keys = asked if all(key in found for key in asked) else list(P99)
    defined = [key for key in keys if combined[key] is not None]
    for precision in precisions:
        if any(precision[key]["high"] is None for key in defined if precision[key]["samples"]):
            more = " (Of one repetition: more of them would not make up for it.)"
            return precision | {"text": precision["text"].saying(repetitions=more)}
    entries: dict[str, Any] = {
        key: {
            "low": found[key]["low"],
            "high": found[key]["high"],
            "samples": sum(p[key]["samples"] for p in precisions),
            "effective_samples": sum(p[key]["effective_samples"] for p in precisions),
        }
        for key in dict.fromkeys([*P99, *keys])
    }
    entries["percentile"] = keys[0].split("_")[0]
    bounded = {key: combined[key] for key in defined if found[key]["high"] is not None}
    requests = sum(detail["requests"]["submitted"] for detail in details)
    return entries | conclusion(entries, bounded, requests, len(details))


def _notes(details: Sequence[Mapping[str, Any]], precision: Mapping[str, Any]) -> list[str]:
    """The notes of all repetitions, those that differ in numbers only as the first has them."""
    known: dict[str, list[str]] = {}
    for detail in details:
        for note in detail["notes"]:
            if note != detail["precision"]["text"]:
                known.setdefault(without_numbers(note), []).append(note)
    notes = [
        alike[0] if len(set(alike)) == 1 else f"{alike[0]} (Other repetitions: other numbers.)"
        for alike in known.values()
    ]
    if precision["sufficient"] is False:
        notes.append(precision["text"])
    return notes
