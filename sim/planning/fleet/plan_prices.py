"""Shows how a plan depends on what GPUs cost, and what a token costs and draws.

The price of a GPU moves all fleets of that GPU together, so for each GPU only the fleet with the
fewest GPUs may win. All fleets are those of the predicted times.

The lengths that a short run drew are off their mean by as much as so few requests are; those of a
fleet that serves the rate all the time are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim import catalog
from sim.cost.power import PowerModel
from sim.deployments import deployment_of
from sim.planning.fleet.choose import FleetPlan
from sim.planning.fleet.layouts import Candidate
from sim.planning.fleet.sizing import Confirmed
from sim.planning.load.loads import traffic_of
from sim.planning.load.played import COSTS, DRAWN
from sim.planning.load.probe import Probe
from sim.scenario import Scenario
from sim.scenario.prices import GpuPrice, price_of
from sim.units import dollars


@dataclass(frozen=True)
class Rival:
    """The fleet of ``gpu`` with the fewest GPUs; ``proven`` unless it may need more than that."""

    gpu: str
    layout: str
    gpus: int
    price: GpuPrice
    proven: bool

    @property
    def cost(self) -> float:
        """USD per hour, at least."""
        return self.price.usd * self.gpus

    @property
    def least(self) -> float:
        """USD per hour, at least, at the lowest price that is listed."""
        return self.gpus * (self.price.usd if self.price.low is None else self.price.low)


def gpu_prices(plan: FleetPlan) -> dict[str, GpuPrice]:
    """The price of each GPU of the question that has one."""
    scenario, found = plan.scenario, {}
    kernels = catalog.engine(scenario.only_pool.engine, scenario.base).kernels
    for gpu in dict.fromkeys(layout.gpu for layout in plan.question.layouts):
        asked = scenario.override(Candidate(gpu, 1, None).settings(scenario))
        price = price_of(asked.only_pool, catalog.gpu(gpu, scenario.base, kernels))
        if price is not None:
            found[gpu] = price
    return found


def fewest(plan: FleetPlan, prices: Mapping[str, GpuPrice]) -> dict[str, Rival]:
    """For each GPU, the fleet with the fewest GPUs, or as many as there must be at least."""
    found = [
        Rival(each.layout.gpu, each.layout.text, each.gpus, prices[each.layout.gpu], True)
        for each in plan.sized
    ]
    limits = plan.question.constraints
    for out in plan.rejected:
        over_cost = out.reason == "constraint" and limits.cost is not None
        if out.cost is None or not (out.unsimulated or over_cost):
            continue
        price = prices[out.layout.gpu]
        gpus = round(out.cost / price.usd) if price.usd else out.layout.gpus
        replicas = gpus // out.layout.gpus
        if gpus <= (limits.gpus or gpus) and replicas <= (limits.replicas or replicas):
            found.append(Rival(out.layout.gpu, out.layout.text, gpus, price, False))
    best: dict[str, Rival] = {}
    for each in found:
        if each.gpu not in best or each.gpus < best[each.gpu].gpus:
            best[each.gpu] = each
    return best


def money(plan: FleetPlan) -> dict[str, Any]:
    """``prices``: GPU by GPU, whose price was used and below which that GPU would win;
    ``break_even`` of the cheapest fleet; and whether it stays the cheapest at listed prices."""
    prices = gpu_prices(plan)
    best = fewest(plan, prices)
    winner = plan.best[0].sized
    mine = best[winner.layout.gpu]
    rivals = [each for gpu, each in best.items() if gpu != mine.gpu]
    nearest = min(rivals, key=lambda each: each.cost, default=None)
    up_to = None if nearest is None else nearest.cost / mine.gpus
    conditions = _conditions(mine, rivals, up_to)
    unknown = _unknown(mine, rivals)
    survives = False if conditions else None if unknown else True
    return {
        "prices": [
            {
                "gpu": gpu,
                "usd_per_gpu_hour": price.usd,
                **price.document(),
                "fleet": best[gpu].layout if gpu in best else None,
                "gpus": best[gpu].gpus if gpu in best else None,
                "gpus_proven": best[gpu].proven if gpu in best else None,
                "wins_below": mine.cost / best[gpu].gpus
                if gpu in best and gpu != mine.gpu
                else None,
            }
            for gpu, price in prices.items()
        ],
        "break_even": {
            "gpu": mine.gpu,
            "usd_per_gpu_hour": up_to,
            "proven": None if nearest is None else nearest.proven,
            "next": None if nearest is None else nearest.layout,
        },
        "survives": survives,
        "conditions": conditions,
        "text": " ".join(
            [_break_even(mine, nearest, up_to), *_said(mine, rivals, conditions, unknown)]
        )
        if rivals
        else f"Only {mine.gpu} holds the load, so that prices change nothing in the ranking.",
    }


def _break_even(mine: Rival, nearest: Rival | None, up_to: float | None) -> str:
    assert nearest is not None
    assert up_to is not None
    least = "" if nearest.proven else "at least "
    return (
        f"{mine.gpu} stays the cheapest up to {least}${up_to:,.2f} per GPU hour "
        f"(${dollars(mine.price.usd)} now), other prices as they are."
    )


def _conditions(mine: Rival, rivals: Sequence[Rival], up_to: float | None) -> list[str]:
    """The listed prices at which another fleet is cheaper, or could be, in words."""
    high, found = mine.price.high, []
    if high is not None and up_to is not None and high > up_to:
        found.append(
            f"{mine.gpu} costs more than ${up_to:,.2f} (others list up to ${dollars(high)})"
        )
    for each in rivals:
        below = mine.cost / each.gpus
        if each.price.low is not None and each.price.low < below:
            found.append(
                f"{each.gpu} costs less than ${below:,.2f} (others list from "
                f"${dollars(each.price.low)})"
            )
    least = min(rivals, key=lambda each: each.least, default=None)
    if not found and high is not None and least is not None and high * mine.gpus > least.least:
        low = least.least / least.gpus
        found.append(f"{mine.gpu} costs ${dollars(high)} and {least.gpu} ${dollars(low)} at once")
    return found


def _unknown(mine: Rival, rivals: Sequence[Rival]) -> list[str]:
    """The ends of ranges that would have to be known, in words."""
    ends = [(mine, mine.price.high, "higher"), *((r, r.price.low, "lower") for r in rivals)]
    return [
        f"{side} price of {each.gpu}"
        for each, end, side in ends
        if end is None and each.price.origin == "list"
    ]


def _said(
    mine: Rival, rivals: Sequence[Rival], conditions: Sequence[str], unknown: Sequence[str]
) -> list[str]:
    """The effect of list prices on the first place; empty where every price is the asker's own."""
    if conditions:
        ifs = "; or if ".join(conditions)
        return [
            "At the predicted times another GPU could be the cheapest at prices that are listed: "
            f"if {ifs}."
        ]
    if unknown:
        return [
            f"At the predicted times {mine.gpu} is the cheapest at every price that is listed "
            f"(there is no {' and no '.join(unknown)})."
        ]
    everyone = [mine, *rivals]
    listed = list(dict.fromkeys(each.gpu for each in everyone if each.price.origin == "list"))
    if not listed:
        return []
    owned = any(each.price.origin != "list" for each in everyone)
    of = f" of {', '.join(listed)}" if owned else ""
    return [f"At the predicted times {mine.gpu} is the cheapest at any listed price{of}."]


@dataclass(frozen=True)
class UsualTokens:
    """Tokens of a request on average: of its answer, and with its prompt."""

    outputs: float
    tokens: float

    @classmethod
    def of(cls, scenario: Scenario) -> UsualTokens | None:
        """The usual tokens of as many requests as stand for the traffic; None for a trace, which
        runs play as far as it goes."""
        if scenario.workload.trace is not None:
            return None
        traffic = traffic_of(scenario)
        outputs = float(traffic.outputs.mean())
        return cls(outputs, float(traffic.prompts.mean()) + outputs)


def token_costs(fleet: Confirmed, usual: UsualTokens | None) -> dict[str, float | None]:
    """The cost of a token of the ``usual`` lengths while the fleet serves the wanted rate (USD per
    million)."""
    costs = {key: fleet.at_rate.figures[key] for key in COSTS}
    of_outputs, of_all = (costs[key] for key in COSTS)
    outputs = output_tokens(fleet.at_rate)
    if usual is None or fleet.at_rate.rejection is not None or not outputs:
        return costs
    if not of_outputs or not of_all:
        return costs
    a_request = of_outputs * outputs
    return dict(zip(COSTS, (a_request / usual.outputs, a_request / usual.tokens), strict=True))


def power_drawn(
    fleet: Confirmed, scenario: Scenario, usual: UsualTokens | None
) -> dict[str, float | None]:
    """Joules of an output token, and mean watts of a GPU, while the fleet serves the wanted rate;
    ``scenario`` is that fleet's.

    The run lasts longer than its requests come: what the GPUs draw at rest is taken off the mean
    for the difference. What they draw beyond it is in proportion to the tokens of the ``usual``
    lengths.
    """
    figures, served = fleet.at_rate.figures, _served(fleet)
    joules, watts = (figures[key] for key in DRAWN)
    if joules is None or watts is None or not served:
        return dict.fromkeys(DRAWN)
    idle = PowerModel(deployment_of(scenario, scenario.only_pool)).idle
    spared = idle * (1 - served)
    watts = (watts - spared) / served
    if usual is not None and fleet.at_rate.rejection is None:
        longer = usual.outputs / (output_tokens(fleet.at_rate) or usual.outputs)
        as_usual = idle + (watts - idle) * longer
        joules, watts = joules * as_usual / watts / longer, as_usual
    return dict(zip(DRAWN, (joules, watts), strict=True))


def _served(fleet: Confirmed) -> float:
    """The share of the accepted load that is served in each second of the whole run."""
    probe = fleet.at_rate
    refused = 0.0 if probe.rejection is None else probe.rejection.share
    return (probe.figures["request_throughput"] or 0.0) / (probe.load * (1 - refused))


def output_tokens(probe: Probe) -> float:
    """Tokens of an answer in the runs of ``probe``, on average; 0 where there is none."""
    figures = probe.figures
    served = figures["request_throughput"]
    return (figures["output_throughput"] or 0.0) / served if served else 0.0
