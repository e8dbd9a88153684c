"""Computes the summary of one run: vLLM's benchmark keys, and everything else under ``infersim``.

Definitions are those of ``vllm bench serve``. TTFT, TPOT, E2EL and queue time leave the warm-up and
unfinished requests out; ITL has every gap of the run; counts, tokens and throughput are of the
whole run, from the first arrival to the last token. Times in the summary are milliseconds where the
key says so, seconds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sim.catalog.whole_runs import whole_run_errors, whole_runs_text
from sim.growth.kept_rows import PlanRows
from sim.loop.recorder import GAVE_UP, REJECTED, UNFINISHED
from sim.metrics.bands.bands import question
from sim.metrics.bands.confidence import error_band, provenance
from sim.metrics.engine.adapters import adapters
from sim.metrics.engine.host_tier import host_tier
from sim.metrics.engine.kv_usage import Taken, taken
from sim.metrics.engine.padding import padding
from sim.metrics.engine.prefix_hits import prefix_cache
from sim.metrics.engine.speculation import pays_note, speculation
from sim.metrics.engine.token_accounts import token_accounts
from sim.metrics.enough.doubts import slo_verdict
from sim.metrics.enough.needed_requests import reach
from sim.metrics.enough.precision import precision
from sim.metrics.fleet.by_pool import by_pool
from sim.metrics.fleet.drain import arriving_share, drain_note, while_arriving
from sim.metrics.fleet.energy import energy
from sim.metrics.fleet.failures import failures
from sim.metrics.fleet.handover import handover
from sim.metrics.fleet.lost_work import lost_work
from sim.metrics.fleet.rejection import rejection
from sim.metrics.fleet.routing import routing
from sim.metrics.fleet.scaling import scaling
from sim.metrics.latency.classes import by_class
from sim.metrics.latency.gaps import Gaps
from sim.metrics.latency.percentiles import describe, describe_gaps
from sim.metrics.load.sessions import sessions
from sim.metrics.load.verdict import digits, judge
from sim.metrics.question.question_text import asked, driven_by
from sim.metrics.record.blocks import blocks, weighed
from sim.metrics.record.pipelines import pipeline
from sim.metrics.record.pools import PoolRun, combined, formats_of, mean, names
from sim.metrics.record.queues import peak_queues
from sim.metrics.record.run_record import RunRecord
from sim.metrics.words.notes import notes
from sim.metrics.words.verdict_words import verdict_text
from sim.pools import PreparedPool
from sim.scenario.prices import price_of
from sim.version import version


def summarise(run: RunRecord) -> dict[str, Any]:
    """The content of ``summary.json``."""
    rates = _rates(run)
    outputs, tokens = rates["total_output_tokens"], _tokens(rates)
    first, between, whole = _latencies(run)
    return {
        **rates,
        **first,
        **between,
        **describe_gaps(Gaps.recorded(run.plans, run.gaps), "itl"),
        **whole,
        "infersim": _details(run, outputs, tokens),
    }


def of_a_probe(run: RunRecord) -> dict[str, Any]:
    """The metrics of a run for a load search, under the keys of ``summarise``: rates and latencies,
    and by ``infersim`` the ``verdict`` on the capacity, ``cost``, ``energy`` and ``error_band``."""
    rates = _rates(run)
    outputs, tokens = rates["total_output_tokens"], _tokens(rates)
    first, between, whole = _latencies(run)
    found = judge(run)
    verdict = found.figures() | found.uneven()
    arriving = arriving_share(run, verdict)
    return {
        **rates,
        **first,
        **between,
        **whole,
        "infersim": {
            "verdict": verdict,
            "cost": _cost(run, outputs, tokens, arriving),
            "energy": energy(run, outputs, arriving),
            "error_band": error_band(run.attribution, question(run), run.open_links),
        },
    }


def _rates(run: RunRecord) -> dict[str, Any]:
    """Requests and tokens of the whole run, and how many a second."""
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
    }


def _tokens(rates: Mapping[str, Any]) -> int:
    return int(rates["total_input_tokens"] + rates["total_output_tokens"])


def _latencies(run: RunRecord) -> tuple[dict[str, float | None], ...]:
    """TTFT, TPOT and E2EL of the requests that count."""
    counted = run.completed & ~run.warmup
    with_tpot = counted & (run.requests["output_tokens"] > 1)
    return (
        describe(run.ttft[counted], "ttft"),
        describe(run.tpot[with_tpot], "tpot"),
        describe(run.e2el[counted], "e2el"),
    )


def _details(run: RunRecord, outputs: int, tokens: int) -> dict[str, Any]:
    pools = run.pools
    deployments = [pool.deployment for pool in pools]
    band = error_band(run.attribution, question(run), run.open_links)
    verdict, refused, accounts = _verdict(run), rejection(run), token_accounts(run)
    arriving, drained = arriving_share(run, verdict), drain_note(run, verdict)
    sure = precision(run, verdict)
    wanted = [verdict["requests_to_decide"], sure["requests_needed"]]
    if None not in wanted and verdict["settled"] is not False:
        verdict["requests_to_decide"] = max(wanted)
    full, drafted = [taken(part) for part in run.parts], speculation(run)
    several = {"pools": by_pool(run, full, verdict.get("by_pool"))} if len(pools) > 1 else {}
    return {
        "version": version(),
        **_question(run),
        "verdict": verdict,
        "requests": _requests(run),
        "rejection": None if refused is None else refused.document(),
        "classes": by_class(run),
        **while_arriving(run, verdict),
        "queue_ms": _queue(run),
        "kv_cache": _kv_cache(run, full),
        "memory": combined([_memory(pool) for pool in pools]),
        "batch": _batch(run),
        **padding(run) | prefix_cache(run),
        **routing(run),
        **several,
        **host_tier(run),
        **adapters(run),
        **sessions(run),
        **handover(run),
        **drafted,
        **scaling(run),
        **failures(run),
        "preemptions": int(run.plans["preemptions"].sum()),
        "resumptions": None if accounts is None else accounts.resumptions,
        "utilisation": _utilisation(run),
        **_pipeline(run),
        "bound_by": _shares(run.attribution.by_bound),
        "time_by_operator": _shares(run.attribution.by_operator),
        "operators": {name: asdict(work) for name, work in run.attribution.work.items()},
        "cost": _cost(run, outputs, tokens, arriving),
        "energy": energy(run, outputs, arriving),
        "error_band": band,
        "bands": None,
        "ends": None,
        "later": None,
        "whole_runs": _whole_runs(run),
        "precision": sure,
        "metrics": {},
        "repetitions": None,
        "provenance": " ".join(dict.fromkeys(provenance(d) for d in deployments)),
        "notes": [
            *notes(run),
            *([] if drained is None else [drained]),
            *map(pays_note, drafted.values()),
            *([sure["text"]] if sure["sufficient"] is False else []),
        ],
        "interrupted": run.interrupted,
    }


def _question(run: RunRecord) -> dict[str, Any]:
    """The scenario, and the hardware that serves it."""
    scenario, pools = run.scenario, run.pools
    deployments = [pool.deployment for pool in pools]
    return {
        "scenario": scenario.name,
        "description": scenario.description,
        "asked": asked(scenario),
        "seed": scenario.seed,
        "model": names(d.model.name for d in deployments),
        **({"formats": formats} if (formats := formats_of(deployments)) else {}),
        "gpu": names(d.gpu.name for d in deployments),
        "gpus": run.gpus,
        "replicas": run.replicas,
        **({"data_ranks": ranks} if (ranks := _data_ranks(run)) > run.replicas else {}),
        "engine": names(d.engine.label for d in deployments),
        "batching": names(pool.settings.scheduler.batching for pool in pools),
    }


def _verdict(run: RunRecord) -> dict[str, Any]:
    """``state`` and ``text``, the figures they rest on (None where there is no such thing), and the
    part of the SLO (``attainment.judge_slo``).

    ``headroom`` is the growth in traffic until, on average, it takes the capacity of the fleet, or
    of the replica or pool that reaches its own first. ``slo_headroom`` is what is left to people: 0
    where the SLO is missed, else the growth up to the capacity at the peak, beyond which no SLO
    holds by much; None where that is not known. Near saturation ``settled`` says whether the run
    outlasts its empty start: that takes ``requests_to_settle`` requests, and after
    ``relaxation_requests`` the start no longer shows; else all three are None. ``scales`` is there
    where the fleet scales itself: its capacity is that of the replicas held. ``lost_work`` is there
    where it lacks a share of the GPU time.
    """
    found = judge(run)
    slo = slo_verdict(run, found.load, found.peak)
    lost = 0.0 if found.load is None else lost_work(run)
    figures = found.figures()
    return {
        "state": figures.pop("state"),
        "text": verdict_text(run, found, slo, lost),
        **figures,
        **found.uneven(),
        **({} if found.by_pool is None else {"by_pool": [digits(each) for each in found.by_pool]}),
        **({"scales": True} if any(p.settings.scales is not None for p in run.pools) else {}),
        **({"disturbed": True} if run.scenario.disturbed else {}),
        **({"lost_work": lost} if lost else {}),
        "peak_utilisation": None if found.peak is None else digits(found.peak.utilisation),
        "slo_headroom": found.slo_headroom(slo),
        **found.settling(),
        **slo,
        "cut": None if run.cut is None else run.cut.document(),
        "reach": reach(run),
    }


def _whole_runs(run: RunRecord) -> dict[str, Any]:
    """How far whole runs of the engines were predicted off."""
    experts = any(pool.deployment.model.has_experts for pool in run.pools)
    engines: dict[str, list[str]] = {}
    for pool in run.pools:
        gpu = pool.deployment.gpu
        engines.setdefault(pool.deployment.engine.name, []).append(gpu.compared_as)
    driven = driven_by(run.scenario)
    texts = dict.fromkeys(
        whole_runs_text(name, gpus, driven, experts=experts) for name, gpus in engines.items()
    )
    return {
        "text": " ".join(texts),
        "errors": [
            {**error._asdict(), "gpus": list(error.gpus)}
            for engine in engines
            for error in whole_run_errors(engine, experts=experts)
        ],
    }


def _requests(run: RunRecord) -> dict[str, Any]:
    status, rows = run.requests["status"], run.requests
    rejected = rows["reason"][status == REJECTED]
    return {
        "submitted": len(rows),
        "completed": int(run.completed.sum()),
        "rejected": int((status == REJECTED).sum()),
        "unfinished": int((status == UNFINISHED).sum()),
        **({} if run.attempts is None else {"gave_up": int((status == GAVE_UP).sum())}),
        "not_arrived": run.offered - len(rows),
        "one_token": int((run.completed & (rows["output_tokens"] == 1)).sum()),
        "warmup": int((run.warmup & run.completed).sum()),
        "rejected_reasons": {
            run.reasons[index]: count
            for index, count in enumerate(np.bincount(rejected).tolist())
            if count
        },
    }


def _queue(run: RunRecord) -> dict[str, float | None]:
    figures = describe(run.queue[run.completed & ~run.warmup], "queue")
    return {key: figures[f"{key}_queue_ms"] for key in ("mean", "p50", "p90", "p95", "p99")}


def _over_time(part: PoolRun | RunRecord, name: str) -> float:
    """Mean of a column of one replica's plans over the run; idle time counts as 0."""
    return weighed(part.plans, name, part.durations) / part.span if part.span > 0 else 0.0


def _kv_cache(run: RunRecord, taken: Sequence[Taken]) -> dict[str, Any]:
    """The KV cache of a replica: its size where all have the same, and how full it was."""
    whole = [float(part.caches * part.pool.kv_tokens) for part in run.parts]
    used = mean([each.mean_used for each in taken], whole)
    reserved = mean([each.mean_reserved for each in taken], whole)
    return {
        "allocator": names(pool.settings.kv_cache.allocator for pool in run.pools),
        **combined([_size(pool) for pool in run.pools]),
        "mean_used": used,
        "peak_used": max(each.peak_used for each in taken),
        "mean_reserved": reserved,
        "peak_reserved": max(each.peak_reserved for each in taken),
        "fragmentation": max(0.0, 1 - used / reserved) if reserved > 0 else 0.0,
    }


def _size(pool: PreparedPool) -> dict[str, float]:
    memory, longest = pool.capacity, pool.limits.max_model_len
    return {
        "num_gpu_blocks": memory.num_gpu_blocks,
        "block_size": memory.block_size,
        "tokens": memory.tokens,
        "max_model_len": longest,
        "max_concurrency": memory.max_concurrency(longest),
        **({"context_tokens": memory.printed_tokens(longest)} if memory.hybrid else {}),
    }


def _memory(pool: PreparedPool) -> dict[str, float]:
    """The memory of one GPU (bytes), and what a token of KV takes of it."""
    memory = pool.capacity
    return {
        "gpu_bytes": memory.memory,
        "budget_bytes": memory.budget,
        "weights_bytes": memory.weights,
        "activations_bytes": memory.activations,
        "reserve_bytes": memory.reserve,
        **({"adapter_bytes": memory.adapters} if memory.adapters else {}),
        "kv_cache_bytes": memory.tokens * memory.kv_bytes_per_token,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
    }


def _batch(run: RunRecord) -> dict[str, Any]:
    """Iterations, and requests running and waiting, of one replica (means are over all of them)."""
    plans = run.plans
    iterations = int(plans["iterations"].sum())
    busy = float(run.durations.sum())
    decoding, decodes = _decodes(plans)
    queued = run.reached(run.requests)
    accepted = run.requests["status"] != REJECTED
    waits = np.where(np.isnan(run.queue), np.maximum(run.end - queued, 0.0), run.queue)[accepted]
    peaks = [peak for pool in run.pools for peak in peak_queues(pool, queued, run.requests)]
    return {
        "iterations": iterations,
        "mean_iteration_ms": busy / iterations * 1e3 if iterations else None,
        "mean_running": _over_time(run, "running"),
        "peak_running": int(plans["running"].max()) if len(plans) else 0,
        "mean_decode_batch": decodes / decoding if decoding else None,
        "peak_decode_batch": int(plans["decode"].max()) if len(plans) else 0,
        "mean_waiting": float(waits.sum()) / run.duration / len(peaks) if run.duration else 0.0,
        "peak_waiting": max(peaks),
    }


def _decodes(plans: PlanRows) -> tuple[int, int]:
    """Iterations of ``plans`` that decode, and the sequences that they decode."""
    iterations = sequences = 0
    for block in blocks(len(plans)):
        times, batch = plans[block]["iterations"].astype(np.int64), plans[block]["decode"]
        iterations += int(times[batch > 0].sum())
        sequences += int((times * batch).sum())
    return iterations, sequences


def _utilisation(run: RunRecord) -> dict[str, float]:
    """Busy time as a share of the run; FLOP and bytes as shares of what all GPUs could do, until
    the last pass has ended where it outlasts a request that was given up."""
    if run.span <= 0:
        return {"busy": 0.0, "mfu": 0.0, "mbu": 0.0}
    longer = max(1.0, run.attribution.seconds / run.span)
    gpus = [(part.span * longer, part.pool.deployment) for part in run.parts]
    flops = sum(span * d.gpu.flops(d.arithmetic) for span, d in gpus)
    return {
        "busy": min(1.0, run.attribution.seconds / run.span),
        "mfu": run.attribution.flops / flops,
        "mbu": run.attribution.bytes / sum(span * d.gpu.bandwidth for span, d in gpus),
    }


def _pipeline(run: RunRecord) -> dict[str, Any]:
    """The activity of the stages, where there are any."""
    found = [each for each in map(pipeline, run.parts) if each is not None]
    return {"pipeline": combined(found)} if found else {}


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: value / total if total else 0.0 for name, value in ordered}


def _cost(run: RunRecord, outputs: int, tokens: int, arriving: float) -> dict[str, Any] | None:
    """The cost of the GPUs, and of a token while requests come (``arriving``: the share of the run
    in which they do); None where the price of some is not known or not wanted."""
    found = [price_of(pool.settings, pool.deployment.gpu) for pool in run.pools]
    prices = [price for price in found if price is not None]
    if len(prices) < len(found):
        return None
    gpus = [pool.gpus for pool in run.pools]
    usd = sum(part.cost(price.usd) for price, part in zip(prices, run.parts, strict=True))
    return {
        "usd_per_gpu_hour": mean([price.usd for price in prices], gpus),
        "usd": usd,
        "usd_per_million_output_tokens": usd * arriving / outputs * 1e6 if outputs else None,
        "usd_per_million_tokens": usd * arriving / tokens * 1e6 if tokens else None,
        **_whose([price.document() for price in prices], run.pools),
    }


def _whose(found: Sequence[dict[str, Any]], pools: Sequence[PreparedPool]) -> dict[str, Any]:
    """Whose prices those of ``pools`` are: of several that differ, each by its GPU."""
    whose = dict.fromkeys(
        f"{pool.deployment.gpu.name}: {price['text']}"
        for pool, price in zip(pools, found, strict=True)
    )
    said = combined(found)
    return said if said["text"] is not None else {**said, "text": "; ".join(whose)}


def _data_ranks(run: RunRecord) -> int:
    """Data ranks of all replicas, which have a scheduler and a KV cache each."""
    return sum(pool.replicas * pool.deployment.layout.data for pool in run.pools)
