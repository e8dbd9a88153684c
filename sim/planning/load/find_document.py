"""The answer of ``find`` as plain data, and what its runs leave without doubt."""

from __future__ import annotations

import math
from typing import Any

from sim import catalog
from sim.catalog.whole_runs import whole_runs_text
from sim.deployments import deployment_of
from sim.metrics.bands.bands import half_of
from sim.metrics.bands.trust import trust
from sim.metrics.load.long_enough import FULL
from sim.metrics.question.question_text import asked, changed, driven_by, hardware
from sim.metrics.slo.objectives import limits_ms, shown_shares
from sim.metrics.states import DoubtKind
from sim.metrics.words.format_words import formats, wide_note
from sim.planning.load.find import FoundLoad
from sim.planning.load.loads import further_notes, goes_on
from sim.planning.load.probe import Probe, opens_at_once
from sim.planning.load.sentences import first_to_break, sentences, with_answer
from sim.planning.points.wording import LoadOutcome
from sim.scenario import Scenario
from sim.scenario.prices import name_of
from sim.setup import is_random
from sim.version import version


def headroom(found: FoundLoad) -> float | None:
    """The growth in load from the scenario's own up to the highest; negative if it is too much."""
    return None if found.own is None else found.best.load / found.own.load - 1


def holds_up_to(found: FoundLoad) -> float | None:
    """The highest load of which chance in the longest runs leaves no doubt that it holds."""
    if found.settled.lasts:
        return found.settled.sure
    held = [
        p.load for p in found.probes if p.outcome == LoadOutcome.HOLDS and p.load <= found.best.load
    ]
    return max(held, default=None)


def fails_from(found: FoundLoad) -> float | None:
    """The lowest load above the answer of which chance in the longest runs leaves no doubt that it
    fails."""
    if found.settled.lasts:
        return found.settled.missed
    missed = [
        p.load for p in found.probes if p.outcome == LoadOutcome.FAILS and p.load > found.best.load
    ]
    return min(missed, default=None)


def doubt(found: FoundLoad, probe: Probe) -> DoubtKind | None:
    """What leaves the load of ``probe`` too close to call, by the rule for the SLO of one run: the
    interval of its share, or that it holds at one end of the error band and fails at the other."""
    if probe.outcome == LoadOutcome.OPEN or between(found, probe.load):
        return DoubtKind.CHANCE
    low, high = _between(found)
    return DoubtKind.BAND if found.objectives and low < probe.load <= high else None


def between(found: FoundLoad, load: float) -> bool:
    """Whether ``load`` lies between the two loads of which the longest runs leave no doubt, so that
    whatever shorter ones made of it is too close to call."""
    if not found.settled.lasts:
        return False
    low, high = holds_up_to(found), fails_from(found)
    above = load >= found.best.load if low is None else load > low
    return above and (high is None or load < high)


def sureness_of(found: FoundLoad, load: float, *, holds: bool) -> str:
    """How sure it is that ``load`` holds, or that it does not."""
    wide, near = _between(found), _between(found, half=True)
    if holds:
        at_band, at_half = load <= wide[0], load <= near[0]
        low = holds_up_to(found)
        decided = low is not None and load <= low
        decided = decided and (_outlasts_its_start(found) or load <= FULL * found.best.load)
    else:
        at_band, at_half = load > wide[1], load > near[1]
        high = fails_from(found)
        decided = high is not None and load >= high
    return trust(decided=decided, at_band=at_band, at_half=at_half)


def _between(found: FoundLoad, *, half: bool = False) -> tuple[float, float]:
    """The loads between which the highest lies by the 90 % or the 50 % band of predicted times."""
    ends = found.ends
    if ends is None:
        return found.best.load, found.best.load
    return ends.within(found.best.load, half_of(ends.error) if half else ends.error)


def _outlasts_its_start(found: FoundLoad) -> bool:
    """Whether longer runs were tried, or the traffic has no more than was simulated: else the
    empty start of a run may have decided."""
    return found.settled.lasts or not goes_on(found.axis)


def _trust(found: FoundLoad) -> dict[str, Any]:
    """How sure the highest load and the scenario's own are, up to which load it is ``SURE`` and
    ``LIKELY`` that it holds, and from which it is ``SURE`` that it fails (None: there is none).
    Chance and the error of predicted times both count."""
    own, low, high = found.own, holds_up_to(found), fails_from(found)
    bottom, top = _between(found)
    if low is not None and not _outlasts_its_start(found):
        low = min(low, FULL * found.best.load)
    least = low or 0.0
    return {
        "highest": sureness_of(found, found.best.load, holds=True),
        "own": None if own is None else sureness_of(found, own.load, holds=own.holds),
        "sure_up_to": min(least, bottom) or None,
        "likely_up_to": min(least, _between(found, half=True)[0]) or None,
        "fails_for_sure_at": None if high is None or top == math.inf else max(high, top),
    }


CONFIDENCE = 0.95
"""Of the intervals by which the runs decide."""


def _chance(found: FoundLoad) -> dict[str, Any]:
    """Between which loads chance in the runs leaves the answer open, with predicted times taken as
    exact."""
    return {
        "confidence": CONFIDENCE,
        "holds_up_to": holds_up_to(found),
        "fails_from": fails_from(found),
    }


def _told(found: FoundLoad, probe: Probe) -> dict[str, Any]:
    """One load as plain data, by what the whole search says of it; with an SLO how sure it is
    (``trust``) that it does at the error band what it does at the predicted times."""
    open_now = {"sure": False, "outcome": LoadOutcome.OPEN}
    sure = {"trust": sureness_of(found, probe.load, holds=probe.holds)} if found.objectives else {}
    return probe.document() | sure | (open_now if doubt(found, probe) else {})


def _own(found: FoundLoad) -> dict[str, Any] | None:
    """The scenario's own load; None where it has none."""
    own = found.own
    if own is None:
        return None
    return {
        "load": own.load,
        "holds": own.holds,
        "outcome": (told := _told(found, own))["outcome"],
        "doubt": doubt(found, own),
        "probe": told,
    }


def _first_requests(found: FoundLoad) -> int | None:
    """How many requests of a trace were simulated, if that is as many as the scenario asks for and
    perhaps not all."""
    asked_for = found.scenario.run.requests
    if found.scenario.workload.trace is None:
        return None
    # an overlay has as many for each copy: those of one are in the scenario's own load
    return asked_for if asked_for in {probe.requests for probe in found.probes} else None


def document(found: FoundLoad) -> dict[str, Any]:
    """The answer as plain data; ``load`` is in ``unit``."""
    written = _asked(found) | _answered(found)
    return written | {
        "sentences": sentences(written),
        "with_answer": with_answer(written),
        "breaks": first_to_break(written),
    }


def _asked(found: FoundLoad) -> dict[str, Any]:
    """What was asked, and of what."""
    pools = found.scenario.pools
    return {
        "command": "find",
        "infersim": version(),
        "scenario": found.scenario.name,
        "description": found.scenario.description,
        "asked": asked(found.scenario) | changed(found.scenario),
        "model": str(found.scenario.model),
        "formats": formats(found.scenario),
        "gpu": ", ".join(dict.fromkeys(pool.gpu for pool in pools)),
        "gpus": sum(pool.gpus for pool in pools),
        "hardware": hardware(found.scenario),
        "max": found.axis.kind,
        "unit": found.axis.unit,
        "scaling": found.axis.scaling,
        "traffic_notes": list(found.traffic_notes),
        "notes": [
            *([] if (wide := _wide_note(found.scenario)) is None else [wide]),
            *further_notes(found.scenario, found.settled.document()["first"]),
            *found.axis.session_note(found.best.load),
        ],
        "criterion": "slo" if found.objectives else "stable",
        "promises": [objective.text for objective in found.objectives],
    }


def _answered(found: FoundLoad) -> dict[str, Any]:
    """What was found."""
    fails, refusal = found.fails, found.best.rejection
    reached = None if fails is None else fails.load / found.best.load - 1
    return {
        "load": found.best.load,
        "sure": bool(found.objectives)
        and holds_up_to(found) == found.best.load
        and (fails is None or fails_from(found) == fails.load),
        "trust": (trusted := _trust(found)),
        "sure_up_to": trusted["sure_up_to"],
        "fails_for_sure_at": trusted["fails_for_sure_at"],
        "chance": _chance(found),
        "run_lengths": found.settled.document(),
        "random": is_random(found.scenario),
        "first_requests": _first_requests(found),
        "fails_at": None if fails is None else fails.load,
        "first_to_break": None if fails is None else fails.breaks,
        "opening_left_out": opens_at_once(found.scenario, found.axis),
        "tolerance": {"asked": found.tolerance, "reached": reached},
        "error_band": found.best.error,
        "basis": found.best.basis,
        "ends": None if found.ends is None else found.ends.document(),
        "whole_runs": _whole_runs(found),
        "own": _own(found),
        "headroom": headroom(found),
        "saturated": _saturated(found),
        **({} if found.best.busiest is None else {"busiest_replica": dict(found.best.busiest)}),
        "knee": None if found.knee is None else found.knee.document(),
        "at_best": _told(found, found.best),
        "limits_ms": limits_ms(found.objectives),
        "shares": shown_shares(found.objectives),
        "rejection": None if refusal is None else refusal.document(),
        "probes": [_told(found, probe) for probe in found.probes],
    }


def _saturated(found: FoundLoad) -> float:
    """The load that full batches serve as the runs of the highest load have it, which is no less
    than that load; by the cost model alone where they do not say. Of users: the requests that full
    batches hold."""
    room = found.best.headroom
    if found.axis.whole:
        return math.floor(found.saturation.slots)
    if room is None or any(pool.scales is not None for pool in found.scenario.pools):
        return found.saturation.rate
    return found.best.load * (1 + max(0.0, room))


def _wide_note(scenario: Scenario) -> str | None:
    return wide_note(scenario, (deployment_of(scenario, pool).gpu for pool in scenario.pools))


def _whole_runs(found: FoundLoad) -> str:
    scenario = found.scenario
    engine = next(pool.engine for pool in scenario.pools)
    gpus = list(dict.fromkeys(name_of(pool.gpu) for pool in scenario.pools))
    experts = catalog.model(scenario.model.path, scenario.base).has_experts
    driven = "closed loop" if found.axis.whole else driven_by(scenario)
    return whole_runs_text(engine, gpus, driven, experts=experts)
