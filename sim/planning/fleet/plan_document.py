"""Describes a plan as plain data for ``--json``, the tables and the page.

Rates in requests per second, costs in US dollars per hour, latencies in milliseconds.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim import catalog
from sim.catalog.published import reading_notes
from sim.catalog.whole_runs import whole_runs_text
from sim.metrics.bands.bands import half_of
from sim.metrics.bands.trust import Trust
from sim.metrics.bands.worth import worth
from sim.metrics.question.question_text import asked, changed, driven_by
from sim.metrics.slo.objectives import judged_by
from sim.metrics.words.engine_notes import implausible_notes, release_note
from sim.metrics.words.format_words import formats, wide_note
from sim.planning.fleet.choose import FleetPlan, as_cheap
from sim.planning.fleet.fleet_ends import WithinBand
from sim.planning.fleet.launch import launch_commands
from sim.planning.fleet.layouts import FleetQuestion
from sim.planning.fleet.plan_bands import Band, bands, flattered_note, front, run_lengths
from sim.planning.fleet.plan_prices import (
    UsualTokens,
    gpu_prices,
    money,
    output_tokens,
    power_drawn,
    token_costs,
)
from sim.planning.fleet.sizing import Confirmed, Sized
from sim.planning.load.loads import LoadAxis, as_played, further_notes, goes_on
from sim.planning.points.points import show
from sim.planning.points.wording import LoadOutcome, counted, listed, share
from sim.scenario import Scenario
from sim.scenario.prices import name_of
from sim.setup import prepare
from sim.units import HOURS_OF, many, show_load
from sim.version import version

if TYPE_CHECKING:
    from sim.planning.fleet.split import SplitPlan
    from sim.planning.load.probe import Probe

LATENCIES = ("slo_ttft_ms", "slo_tpot_ms")
"""Latencies at the shares of requests that the SLO asks for, under the load with its headroom."""


def head(
    scenario: Scenario, engine: str, rate: float, varied: Sequence[str], file: str
) -> dict[str, Any]:
    """The head of every plan: its ``scenario``, and the keys that are ``varied``."""
    return {
        "infersim": version(),
        "scenario": scenario.name,
        "description": scenario.description,
        "asked": asked(scenario, varied) | changed(scenario, varied),
        "file": file,
        "model": str(scenario.model),
        "formats": formats(scenario, varied),
        "engine": engine,
        "router": scenario.router,
        "rate": rate,
    }


def document(
    plan: FleetPlan, *, file: str = "SCENARIO", given: Sequence[str] = ()
) -> dict[str, Any]:
    """The answer, whole. ``file`` is what commands in it name, ``given`` the overrides with which
    it was read."""
    question, limits = plan.question, plan.question.constraints
    trusted, paid = bands(plan), money(plan)
    varied = [] if question.rate == plan.own_rate else ["workload.arrivals"]
    if any(layout.precision is not None for layout in question.layouts):
        varied.append("precision")
    wins = {(each["gpu"], each["fleet"]): each["wins_below"] for each in paid["prices"]}
    fleets = [
        _fleet(plan, rank, each, band, given)
        | {"wins_below": wins.get((each.sized.layout.gpu, each.sized.layout.text))}
        for rank, (each, band) in enumerate(zip(plan.best, trusted, strict=True), 1)
    ]
    return {
        "command": "plan",
        **head(plan.scenario, plan.scenario.only_pool.engine, question.rate, varied, file),
        "own_rate": plan.own_rate,
        "scaling": LoadAxis(plan.scenario, "rate", plan.own_rate, question.scale).scaling,
        "traffic_notes": list(plan.traffic_notes),
        "notes": further_notes(plan.scenario, min(each.sized.usual for each in plan.best)),
        "headroom": question.headroom,
        "target": question.target,
        "top": question.top,
        **judged_by(plan.objectives),
        "constraints": {
            "usd_per_hour": limits.cost,
            "gpus": limits.gpus,
            "replicas": limits.replicas,
        },
        "survive": {"replicas": limits.survive, "text": _survive_text(plan)},
        "layouts": len(question.layouts),
        "run_lengths": lengths_of(
            plan, [(each.sized.usual, each.sized.at_target) for each in plan.best]
        ),
        "format_notes": _format_notes(plan),
        "fleets": fleets,
        "hours": HOURS_OF,
        "prices": paid["prices"],
        "break_even": paid["break_even"],
        "ranking": _ranking(fleets, trusted, plan.question)
        | {"as_cheap": as_cheap(plan)}
        | {"prices": {key: paid[key] for key in ("survives", "conditions", "text")}},
        "worth": worth(plan.best[0].sized.at_target.parts),
        "whole_runs": _whole_runs(plan),
        "sized": _points(plan),
        "rejected": [each.document() for each in plan.rejected],
    }


def lengths_of(plan: FleetPlan | SplitPlan, fleets: Sequence[tuple[int, Probe]]) -> dict[str, Any]:
    """How long the runs of ``fleets`` were that decided, and what short ones flatter."""
    scenario = plan.scenario
    lasts = bool(plan.objectives) and goes_on(LoadAxis(scenario, "rate", plan.own_rate))
    first = scenario.run.requests if scenario.workload.trace is not None else None
    if first not in {usual for usual, _ in fleets}:
        first = None  # the trace has fewer
    return run_lengths(fleets, lasts=lasts, first=first)


def settings(plan: FleetPlan, sized: Sized, rate: float) -> dict[str, object]:
    """Settings that make the plan's scenario this fleet under this load."""
    pool, found = plan.scenario.only_pool, dict(sized.layout.settings(plan.scenario))
    found[pool.key("replicas")] = sized.replicas
    if isinstance(pool.price_per_gpu_hour, dict):
        price = gpu_prices(plan)[sized.layout.gpu]
        usd = price.usd if price.origin == "given" else "catalogue"
        found[pool.key("price_per_gpu_hour")] = usd
    axis = LoadAxis(plan.scenario, "rate", plan.own_rate, plan.question.scale)
    return found | dict(axis.settings(rate))


def _energy(plan: FleetPlan, gpus: int, watts: float | None) -> dict[str, float | None]:
    """The electricity of a month, and what it stands for, where the mean power of a GPU is known
    (W)."""
    kwh = None if watts is None else watts * gpus * HOURS_OF["month"] / 1000
    grid, price = plan.scenario.energy.grid_intensity, plan.scenario.energy.price_per_kwh
    return {
        "kwh_per_month": kwh,
        "co2e_kg_per_month": None if kwh is None or grid is None else kwh * grid / 1000,
        "energy_usd_per_month": None if kwh is None or price is None else kwh * price,
    }


def _fleet(
    plan: FleetPlan, rank: int, each: Confirmed, band: Band, given: Sequence[str]
) -> dict[str, Any]:
    sized, figures = each.sized, each.at_rate.figures
    changes = settings(plan, sized, plan.question.rate)
    own, smaller = plan.scenario.override(changes), sized.smaller
    usual = UsualTokens.of(plan.scenario)
    drawn = power_drawn(each, own, usual)
    return {
        "rank": rank,
        **sized.layout.document(),
        "format_note": sized.layout.format_note(plan.scenario),
        "replicas": sized.replicas,
        "gpus": sized.gpus,
        "usd_per_hour": sized.cost,
        **{f"usd_per_{name}": sized.cost * hours for name, hours in HOURS_OF.items()},
        "rate_alone": sized.alone,
        "rate_at_slo": each.best.load,
        "headroom": each.best.load / plan.question.rate - 1,
        "binds": (each.fails or each.best).breaks,
        "smaller_breaks": None if smaller is None else smaller.breaks,
        "survivors": _survivors(sized),
        **figures,
        **token_costs(each, usual),
        **drawn,
        **_energy(plan, sized.gpus, drawn["mean_watts_per_gpu"]),
        "error_band": {
            "error": band.error,
            "half": half_of(band.error),
            "trust": band.trust,
            "parts": dict(sized.at_target.parts),
            "replicas": list(band.replicas),
            "usd_per_hour": list(band.cost),
            "sure_replicas": band.ends.sure,
            "holds_if_slower": band.ends.slower.holds,
            "survives": band.survives,
            "rivals": list(band.rivals),
        },
        "notes": _fleet_notes(each, own),
        "settings": changes,
        "run": run_command(as_played(given, plan.scenario, _deciding(sized)), changes),
        "launch": launch_commands(own),
        "at_rate": each.at_rate.document(),
        "at_target": sized.at_target.document(),
    }


def _deciding(sized: Sized) -> int:
    """Requests of a run that decided that a fleet holds the load with its headroom: in a shorter
    one chance, or its empty start, may leave open what these leave no doubt of."""
    return max(sized.usual, sized.at_target.per_run)


def _survive_text(plan: FleetPlan) -> list[str]:
    """Whether the rest of each fleet holds the wanted load, where replicas may fail; else whether
    that of the cheapest does without one of its replicas."""
    told = []
    load = f"{show_load(plan.question.rate)} requests/s"
    for rank, (each, ends) in enumerate(zip(plan.best, plan.ends, strict=False), 1):
        sized, probe = each.sized, each.sized.survivors
        if probe is not None:
            kept = min((found.share for found in probe.attained), default=None)
            left = sized.replicas - sized.survive
            held = "stable" if kept is None else f"{share(kept)} of requests within the SLO"
            told.append(
                f"#{rank}: with {counted(sized.survive, 'replica')} gone, "
                f"{left} {_do(ends.one_down, load, left)}: {held} at the "
                "predicted times."
            )
    replicas, one_down = plan.best[0].sized.replicas, plan.ends[0].one_down
    if told or one_down is None:
        return told
    others = f"other {replicas - 1:,}" if replicas > 2 else "other one"
    return [
        f"If one of the cheapest fleet's {replicas:,} replicas fails, the {others} "
        f"{_do(one_down, load, replicas - 1)}. `infersim plan --survive 1` plans for that."
    ]


def _do(found: WithinBand | None, load: str, replicas: int) -> str:
    """What so many ``replicas`` do under a ``load``, of which that was ``found``."""
    one = replicas == 1
    predicted = LoadOutcome.HOLDS if found is None else found.predicted
    if predicted == LoadOutcome.OPEN:
        return f"{'is' if one else 'are'} too close to call at {load}"
    fails = predicted == LoadOutcome.FAILS
    holds = "holds" if one else "hold"
    told = f"{('does' if one else 'do') + ' not hold' if fails else holds} {load}"
    if found is None or found.outcome == predicted:
        return told
    may = "may if iterations are shorter" if fails else "may not if iterations are longer"
    return f"{told}, and {may}, within the error band"


def _survivors(sized: Sized) -> dict[str, Any] | None:
    """The rest of a fleet at the wanted rate when as many replicas are gone as it is to survive;
    None where none may be."""
    probe = sized.survivors
    if probe is None:
        return None
    return {"replicas": sized.replicas - sized.survive, **probe.document()}


def _fleet_notes(fleet: Confirmed, scenario: Scenario) -> list[str]:
    """Notes on a ranked fleet: a KV cache that is small, requests that it rejects, whether a short
    run holds with fewer replicas, whether chance may have decided that it holds, limits that the
    engine would choose otherwise, and replicas on several nodes; ``scenario`` is that fleet's."""
    found, sized = fleet.sized.at_target, fleet.sized
    notes = [sized.note] if sized.note else []
    if found.rejection is not None:
        cure = f"; {found.rejection.remedy}" if found.rejection.remedy else ""
        notes.append(f"{found.rejection.text}, and are rejected{cure}")
    flattered = flattered_note(fleet)
    if flattered is not None:
        notes.append(flattered)
    if not found.sure:
        worst = min(found.attained, key=lambda each: each.low - each.objective.share)
        count = found.to_decide
        enough = "" if count is None else f"; about {count:,} requests would decide"
        notes.append(
            f"too close to call at {show_load(found.load)} requests/s: {share(worst.low)} to "
            f"{share(worst.high)} of requests are within the SLO, {share(worst.objective.share)} "
            f"are asked for{enough}"
        )
    pool = prepare(scenario).only
    last = (release_note(pool), *implausible_notes(pool), pool.deployment.node_note)
    return [*notes, *(note for note in last if note is not None)]


def _format_notes(plan: FleetPlan) -> list[str]:
    """How the model was read, and what is to be known of number formats that some of the GPUs lack,
    ranked or not."""
    asked, layouts = plan.scenario, plan.question.layouts
    stored = asked.only_pool.model.spec(asked.base)
    own = any(layout.precision is None for layout in layouts)
    found = [
        *reading_notes(stored, asked.precision.weights if own else "", asked.precision.experts),
        *(layout.format_note(asked) for layout in layouts),
        wide_note(asked, (layout.gpu_of(asked) for layout in layouts if layout.precision is None)),
    ]
    return list(dict.fromkeys(note for note in found if note is not None))


def run_command(given: Sequence[str], changes: Mapping[str, object]) -> str:
    """The arguments with which ``infersim run SCENARIO`` simulates the fleet."""
    texts = [*given]
    for key, value in changes.items():
        texts.append(f"{key}={repr(value) if isinstance(value, float) else show(value)}")
    return " ".join(f"--set {shlex.quote(text)}" for text in texts)


def _points(plan: FleetPlan) -> list[dict[str, Any]]:
    """Every fleet that holds, with its cost and latencies under the target load, how sure it is to
    hold the wanted one, and whether the rest holds that when a replica is gone (``one_down``)."""
    fronts = {figure: front(plan.sized, figure) for figure in LATENCIES}
    return [
        {
            "layout": sized.layout.text,
            "gpu": sized.layout.gpu,
            "precision": sized.layout.precision,
            "replicas": sized.replicas,
            "gpus": sized.gpus,
            "usd_per_hour": sized.cost,
            "usd_per_month": sized.cost * HOURS_OF["month"],
            "usd_per_replica": sized.price,
            "rate_alone": sized.alone,
            "rate_of_a_replica": _rate_of_a_replica(sized, plan),
            "one_down": None if ends.one_down is None else ends.one_down.text,
            "trust": ends.slower.trust(decided=sized.at_target.sure),
            **_speeds(sized),
            **{figure: sized.at_target.figures[figure] for figure in LATENCIES},
            **{f"front_{figure}": fronts[figure][index] for figure in LATENCIES},
        }
        for index, (sized, ends) in enumerate(zip(plan.sized, plan.ends, strict=True))
    ]


def _rate_of_a_replica(sized: Sized, plan: FleetPlan) -> float:
    """The requests/s that each replica of a fleet holds next to the others: its share of what a
    ranked fleet was found to hold; else what one holds alone, as far as the load agrees that the
    fleet holds and one with a replica less does not."""
    rate, target, replicas = plan.question.rate, plan.question.target, sized.replicas
    least = max(target / replicas, rate / (replicas - sized.survive))
    for each in plan.best:
        if each.sized.layout == sized.layout:
            return max(each.best.load / replicas, least)
    left = replicas - 1 - sized.survive
    most = max(target / (replicas - 1), rate / left) if left > 0 else math.inf
    return min(max(sized.alone, least), most)


def _speeds(sized: Sized) -> dict[str, float | None]:
    """Output tokens per second of a user, 1 over the mean TPOT, and of a GPU, under the target
    load."""
    probe = sized.at_target
    step, tokens = probe.figures["mean_tpot_ms"], output_tokens(probe)
    return {
        "tokens_per_s_of_a_user": 1e3 / step if step else None,
        "tokens_per_s_of_a_gpu": tokens * probe.load / sized.gpus if tokens else None,
    }


def _ranking(
    fleets: list[dict[str, Any]], trusted: list[Band], question: FleetQuestion
) -> dict[str, Any]:
    """Whether the cheapest fleet is the cheapest at either end of the error band of iteration
    times; prices are taken as they are."""
    first, band = fleets[0], trusted[0]
    error, mine = many(band.error), first["replicas"]
    fewest, most = band.replicas
    low, high = band.cost
    load = f"{show_load(question.target)} requests/s"
    where = f"With the headroom, {load}," if question.headroom else f"At {load}"
    if most is None or high is None:
        needed = f"no number of replicas that was tried holds if iterations are {error} slower"
    elif (fewest, most) == (mine, mine):
        hold = "hold" if mine > 1 else "holds"
        needed = f"{counted(mine, 'replica')} {hold}, be iterations {error} faster or slower"
    else:
        needed = f"it takes {most} (${high:,.2f}/h) if iterations are {error} slower"
        if fewest < mine:
            needed += f", and {fewest} (${low:,.2f}/h) if they are {error} faster"
    text = f"{where} {needed}. "
    if band.survives:
        text += "At these prices no other fleet can be cheaper within the error of predicted times."
    else:
        text += (
            "Within the error of predicted times others could be cheaper: "
            f"{listed(band.rivals)}. So the first place is not sure."
        )
    return {"survives": band.survives, "sure": cheapest_sure(fleets), "text": text}


def cheapest_sure(fleets: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The cheapest fleet that is sure to hold the rate, without its headroom: one of ``fleets``, or
    one of its layout with more replicas. It is its ``rank``, ``layout``, ``replicas``,
    ``usd_per_hour``, and a ``text``; None where none that was tried is sure."""
    found: list[tuple[float, bool, int]] = []
    for index, fleet in enumerate(fleets):
        band, mine = fleet["error_band"], fleet["replicas"]
        known = band["trust"] == Trust.SURE
        sure = mine if known else band["sure_replicas"]
        if known or (sure is not None and sure > mine):  # else chance leaves its own size open
            found.append((round(fleet["usd_per_hour"] / mine * sure, 6), sure > mine, index))
    if not found:
        return None
    usd, larger, index = min(found)
    fleet = fleets[index]
    replicas = fleet["error_band"]["sure_replicas"] if larger else fleet["replicas"]
    named = f"{counted(replicas, 'replica')} of {fleet['layout']}"
    instead = f" instead of {fleet['replicas']:,}" if larger else ""
    return {
        "rank": fleet["rank"],
        "layout": fleet["layout"],
        "replicas": replicas,
        "usd_per_hour": usd,
        "text": f"The cheapest that is sure to: #{fleet['rank']}, {named}{instead}, ${usd:,.2f}/h, "
        f"${usd * HOURS_OF['month']:,.0f} a month.",
    }


def _whole_runs(plan: FleetPlan) -> str:
    scenario = plan.scenario
    experts = catalog.model(scenario.model.path, scenario.base).has_experts
    gpus = [name_of(each.sized.layout.gpu) for each in plan.best]
    return whole_runs_text(scenario.only_pool.engine, gpus, driven_by(scenario), experts=experts)
