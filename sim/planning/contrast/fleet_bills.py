"""Words what fleets of different size cost, what energy they take and whether they meet the SLO."""

from __future__ import annotations

from collections.abc import Sequence

from sim.metrics.fleet.drain import KEEPS_UP
from sim.metrics.states import SloState, State
from sim.planning.contrast.variant_words import Document, alike, entries_of, name
from sim.planning.points.figures import DOLLARS, HELD, KWH
from sim.planning.points.wording import share
from sim.units import number

MOST_NAMED = 3
"""Fleets that a sentence lists."""


def of_fleets(document: Document) -> str:
    """The cost, energy and SLO share of fleets of different size; empty where all hold as many
    replicas, or nothing is known of their prices."""
    entries = entries_of(document)
    if HELD.key not in entries or DOLLARS.key not in entries:
        return ""
    dollars = entries[DOLLARS.key]["means"]
    priced = [index for index, usd in enumerate(dollars) if usd is not None]
    if len(priced) < 2:
        return ""
    if same_bill(document):
        return _one_bill(document, priced)
    variants = document["variants"]
    judged = any(variants[index].get("slo") for index in priced)
    good = [
        index
        for index in priced
        if variants[index].get("slo") in (None, SloState.MET)
        and variants[index]["state"] != State.OVERLOADED
    ]
    if not good:
        return _none_meets(document, priced) if judged else ""
    cheapest, *others = sorted(good, key=lambda index: dollars[index])
    worse = [index for index in priced if index not in good]
    if not judged:
        text = f"{name(document, cheapest)} {'costs the least' if others else 'alone keeps up'}"
        text = f"Of those that keep up {text}" if worse and others else text
    elif others:
        text = f"Of those that meet the SLO {name(document, cheapest)} costs the least"
    else:
        text = f"{name(document, cheapest)} alone meets the SLO"
    text += f": {_bill(document, cheapest)} for the whole run"
    if shown := others if len(others) <= MOST_NAMED else others[-1:]:
        told = [f"{name(document, index)} {_bill(document, index)}" for index in shown]
        text += f"; {', '.join(told)}"
    if judged and worse and len(worse) <= MOST_NAMED:
        text += f"; {'; '.join(_judged(document, index) for index in worse)}"
    elif judged and worse:
        text += f"; {len(worse)} others do not meet it beyond doubt"
    return f"{text}."


def same_bill(document: Document) -> bool:
    """Whether fleets that hold other numbers of replicas cost the same for each hour, so that what
    a whole run costs depends on its last answers alone."""
    variants = [each for each in document["variants"] if each["error"] is None]
    return HELD.key in entries_of(document) and alike([each.get("hourly_usd") for each in variants])


def _one_bill(document: Document, priced: Sequence[int]) -> str:
    """What an hour of each of these fleets costs; what they serve, where it is the same; and which
    of them meet the SLO, where not all do."""
    variants = [document["variants"][index] for index in priced]
    text = f"{'Both' if len(priced) == 2 else 'All'} cost ${variants[0]['hourly_usd']:,.2f}/h"
    served = [each.get("while_arriving", {}).get("request_throughput") for each in variants]
    if all(each["state"] in KEEPS_UP for each in variants) and alike(served):
        text += f" and serve the {number(served[0])} requests/s"
    met = [index for index in priced if document["variants"][index].get("slo") == SloState.MET]
    if len(met) < len(priced) and any(each.get("slo") for each in variants):
        names = [name(document, index) for index in met]
        doubt = any(each.get("slo") == SloState.OPEN for each in variants)
        verb = f"{' and '.join(names)} alone meet{'s' * (len(met) == 1)}" if met else "none meets"
        text += f"; {verb} the SLO{' beyond doubt' * doubt}"
    return f"{text}."


def _none_meets(document: Document, priced: Sequence[int]) -> str:
    """The bills of fleets of which none meets the SLO, and none is called the cheapest."""
    words = {document["variants"][index].get("slo") for index in priced}
    text = f"None meets the SLO{' beyond doubt' if SloState.OPEN in words else ''}"
    if len(priced) <= MOST_NAMED:
        text += f". Whole runs: {'; '.join(_judged(document, index) for index in priced)}"
    return f"{text}."


def _judged(document: Document, index: int) -> str:
    """The bill of a fleet, and how it did by the SLO."""
    attained = share(entries_of(document)["verdict.attainment"]["means"][index])
    said = f"{document['variants'][index]['slo']} with {attained} of requests"
    return f"{name(document, index)} {_bill(document, index)}, {said}"


def _bill(document: Document, index: int) -> str:
    """Dollars of a whole run, and its energy."""
    entries = entries_of(document)
    usd = entries[DOLLARS.key]["means"][index]
    text = f"${usd:,.2f}" if usd >= 1 else f"${number(usd)}"
    kwh = entries[KWH.key]["means"][index] if KWH.key in entries else None
    return text if kwh is None else f"{text} and {number(kwh)} kWh"
