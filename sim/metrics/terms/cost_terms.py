"""Defines the metrics of money, power, energy and emissions."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS

COST_METRICS = (
    Metric(
        "cost.usd_per_million_output_tokens", "cost", "USD", "lower", "usd",
        title=PER_OUTPUT_TOKENS, table="cost", compared=True, repeated=True,
    ),
    Metric(
        "cost.usd_per_million_tokens", "cost", "USD", "lower", "usd",
        title=PER_TOKENS, table="cost", repeated=True,
    ),
    Metric("cost.usd", "cost", "USD", "lower", "usd", table="cost", detail="of the whole duration"),
    Metric("gpus", "gpus", kind="count", table="cost"),
    Metric(
        "energy.joules_per_output_token", "energy", "J", "lower", title="J per output token",
        table="energy", detail="per token", compared=True, repeated=True,
    ),
    Metric(
        "energy.joules_per_request", "energy", "J", "lower", table="energy", detail="per request"
    ),
    Metric("energy.kwh", "energy", "kWh", "lower", table="energy", detail="of the whole duration"),
    Metric(
        "energy.mean_watts_per_gpu", "power", "W", table="energy", detail="mean", repeated=True
    ),
    Metric("energy.peak_watts_per_gpu", "power", "W", table="energy", detail="peak"),
    Metric("energy.idle_share", "energy_idle", "%", kind="share", table="energy"),
    Metric(
        "energy.co2e_grams", "co2e", "g", "lower", table="energy", detail="of the whole duration"
    ),
    Metric(
        "energy.usd", "energy_cost", "USD", "lower", "usd",
        table="energy", detail="of the whole duration",
    ),
)  # fmt: skip

COST_TERMS: Mapping[str, Definition] = {
    "cost": Definition(
        "Cost",
        "GPU hours of the duration at the price of a GPU hour, idle time included, over the output "
        "tokens of completed requests, or over their prompt and output tokens together.",
    ),
    "gpus": Definition("GPUs", "GPUs of the whole fleet."),
    "power": Definition(
        "Power of a GPU",
        "Mean draw of one GPU: energy divided by the duration and the number of GPUs, idle ones "
        "included. The peak is the mean over one iteration.",
    ),
    "headroom": Definition(
        "Headroom",
        "By how much the traffic could grow until its peak takes the whole capacity of the fleet, "
        "which is what full batches of such requests would serve; none where the SLO is missed. "
        "The peak is the highest rate of a curve, or the busiest minute of a trace.",
    ),
    "energy": Definition(
        "Energy",
        "Energy that the GPUs draw over the duration, idle time included; per token, divided by "
        "the output tokens of completed requests. Hosts, network and cooling are not included.",
    ),
    "energy_idle": Definition("Energy of idle GPUs", "Share of the energy drawn between passes."),
    "co2e": Definition(
        "CO2e", "Energy times the grid intensity of the scenario (energy.grid_intensity)."
    ),
    "energy_cost": Definition(
        "Cost of energy", "Energy times the price of a kWh, if the scenario has one."
    ),
}
