"""Defines the metrics of sessions (``sim.metrics.load.sessions``)."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric

SESSION_METRICS = (
    Metric(
        "sessions.started", "sessions", kind="count", table="sessions", detail="started",
        optional=True,
    ),
    Metric(
        "sessions.finished", "sessions", kind="count", table="sessions", detail="finished",
        optional=True,
    ),
    Metric(
        "sessions.outgrown", "sessions", kind="count", table="sessions", detail="outgrown",
        optional=True,
    ),
    Metric(
        "sessions.requests", "session_requests", table="sessions", optional=True,
    ),
    *(
        Metric(
            f"sessions.duration_s.{rank}", "session_duration", "s", "lower", "s",
            table="sessions", detail=rank, repeated=rank == "mean", optional=True,
        )
        for rank in ("mean", "p90")
    ),
    Metric(
        "sessions.expected_duration_s", "session_expected_duration", "s", "lower", "s",
        table="sessions", repeated=True, optional=True,
    ),
    Metric(
        "sessions.unsent", "session_unsent", kind="share", table="sessions", optional=True,
    ),
    *(
        Metric(
            f"sessions.{turns}_turns.{rank}_ttft_ms", f"{turns}_turns", "ms", "lower", "ms",
            table="sessions", detail=f"TTFT {rank}", repeated=True, optional=True,
        )
        for turns in ("first", "later") for rank in ("mean", "p50", "p99")
    ),
)  # fmt: skip

SESSION_TERMS: Mapping[str, Definition] = {
    "sessions": Definition(
        "Sessions",
        "Conversations: requests of which each sends the earlier ones again. Finished: all turns "
        "were answered. Outgrown: the next turn would have been longer than the maximum length. "
        "The others were under way when the run ended, or ended early since a request was "
        "rejected or given up.",
    ),
    "session_requests": Definition(
        "Requests of a session",
        "Mean number of requests in a session, including those not sent yet.",
    ),
    "session_duration": Definition(
        "Duration of a session",
        "Seconds from the first arrival to the last answer of sessions that ended in the run, "
        "thinking included. Long ones are more often still under way.",
    ),
    "session_expected_duration": Definition(
        "Expected duration of a session",
        "Mean seconds that the sessions of the run take to their last answer, those included that "
        "were under way when it ended, without those that ended early: the pauses that each is to "
        "have, and for each of its turns "
        "the mean time of an answer.",
    ),
    "session_unsent": Definition(
        "Still to come",
        "Share of the tokens of all started sessions that had not been sent when the run ended, "
        "without those that ended early. "
        "The run has that much less work than the usual traffic, most of it in later turns.",
    ),
    "first_turns": Definition(
        "First turns", "Requests that begin a session, so that there is no history yet."
    ),
    "later_turns": Definition(
        "Later turns",
        "Requests of a session after its first turn: they send the history again, which a prefix "
        "cache may still have.",
    ),
}
