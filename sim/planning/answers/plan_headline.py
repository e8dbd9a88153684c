"""Says which fleet a plan recommends: what it costs, also when more is asked of it, and how sure.

The cheapest fleet that is sure to hold the load comes first where there is one, then what is
cheaper and not sure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.findings import Headline
from sim.metrics.bands.end_times import TimeBand
from sim.metrics.bands.trust import Trust
from sim.planning.answers.cells import Document
from sim.planning.answers.fleets import load_text, scaling
from sim.planning.answers.plan_drawings import replicas_at
from sim.planning.points.wording import LoadOutcome, as_cheap_text, counted, held_text
from sim.specs.precision import PLAIN


class Recommended(NamedTuple):
    """The ``fleet`` of a plan that its answer leads with, in that many ``replicas``."""

    fleet: Mapping[str, Any]
    replicas: int

    def cost(self, replicas: int) -> float:
        """USD per hour of so many replicas like its own."""
        return float(self.fleet["usd_per_hour"]) / int(self.fleet["replicas"]) * replicas

    def month(self, document: Document, replicas: int) -> str:
        """The cost of a month of so many replicas like its own."""
        return f"${self.cost(replicas) * document['hours']['month']:,.0f} a month"

    def named(self, document: Document) -> str:
        """Its replicas, its GPUs and its cost."""
        gpus = self.fleet["gpus"] // self.fleet["replicas"] * self.replicas
        return (
            f"{counted(self.replicas, 'replica')} of {self.fleet['layout']} "
            f"({counted(gpus, 'GPU')}), ${self.cost(self.replicas):,.2f}/h, "
            f"{self.month(document, self.replicas)}"
        )


def headline(document: Document) -> Headline:
    """The cheapest fleet that is sure, or else the cheapest one; what it costs when more is asked
    of it; and whether the cheapest stays so within the error of predicted times, and at listed
    prices."""
    best, ranking, found = document["fleets"][0], document["ranking"], recommended(document)
    is_sure, holds = held_text(best["error_band"]["trust"], wanted(document))
    settled = ranking["survives"] and ranking["prices"]["survives"] is not False
    shown = [*scaling(document)]
    if is_sure or ranking["sure"] is None:
        title = f"Cheapest: {found.named(document)}{as_cheap_text(ranking)}"
        shown += [holds, *([] if is_sure else ["No fleet that was tried is sure to."])]
        shown += _further(document, found)
    else:
        title = f"Cheapest that is sure: {found.named(document)}"
        shown += [f"It is sure to hold {wanted(document)}.", *_further(document, found)]
        shown.append(_unsure(document, found))
    first = found.fleet is best
    stays = [*_stays_cheapest(document["break_even"], "" if first else "At the predicted times ")]
    texts = [*shown, ranking["text"], *stays]
    if found.fleet["precision"] is not None and found.fleet["precision"] not in PLAIN:
        form = found.fleet["precision"]
        texts.append(f"{form} takes a checkpoint whose quality you have checked.")
    brief = [*shown, *(_overtaken(best["error_band"]["rivals"]) if first else ()), *stays]
    return Headline(
        "good" if settled and is_sure else "warn", title, " ".join(texts), " ".join(brief)
    )


def recommended(document: Document) -> Recommended:
    """The cheapest fleet that is sure to hold the load; the cheapest one where none is."""
    best, sure = document["fleets"][0], document["ranking"]["sure"]
    if best["error_band"]["trust"] == Trust.SURE or sure is None:
        return Recommended(best, best["replicas"])
    fleet = next(each for each in document["fleets"] if each["rank"] == sure["rank"])
    return Recommended(fleet, sure["replicas"])


def wanted(document: Document) -> str:
    """The load that a fleet is to hold, and what is gone of it then."""
    gone = document["survive"]["replicas"]
    return load_text(document["rate"]) + (f" with {counted(gone, 'replica')} gone" if gone else "")


def _further(document: Document, found: Recommended) -> Iterator[str]:
    """The cost of a month at twice the load, estimated, and with a replica to spare."""
    sized = next(each for each in document["sized"] if each["layout"] == found.fleet["layout"])
    more = found.replicas / sized["replicas"]  # than hold it at the predicted times
    twice = max(found.replicas, math.ceil(round(more * replicas_at(document, sized, 2), 9)))
    yield (f"At twice the load about {found.month(document, twice)} ({counted(twice, 'replica')}).")
    spare, more_by_one = document["survive"]["replicas"], found.replicas + 1
    if spare:
        yield f"The price includes {counted(spare, 'replica')} to spare."
    elif more == 1 and sized["one_down"] == LoadOutcome.HOLDS:
        yield "One replica may fail at no extra cost: the others hold the rate."
    else:
        month = found.month(document, more_by_one)
        yield f"With a replica to spare {month} ({counted(more_by_one, 'replica')})."


def _unsure(document: Document, found: Recommended) -> str:
    """The cheapest fleet, which is not sure to hold the load, and how far it may be off."""
    best = document["fleets"][0]
    mine = round(found.cost(found.replicas), 6)
    cheaper = "Cheaper" if round(best["usd_per_hour"], 6) < mine else "As cheap"
    error = best["error_band"]["error"]
    low, high = (end.iterations for end in TimeBand(error, error).ends)
    named = Recommended(best, best["replicas"]).named(document)
    only = "only " if best["error_band"]["trust"] == Trust.LIKELY else ""
    return (
        f"{cheaper}, but {only}{best['error_band']['trust']}: {named} (expect iterations of "
        f"{low:.1f} to {high:.1f} times the predicted times)."
    )


def _overtaken(rivals: Sequence[str]) -> Iterator[str]:
    """How many fleets could be cheaper than the first, if any."""
    if rivals:
        others = counted(len(rivals), "other fleet")
        yield (
            f"The first place is not sure: within the error of predicted times {others} could be "
            "cheaper."
        )


def _stays_cheapest(break_even: Mapping[str, Any], when: str) -> Iterator[str]:
    """Up to which price of its GPU the first fleet is the cheapest, where that is known; ``when``
    goes before."""
    up_to = break_even["usd_per_gpu_hour"]
    if up_to is not None:
        least = "" if break_even["proven"] else "at least "
        gpu = break_even["gpu"]
        yield f"{when}{gpu} stays the cheapest up to {least}${up_to:,.2f} per GPU hour."
