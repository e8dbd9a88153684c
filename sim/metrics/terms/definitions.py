"""Defines every metric once: its key, unit, names, which way is better, and where it is shown.

A metric is a row of ``METRICS``. Tables, pages, comparisons and intervals are made of these rows,
so that a new metric is one row here, with its definition, and its computation in ``summary``.
Rows of memory, sessions, money and failures stand in ``subjects`` with their terms.
``DEFINITIONS`` says what the metrics and the other terms of a page mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition, Metric
from sim.metrics.terms.subjects import (
    COST_METRICS,
    COST_TERMS,
    FAILURE_METRICS,
    FAILURE_TERMS,
    HOST_METRICS,
    HOST_TERMS,
    KV_METRICS,
    KV_TERMS,
    SESSION_METRICS,
    SESSION_TERMS,
)


def _latency(rank: str, name: str) -> Metric:
    label = name.upper()
    return Metric(
        f"{rank}_{name}_ms", name, "ms", "lower", "ms", f"{label} {rank}", f"{label} {rank}",
        compared=rank == "p99" or (rank == "mean" and name != "itl"),
    )  # fmt: skip


LATENCIES = ("ttft", "tpot", "itl", "e2el")
RANKS = ("mean", "p50", "p90", "p95", "p99")

METRICS = (
    Metric(
        "request_throughput", "request_throughput", "requests/s", "higher",
        title="Requests", called="requests/s", table="throughput", compared=True,
    ),
    Metric(
        "request_goodput", "goodput", "requests/s", "higher",
        title="Goodput", called="goodput", table="throughput", compared=True,
    ),
    Metric(
        "output_throughput", "output_throughput", "tokens/s", "higher",
        title="Output tokens", called="output tokens/s", table="throughput", compared=True,
    ),
    Metric(
        "total_token_throughput", "total_throughput", "tokens/s", "higher",
        title="All tokens", called="all tokens/s", table="throughput",
    ),
    Metric(
        "duration", "duration", "s", "lower", "s",
        title="Duration", called="duration", table="throughput",
    ),
    Metric(
        "verdict.attainment", "attainment", "share", "higher", "share",
        title="Within SLO", compared=True, repeated=True,
    ),
    *(_latency(rank, name) for name in LATENCIES for rank in RANKS),
    *(Metric(f"queue_ms.{rank}", "queue", "ms", "lower", "ms", repeated=True) for rank in RANKS),
    Metric(
        "capacity", "capacity", "x the traffic", "higher", title="Capacity", called="capacity"
    ),
    Metric("requests.submitted", "submitted", kind="count", table="requests"),
    Metric("requests.completed", "completed", kind="count", table="requests"),
    Metric("requests.rejected", "rejected", kind="count", table="requests"),
    Metric("requests.unfinished", "unfinished", kind="count", table="requests"),
    Metric("requests.one_token", "one_token", kind="count", table="requests"),
    Metric("requests.warmup", "warmup", kind="count", table="requests"),
    Metric("total_input_tokens", "input_tokens", "tokens", kind="count", table="requests"),
    Metric("total_output_tokens", "output_tokens", "tokens", kind="count", table="requests"),
    Metric("utilisation.busy", "busy", "%", kind="share", table="use", repeated=True),
    Metric("utilisation.mfu", "mfu", "%", "higher", "share", table="use", repeated=True),
    Metric("utilisation.mbu", "mbu", "%", "higher", "share", table="use", repeated=True),
    *KV_METRICS,
    Metric(
        "speculation.acceptance_length", "acceptance_length", "tokens", "higher",
        title="Acceptance length", called="acceptance length", table="use",
        repeated=True, optional=True,
    ),
    Metric(
        "speculation.tokens_per_iteration", "tokens_per_iteration", "tokens", "higher",
        title="Tokens an iteration", called="tokens an iteration", table="use",
        repeated=True, optional=True,
    ),
    *HOST_METRICS,
    Metric(
        "routing.requests_over_mean", "balance", "x the mean", "lower",
        title="Most requests", table="batch", detail="requests", repeated=True, optional=True,
    ),
    Metric(
        "routing.tokens_over_mean", "balance", "x the mean", "lower",
        title="Most tokens", called="tokens of the busiest replica", table="batch",
        detail="tokens", compared=True, repeated=True, optional=True,
    ),
    *SESSION_METRICS,
    Metric("batch.iterations", "iterations", kind="count", table="batch"),
    Metric("batch.mean_iteration_ms", "iteration_time", "ms", kind="ms", table="batch"),
    Metric(
        "batch.mean_running", "running", "requests", table="batch", detail="mean", repeated=True
    ),
    Metric("batch.peak_running", "running", "requests", kind="count", table="batch", detail="peak"),
    Metric("batch.mean_waiting", "waiting", "requests", table="batch", detail="mean"),
    Metric("batch.peak_waiting", "waiting", "requests", kind="count", table="batch", detail="peak"),
    Metric("batch.mean_decode_batch", "decode_batch", "sequences", table="batch", detail="mean"),
    Metric(
        "batch.peak_decode_batch", "decode_batch", "sequences",
        kind="count", table="batch", detail="peak",
    ),
    Metric(
        "padding.prompt_tokens", "padding",
        kind="share", table="batch", detail="prompts", optional=True,
    ),
    Metric(
        "padding.slots", "padding", kind="share", table="batch", detail="slots", optional=True,
    ),
    *COST_METRICS,
    *FAILURE_METRICS,
)  # fmt: skip
"""Every metric, in the order of tables."""

METRIC: Mapping[str, Metric] = {metric.key: metric for metric in METRICS}
"""Every metric by its key."""

STUDIED = ("output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms", "capacity")
"""Metrics for decisions: ablations, diagnoses and sensitivities, in the order of their tables."""

AT_TOP = ("total_", "request_", "output_", "duration", *(f"{rank}_" for rank in RANKS))
"""How the keys begin that stand at the top of a summary, as in vLLM; all others are below
``infersim``."""


def path_of(key: str) -> str:
    """Where a metric is in a summary.

    >>> path_of("duration"), path_of("cost.usd"), path_of("preemptions")
    ('duration', 'infersim.cost.usd', 'infersim.preemptions')
    """
    return key if key.startswith(AT_TOP) else f"infersim.{key}"


DEFINITIONS: Mapping[str, Definition] = {
    "ttft": Definition(
        "TTFT",
        "Time to first token: from the arrival of a request to its first output token. "
        "Waiting in the queue is included.",
    ),
    "tpot": Definition(
        "TPOT",
        "Time per output token after the first: (E2EL - TTFT) / (output tokens - 1), one value per "
        "request. Requests with a single output token have none and are left out.",
    ),
    "itl": Definition(
        "ITL",
        "Inter-token latency: the gaps between consecutive deliveries of tokens, pooled over all "
        "requests. It shows stalls that the mean inside TPOT hides.",
    ),
    "e2el": Definition(
        "E2EL", "End-to-end latency: from the arrival of a request to its last output token."
    ),
    "queue": Definition(
        "Queue time", "From the arrival of a request until a replica first runs part of it."
    ),
    "percentile": Definition(
        "Percentiles",
        "p99 = 500 ms means that 99 of 100 requests took at most 500 ms. Between two requests the "
        "value is interpolated linearly. Only completed requests count, without the warm-up.",
    ),
    "request_throughput": Definition(
        "Request throughput", "Completed requests per second of the duration."
    ),
    "goodput": Definition(
        "Goodput",
        "Completed requests per second of the duration that keep every latency limit (limits "
        "inclusive), those of the warm-up too; the share within the SLO leaves the warm-up out. "
        "`while_arriving` divides by the time in which requests come.",
    ),
    "output_throughput": Definition(
        "Output throughput",
        "Output tokens of completed requests per second of the duration, all replicas.",
    ),
    "total_throughput": Definition(
        "Total throughput",
        "Prompt and output tokens of completed requests per second of the duration.",
    ),
    "duration": Definition(
        "Duration",
        "Seconds from the first arrival to the last token, warm-up included; throughput "
        "and the cost of the whole run are taken over it.",
    ),
    "slo": Definition(
        "Latency limit (SLO)",
        "The largest TTFT, TPOT and E2EL that the scenario accepts. Limits without a percentile "
        "must hold together for the wanted share of the requests; TTFT p95 and its like are judged "
        "one by one. Rejected and unfinished requests are beyond every limit.",
    ),
    "attainment": Definition(
        "Attainment",
        "Share of requests that are completed within the limit. The target is the share that the "
        "scenario asks for. First to break is the limit that the most requests exceed, relative "
        "to the number that may. If the 95 % interval contains the target, or one end of the "
        "error band meets it and the other does not, it is too close to call.",
    ),
    "wilson": Definition(
        "Interval of the attainment",
        "Where the share of an endless run lies with 95 % confidence, by Wilson's formula. "
        "Requests that share a queue are alike, so that they count as fewer independent ones: "
        "the effective sample size, from batch means.",
    ),
    "used_up": Definition(
        "Limit used up",
        "The latency within which the wanted share of the requests stays, and its ratio to the "
        "limit. Above 100 % the limit is broken.",
    ),
    "latency_parts": Definition(
        "Parts of a latency",
        "In order of time: front end (HTTP, tokeniser), queue, own prefill (the time of the "
        "prompt's iterations without other prompts), delay by other prompts, preempted; then "
        "decode, delay by other requests' prompts, preempted, and the transfer of KV cache. The "
        "parts of each request add up to its latency.",
    ),
    "band": Definition(
        "Bands of percentiles",
        "p90–95 are the requests slower than 90 % and faster than 5 % of all; each figure is the "
        "mean over them, so that it belongs to typical requests of that speed and not to one.",
    ),
    "timeline": Definition(
        "Timeline",
        "Arrivals and completions per second; requests that run and wait, and that run in each of "
        "several replicas; KV cache; preemptions; tokens prefilled and decoded in one iteration of "
        "a replica (most, and mean of those that have any); tokens per second of the fleet; what a "
        "GPU draws, mean of all.",
    ),
    "submitted": Definition("Submitted", "Requests that arrived."),
    "completed": Definition("Completed", "Requests whose last token was delivered."),
    "rejected": Definition(
        "Rejected", "Requests that could never be served, for the reason stated; not queued."
    ),
    "failed": Definition("Failed", "Requests that the engine did not answer, for whatever reason."),
    "unfinished": Definition("Unfinished", "Requests still waiting or running when the run ended."),
    "one_token": Definition("One-token outputs", "Completed requests that have no TPOT."),
    "warmup": Definition(
        "Warm-up",
        "First requests, which meet a system that is still filling up; left out of the latency "
        "statistics and of the attainment, counted in throughput and cost. Where it is found by "
        "itself, it ends before the first request that timed out, was lost, found no replica or "
        "waited at the gateway for a cold start, and before the first failure.",
    ),
    "input_tokens": Definition("Prompt tokens", "Tokens of the prompts, summed over requests."),
    "output_tokens": Definition("Output tokens", "Tokens generated, summed over requests."),
    **KV_TERMS,
    "acceptance_length": Definition(
        "Acceptance length",
        "Mean number of tokens that a sequence gains in an iteration that checks drafts: 1 + "
        "accepted drafts / rounds of drafting, as vLLM reports it. The one token that is always "
        "right is included.",
    ),
    "tokens_per_iteration": Definition(
        "Tokens an iteration",
        "Tokens that all decoding sequences of a batch gain in one iteration, on average. Tokens "
        "accepted beyond the end of an answer are not delivered.",
    ),
    "balance": Definition(
        "Balance of replicas",
        "The load of the busiest replica over the mean of all: 1 is perfectly even. Load counts "
        "requests, or the tokens of their prompts and answers.",
    ),
    **HOST_TERMS,
    **SESSION_TERMS,
    "preemptions": Definition(
        "Preemptions",
        "How often a running request was put back because the KV cache was full. Its work is lost "
        "or swapped, so that latencies grow.",
    ),
    "iterations": Definition("Iterations", "Forward passes of the model (engine steps)."),
    "iteration_time": Definition("Mean iteration", "Mean time of one iteration."),
    "running": Definition(
        "Running requests",
        "Requests in the batch. In tables of one replica (mean over time and replicas; peak of any "
        "replica), in the timeline of all replicas together.",
    ),
    "waiting": Definition(
        "Waiting requests",
        "Requests that have arrived but are not running, counted in the same way.",
    ),
    "slot": Definition(
        "Slot",
        "A place in the batch of one replica. Engines do not number them: each request is drawn in "
        "the lowest one that is free. A chunk is an iteration that prefills part of a prompt.",
    ),
    "decode_batch": Definition(
        "Decode batch",
        "Sequences that decode in the same iteration. All share one reading of the weights: the "
        "larger the batch, the cheaper a token.",
    ),
    "padding": Definition(
        "Padding",
        "Shares of the prompt tokens and of the decode slots that static batching computes in "
        "vain: each prompt is made as long as the longest of its batch, and each slot runs until "
        "the longest answer is complete.",
    ),
    "busy": Definition(
        "Busy",
        "Share of the time in which a replica runs iterations, whether of one request or of a "
        "full batch: a busy replica may still have capacity left.",
    ),
    "mfu": Definition(
        "MFU", "Model FLOP utilisation: FLOPs the model needs / what the GPUs could do at peak."
    ),
    "mbu": Definition(
        "MBU",
        "Memory-bandwidth utilisation: bytes that must be read and written / what the GPUs could "
        "move at peak.",
    ),
    "bound_by": Definition(
        "Bound by",
        "What the busy time was spent waiting for: arithmetic (compute), memory bandwidth "
        "(memory), what a kernel takes however little it computes (launch overhead), other GPUs "
        "(communication) or the engine's own code (host).",
    ),
    "operator": Definition(
        "Operator",
        "One kind of work inside an iteration. Host is what iterations take beyond their kernels.",
    ),
    "flop": Definition(
        "FLOP, bytes, FLOP/s",
        "Floating-point operations that the model needs (a multiply-add is two), bytes that must "
        "be moved between the chip and its memory, and operations per second while the operator "
        "runs; of one GPU of each replica, replicas summed. k, M, G, T, P and E are powers of "
        "1,000.",
    ),
    "intensity": Definition(
        "Arithmetic intensity",
        "FLOP per byte moved. Below the ridge (peak FLOP/s over memory bandwidth) the bandwidth is "
        "the limit, above it arithmetic.",
    ),
    "roofline": Definition(
        "Roofline",
        "The most FLOP/s that a GPU can do at each arithmetic intensity: bandwidth times "
        "intensity, up to its peak. A circle stands for iterations of like intensity; its height "
        "is their FLOP over the time that they took, its area their share of the busy time.",
    ),
    "arrival_gaps": Definition(
        "Time between arrivals",
        "From one arrival to the next. The coefficient of variation is standard deviation over "
        "mean: 1 for Poisson arrivals, more for bursts, 0 for a steady beat.",
    ),
    **COST_TERMS,
    "interval": Definition(
        "± (repetitions)",
        "Half-width of the 95 % confidence interval of a mean over repetitions, by Student's t: "
        "how far chance in the traffic may have moved it. The error of the cost model is the same "
        "in all repetitions and not part of it.",
    ),
    "error_band": Definition(
        "Error band",
        "How far a measurement may lie from this prediction, on either side: nine of ten "
        "published runs, or five of ten where stated, lay no farther from theirs. Each run was "
        "judged by bands learnt from other engines, GPUs and models. Close to saturation a small "
        "error in speed becomes a large one in TTFT.",
    ),
    **FAILURE_TERMS,
}
"""Key -> definition; tables and cards link to ``#def-<key>``."""


def bound_name(bound: str) -> str:
    """``bound``, a key of ``infersim.bound_by`` of a summary, in words.

    >>> bound_name("latency"), bound_name("memory")
    ('launch overhead', 'memory')
    """
    return "launch overhead" if bound == "latency" else bound
