"""Words the answer of ``find``, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.bands.end_times import FIRST_TOKEN
from sim.metrics.bands.trust import Trust
from sim.metrics.enough.needed_requests import MANY
from sim.metrics.states import DoubtKind, State
from sim.metrics.texts import SENT_MOST, replica_name
from sim.planning.load.probe import MOST
from sim.planning.points.wording import (
    LoadOutcome,
    breaking,
    limit_name,
    nearest_promise,
    promise_name,
    share,
)
from sim.units import show_load, show_time

Document = Mapping[str, Any]
"""The answer of ``find``, as in its JSON."""


def sentences(document: Document) -> list[str]:
    """The whole answer, its most important part first."""
    own = [] if document["own"] is None else [own_load(document)]
    told = [*rejections(document), slo_text(document), first_to_break(document), *own]
    told += [knee_text(document), *opening(document)]
    head = [highest(document), *traffic_text(document), *ends_text(document)]
    return [*head, trust_text(document), *told, sureness(document)]


def with_answer(document: Document) -> list[str]:
    """The sentences that stand with the answer: what a trace at another load is, the load at the
    ends of the error band, and the scenario's own one."""
    scaling, own = document["scaling"], document["own"]
    of_trace = [] if scaling is None else [scaling["text"]]
    return [*of_trace, *ends_text(document)[:1], *([] if own is None else [own_load(document)])]


def by_chance(document: Document) -> tuple[float | None, float | None]:
    """The loads between which chance in the runs leaves the answer open."""
    return document["chance"]["holds_up_to"], document["chance"]["fails_from"]


def traffic_text(document: Document) -> list[str]:
    """The meaning of a trace at another load, the part of it that is not replayed, and further
    notes on the runs at every load."""
    scaling = document["scaling"]
    told = [*document["traffic_notes"], *document["notes"]]
    return [*([] if scaling is None else [scaling["text"]]), *told]


def slo_text(document: Document) -> str:
    """The wanted SLO."""
    if document["criterion"] == "stable":
        return (
            "The scenario has no SLO (slo.ttft, slo.tpot): this is the highest load that the "
            "verdict calls stable."
        )
    return f"SLO: {'; '.join(document['promises'])}."


def rejections(document: Document) -> list[str]:
    """The requests that no load serves, and what would admit them."""
    found = document["rejection"]
    if found is None:
        return []
    cure = "" if found["remedy"] is None else f" To admit them, {found['remedy']}."
    return [f"Rejected at any load: {found['text']}{cure}"]


def highest(document: Document) -> str:
    """The load itself."""
    unit, fails = document["unit"], document["fails_at"]
    sure = document["trust"]["sure_up_to"]
    certain = "" if sure is None else f", sure up to {show_load(sure, 3)}"
    load = f"Highest load: {show_load(document['load'])} {unit}"
    text = load + certain
    if fails is None:
        return f"{text}; nothing failed up to there, the highest load that was tried"
    low, high = by_chance(document)
    if document["sure"] or document["criterion"] == "stable":
        words = {probe["load"]: probe["outcome"] for probe in document["probes"]}
        as_predicted = " at the predicted times" * (words.get(fails) == LoadOutcome.OPEN)
        return f"{text} ({show_load(fails)} fails{as_predicted})"
    if low is None or high is None:
        return f"{text} ({show_load(fails)} fails, both too close to call)"
    span = f"{show_load(low)} to {show_load(high)}"
    if show_load(low) == show_load(document["load"]):
        span = f"or more, up to {show_load(high)},"
    chance = f"{span} by chance, with 95 % confidence"
    return f"{load} ({chance}){certain}"


def ends_text(document: Document) -> list[str]:
    """The highest load at both ends of the error band, and how far off whole runs were."""
    ends, unit = document["ends"], document["unit"]
    if ends is None:
        return []
    slower, faster = ends["slower"], ends["faster"]
    low = "above what was tried" if slower is None else f"{show_load(slower, 3)} {unit}"
    low = "no load holds" if slower == 0 else low
    high = "above what was tried" if faster is None else show_load(faster, 3)
    shortest, longest = f"{1 / (1 + ends['error']):.2f}", f"{1 + ends['error']:.2f}"
    if FIRST_TOKEN in document["limits_ms"]:
        earliest, latest = ends["first_tokens"]
        longest += f" times as long as predicted, and TTFT a further {latest:.2f}"
        shortest += f" and {earliest:.2f}"
    told = "" if FIRST_TOKEN in document["limits_ms"] else " as long as predicted"
    return [
        f"If iterations take {longest} times{told}: {low}; {shortest} times: {high}.",
        *filter(None, [document["whole_runs"]]),
    ]


def trust_text(document: Document) -> str:
    """Up to which load it is sure and likely that it holds, and how sure the own load is."""
    found = document["trust"]
    sure, likely, unit = found["sure_up_to"], found["likely_up_to"], document["unit"]
    if likely is None:
        text = "that any load holds is a guess"
    elif sure is None:
        text = f"a load up to {show_load(likely, 3)} {unit} is likely to hold"
    else:
        also = "" if likely == sure else f", up to {show_load(likely, 3)} likely"
        text = f"a load up to {show_load(sure, 3)} {unit} is sure to hold{also}"
    own = ""
    if found["own"] is not None:
        holds = "holds" if document["own"]["holds"] else "does not hold"
        own = f" That the scenario's own load {holds} is {found['own']}."
    return f"How sure: {text}.{own}"


def first_to_break(document: Document) -> str:
    """The limit that breaks first."""
    name = document["first_to_break"]
    if name is None:
        return "Nothing breaks."
    full = _full(document)
    states = {probe["load"]: probe["state"] for probe in document["probes"]}
    state = states.get(document["fails_at"], State.OVERLOADED)
    if document["criterion"] == "stable" and state != State.OVERLOADED:
        return (
            f"What ends it: at {show_load(document['fails_at'])} {document['unit']} the verdict is "
            f"{state}, not stable. Full batches {full}."
        )
    if name == "capacity":
        return f"First to break: the capacity; full batches {full}."
    if name == "rejected":
        return "First to break: requests are rejected."
    return f"First to break: {limit_name(name)}. Full batches {full}."


def _full(document: Document) -> str:
    """What full batches come to, in a predicate; with the replica whose batches are full first."""
    amount = show_load(document["saturated"])
    if document["max"] != "rate":
        return f"hold {amount} requests at a time"
    one = document.get("busiest_replica")  # there where the router deals unevenly
    first = "" if one is None else f", with {replica_name(one['replica'])}, {SENT_MOST}, full first"
    return f"would serve {amount} {document['unit']}{first}"


def own_load(document: Document) -> str:
    """The scenario's own load against the highest one."""
    own, room = document["own"], document["headroom"]
    load = f"The scenario's own load of {show_load(own['load'])} {document['unit']}"
    if own["doubt"] == DoubtKind.BAND:
        word = "holds" if own["holds"] else f"does not hold ({breaking(own['probe'])})"
        return (
            f"{load} is too close to call: it {word} at the predicted times "
            f"({document['trust']['own']}), and their error band leaves it open."
        )
    if own["doubt"] == DoubtKind.CHANCE:
        kept = nearest_promise({**own["probe"], "outcome": LoadOutcome.OPEN})
        assert kept is not None
        between = f"{share(kept['low'])} to {share(kept['high'])}"
        limits = "the SLO" if len(document["promises"]) == 1 else f"the {promise_name(kept)} limit"
        return f"{load} is too close to call: {between} of requests are within {limits}."
    if own["holds"]:
        word = document["trust"]["own"]
        holds = "holds" if word == Trust.SURE else f"holds at the predicted times ({word})"
        if room < 0.05:
            return f"{load} {holds}, and may grow by {room:.0%}."
        return f"{load} {holds}, and may grow to {float(f'{1 + room:.2g}'):,.10g} times."
    breaks = breaking(own["probe"])
    if room >= 0:  # chance, or batches that fill sooner where there is more
        return f"{load} does not hold ({breaks}), though the highest load does."
    return f"{load} does not hold ({breaks}): {1 + room:.0%} of it would."


def opening(document: Document) -> list[str]:
    """The part of a closed loop that does not count, if any."""
    if not document["opening_left_out"]:
        return []
    return [
        "The first two requests per user do not count: a closed loop opens with all prompts at "
        "one instant, which never comes again."
    ]


def knee_text(document: Document) -> str:
    """Where the throughput-latency curve bends."""
    knee = document["knee"]
    if knee is None:
        return "Knee: too few loads were served to find it."
    between = f"{show_load(knee['between'][0], 3)} and {show_load(knee['between'][1], 3)}"
    latency = show_time(knee["mean_e2el_ms"] / 1e3)
    load = f"{show_load(knee['load'], 3)} {document['unit']}"
    if knee["at_end"]:
        return (
            f"Knee: above {load}; throughput over latency still grows at the highest load that "
            "holds."
        )
    return (
        f"Knee: {load} (between {between}), mean latency {latency}: "
        "throughput over latency is greatest there."
    )


def sureness(document: Document) -> str:
    """How sure the load is, and what would make it surer."""
    reached, asked = document["tolerance"]["reached"], document["tolerance"]["asked"]
    told = "" if reached is None else f"Bracketed within {reached:.1%} ({asked:.1%} asked). "
    if document["criterion"] == "stable":
        return f"{told}The mean load of the runs decides; chance in it is not bounded."
    told += lengths(document)
    unit, (low, high) = document["unit"], by_chance(document)
    if document["sure"]:
        assert low is not None
        failing = "" if high is None else f" and missed at {show_load(document['fails_at'])}"
        return f"{told} With 95 % confidence the SLO is met at {show_load(low)} {unit}{failing}."
    if low is None:
        held = "No load that was tried meets the SLO with 95 % confidence"
        missing = "" if high is None else f"; from {show_load(high)} {unit} on it is missed with it"
    else:
        held = f"With 95 % confidence the SLO is met at {show_load(low)} {unit}"
        missing = "" if high is None else f" and missed at {show_load(high)}"
    open_ones = "a load lies between these two, or its interval" if low and high else "the interval"
    return (
        f"{told} {held}{missing}. Where the table says likely or a guess, the error band of the "
        f"predicted times leaves it open, or {open_ones} contains the share that the SLO asks for, "
        f"and the share itself decided.{_deciding(document)}"
    )


def lengths(document: Document) -> str:
    """How long the runs were of which the answer is, and whether longer ones say the same."""
    runs, unit = document["run_lengths"], document["unit"]
    answer = _length(runs["answer"], document)
    if not runs["lasts"]:
        return f"This is about the traffic as it was simulated, {answer}: more may hold less."
    if runs["answer"] == runs["first"]:
        text = f"Runs of {answer} decided"
    else:
        text = (
            f"Runs of {runs['first']:,} requests hold {show_load(runs['first_load'])} {unit}; "
            f"longer ones, of {answer}, in which the empty start weighs less, decided"
        )
    if runs["answer"] > runs["first"]:
        return f"{text}."
    return f"{text}; still longer ones may hold less (run.requests={2 * runs['answer']})."


def _length(requests: int, document: Document) -> str:
    """A number of requests, and how long they take to arrive at the highest load."""
    if document["max"] != "rate":
        return f"{requests:,} requests"
    return f"{requests:,} requests ({show_time(requests / document['load'])})"


def _deciding(document: Document) -> str:
    """How many requests would settle the two loads on either side of the answer."""
    if not document["random"]:
        first = document["first_requests"]
        if first is not None:
            return (
                f" Only {first:,} requests of the trace were taken (run.requests); more may decide."
            )
        return " A trace has no more requests to decide by."
    ends = (document["load"], document["fails_at"])
    wanted = [
        (probe["load"], probe["requests_to_decide"])
        for probe in document["probes"]
        if probe["load"] in ends and probe["requests_to_decide"] is not None
    ]
    if not wanted:
        return ""
    first = next((count for load, count in wanted if load == document["load"]), None)
    if first is None and wanted[0][1] > MANY:
        failing = f"{show_load(document['fails_at'])} {document['unit']}"
        return f" Millions of requests would be needed to decide {failing}: it is at the limit."
    if first is not None and first > MANY:
        return " Millions of requests would be needed to decide: the load is at the limit."
    few = [(load, count) for load, count in wanted if count <= MANY]
    told = " and ".join(f"about {count:,} requests at {show_load(load)}" for load, count in few)
    each = 10 * -(-max(count for _, count in few) // (10 * MOST))
    return f" {told[0].upper()}{told[1:]} would decide (run.requests={each} or more)."
