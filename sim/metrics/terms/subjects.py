"""Defines the metrics and the terms of single subjects: memory, sessions, money, failures."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS

KV_METRICS = (
    Metric("kv_cache.tokens", "kv_tokens", "tokens", kind="count", table="memory"),
    Metric("kv_cache.num_gpu_blocks", "kv_blocks", "blocks", kind="count", table="memory"),
    Metric("kv_cache.block_size", "block_size", "tokens", kind="count", table="memory"),
    Metric("kv_cache.max_model_len", "max_model_len", "tokens", kind="count", table="memory"),
    Metric("kv_cache.max_concurrency", "max_concurrency", "requests", table="memory"),
    Metric(
        "kv_cache.mean_used", "kv_used", "%",
        kind="share", table="memory", detail="mean", repeated=True,
    ),
    Metric(
        "kv_cache.peak_used", "kv_used", "%",
        kind="share", table="memory", detail="peak", repeated=True,
    ),
    Metric(
        "kv_cache.mean_reserved", "kv_reserved", "%", kind="share", table="memory", detail="mean"
    ),
    Metric("kv_cache.fragmentation", "fragmentation", "%", kind="share", table="memory"),
    Metric("preemptions", "preemptions", kind="count", table="memory", repeated=True),
    Metric(
        "prefix_cache.hit_rate", "prefix_hits", "share", "higher", "share",
        title="Prefix hits", called="prefix hit rate", table="memory",
        compared=True, repeated=True, optional=True,
    ),
)  # fmt: skip

KV_TERMS: Mapping[str, Definition] = {
    "allocator": Definition(
        "Allocator",
        "How KV cache is given to requests: paged (block by block as they grow) or contiguous "
        "(the maximum length, reserved at the start).",
    ),
    "kv_tokens": Definition(
        "KV cache size",
        "Tokens whose keys and values fit into the memory of one replica after the weights.",
    ),
    "kv_blocks": Definition("KV blocks", "The same as a number of blocks (num_gpu_blocks)."),
    "block_size": Definition("Block size", "Tokens per block of KV cache."),
    "max_model_len": Definition("Maximum length", "Most tokens of prompt and output in a request."),
    "max_concurrency": Definition(
        "Maximum concurrency",
        "KV cache size / maximum length: how many requests of the longest kind fit at once.",
    ),
    "kv_used": Definition("KV cache used", "Share of the KV cache that holds tokens."),
    "kv_reserved": Definition(
        "KV cache reserved", "Share of the KV cache that requests own, filled or not."
    ),
    "fragmentation": Definition(
        "Fragmentation", "Share of the reserved KV cache that holds nothing."
    ),
    "kv_map": Definition(
        "KV cache over time",
        "Used: holds keys and values of tokens. Reserved, empty: owned by a request but not "
        "filled yet (waste, in blocks or up to the maximum length). Free: owned by no request. "
        "The three add up to the whole cache at any time. With a prefix cache, blocks shared by "
        "several requests are counted once and drawn separately, and so are free blocks that are "
        "still cached.",
    ),
    "gpu_memory": Definition(
        "Memory of one GPU",
        "Weights; activations of the largest iteration; the engine's reserve (context, graphs, "
        "buffers); KV cache that is used, reserved but empty, or free; and memory that the engine "
        "may not use. Together they make up the memory of the GPU.",
    ),
    "prefix_hits": Definition(
        "Prefix hits",
        "Share of the prompt tokens that were in the prefix cache when their request was admitted, "
        "and were not computed. As vLLM's prefix_cache_hits over prefix_cache_queries.",
    ),
}

HOST_METRICS = (
    Metric(
        "host_tier.hit_rate", "host_hits", "share", "higher", "share",
        title="Host hits", called="host hit rate", table="memory", repeated=True, optional=True,
    ),
    Metric("host_tier.to_host_gb", "host_moved", "GB", table="memory", detail="to the host",
           repeated=True, optional=True),
    Metric("host_tier.from_host_gb", "host_moved", "GB", table="memory", detail="from the host",
           repeated=True, optional=True),
    Metric("host_tier.link_out", "host_link", "%", kind="share", table="memory",
           detail="to the host", repeated=True, optional=True),
    Metric("host_tier.link_in", "host_link", "%", kind="share", table="memory",
           detail="from the host", repeated=True, optional=True),
    Metric("host_tier.swaps", "swaps", kind="count", table="memory", repeated=True, optional=True),
)  # fmt: skip

HOST_TERMS: Mapping[str, Definition] = {
    "host_hits": Definition(
        "Host hits",
        "Share of the prompt tokens that were loaded from host memory when their request was "
        "admitted; they count as prefix hits too.",
    ),
    "host_moved": Definition(
        "Moved to and from the host",
        "Gigabytes of KV cache over the links between GPUs and hosts, all GPUs together: blocks "
        "stored and loaded, and those of swapped requests.",
    ),
    "host_link": Definition(
        "Host link in use",
        "Share of the time in which the link between a replica and its host moves blocks, for "
        "each direction.",
    ),
    "swaps": Definition(
        "Swaps",
        "How often the blocks of a preempted request went to the host. The other preemptions lose "
        "their work.",
    ),
}

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
        "GPU hours while requests come, idle time included, at the price of a GPU hour, over the "
        "output tokens of completed requests, or over their prompt and output tokens together. The "
        "time after the last arrival does not count: traffic that goes on has none.",
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
        "Energy that the GPUs draw over the duration, idle time included; per token, without "
        "what they draw at rest after the last arrival, divided by the output tokens of completed "
        "requests. Hosts, network and cooling are not included.",
    ),
    "energy_idle": Definition("Energy of idle GPUs", "Share of the energy drawn between passes."),
    "co2e": Definition(
        "CO2e", "Energy times the grid intensity of the scenario (energy.grid_intensity)."
    ),
    "energy_cost": Definition(
        "Cost of energy", "Energy times the price of a kWh, if the scenario has one."
    ),
}

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
