"""How is the answer of ``find`` said in words? For the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.units import show_time

Document = Mapping[str, Any]


def sentences(document: Document) -> list[str]:
    """The whole answer, its most important part first."""
    own = [] if document["own"] is None else [own_load(document)]
    told = [slo_text(document), first_to_break(document), *own, knee_text(document)]
    told += opening(document)
    return [highest(document), *ends_text(document), *told, sureness(document)]


def slo_text(document: Document) -> str:
    """What had to hold."""
    if document["criterion"] == "stable":
        return (
            "The scenario promises nothing (slo.ttft, slo.tpot): looked for the highest load that "
            "the verdict calls stable."
        )
    return f"Promised: {'; '.join(document['promises'])}"


def highest(document: Document) -> str:
    """The load itself."""
    unit, fails = document["unit"], document["fails_at"]
    text = f"Highest load: {document['load']:.4g} {unit}"
    if fails is None:
        return f"{text}; nothing failed up to there, the highest load that was tried"
    return f"{text} ({fails:.4g} fails)"


def ends_text(document: Document) -> list[str]:
    """The highest load at both ends of the error band, and how far off whole runs were."""
    ends, unit = document["ends"], document["unit"]
    if ends is None:
        return []
    slower, faster = ends["slower"], ends["faster"]
    low = "above what was tried" if slower is None else f"{slower:.3g}"
    low = "no load holds" if slower == 0 else low
    high = "above what was tried" if faster is None else f"{faster:.3g}"
    error = f"{ends['error']:.0%}"
    return [
        f"If iterations are {error} slower than predicted: {low}; {error} faster: {high} {unit}.",
        document["whole_runs"],
    ]


def first_to_break(document: Document) -> str:
    """What is the limit."""
    name = document["first_to_break"]
    if name is None:
        return "Nothing breaks."
    full = f"{document['saturated']:.4g} {document['unit']}"
    if name == "capacity":
        return f"First to break: the capacity; full batches serve {full}."
    return f"First to break: {name}. Full batches would serve {full}."


def own_load(document: Document) -> str:
    """The scenario's own load beside the highest one."""
    own, room = document["own"], document["headroom"]
    load = f"The scenario's own load of {own['load']:.4g} {document['unit']}"
    if own["holds"]:
        return f"{load} holds: {room:.0%} headroom."
    if room >= 0:  # chance, or batches that fill sooner where there is more
        return f"{load} does not hold ({own['probe']['breaks']}), though the highest load does."
    return f"{load} does not hold ({own['probe']['breaks']}): {-room:.0%} less would."


def opening(document: Document) -> list[str]:
    """What of a closed loop does not count, if anything."""
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
        return "Knee: too few loads were served to tell."
    between = f"{knee['between'][0]:.3g} and {knee['between'][1]:.3g}"
    latency = show_time(knee["mean_e2el_ms"] / 1e3)
    if knee["at_end"]:
        return f"Knee: beyond the highest load that holds ({knee['load']:.3g} {document['unit']})."
    return (
        f"Knee: {knee['load']:.3g} {document['unit']} (between {between}), mean latency {latency}: "
        "throughput over latency is greatest there."
    )


def sureness(document: Document) -> str:
    """How sure the load is."""
    reached, asked = document["tolerance"]["reached"], document["tolerance"]["asked"]
    told = "" if reached is None else f"Bracketed within {reached:.1%} ({asked:.1%} asked). "
    if document["sure"]:
        return f"{told}The 95 % intervals leave no doubt at either end."
    return (
        f"{told}Where the table has a ?, the 95 % interval of the share leaves it open whether the "
        "load holds; the share itself decided."
    )
