"""Words what fleets of different size cost, what energy they take and whether they meet the SLO."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.states import SloState
from sim.planning.contrast.variant_words import Document, Entry, entries_of, name
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
    good = [
        index for index in priced if document["variants"][index].get("slo") in (None, SloState.MET)
    ]
    if len(priced) < 2:
        return ""
    judged = any(document["variants"][index].get("slo") for index in priced)
    cheapest = min(good or priced, key=lambda index: dollars[index])
    others = sorted((i for i in good if i != cheapest), key=lambda index: dollars[index])
    if not judged:
        text = f"{name(document, cheapest)} costs the least"
    elif not good:
        text = f"None meets the SLO beyond doubt; {name(document, cheapest)} costs the least"
    elif others:
        text = f"Of those that meet the SLO {name(document, cheapest)} costs the least"
    else:
        text = f"{name(document, cheapest)} alone meets the SLO"
    text += f": {_bill(document, cheapest)} for the whole run"
    if shown := others if len(others) <= MOST_NAMED else others[-1:]:
        told = [f"{name(document, index)} {_bill(document, index)}" for index in shown]
        text += f"; {', '.join(told)}"
    worse = [index for index in priced if index not in (cheapest, *others)]
    if judged and worse and len(worse) <= MOST_NAMED:
        told = [
            f"{name(document, index)} {_bill(document, index)}, "
            f"{document['variants'][index]['slo']} with {_attained(entries, index)} of requests"
            for index in worse
        ]
        text += f"; {'; '.join(told)}"
    elif judged and worse:
        text += f"; {len(worse)} others do not meet it beyond doubt"
    return f"{text}."


def _bill(document: Document, index: int) -> str:
    """Dollars of a whole run, and its energy."""
    entries = entries_of(document)
    usd = entries[DOLLARS.key]["means"][index]
    text = f"${usd:,.2f}" if usd >= 1 else f"${number(usd)}"
    kwh = entries[KWH.key]["means"][index] if KWH.key in entries else None
    return text if kwh is None else f"{text} and {number(kwh)} kWh"


def _attained(entries: Mapping[str, Entry], index: int) -> str:
    return share(entries["verdict.attainment"]["means"][index])
