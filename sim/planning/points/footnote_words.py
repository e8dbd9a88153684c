"""Explains the marks in the tables of decisions, in words that terminal and page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.enough.needed_requests import reach_text
from sim.metrics.own import FAILED
from sim.metrics.states import DoubtKind, SloState, too_short_for
from sim.metrics.words.notes import WARM_UP, without_numbers
from sim.metrics.words.slo_text import slo_doubts

Verdict = Mapping[str, Any]

MARK = "?"
"""Stands behind what is too close to call."""

LEFT_OUT = (WARM_UP, FAILED)
"""How notes begin that are of one run alone, or stand elsewhere (``metrics.own.failures``)."""


def doubt_mark(slo: str | None) -> str:
    """The mark behind the share within the SLO of a run whose SLO is ``slo``.

    >>> doubt_mark("too close to call"), doubt_mark("met")
    (' ?', '')
    """
    return f" {MARK}" if slo == SloState.OPEN else ""


def footnotes(verdicts: Sequence[Verdict]) -> list[str]:
    """Why the runs with these verdicts that are marked are open, each reason once; nothing where
    none is."""
    marked = [
        (each, set(slo_doubts(each))) for each in verdicts if each["slo_state"] == SloState.OPEN
    ]
    cut = [
        each for each, doubts in marked if DoubtKind.LOAD not in doubts and _lacks_its_peak(each)
    ]
    short = [each for each, doubts in marked if too_short_for(doubts) and each not in cut]
    left = [
        each
        for each, doubts in marked
        if DoubtKind.UNFINISHED in doubts and each not in [*cut, *short]
    ]
    known = [*cut, *short, *left]
    banded = [each for each, doubts in marked if each not in known and DoubtKind.BAND in doubts]
    chance = [each for each, _ in marked if each not in [*known, *banded]]
    lines = [f"{MARK}: too close to call. {each['cut']['note']}" for each in cut[:1]]
    if chance:
        lines.append(
            f"{MARK}: too close to call, the interval contains the target"
            f"{_enough(chance, '; up to {} requests{} would decide')}."
        )
    if banded:
        by_chance = [
            bool({DoubtKind.CHANCE, DoubtKind.END_CHANCE} & set(slo_doubts(each)))
            for each in banded
        ]
        narrow = "do not narrow it"
        if any(by_chance):
            some = "" if all(by_chance) else "only "
            narrow = f"narrow it {some}where an interval, or that of an end, contains the target"
        lines.append(
            f"{MARK}: too close to call, the error band of the predicted times leaves it open; "
            f"more requests {narrow}."
        )
    if left:
        lines.append(
            f"{MARK}: too close to call, only requests that were not finished when the run ended "
            "miss the SLO, and they may be within the SLO; a longer run would tell."
        )
    if short:
        lines.append(
            f"{MARK}: too close to call, so close to the capacity (or beyond it) the empty start "
            "of a run flatters it, and a longer one may miss it"
            f"{_enough(short, '; {} requests or more{} would tell' + _of_rows(short))}."
        )
    return lines


def sure_of(summary: Mapping[str, Any]) -> list[str]:
    """How sure the metrics of a run are, as ``infersim run`` says it: the error band of its
    iteration times, and what comes of both ends of it where they were simulated."""
    own = summary["infersim"]
    told = [f"How sure: {own['error_band']['text']}"]
    return told if own["ends"] is None else [*told, own["ends"]["text"]]


def sure_of_all(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """How sure the metrics of several runs are: as ``sure_of``, of the one with the widest band;
    nothing without a run."""
    known = [summary["infersim"].get("error_band") for summary in summaries]
    bands = [band for band in known if band is not None]
    if not bands:
        return []
    widest = max(bands, key=lambda band: band["throughput"] or 0.0)
    alike = all(band["text"] == widest["text"] for band in bands)
    return [f"How sure{'' if alike else ', where the band is widest'}: {widest['text']}"]


def notes_of(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The notes of several runs, given by their labels and summaries, each once: how they were cut,
    what of the model or the formats is not as it seems. Of those that differ in numbers only, the
    first; with the labels of those that have it where not all do. What a single run says of its own
    precision and warm-up is left out."""
    known: dict[str, list[tuple[str, str]]] = {}
    for label, summary in runs:
        own = summary["infersim"]  # of a run on the disk, perhaps of an older version
        precise = (own.get("precision") or {}).get("text")
        for note in own.get("notes") or ():
            if note != precise and not note.startswith(LEFT_OUT):
                known.setdefault(without_numbers(note), []).append((label, note))
    found = []
    for alike in known.values():
        labels = list(dict.fromkeys(label for label, note in alike if note == alike[0][1]))
        some = len(labels) < len({label for label, _ in runs})
        more = f" and {len(labels) - 1:,} more" if len(labels) > 1 else ""
        found.append(f"{labels[0]}{more}: {alike[0][1]}" if some else alike[0][1])
    return found


def _lacks_its_peak(verdict: Verdict) -> bool:
    """Whether the run ended before the busiest part of its traffic."""
    cut = verdict.get("cut")
    return cut is not None and not cut["has_peak"]


def _of_rows(verdicts: Sequence[Verdict]) -> str:
    """Says of which row the number of ``_enough`` is: the run as it is may need fewer requests."""
    counts = {verdict["requests_to_decide"] for verdict in verdicts} - {None}
    return " in the row that takes the most" if len(counts) > 1 else " in such a row"


def _enough(verdicts: Sequence[Verdict], text: str) -> str:
    """``text`` with the requests that decide all of ``verdicts``, and how to come to them; empty
    where that is no number."""
    known = [verdict for verdict in verdicts if verdict["requests_to_decide"] is not None]
    if not known:
        return ""
    most = max(known, key=lambda verdict: verdict["requests_to_decide"])
    count = most["requests_to_decide"]
    return text.format(f"{count:,}", reach_text(most.get("reach"), count) or " (run.requests)")
