"""Provides the definitions of metrics and words that the answers of decisions link to."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.metric import Definition

DEFINITIONS: Mapping[str, Definition] = {
    **OF_RUNS,
    "capacity": Definition(
        "Capacity",
        "What full batches could serve, in multiples of the traffic: 2 means that twice as many "
        "requests per second could be served. Not defined for closed-loop traffic.",
    ),
    "highest": Definition(
        "Highest load",
        "The highest load at which the SLO is met and no more arrives than full batches can serve, "
        "found by doubling and halving. The next higher load that fails is at most the tolerance "
        "away.",
    ),
    "interval": Definition(
        "95 % interval",
        "Where the share of requests within the SLO lies, by Wilson's formula, for the number of "
        "independent requests that the correlated ones are worth (batch means).",
    ),
    "knee": Definition(
        "Knee",
        "The load with the largest ratio of throughput to mean end-to-end latency: below it the "
        "fleet idles too much, above it more load adds more latency than throughput.",
    ),
    "rate_at_slo": Definition(
        "Rate at SLO",
        "The highest rate that the whole fleet holds in runs of the usual length, simulated with "
        "its router. Such runs begin with an empty system, which makes this rate optimistic.",
    ),
    "headroom": Definition(
        "Headroom",
        "How much more than the requested rate the fleet holds, in runs of the usual length.",
    ),
    "one_down": Definition(
        "One replica down",
        "Whether the other replicas hold the rate asked for, without headroom: unsure where one "
        "end of the error band says otherwise, too close to call where chance leaves it open.",
    ),
    "twice_the_load": Definition(
        "Twice the load",
        "The replicas, by the GPUs of each, that twice the load with its headroom takes if each "
        "holds as much as one of this fleet does. Those that `--survive` wants to spare are in "
        "it: the others hold twice the load, without headroom. Worked out, not simulated.",
    ),
    "binds": Definition(
        "Breaks first", "The limit that breaks first when more load comes than the fleet holds."
    ),
    "error_band": Definition(
        "Error band",
        "How far iterations may be faster or slower than predicted, in nine of ten published runs. "
        "The fleet was simulated at both ends: it then needs fewer or more replicas, and costs "
        "less or more. It is sure to hold the rate if it does at the slower end, likely if it does "
        "at that of half of the published runs; else it is a guess.",
    ),
    "plan_cost": Definition(
        "Cost of a fleet",
        "All GPUs at the price of a GPU hour, busy or idle: a month has 730 hours, a year 8,760.",
    ),
    "price": Definition(
        "Price of a GPU hour",
        "The on-demand price, with its provider and date. The range covers other prices in the "
        "catalogue's source, of other providers or dates; a price given on the command line has "
        "no range.",
    ),
    "break_even": Definition(
        "Wins below",
        "The price of a GPU hour below which the smallest fleet of this GPU costs less than the "
        "cheapest fleet, all other prices unchanged; an upper bound where it is not known whether "
        "so few GPUs hold the load.",
    ),
    "survives": Definition(
        "Could be overtaken by",
        "Fleets that could be cheaper if predicted times err in their favour and against this one.",
    ),
    "speed": Definition(
        "Tokens per user and per GPU",
        "What one user sees (1 over the median TPOT, in a plan over the mean) and what one GPU "
        "yields (output throughput over the number of GPUs). A point is on the front if no other "
        "one has more of both.",
    ),
    "state": Definition(
        "State",
        "Whether the fleet holds the traffic: stable, near saturation, overloaded, or too short a "
        "run to tell. overload?: more than 100 % of the capacity arrives, so that the fleet is "
        "probably overloaded; a longer run would tell.",
    ),
    "busiest_replica": Definition(
        "Busiest replica",
        "The share of its own capacity that the fullest replica takes, where the router deals "
        "unevenly: from 100 % on it is overloaded, even if the fleet has capacity left.",
    ),
    "coming": Definition(
        "Rate while requests come",
        "What is served per second over the time in which requests come; the end of a run, in "
        "which a fleet only finishes what it has begun, does not count.",
    ),
    "difference": Definition(
        "Difference",
        "The mean of the variant over that of the base: less one, in percent, or from twice on as "
        "a multiple (9.9x). The interval comes of pairs that met the same traffic, for each figure "
        "by itself: about 1 in 20 intervals misses the true value. The word is how sure the "
        "difference is, given the errors of predicted times, in which variants on the same kernels "
        "and engine share much: throughout the 90 % band of the ratio (sure), the 50 % band "
        "(likely), or not even there (a guess).",
    ),
    "tied": Definition(
        "Best and tied",
        "* has the best mean of a column. ~ is tied with it: the interval of their difference "
        "contains 0. Each is compared with the best one alone, by pairs of runs on the same "
        "traffic, so that a variant whose mean is nearer can still be worse for sure. The pointer "
        "on a value shows the difference.",
    ),
}
"""Key -> definition; a page shows those that it links to."""
