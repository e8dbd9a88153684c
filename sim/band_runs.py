"""Runs a scenario again at both ends of the error band of its iteration times.

A run says how far off the times of its iterations may be (``infersim.error_band``). What that does
to a latency or to the share within the SLO depends on the load: waiting grows without bound towards
saturation. So it is simulated: the same traffic, with kernels and engine faster and slower by the
band. Keys and units are those of ``summary.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.longer_run import goes_on, most_later
from sim.loop.clock import Stop
from sim.metrics.bands.confidence import widest
from sim.metrics.bands.end_times import FIRST_TOKEN, EndTimes, TimeBand
from sim.metrics.states import DoubtKind, State, too_short_for
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.units import show_time

NEAR = 0.5
"""Share of the capacity, and of a limit, from which on a run is repeated at both ends. Below it the
waiting time of a single server changes by at most three times the change in speed (its elasticity
is 2 + u / (1 - u) at the utilisation u), and the limits are more than that away."""

FEW = 500
"""Requests up to which a copy of this process takes longer to make than both ends to play."""

ENDS = ("faster", "slower")

END_KEYS = (
    *("state", "utilisation", "peak_utilisation", "attainment", "slo_met"),
    *("slo_state", "slo_doubts", "requests_to_decide"),
)


def at_end(scenario: Scenario, end: EndTimes) -> Scenario:
    """``scenario`` at an end of the band: all times of kernels and engine are as many times as
    long, and limits of TTFT as tight as if first tokens came as much later than that."""
    assume = scenario.assume
    limits = {key: limit for key, limit in scenario.slo if key.startswith(FIRST_TOKEN) and limit}
    return scenario.override(
        {
            "assume.kernel_time": assume.kernel_time * end.iterations,
            "assume.host_time": assume.host_time * end.iterations,
            **{f"slo.{key}": f"{limit / end.first_tokens!r}s" for key, limit in limits.items()},
        }
    )


def matters(summary: Mapping[str, Any]) -> bool:
    """Whether the run is near enough to saturation, or to a limit, for its band to matter."""
    band = widest(summary["infersim"]["error_band"])
    if not band or not summary["completed"]:
        return False
    verdict = summary["infersim"]["verdict"]
    if verdict["slo_met"] is False:
        return True
    known = (verdict["utilisation"], verdict.get("peak_utilisation"))
    used = max((float(share) for share in known if share is not None), default=0.0)
    return max(used, _pressure(summary)) * (1 + float(band)) >= NEAR


def _pressure(summary: Mapping[str, Any]) -> float:
    """The largest share of a limit that the p99 of its latency takes; 0 without limits."""
    limits = summary["infersim"]["verdict"]["limits"]
    shares = [0.0]
    for name, entry in limits.items():
        metric, _, rank = name.partition("_")
        value = summary[f"{rank or 'p99'}_{metric}_ms"]
        if value is not None:
            shares.append(value / entry["limit_ms"])
    return max(shares)


def run_ends(
    scenario: Scenario,
    summary: Mapping[str, Any],
    *,
    stop: Stop | None = None,
    jobs: int = 1,
) -> dict[str, Any] | None:
    """The entry ``infersim.ends`` of a run: its metrics with iterations ``faster`` and ``slower``,
    of more than ``FEW`` requests, or too few to tell, played at the same time in copies of this
    process where there are ``jobs`` for both.

    None where the band does not matter, or after an interrupt.
    """
    if not matters(summary):
        return None
    band = TimeBand.of(summary["infersim"]["error_band"])
    much = summary["completed"] > FEW or _short(summary["infersim"]["verdict"])
    played = (_copied if jobs > 1 and much else _played)(scenario, band.ends, stop)
    if played is None:
        return None
    later = [end.first_tokens for end in band.ends]
    found: dict[str, Any] = {
        "error": band.error,
        **({"first_tokens": later} if FIRST_TOKEN in scenario.slo.of_request else {}),
        **dict(zip(ENDS, played, strict=True)),
    }
    target = summary["infersim"]["verdict"]["target"]
    rank = f"p{100 * (scenario.slo.attainment if target is None else target):g}"
    met = [_holds(found[name]["verdict"]) for name in ENDS]
    text = _text(summary, found, rank if f"{rank}_ttft_ms" in summary else "p99")
    return found | {"decided": met[0] == met[1], "text": text}


def _played(
    scenario: Scenario, ends: Sequence[EndTimes], stop: Stop | None
) -> list[dict[str, Any]] | None:
    """The metrics at each end; None after an interrupt."""
    found = []
    for end in ends:
        metrics = _at(scenario, end, stop)
        if metrics is None:
            return None
        found.append(metrics)
    return found


def _copied(
    scenario: Scenario, ends: Sequence[EndTimes], stop: Stop | None
) -> list[dict[str, Any]] | None:
    """The metrics at each end, by copies of this process where it can be copied; None after an
    interrupt."""
    from concurrent.futures import wait  # noqa: PLC0415 - short runs need no processes

    from sim.copies import LOOK_EVERY, Workers, can_copy, result_of  # noqa: PLC0415

    if not can_copy():
        return _played(scenario, ends, stop)
    with Workers(scenario, len(ends)) as workers:
        futures = [workers.submit(_at, end) for end in ends]
        while wait(futures, LOOK_EVERY).not_done:
            if stop is not None and stop.requested:
                return None
        found = [result_of(future) for future in futures]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _at(scenario: Scenario, end: EndTimes, stop: Stop | None = None) -> dict[str, Any] | None:
    """The metrics at an ``end`` of the band. Where its requests meet the SLO in a run
    that is too short to tell, those of a run that is long enough, if it is not much longer."""
    there = at_end(scenario, end)
    result = simulate(there, stop=stop)
    verdict = result.summary["infersim"]["verdict"]
    if verdict["slo_met"] and _short(verdict) and not result.interrupted:
        wanted = verdict["requests_to_decide"]
        if (
            goes_on(there)
            and wanted is not None
            and wanted <= most_later(len(result.record.requests))
        ):
            result = simulate(there.override({"run.requests": wanted}), stop=stop)
    return None if result.interrupted else _metrics(result.summary)


def _holds(verdict: Mapping[str, Any]) -> bool | None:
    """Whether an end meets the SLO; None where nothing is judged, or a longer run may miss it."""
    return None if verdict["slo_met"] and _short(verdict) else verdict["slo_met"]


def _short(verdict: Mapping[str, Any]) -> bool:
    """Whether a longer run may say otherwise: its traffic may be more than the capacity."""
    return too_short_for(verdict["slo_doubts"])


def _metrics(summary: Mapping[str, Any]) -> dict[str, Any]:
    own = summary["infersim"]
    cost = own["cost"] or {}
    return {
        **{key: value for key, value in summary.items() if key != "infersim"},
        "verdict": {key: own["verdict"].get(key) for key in END_KEYS},
        "usd_per_million_output_tokens": cost.get("usd_per_million_output_tokens"),
        "usd_per_million_tokens": cost.get("usd_per_million_tokens"),
    }


def _text(summary: Mapping[str, Any], ends: Mapping[str, Any], rank: str) -> str:
    """The results at the ends of the band, in a sentence; latencies at the percentile ``rank``,
    whose own bands reach further, since they count more than the times of iterations.

    ``summary`` is that of the run as predicted.
    """
    fast, slow = (ends[name] for name in ENDS)
    parts = []
    for metric in ("ttft", "tpot"):
        key = f"{rank}_{metric}_ms"
        own, low, high = (end.get(key) for end in (summary, fast, slow))
        if low is not None and high is not None:
            span = " to ".join(show_time(each / 1e3) for each in sorted((low, high)))
            turned = ", the longer one if faster" if low > high else ""
            if own is not None and not min(low, high) <= own <= max(low, high):
                turned += f" (chance moves it more: {show_time(own / 1e3)} as predicted)"
            parts.append(f"{metric.upper()} {rank} is {span}{turned}")
    met = bool(summary.get("infersim", {}).get("verdict", {}).get("slo_met"))
    parts += _verdicts(ends, met=met)
    band = summary.get("infersim", {}).get("error_band", {})
    return f"{_off_by(ends, band)}, and all else as predicted, {', '.join(parts)}."


def _off_by(ends: Mapping[str, Any], band: Mapping[str, Any]) -> str:
    """How long iterations take at both ends of the band.

    >>> _off_by({"error": 0.25}, {"slower": 1.5})
    'With iterations that take 0.80 to 2.50 times as long'
    """
    error = ends["error"]
    low, high = 1 / (1 + error), 1 + band.get("slower", error)
    return f"With iterations that take {low:.2f} to {high:.2f} times as long"


def _verdicts(ends: Mapping[str, Any], *, met: bool) -> list[str]:
    """What both ends make of the SLO, which is ``met`` or not as predicted, and of the load."""
    fast, slow = (ends[name]["verdict"] for name in ENDS)
    parts = []
    if fast["slo_met"] is not None and slow["slo_met"] is not None:
        ordered = sorted(end["attainment"] for end in (slow, fast))
        told = (
            f"{' to '.join(dict.fromkeys(map(_percent, ordered)))} of requests are within the SLO"
        )
        parts.append(f"{told}{_later(ends)} ({_slo(fast, slow, met=met)})")
    if slow["state"] == State.OVERLOADED != fast["state"]:
        parts.append("the slower end is overloaded")
    return parts


def _later(ends: Mapping[str, Any]) -> str:
    """By how much the ends count TTFT as off beyond what their iterations make of it; empty where
    they do not, or no limit is on it."""
    low, high = ends.get("first_tokens", (1.0, 1.0))
    return "" if low == high else f" if TTFT takes a further {low:.2f} to {high:.2f} times as long"


def verdicts_at_ends(own: Mapping[str, Any]) -> str:
    """What the ends of the band make of the verdict of a run, in a sentence without latencies: next
    to these are their bands. Empty where the ends make nothing of it; ``own`` is the entry
    ``infersim`` of a summary."""
    parts = _verdicts(own["ends"], met=bool(own["verdict"]["slo_met"]))
    return f"{_off_by(own['ends'], own['error_band'])}, {', '.join(parts)}." if parts else ""


def _percent(share: float) -> str:
    """A share that does not look like none where it is not.

    >>> _percent(0.0), _percent(0.00004), _percent(0.97531)
    ('0%', 'below 0.01%', '97.53%')
    """
    if share == 0.0:
        return "0%"
    return f"{share:.2%}" if share >= 1e-4 else "below 0.01%"


def _in_the_long_run(fast: Mapping[str, Any], slow: Mapping[str, Any]) -> str:
    """The long-run result of an SLO that is met at both ends so far."""
    missed, open_ = "a longer run would miss it", "too short a run to tell"
    if DoubtKind.LOAD in fast["slo_doubts"]:
        return f"{missed} at both ends"
    if DoubtKind.LOAD in slow["slo_doubts"]:
        return f"{missed} if slower{f', and it is {open_} if faster' if _short(fast) else ''}"
    return f"{open_} at {'both ends' if _short(fast) else 'the slower end'}"


def _slo(fast: Mapping[str, Any], slow: Mapping[str, Any], *, met: bool) -> str:
    """The SLO at the ends, where it is ``met`` or not as predicted."""
    if fast["slo_met"] and slow["slo_met"] and _short(slow):
        return f"met so far; {_in_the_long_run(fast, slow)}"
    if DoubtKind.UNFINISHED in fast["slo_doubts"]:
        why = "since requests were not finished"
        slow_too = DoubtKind.UNFINISHED in slow["slo_doubts"]
        return (
            f"open at both ends, {why}" if slow_too else f"missed if slower; open if faster, {why}"
        )
    if fast["slo_met"] == slow["slo_met"]:
        return "met at both ends" if fast["slo_met"] else "missed at both ends"
    if fast["slo_met"]:
        short = ", and that in too short a run to tell" if _short(fast) else ""
        return "missed if slower" if met and not short else f"met only if faster{short}"
    return "missed if faster" if met else "met only if slower"
