"""Words what the verdict says of SLO and headroom: the same in the terminal and on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.enough.needed_requests import MANY, reach_text, simulate_more
from sim.metrics.load.long_enough import DOUBT, SURE, at_capacity
from sim.metrics.states import DoubtKind, SloState, State, is_apart, too_short_for
from sim.metrics.texts import SENT_MOST, replica_name
from sim.units import many, show_number, show_share, show_time, show_utilisation

FIND = "`infersim find` gives the load that meets the SLO"
SWEEP = "`infersim sweep --sweep workload.arrivals.rate=...` shows which loads meet the SLO"


UNSERVED = {
    "rejected": "were rejected",
    "lost": "were lost with a replica or found none",
    "timed_out": "timed out: their clients did not wait any longer",
}
"""The fate of requests that break an SLO before any limit does, by its ``first_limit``."""

_BY_UNFINISHED = (
    "Only requests that were not finished when the run ended make it so, and they may be within "
    "the SLO."
)


def within(share: float | None, text: str, *, enough: bool) -> str:
    """The subject of a sentence about the requests within a limit: their ``share``, as ``text``.

    >>> within(0.98, "98%", enough=False), within(0.0, "0%", enough=False)
    ('only 98% of requests are', 'none of the requests is')
    """
    if share == 0:
        return "none of the requests is"
    return f"{'' if enough else 'only '}{text} of requests are"


def limit_title(name: str) -> str:
    """The title of a limit, or of another entry of ``first_limit``.

    >>> limit_title("ttft"), limit_title("tpot_p95"), limit_title("rejected")
    ('TTFT', 'TPOT p95', 'rejected requests')
    >>> limit_title("timed_out")
    'timed-out requests'
    """
    if name in UNSERVED:
        return f"{name.replace('_', '-')} requests"
    metric, _, percentile = name.partition("_")
    return f"{metric.upper()} {percentile}".strip()


def shown_limit(verdict: Mapping[str, Any]) -> str:
    """The name of the limit that the share within the SLO is of: where each has a percentile of its
    own the one that breaks first; empty where it is of all of them."""
    limits, shown = verdict["limits"], (verdict["attainment"], verdict["target"])
    same = [name for name, each in limits.items() if (each["attainment"], each["target"]) == shown]
    if not same or not all(map(is_apart, limits)):
        return ""
    return str(verdict["first_limit"]) if verdict["first_limit"] in same else same[0]


def limit_text(verdict: Mapping[str, Any]) -> str:
    """The limit ``shown_limit`` in words.

    >>> limits = {"tpot_p95": {"limit_ms": 60.0, "attainment": 0.4, "target": 0.95}}
    >>> verdict = {"limits": limits, "attainment": 0.4, "target": 0.95, "first_limit": "tpot_p95"}
    >>> limit_text(verdict)
    'the 60 ms of TPOT p95'
    >>> limit_text(verdict | {"limits": {"tpot": limits["tpot_p95"]}})
    'the SLO'
    """
    name = shown_limit(verdict)
    if not name:
        return "the SLO"
    return f"the {show_time(verdict['limits'][name]['limit_ms'] / 1e3)} of {limit_title(name)}"


def slo_text(
    verdict: Mapping[str, Any], plus_minus: str = "", ends: Mapping[str, Any] | None = None
) -> str:
    """Whether the SLO is met, with the share that decides and every limit; ``plus_minus`` stands
    behind the share, ``ends`` are those of the error band (``infersim.ends``).

    >>> limits = {"ttft": {"limit_ms": 500.0, "attainment": 0.98, "target": 0.99}}
    >>> verdict = {"slo_met": False, "slo_state": "missed", "first_limit": "ttft", "target": 0.99}
    >>> slo_text(verdict | {"attainment": 0.98, "limits": limits})
    'SLO missed, first by TTFT: only 98% of requests, 99% wanted (TTFT <= 500 ms 98%)'
    """
    limits, target = verdict["limits"], verdict["target"]
    between = "; " if any(map(is_apart, limits)) else ", "  # those have a comma of their own
    listed = between.join(_limit(name, entry) for name, entry in limits.items())
    if verdict["slo_met"] is None:
        return f"SLO: not judged ({listed})"
    if all(map(is_apart, limits)):
        text = listed
    else:
        share, few = f"{show_share(verdict['attainment'], target)}", not verdict["slo_met"]
        told = f"{'only ' if few else ''}{share}{plus_minus} of requests"
        told = told if verdict["attainment"] else "none of the requests"
        text = f"{told}, {show_share(target)} wanted ({listed})"
    first = verdict["first_limit"]
    met = verdict["slo_met"]
    word = "met" if met else "missed"
    cut = verdict.get("cut")
    if cut is not None and verdict["slo_state"] != SloState.OPEN:
        word += f" in {cut['part']}"
    by = f", first by {limit_title(first)}" if not met and first else ""
    if verdict["slo_state"] != SloState.OPEN:
        return f"SLO {word}{by}: {text}"
    head, doubts = open_word(verdict), slo_doubts(verdict)
    if head != SloState.OPEN:
        return f"SLO {head}{by}: {text}.{deciding(verdict, ends)}"
    word += by
    if {DoubtKind.LENGTH, DoubtKind.UNFINISHED} & set(doubts):
        word = f"so far {word}"
    colon = ":" if all(map(is_apart, limits)) else ","
    return f"SLO {head}: {word}{colon} {text}.{deciding(verdict, ends)}"


def slo_head(verdict: Mapping[str, Any]) -> str:
    """The first words of ``slo_text`` on an SLO that was judged, for headlines.

    >>> slo_head({"slo_state": "missed"})
    'SLO missed'
    >>> slo_head({"slo_state": "too close to call", "slo_met": False, "slo_doubts": ["band"]})
    'SLO missed at the predicted times'
    """
    state = verdict["slo_state"]
    return f"SLO {open_word(verdict) if state == SloState.OPEN else state}"


def slo_first(verdict: Mapping[str, Any]) -> bool:
    """Whether the SLO goes before the state: it is missed, however long the run were."""
    return bool(verdict["state"] == State.TOO_SHORT and verdict["slo_state"] == SloState.MISSED)


def without_advice(text: str) -> str:
    """``text`` without the advice to simulate more requests, for a page that cannot.

    >>> without_advice(f"It may be too much. {simulate_more(None, 23_000)} All the same.")
    'It may be too much. All the same.'
    """
    return re.sub(r" ?Simulate [\d,]+ requests or more( \([^)]*\))?\.", "", text)


def open_word(verdict: Mapping[str, Any]) -> str:
    """An open SLO in a few words: met or missed so far where more arrives than is served, met or
    missed at the predicted times where their error band alone leaves it open.

    >>> open_word({"slo_met": False, "slo_doubts": ["band"]})
    'missed at the predicted times'
    >>> open_word({"slo_met": True, "slo_doubts": ["load"]}), open_word({"slo_doubts": ["chance"]})
    ('met so far', 'too close to call')
    """
    doubts = set(slo_doubts(verdict))
    word = "met" if verdict.get("slo_met") else "missed"
    if DoubtKind.LOAD in doubts and DoubtKind.UNFINISHED not in doubts:
        return f"{word} so far"
    if doubts & {DoubtKind.LENGTH, DoubtKind.CHANCE, DoubtKind.UNFINISHED}:
        return str(SloState.OPEN)
    return f"{word} at the predicted times"


def _limit(name: str, entry: Mapping[str, Any]) -> str:
    limit = show_time(entry["limit_ms"] / 1e3)
    if not is_apart(name):
        share = entry["attainment"]
        shown = "" if share is None else f" {show_share(share, entry['target'])}"
        return f"{name.upper()} <= {limit}{shown}"
    value, share = entry["value_ms"], entry["attainment"]
    found = "not reached" if value is None else show_time(value / 1e3)
    text = f"{limit_title(name)} is {found}, the limit {limit}"
    if value is None or (value <= entry["limit_ms"]) == (share >= entry["target"]):
        return text
    # requests that were not served, or the interpolation between two latencies, decide
    return f"{text}, which {show_share(share, entry['target'])} of all requests kept"


def slo_doubts(verdict: Mapping[str, Any]) -> list[str]:
    """The doubts of an open SLO; for a run directory that does not state them, the likely ones."""
    stated = verdict.get("slo_doubts")
    if stated:
        return list(stated)
    low, high, target = (verdict[key] for key in ("attainment_low", "attainment_high", "target"))
    return [DoubtKind.CHANCE] if low is not None and low < target <= high else [DoubtKind.BAND]


def deciding(verdict: Mapping[str, Any], ends: Mapping[str, Any] | None = None) -> str:
    """Why an SLO is too close to call, and what would tell; ``ends`` as in ``slo_text``."""
    doubts, count = slo_doubts(verdict), verdict["requests_to_decide"]
    cut = verdict.get("cut")
    how = "" if count is None else reach_text(verdict.get("reach"), count)
    if cut is not None and not cut["has_peak"] and DoubtKind.LOAD not in doubts:
        text = f" {cut['note']}"
    elif too_short_for(doubts):
        text = f" {_too_short(verdict, doubts)}"
        if count is not None:
            text += f" {simulate_more(verdict.get('reach'), count)}"
    elif DoubtKind.CHANCE in doubts:
        text = _by_chance(verdict)
        if count is not None:
            told = f"About {count:,} requests would decide{how}"
            at_target = "Millions of requests would be needed to decide: the share is at its target"
            text += f" {told if count <= MANY else at_target}"
            text += " at the predicted times." if DoubtKind.BAND in doubts else "."
    else:
        text = ""
    if DoubtKind.UNFINISHED in doubts:
        text = f" {_BY_UNFINISHED}{text or ' A longer run would tell.'}"
    if DoubtKind.BAND in doubts:
        also = _at_the_band(verdict, None if text else ends)
        narrow = "; more requests do not narrow it, and a longer run may hold less."
        if DoubtKind.END_CHANCE in doubts:
            narrow = (
                ". At one end of the band chance decides, which more requests may settle; of a "
                "longer run a smaller share may be within the SLO."
            )
        text += f"{also} all the same." if text else f"{also}{narrow}"
    return text


def _at_the_band(verdict: Mapping[str, Any], ends: Mapping[str, Any] | None) -> str:
    """That the error band leaves an SLO open, with its end where that alone meets the SLO."""
    if ends is None or verdict["slo_met"] or not ends["faster"]["verdict"]["slo_met"]:
        return " The error band of the predicted times leaves it open"
    return f" It is met only if iterations are {many(ends['error'])} faster, as they may be"


def _too_short(verdict: Mapping[str, Any], doubts: Sequence[str]) -> str:
    """Why the requests so far say little of those that come later."""
    if DoubtKind.LOAD in doubts:
        return "More arrives than full batches serve: a longer run would miss it."
    error, top = (verdict.get(key) or 0.0 for key in ("utilisation_error", "peak_utilisation"))
    if at_capacity(verdict["utilisation"] or 0.0, error):
        return (
            f"The run is too short to tell, and a longer one may be too: the traffic is within "
            f"{DOUBT:.0%} of the capacity, which is not known more closely."
        )
    if (verdict["utilisation"] or 0.0) > 1:
        return (
            "More seems to arrive than full batches serve, so a longer run would miss it; this one "
            "is too short to tell."
        )
    if max((verdict["utilisation"] or 0.0) + SURE * error, top) >= 1:
        return "The run is too short to tell: the traffic may be more than full batches serve."
    return (
        "The run is too short to tell: it began with an empty fleet, and so close to the capacity "
        "requests that come later may be slower."
    )


def _by_chance(verdict: Mapping[str, Any]) -> str:
    low, high, target = (verdict[key] for key in ("attainment_low", "attainment_high", "target"))
    if low is None or not low < target <= high:
        return ""
    span = f"{show_share(low, target)} to {show_share(high, target)}"
    return f" With 95% confidence the share is {span}."


def _unsure(verdict: Mapping[str, Any], used: float, error: float, where: str) -> str:
    """Why no headroom is certain, if none is."""
    if verdict["slo_state"] == SloState.OPEN:
        word = open_word(verdict)
        alone = " alone" if verdict["slo_met"] and word != SloState.OPEN else ""
        return f"the SLO is {word}{alone}"
    low, high = max(0.0, used - SURE * error), used + SURE * error
    between = f"{show_utilisation(low)} and {show_utilisation(high)}"
    if where == "it":
        return f"the traffic takes between {between} of the capacity"
    return f"{where} takes between {between} of its capacity"


PEAK = "its peak"
"""What reaches its capacity first where the busiest stretch does."""


def _limiting(verdict: Mapping[str, Any]) -> tuple[float, float, str]:
    """The largest share of its own capacity that anything takes, the fleet, a replica of it, or a
    pool that the router sends more than that can serve; the standard error of that share, of a pool
    that of the fleet's; and what it is of."""
    one, whole = verdict.get("busiest_replica"), verdict["utilisation"]
    pool = max(verdict.get("by_pool") or [0.0])
    overruled = (verdict.get("headroom") or 0.0) < 0 and pool > whole
    if overruled and (one is None or pool > one["utilisation"]):
        return pool, verdict.get("utilisation_error") or 0.0, "one of the pools"
    if one is not None and one["utilisation"] > whole:
        name = f"{replica_name(one['replica'])}, {SENT_MOST},"
        return one["utilisation"], one["utilisation_error"], name
    return whole, verdict.get("utilisation_error") or 0.0, "it"


def headroom_text(verdict: Mapping[str, Any]) -> str:
    """By how much the traffic could grow; empty where that is no question."""
    return " ".join(headroom_sentences(verdict))


def headroom_sentences(verdict: Mapping[str, Any]) -> list[str]:
    """By how much the traffic could grow, then what to do or to know about it."""
    top, room = verdict["peak_utilisation"], verdict["slo_headroom"]
    if verdict["utilisation"] is None:
        return []
    used, error, where = _limiting(verdict)
    grows = verdict.get("scales", False)
    finds = f"{SWEEP if grows or verdict.get('disturbed') else FIND}."
    if verdict["slo_state"] == SloState.MISSED:
        return ["None: the SLO is missed already.", finds]
    known = verdict["slo_state"] != SloState.OPEN if used < 1 else used - SURE * error >= 1
    if not known:
        return [f"None that is sure: {_unsure(verdict, used, error, where)}."]
    if used >= 1:
        judged = verdict["slo_met"] is not None
        least, most = (show_utilisation(1 - 1 / (used + SURE * each)) for each in (-error, error))
        by = f"more than {least}" if judged else least if least == most else f"{least} to {most}"
        dealt = "" if where == "it" else ", or the router to deal more evenly"
        text = f"None: the traffic would have to shrink by {by}{dealt}."
        return [text, finds] if judged else [text]
    where = where if top is None or top <= used else PEAK
    if room is None:
        taken = show_utilisation(top)
        return [f"Not known: {where} takes {taken} of the capacity already.", finds]
    times = f"{show_number(1 + room)} times the traffic"
    if grows:
        text = f"{times} would take all of as many replicas as were held"
        loose = "; the fleet may start more."
    elif where == PEAK:
        text = f"About {times} by {where}, which then takes the whole capacity for a while"
        loose = ": an estimate without the SLO, and without queues, which may carry more."
    else:
        text = f"About {times}: then {where} takes the whole capacity"
        loose = "; a rough bound that leaves the SLO out."
    told = [f"{text}."] if verdict["slo_met"] is None else [f"{text}{loose}", finds]
    if lost := verdict.get("lost_work"):
        told.append(
            f"The capacity is without the {show_share(lost)} of the GPU time that was lost."
        )
    return told


def usd_per_good_request(summary: Mapping[str, Any]) -> float | None:
    """The cost of a request within the SLO (USD), where an SLO is missed: the total cost over
    those. None where the SLO is met, none is within it, or no price is known."""
    own = summary["infersim"]
    good, rate = summary["request_goodput"], summary["request_throughput"]
    cost = own["cost"]
    if own["verdict"].get("slo_met") is not False or not good or not rate or cost is None:
        return None
    return float(cost["usd"] * rate / (good * summary["completed"]))
