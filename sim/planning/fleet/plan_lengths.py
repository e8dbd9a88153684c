"""Words how long the runs were that decided which fleets hold a load, and what short ones flatter.

Requests per run; ``fleets`` in the order of their ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.planning.fleet.sizing import Confirmed
from sim.planning.load.probe import STABILITY, Probe
from sim.planning.points.wording import counted, share
from sim.units import show_load


def run_lengths(
    fleets: Sequence[tuple[int, Probe]], *, lasts: bool, first: int | None = None
) -> dict[str, Any]:
    """Requests of the ``usual`` runs and of those that decided (``answer``), the fleets in order,
    and the sentences on them (``text``). Each of ``fleets`` is how many requests a usual run of it
    has, and what decided that it holds.

    ``lasts`` is whether there are longer runs of the same traffic, ``first`` how many requests of a
    trace the scenario takes, None where it takes all.
    """
    usual = [requests for requests, _ in fleets]
    answer = [_each(probe) for _, probe in fleets]
    return {
        "lasts": lasts,
        "usual": usual,
        "answer": answer,
        "text": _checked(usual, answer) if lasts else _as_simulated(fleets, answer, first),
    }


def _as_simulated(
    fleets: Sequence[tuple[int, Probe]], answer: Sequence[int], first: int | None
) -> list[str]:
    if not fleets[0][1].attained:
        return [
            f"In runs of {_span(answer)} requests: the mean load of the runs decides; chance in it "
            "is not bounded."
        ]
    if first is not None:
        return [
            f"Only {first:,} requests of the trace were taken (run.requests): a fleet may hold "
            "less of all of it."
        ]
    return [
        f"This is about the traffic as it was simulated, {_span(answer)} requests: of more "
        "requests a fleet may hold less."
    ]


def _checked(usual: Sequence[int], answer: Sequence[int]) -> list[str]:
    """The fleets that were checked in longer runs, and why the others were not."""
    ranks = range(len(usual))
    longer = [index for index in ranks if answer[index] > usual[index]]
    short = [index for index in ranks if index not in longer]
    told = []
    if longer:
        decided = "is decided" if len(longer) == 1 else "are decided"
        told.append(
            f"{_ranks(longer)} {decided} by runs of {_span([answer[i] for i in longer])} requests."
        )
    if short:
        meets = "meets" if len(short) == 1 else "meet"
        told.append(
            f"{_ranks(short)} {meets} the SLO in runs of {_span([answer[i] for i in short])} "
            "requests, far enough from the limits for longer ones to agree."
        )
    return [
        " ".join(told),
        f"Short runs, of {_span(usual)} requests, begin with an empty system, so that the load "
        "that they hold is flattered: `infersim find` says which load lasts.",
    ]


def flattered_note(fleet: Confirmed) -> str | None:
    """Note on a fleet with one replica less in longer runs, where it holds in short ones."""
    sized = fleet.sized
    if not sized.flattered or sized.smaller is None:
        return None
    smaller = sized.smaller
    return (
        f"a run of {sized.usual:,} requests at {show_load(smaller.load)} requests/s holds with "
        f"{counted(sized.replicas - 1, 'replica')}, but in runs of {_each(smaller):,} "
        f"{_why(smaller)}"
    )


def _why(probe: Probe) -> str:
    if probe.breaks == STABILITY:
        return "no capacity is left, so that the queue grows for ever"
    worst = min(probe.attained, key=lambda each: each.share - each.objective.share)
    return f"only {share(worst.share)} are within the SLO"


def _each(probe: Probe) -> int:
    return probe.requests // probe.runs


def _ranks(indices: Sequence[int]) -> str:
    return ", ".join(f"#{index + 1}" for index in indices)


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
