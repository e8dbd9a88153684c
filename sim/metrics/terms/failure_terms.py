"""Defines the metrics of failures and impatient clients (``sim.metrics.fleet.failures``)."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric

FAILURE_METRICS = (
    Metric("failures.gave_up", "gave_up", kind="count", table="failures", optional=True),
    Metric(
        "failures.attempts_per_request", "attempts", "attempts", "lower",
        title="Attempts a request", called="attempts per request", table="failures",
        detail="per request", compared=True, repeated=True, optional=True,
    ),
    Metric("failures.timed_out", "timed_out", kind="count", table="failures", optional=True),
    Metric("failures.lost", "lost", kind="count", table="failures", optional=True),
    Metric("failures.no_replica", "no_replica", kind="count", table="failures", optional=True),
    Metric("failures.cancelled", "cancelled", kind="count", table="failures", optional=True),
    Metric("failures.set_aside", "set_aside", kind="count", table="failures", optional=True),
    Metric(
        "failures.wasted.gpu_share", "wasted", "share", "lower", "share",
        title="Lost work", called="share of work lost", table="failures",
        detail="of the GPU time", compared=True, repeated=True, optional=True,
    ),
    Metric(
        "failures.wasted.gpu_seconds", "wasted", "GPU s", "lower",
        table="failures", detail="GPU seconds", optional=True,
    ),
    Metric(
        "failures.wasted.prompt_tokens", "wasted", "tokens", "lower", "count",
        table="failures", detail="prompt", optional=True,
    ),
    Metric(
        "failures.wasted.output_tokens", "wasted", "tokens", "lower", "count",
        table="failures", detail="output", optional=True,
    ),
    Metric(
        "failures.availability", "availability", "%", "higher", "share",
        table="failures", optional=True,
    ),
    Metric(
        "failures.recovery_s", "recovery", "s", "lower", "s",
        title="Time to recover", called="time to recover", table="failures",
        detail="longest", compared=True, optional=True,
    ),
)  # fmt: skip

FAILURE_TERMS: Mapping[str, Definition] = {
    "gave_up": Definition(
        "Given up",
        "Requests whose client stopped waiting and does not send them again. They miss every "
        "limit, except those that are set aside.",
    ),
    "attempts": Definition(
        "Attempts",
        "How often requests were sent. Latencies of a request count from its first attempt, and "
        "between two attempts it counts as waiting.",
    ),
    "timed_out": Definition(
        "Timed out", "Attempts whose client did not wait for the end of the answer."
    ),
    "lost": Definition("Lost with a replica", "Attempts that were on a replica when it failed."),
    "no_replica": Definition("No replica", "Attempts that found no replica in service."),
    "cancelled": Definition(
        "Cancelled",
        "Attempts whose client disconnected, as recorded in a trace or in a session of `infersim "
        "serve`.",
    ),
    "set_aside": Definition(
        "Set aside",
        "Requests whose clients disconnected before a limit of the SLO had passed: they count "
        "neither as meeting nor as missing it. Requests abandoned later miss the limit.",
    ),
    "wasted": Definition(
        "Lost work",
        "Work done for attempts that failed: tokens of prompts and answers, and the GPU time of "
        "both. The time of an iteration is divided equally among its tokens. The share is "
        "relative to the time in which GPUs computed.",
    ),
    "availability": Definition(
        "Availability",
        "Share of the time for which replicas were held that lies in no outage. Only failures make "
        "outages, repair included: replicas that are drained, or start because more are wanted, "
        "take nothing off it.",
    ),
    "recovery": Definition(
        "Time to recover",
        "From a failure to the first request of five blocks of 50 in a row that are within the SLO "
        "(without one, answered) as often as before the first failure, or as the SLO wants; three "
        "standard errors less are taken for chance. 0: requests that came later noticed nothing.",
    ),
    "outages": Definition(
        "Outages", "Periods in which a replica was out of service, including the restart."
    ),
}
"""Key -> definition."""
