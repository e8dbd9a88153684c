"""Works out what a token costs and draws while a fleet serves the wanted rate.

The lengths that a short run drew are off their mean by as much as so few requests are; those of a
fleet that serves the rate all the time are not.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.cost.power import PowerModel
from sim.deployments import deployment_of
from sim.planning.fleet.sizing import Confirmed
from sim.planning.load.loads import traffic_of
from sim.planning.load.played import COSTS, DRAWN
from sim.planning.load.probe import Probe
from sim.scenario import Scenario


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
