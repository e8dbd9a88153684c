"""Screens pairs of layouts, one that prefills and one that decodes, by what full batches serve.

Rates in requests per second, costs in US dollars per hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.planning.fleet.layouts import SLACK, Candidate
from sim.planning.load.loads import Traffic
from sim.planning.load.saturation import acceptable, rates_by_role
from sim.scenario import Scenario
from sim.scenario.pools import BOTH, DECODE, PREFILL
from sim.scenario.prices import price_of
from sim.setup import prepare

OF_THE_GPU = ("link", "node", "power_limit")
"""Keys of a pool that another GPU may not be able to have."""


@dataclass(frozen=True)
class LayoutPair:
    """The layout that prefills, and the one that decodes."""

    prefill: Candidate
    decode: Candidate

    @property
    def text(self) -> str:
        """The two layouts, as a table has them."""
        return f"{self.prefill.text} | {self.decode.text}"

    def settings(self, scenario: Scenario, prompts: int, answers: int) -> dict[str, object]:
        """Settings that give the fleet of ``scenario`` that many replicas for ``prompts``, and that
        many for ``answers``."""
        first, second = phases(scenario)
        asked = ((first, self.prefill, prompts), (second, self.decode, answers))
        return {"fleet": [_of_layout(*each) for each in asked]}


def phases(scenario: Scenario) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pool that prefills and the one that decodes, as they are written: those of ``scenario``,
    or its only pool twice. UsageError of any other fleet."""
    written = scenario.written()["fleet"]
    fleet = written if isinstance(written, list) else [written]
    if len(fleet) == 1:
        (pool,) = fleet
        return {**pool, "name": PREFILL, "role": PREFILL}, {**pool, "name": DECODE, "role": DECODE}
    roles = {pool.get("role", BOTH): pool for pool in fleet}
    if len(fleet) == len(roles) and set(roles) == {PREFILL, DECODE}:
        return roles[PREFILL], roles[DECODE]
    raise UsageError(
        "--disaggregate: expected a fleet of one pool, or of one that prefills and one that "
        f"decodes, got {len(fleet)} pools"
    )


def together(scenario: Scenario) -> Scenario:
    """``scenario`` on one pool whose replicas prefill and decode."""
    if len(scenario.fleet) == 1:
        return scenario
    pool = {**phases(scenario)[1], "name": "main", "role": BOTH}
    return scenario.override({"fleet": [pool], "transfer": None})


def _of_layout(pool: dict[str, Any], layout: Candidate, replicas: int) -> dict[str, Any]:
    """``pool`` with that many replicas of ``layout``."""
    found = {**pool, "gpu": layout.gpu, "tensor_parallel": layout.tensor_parallel}
    if layout.gpu != pool["gpu"]:  # what is said of another GPU, of its host and price
        found = {key: value for key, value in found.items() if key not in OF_THE_GPU}
        if not isinstance(pool.get("price_per_gpu_hour"), dict):
            found.pop("price_per_gpu_hour", None)
    return {**found, "replicas": replicas}


@dataclass(frozen=True)
class RejectedPair:
    """A pair that is no answer, and why; ``cost`` is what its fleet costs at least."""

    pair: LayoutPair
    reason: str
    text: str
    cost: float | None = None


@dataclass(frozen=True)
class ScreenedPair:
    """A pair that may hold the load, with the prices of its replicas and the fewest of each that
    there are."""

    pair: LayoutPair
    prices: tuple[float, float]
    least: tuple[int, int]

    def cost(self, prompts: int, answers: int) -> float:
        """USD per hour of that many replicas that prefill and that decode."""
        return prompts * self.prices[0] + answers * self.prices[1]

    @property
    def lowest(self) -> float:
        """USD per hour of its fleet, at least."""
        return self.cost(*self.least)


def screen_pair(
    scenario: Scenario, pair: LayoutPair, traffic: Traffic, target: float
) -> ScreenedPair | RejectedPair:
    """How many replicas of each phase ``target`` requests per second take at least."""
    try:
        pools = prepare(scenario.override(pair.settings(scenario, 1, 1))).pools
        for pool in pools:
            traffic = acceptable(pool, traffic)
        rates = rates_by_role(pools, traffic)
    except InfeasibleError as error:
        return RejectedPair(pair, "does not fit", str(error))
    except InfersimError as error:
        return RejectedPair(pair, "layout impossible", str(error))
    prices = []
    for pool in pools:
        price = price_of(pool.settings, pool.deployment.gpu)
        if price is None:
            return RejectedPair(pair, "no price", f"nothing says what {pool.settings.gpu} costs")
        prices.append(price.usd * pool.deployment.layout.gpus)
    least = [math.ceil(target / (SLACK * rates[role])) for role in (PREFILL, DECODE)]
    return ScreenedPair(pair, (prices[0], prices[1]), (least[0], least[1]))
