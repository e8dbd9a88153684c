"""Defines the metrics of failures and impatient clients (``sim.metrics.failures``)."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.metric import Definition, Metric

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
        "Requests whose client waits no longer and does not send them again; beyond every limit, "
        "except those that are set aside.",
    ),
    "attempts": Definition(
        "Attempts",
        "Times that requests were sent. Latencies of a request count from its first attempt, and "
        "between two attempts it is among those that wait.",
    ),
    "timed_out": Definition(
        "Timed out", "Attempts whose client did not wait for the end of the answer."
    ),
    "lost": Definition("Lost with a replica", "Attempts that were on a replica when it failed."),
    "no_replica": Definition("No replica", "Attempts that found no replica in service."),
    "cancelled": Definition(
        "Cancelled",
        "Attempts whose client went away when the trace says so, or a real one (`infersim serve`).",
    ),
    "set_aside": Definition(
        "Set aside",
        "Requests whose clients went away before a limit of the SLO had passed: neither within it "
        "nor beyond it, and in no share of it. Those that left later are beyond the limit.",
    ),
    "wasted": Definition(
        "Lost work",
        "What was computed for attempts that came to nothing: tokens of prompts and answers, and "
        "the GPU time of both. The time of an iteration is shared equally by its tokens. The share "
        "is of the time in which GPUs computed.",
    ),
    "availability": Definition(
        "Availability", "Share of the run in which a replica was in service, on average."
    ),
    "recovery": Definition(
        "Time to recover",
        "From a failure to the first request of five blocks of 50 in a row that are within the SLO "
        "(without one, answered) as often as before the first failure, or as the SLO wants; three "
        "standard errors less are taken for chance. 0: requests that came later noticed nothing.",
    ),
    "outages": Definition(
        "Outages", "Times for which a replica was not in service, the start of a new one included."
    ),
}
"""Key -> definition."""
