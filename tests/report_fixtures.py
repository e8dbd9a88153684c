"""Runs to make reports of: a toy server produces the tables that a real run would write.

``make_run`` plays continuous batching with round figures (an iteration costs a constant plus a
little per sequence and per prompt token), so that the tables are consistent with each other; the
numbers predict nothing.
"""

from __future__ import annotations

import heapq
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports.frame.page import typeset
from reports.frame.run_directory import SavedRun

KV_TOKENS = 120_000
SCENARIO_YAML = "version: 1\nname: chat\nmodel: llama-3.1-8b\nfleet:\n- gpu: h100-sxm\n"

PLAN_COLUMNS = [
    *("replica", "start_s", "end_s", "iterations", "decode_seqs", "decode_context"),
    *("prefill_seqs", "prefill_tokens", "running", "waiting"),
    *("kv_used_tokens", "kv_reserved_tokens", "preemptions"),
]


class Traffic(NamedTuple):
    """What arrives, one entry per request, and on which replica it is served."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    replica: np.ndarray


def on_page(text: str) -> str:
    """A sentence as a page has it, with single blanks."""
    return " ".join(typeset(text.replace("`", "")).split())


def make_run(
    requests: int = 2000, rate: float = 18.0, replicas: int = 1, seed: int = 7, **slo: float
) -> SavedRun:
    """A consistent run of ``requests`` Poisson arrivals; limits default to 500 ms and 40 ms."""
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / rate, requests))
    prompt = np.clip(random.lognormal(6.3, 0.8, requests), 8, 6000).astype(int)
    output = np.clip(random.lognormal(5.1, 0.7, requests), 1, 1500).astype(int)
    traffic = Traffic(arrival, prompt, output, np.arange(requests) % replicas)
    times = np.full((3, requests), math.nan)
    plans: list[tuple[float, ...]] = []
    for index in range(replicas):
        plans += _serve(index, traffic, times)
    frame = _requests_frame(traffic, times)
    limits = {"ttft": 500.0, "tpot": 40.0} | slo
    tpot = frame["tpot_s"].fillna(0.0)
    frame["slo_met"] = (frame["ttft_s"] <= limits["ttft"] / 1e3) & (tpot <= limits["tpot"] / 1e3)
    frame["warmup"] = frame["request_id"] < requests // 20
    series = plan_frame(plans)
    summary = summary_of(frame, series, limits)
    return SavedRun(summary, frame, series, SCENARIO_YAML, charts=_charts(frame))


def _charts(frame: pd.DataFrame) -> dict[str, Any]:
    """What charts need beside the tables: round figures, and TPOT in place of gaps."""
    gaps = np.sort(frame["tpot_s"].dropna().to_numpy(float)) * 1e3
    share = (np.arange(gaps.size) + 1) / gaps.size
    points = [
        {"kind": "decode", "iterations": 900, "seconds": 9.0, "flops": 2.7e14, "bytes": 1.8e13},
        {"kind": "mixed", "iterations": 50, "seconds": 3.0, "flops": 1.5e15, "bytes": 3e12},
    ]
    roof = {"precision": "bf16", "peak_flops": 989e12, "bandwidth": 3.35e12, "points": points}
    return {"itl": {"ms": gaps.tolist(), "share": share.tolist()}, "roofline": roof}


def _serve(replica: int, traffic: Traffic, times: np.ndarray) -> list[tuple[float, ...]]:
    """One replica: prefill whoever fits, else decode until the next arrival or finish.

    Fills ``times`` (scheduled, first token, finish) and returns the plans.
    """
    arrival, prompt, output, _ = traffic
    plans: list[tuple[float, ...]] = []
    now, done, context = 0.0, 0, 0
    running: list[tuple[int, int]] = []  # (iteration of the last token, request)
    waiting: list[int] = []
    coming = [int(i) for i in np.flatnonzero(traffic.replica == replica)[::-1]]
    reserved = 0
    while coming or waiting or running:
        if not running and not waiting:
            now = max(now, float(arrival[coming[-1]]))
        while coming and arrival[coming[-1]] <= now:
            waiting.append(coming.pop())
        started, chunk = [], 0
        while waiting and chunk < 4096 and len(running) + len(started) < 128:
            head = waiting[0]
            need = int(prompt[head] + output[head])
            if reserved + need > KV_TOKENS * 0.97:
                break
            reserved += need
            chunk += int(prompt[head])
            started.append(waiting.pop(0))
        if started:
            steps, duration = 1, 0.006 + 0.00004 * len(running) + chunk * 2.2e-5
        else:
            each = 0.008 + 0.00005 * len(running) + context * 2e-8
            steps = running[0][0] - done
            if coming:
                steps = min(steps, max(1, math.ceil((arrival[coming[-1]] - now) / each)))
            duration = steps * each
        start, now = now, now + duration
        row = (replica, start, now, steps, len(running), context, len(started), chunk)
        plans.append((*row, len(running) + len(started), len(waiting), context, reserved, 0))
        done += steps
        context += steps * len(running)
        for request in started:
            times[0, request], times[1, request] = start, now
            context += int(prompt[request]) + 1
            heapq.heappush(running, (done + int(output[request]) - 1, request))
        while running and running[0][0] <= done:
            request = heapq.heappop(running)[1]
            times[2, request] = now
            context -= int(prompt[request] + output[request])
            reserved -= int(prompt[request] + output[request])
    return plans


def _requests_frame(traffic: Traffic, times: np.ndarray) -> pd.DataFrame:
    arrival, prompt, output, replica = traffic
    scheduled, first, finish = times
    gaps = np.where(output > 1, output - 1, math.nan)
    return pd.DataFrame(
        {
            "request_id": np.arange(arrival.size),
            "arrival_s": arrival,
            "prompt_tokens": prompt.astype(np.int32),
            "output_tokens": output.astype(np.int32),
            "generated_tokens": output.astype(np.int32),
            "status": "completed",
            "reason": pd.Series([None] * arrival.size, dtype=object),
            "replica": replica.astype(np.int32),
            "scheduled_s": scheduled,
            "first_token_s": first,
            "finish_s": finish,
            "queue_s": scheduled - arrival,
            "ttft_s": first - arrival,
            "tpot_s": (finish - first) / gaps,
            "e2el_s": finish - arrival,
            "preemptions": np.zeros(arrival.size, dtype=np.int32),
            "front_end_s": 0.0,
            "prefill_s": first - scheduled,
            "prefill_delay_s": 0.0,
            "prefill_preempted_s": 0.0,
            "decode_s": 0.75 * (finish - first),
            "decode_delay_s": finish - first - 0.75 * (finish - first),
            "decode_preempted_s": 0.0,
            "transfer_s": 0.0,
        }
    )


def plan_frame(plans: list[tuple[float, ...]]) -> pd.DataFrame:
    """Rows as ``timeseries.parquet`` has them; an empty list gives an empty table."""
    frame = pd.DataFrame(plans, columns=PLAN_COLUMNS, dtype=float)
    whole = [name for name in PLAN_COLUMNS if name not in ("start_s", "end_s")]
    return frame.astype(dict.fromkeys(whole, "int64"))


def _statistics(values: np.ndarray, names: tuple[str, ...]) -> dict[str, float | None]:
    values = values[np.isfinite(values)]
    if not values.size:
        return dict.fromkeys(names)
    made = {"mean": values.mean(), "std": values.std(), "median": np.median(values)}
    made |= {f"p{p}": np.percentile(values, p) for p in (50, 90, 95, 99)}
    return {name: float(made[name]) * 1e3 for name in names}


def summary_of(
    requests: pd.DataFrame, series: pd.DataFrame, limits: dict[str, float]
) -> dict[str, Any]:
    """A summary of these tables with every key that the contract names."""
    good = requests[(requests["status"] == "completed") & ~requests["warmup"]]
    duration = float(series["end_s"].max()) if len(series) else 0.0
    summary: dict[str, Any] = {
        "duration": duration,
        "completed": len(good),
        "failed": int((requests["status"] != "completed").sum()),
        "total_input_tokens": int(good["prompt_tokens"].sum()),
        "total_output_tokens": int(good["output_tokens"].sum()),
    }
    per_second = 1 / duration if duration else math.nan
    rates = {
        "request_throughput": len(good),
        "request_goodput": int(good["slo_met"].sum()),
        "output_throughput": summary["total_output_tokens"],
        "total_token_throughput": summary["total_output_tokens"] + summary["total_input_tokens"],
    }
    summary |= {key: n * per_second if duration else None for key, n in rates.items()}
    names = ("mean", "median", "std", "p50", "p90", "p95", "p99")
    for metric in ("ttft", "tpot", "itl", "e2el"):
        values = good[f"{'tpot' if metric == 'itl' else metric}_s"].to_numpy(float)
        made = _statistics(values, names)
        summary |= {f"{name}_{metric}_ms": made[name] for name in names}
    summary["infersim"] = _nested(requests, good, series, limits, duration)
    return summary


def _work(flops: float, moved: float, compute: float, memory: float) -> dict[str, float]:
    seconds = {"compute": compute, "memory": memory, "latency": 0.1, "communication": 0.0}
    return {"flops": flops, "bytes": moved, **seconds}


def _nested(
    requests: pd.DataFrame,
    good: pd.DataFrame,
    series: pd.DataFrame,
    limits: dict[str, float],
    duration: float,
) -> dict[str, Any]:
    served = len(good) > 0
    attained = {
        name: {
            "limit_ms": limit,
            "attainment": float((good[f"{name}_s"].fillna(0) <= limit / 1e3).mean())
            if served
            else None,
            "low": 0.93 if served else None,
            "high": 1.0 if served else None,
        }
        for name, limit in limits.items()
    }
    attainment = float(good["slo_met"].mean()) if served else None
    met = None if attainment is None else attainment >= 0.99
    counts = requests["status"].value_counts().to_dict()
    tokens = float(good["output_tokens"].sum() + good["prompt_tokens"].sum())
    usd = duration / 3600 * 2.5
    peak = (lambda column: int(series[column].max())) if len(series) else (lambda column: 0)
    return {
        "version": "0.1.0",
        "scenario": "chat",
        "description": "Chat assistant on one GPU: does it hold 18 requests per second?",
        "seed": 7,
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "gpus": 1,
        "engine": "vllm",
        "batching": "continuous",
        "verdict": {
            "state": "stable" if served else "no traffic served",
            "text": "Stable: the queue does not grow. The fleet is busy for 91 % of the time and "
            "has about 9 % of headroom before it saturates."
            if served
            else "Not one request was completed.",
            "slo_met": met,
            "attainment": attainment,
            "target": 0.99,
            "first_limit": "ttft" if served else None,
            "limits": attained,
        },
        "requests": {
            "submitted": len(requests),
            "completed": int(counts.get("completed", 0)),
            "rejected": int(counts.get("rejected", 0)),
            "unfinished": int(counts.get("unfinished", 0)),
            "one_token": int((good["output_tokens"] == 1).sum()),
            "warmup": int(requests["warmup"].sum()),
            "rejected_reasons": requests["reason"].dropna().value_counts().to_dict(),
        },
        "queue_ms": _statistics(
            good["queue_s"].to_numpy(float), ("mean", "p50", "p90", "p95", "p99")
        ),
        "kv_cache": {
            "allocator": "paged",
            "num_gpu_blocks": KV_TOKENS // 16,
            "block_size": 16,
            "tokens": KV_TOKENS,
            "max_model_len": 8192,
            "max_concurrency": KV_TOKENS / 8192,
            "mean_used": 0.412 if served else None,
            "peak_used": peak("kv_used_tokens") / KV_TOKENS if served else None,
            "mean_reserved": 0.431 if served else None,
            "fragmentation": 0.044 if served else None,
        },
        "batch": {
            "iterations": int(series["iterations"].sum()),
            "mean_iteration_ms": 11.3 if served else None,
            "mean_running": 41.7 if served else None,
            "peak_running": peak("running"),
            "mean_decode_batch": 39.2 if served else None,
            "peak_decode_batch": peak("decode_seqs"),
            "mean_waiting": 0.83 if served else None,
            "peak_waiting": peak("waiting"),
        },
        "preemptions": int(series["preemptions"].sum()),
        "operators": {
            "gate and up projection": _work(4e15, 8e12, 1.0, 2.5),
            "attention (decode)": _work(1e14, 6e12, 0.0, 2.4),
        }
        if served
        else {},
        "memory": {
            "gpu_bytes": 80e9,
            "budget_bytes": 72e9,
            "weights_bytes": 16e9,
            "activations_bytes": 1e9,
            "reserve_bytes": 1e9,
            "kv_cache_bytes": KV_TOKENS * 131072.0,
            "kv_bytes_per_token": 131072.0,
        },
        "utilisation": {"busy": 0.91, "mfu": 0.312, "mbu": 0.574}
        if served
        else {"busy": None, "mfu": None, "mbu": None},
        "bound_by": {
            "compute": 0.286,
            "memory": 0.581,
            "latency": 0.072,
            "communication": 0.0,
            "host": 0.061,
        }
        if served
        else {},
        "time_by_operator": {
            "gate and up projection": 0.302,
            "down projection": 0.154,
            "attention (decode)": 0.207,
            "attention (prefill)": 0.041,
            "QKV projection": 0.083,
            "output projection": 0.055,
            "LM head": 0.052,
            "norms, activations, rotary": 0.045,
            "engine overhead": 0.061,
        }
        if served
        else {},
        "cost": {
            "usd_per_gpu_hour": 2.5,
            "usd": usd,
            "usd_per_million_output_tokens": usd / float(good["output_tokens"].sum()) * 1e6
            if served
            else None,
            "usd_per_million_tokens": usd / tokens * 1e6 if served else None,
        },
        "energy": {"joules_per_output_token": 0.21, "note": "At the board limit while busy."}
        if served
        else None,
        "error_band": {
            "throughput": 0.1,
            "ttft": 0.25,
            "tpot": 0.12,
            "text": "Default efficiencies of the data sheet; a calibrated profile narrows this.",
        },
        "repetitions": None,
        "provenance": "h100-sxm from the data sheet, efficiencies assumed, not calibrated.",
        "notes": ["Warm-up: the first 5 % of the requests."],
        "interrupted": False,
    }


def save(run: SavedRun, directory: Path) -> None:
    """Write the files of ``run`` into ``directory``, which exists."""
    (directory / "summary.json").write_text(json.dumps(run.summary), encoding="utf-8")
    run.requests.to_parquet(directory / "requests.parquet")
    run.timeseries.to_parquet(directory / "timeseries.parquet")
    (directory / "resolved.yaml").write_text(run.scenario_yaml, encoding="utf-8")
    (directory / "charts.json").write_text(json.dumps(run.charts), encoding="utf-8")
