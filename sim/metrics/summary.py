"""Computes the summary of one run: vLLM's benchmark keys, and everything else under ``infersim``.

Definitions are those of ``vllm bench serve``. TTFT, TPOT, E2EL and queue time leave the warm-up and
unfinished requests out; ITL has every gap of the run; counts, tokens and throughput are of the
whole run, from the first arrival to the last token. Times in the summary are milliseconds where the
key says so, seconds otherwise.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from sim.catalog.whole_runs import whole_run_errors, whole_runs_text
from sim.metrics.asked import asked
from sim.metrics.classes import by_class, order_notes
from sim.metrics.confidence import error_band, provenance
from sim.metrics.engine_defaults import engine_defaults_note
from sim.metrics.gaps import Gaps
from sim.metrics.percentiles import describe, describe_gaps
from sim.metrics.precision import precision
from sim.metrics.rejection import rejection
from sim.metrics.run_record import Floats, RunRecord
from sim.metrics.stability import peak_queue
from sim.metrics.token_accounts import token_accounts
from sim.metrics.verdict import judge
from sim.prices import price_of
from sim.recorder import REJECTED, UNFINISHED


def summarise(run: RunRecord) -> dict[str, Any]:
    """The content of ``summary.json``."""
    counted = run.completed & ~run.warmup
    with_tpot = counted & (run.requests["output_tokens"] > 1)
    duration = run.duration
    inputs = int(run.requests["prompt_tokens"][run.completed].sum())
    outputs = int(run.requests["generated"][run.completed].sum())

    def per_second(amount: float) -> float | None:
        return amount / duration if duration > 0 else None

    completed = int(run.completed.sum())
    return {
        "duration": duration,
        "completed": completed,
        "failed": len(run.requests) - completed,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": per_second(completed),
        "request_goodput": per_second(int(run.within_slo.sum())),
        "output_throughput": per_second(outputs),
        "total_token_throughput": per_second(inputs + outputs),
        **describe(run.ttft[counted], "ttft"),
        **describe(run.tpot[with_tpot], "tpot"),
        **describe_gaps(Gaps.recorded(run.plans, run.gaps), "itl"),
        **describe(run.e2el[counted], "e2el"),
        "infersim": _details(run, outputs, inputs + outputs),
    }


def _details(run: RunRecord, outputs: int, tokens: int) -> dict[str, Any]:
    scenario, d = run.scenario, run.deployment
    band = error_band(run.attribution)
    verdict, refused, accounts = judge(run), rejection(run), token_accounts(run)
    sure = precision(run, verdict["state"])
    return {
        "version": version("infersim"),
        "scenario": scenario.name,
        "description": scenario.description,
        "asked": asked(scenario),
        "seed": scenario.seed,
        "model": d.model.name,
        "gpu": d.gpu.name,
        "gpus": run.gpus,
        "replicas": run.replicas,
        "engine": d.engine.name,
        "batching": scenario.scheduler.batching,
        "verdict": verdict,
        "requests": _requests(run),
        "rejection": None if refused is None else refused.document(),
        "classes": by_class(run),
        "queue_ms": _queue(run),
        "kv_cache": _kv_cache(run),
        "memory": _memory(run),
        "batch": _batch(run),
        "preemptions": int(run.plans["preemptions"].sum()),
        "resumptions": None if accounts is None else accounts.resumptions,
        "utilisation": _utilisation(run),
        "bound_by": _shares(run.attribution.by_bound),
        "time_by_operator": _shares(run.attribution.by_operator),
        "operators": {name: asdict(work) for name, work in run.attribution.work.items()},
        "cost": _cost(run, outputs, tokens),
        "energy": _energy(run, outputs),
        "error_band": band,
        "ends": None,
        "whole_runs": {
            "text": whole_runs_text(scenario.engine),
            "errors": [error._asdict() for error in whole_run_errors(scenario.engine)],
        },
        "precision": sure,
        "metrics": {},
        "repetitions": None,
        "provenance": provenance(d),
        "notes": [*_notes(run), *([sure["text"]] if sure["sufficient"] is False else [])],
        "interrupted": run.interrupted,
    }


def _requests(run: RunRecord) -> dict[str, Any]:
    status, rows = run.requests["status"], run.requests
    rejected = rows["reason"][status == REJECTED]
    return {
        "submitted": len(rows),
        "completed": int(run.completed.sum()),
        "rejected": int((status == REJECTED).sum()),
        "unfinished": int((status == UNFINISHED).sum()),
        "not_arrived": run.offered - len(rows),
        "one_token": int((run.completed & (rows["output_tokens"] == 1)).sum()),
        "warmup": int((run.warmup & run.completed).sum()),
        "rejected_reasons": {
            reason: int((rejected == index).sum()) for index, reason in enumerate(run.reasons)
        },
    }


def _queue(run: RunRecord) -> dict[str, float | None]:
    figures = describe(run.queue[run.completed & ~run.warmup], "queue")
    return {key: figures[f"{key}_queue_ms"] for key in ("mean", "p50", "p90", "p95", "p99")}


def _over_time(run: RunRecord, values: Floats) -> float:
    """Mean of a quantity of one replica over the run; idle time counts as 0."""
    span = run.duration * run.replicas
    return float((values * run.durations).sum()) / span if span > 0 else 0.0


def _growth_over_time(run: RunRecord, growth: Floats) -> float:
    """Mean over the run of what a quantity has gained since the start of the leap it is in.

    It gains ``growth`` with each iteration; iteration i of a leap lasts ``gap + slope * i``,
    so sums of powers give the integral exactly.
    """
    plans, n = run.plans, run.plans["iterations"].astype(np.float64)
    evenly = plans["gap"] * n * (n - 1) / 2
    lengthening = plans["slope"] * (n - 1) * n * (2 * n - 1) / 6
    span = run.duration * run.replicas
    return float((growth * (evenly + lengthening)).sum()) / span if span > 0 else 0.0


def _kv_cache(run: RunRecord) -> dict[str, Any]:
    memory, plans = run.capacity, run.plans
    tokens = max(1, memory.usable_blocks * memory.block_size)
    further = plans["iterations"] - 1.0
    decode = plans["decode"].astype(np.float64)
    blocks = (plans["reserved_end"] - plans["reserved"]) / np.maximum(further, 1.0)  # taken evenly
    used = (_over_time(run, plans["held"]) + _growth_over_time(run, decode)) / tokens
    reserved = (_over_time(run, plans["reserved"]) + _growth_over_time(run, blocks)) / tokens
    return {
        "allocator": run.scenario.kv_cache.allocator,
        "num_gpu_blocks": memory.num_gpu_blocks,
        "block_size": memory.block_size,
        "tokens": memory.tokens,
        "max_model_len": run.limits.max_model_len,
        "max_concurrency": memory.max_concurrency(run.limits.max_model_len),
        "mean_used": used,
        "peak_used": float((plans["held"] + decode * further).max()) / tokens
        if len(plans)
        else 0.0,
        "mean_reserved": reserved,
        "peak_reserved": float(plans["reserved_end"].max()) / tokens if len(plans) else 0.0,
        "fragmentation": max(0.0, 1 - used / reserved) if reserved > 0 else 0.0,
    }


def _memory(run: RunRecord) -> dict[str, float]:
    """The memory of one GPU (bytes), and what a token of KV takes of it."""
    memory = run.capacity
    return {
        "gpu_bytes": memory.memory,
        "budget_bytes": memory.budget,
        "weights_bytes": memory.weights,
        "activations_bytes": memory.activations,
        "reserve_bytes": memory.reserve,
        "kv_cache_bytes": memory.tokens * memory.kv_bytes_per_token,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
    }


def _batch(run: RunRecord) -> dict[str, Any]:
    """Iterations, and requests running and waiting, of one replica (means are over all of them)."""
    plans = run.plans
    iterations = int(plans["iterations"].sum())
    busy = float(run.durations.sum())
    decoding = plans["decode"] > 0
    steps = plans["iterations"][decoding]
    queued = run.requests["arrival"] + run.deployment.engine.front_end
    accepted = run.requests["status"] != REJECTED
    waits = np.where(np.isnan(run.queue), np.maximum(run.end - queued, 0.0), run.queue)[accepted]
    of_replica = [accepted & (run.requests["replica"] == index) for index in range(run.replicas)]
    peaks = [peak_queue(queued[mine], run.requests["scheduled"][mine]) for mine in of_replica]
    return {
        "iterations": iterations,
        "mean_iteration_ms": busy / iterations * 1e3 if iterations else None,
        "mean_running": _over_time(run, plans["running"].astype(np.float64)),
        "peak_running": int(plans["running"].max()) if len(plans) else 0,
        "mean_decode_batch": float(np.average(plans["decode"][decoding], weights=steps))
        if len(steps)
        else None,
        "peak_decode_batch": int(plans["decode"].max()) if len(plans) else 0,
        "mean_waiting": float(waits.sum()) / run.duration / run.replicas if run.duration else 0.0,
        "peak_waiting": max(peaks),
    }


def _utilisation(run: RunRecord) -> dict[str, float]:
    gpu, span = run.deployment.gpu, run.duration * run.replicas
    if span <= 0:
        return {"busy": 0.0, "mfu": 0.0, "mbu": 0.0}
    return {
        "busy": min(1.0, run.attribution.seconds / span),
        "mfu": run.attribution.flops / (span * gpu.flops(run.deployment.arithmetic)),
        "mbu": run.attribution.bytes / (span * gpu.bandwidth),
    }


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: value / total if total else 0.0 for name, value in ordered}


def _cost(run: RunRecord, outputs: int, tokens: int) -> dict[str, Any] | None:
    price = price_of(run.scenario, run.deployment.gpu)
    if price is None:
        return None
    usd = price.usd * run.gpus * run.duration / 3600
    return {
        "usd_per_gpu_hour": price.usd,
        "usd": usd,
        "usd_per_million_output_tokens": usd / outputs * 1e6 if outputs else None,
        "usd_per_million_tokens": usd / tokens * 1e6 if tokens else None,
        **price.document(),
    }


def _energy(run: RunRecord, outputs: int) -> dict[str, Any] | None:
    if not outputs:
        return None
    joules = run.attribution.seconds * run.deployment.gpu.power * run.deployment.tensor_parallel
    return {
        "joules_per_output_token": joules / outputs,
        "note": "An upper bound: every busy GPU draws its board limit, an idle one nothing.",
    }


def _notes(run: RunRecord) -> list[str]:
    assumed = run.scenario.assume.told()
    notes = [*([assumed] if assumed else []), *run.traffic_notes, *order_notes(run)]
    if run.deployment.format_note is not None:
        notes.append(run.deployment.format_note)
    limits, memory = run.limits, run.capacity
    if limits.max_model_len > memory.tokens:
        notes.append(
            f"The KV cache holds {memory.tokens:,} tokens, less than max_model_len "
            f"({limits.max_model_len:,}): vLLM would refuse to start; longer requests are rejected."
        )
    peak = int(run.plans["running"].max()) if len(run.plans) else None
    own_defaults = engine_defaults_note(run.scenario, run.deployment, peak)
    if own_defaults is not None:
        notes.append(own_defaults)
    skipped = int((run.warmup & run.completed).sum())
    if skipped:
        notes.append(f"Latency statistics leave out the first {skipped:,} requests (warm-up).")
    if run.interrupted:
        notes.append("Interrupted: the figures cover what had happened until then.")
    if run.deployment.model.sliding_window is not None:
        notes.append("The sliding window is not modelled: attention and KV count the full length.")
    return notes
