"""Makes up a whole result of each searching command, so that its page can be shown without a run.

``made_up_studies`` has the results of studies. The numbers are plausible and consistent, and they
predict nothing: one toy server, whose latencies grow as it fills. Every function returns what its
command would have in ``result.json``, anew each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Document = dict[str, Any]

LIMITS = {"ttft": 500.0, "tpot": 40.0}
PROMISE = "99% of requests within TTFT 500 ms and TPOT 40 ms"
HEAD: Mapping[str, str] = {
    "infersim": "made up",
    "scenario": "made up",
    "description": "Made up, not simulated.",
}


def load_sweep() -> Document:
    """Two numbers of slots over a growing rate."""
    points = [
        ({"workload.arrivals.rate": float(rate), "scheduler.max_num_seqs": seats}, rate, seats / 2)
        for seats in (24, 52)
        for rate in range(2, 31, 2)
    ]
    axes = {"workload.arrivals.rate": "rate", "scheduler.max_num_seqs": "max_num_seqs"}
    answers = [{"text": f"max_num_seqs={s}: SLO met up to {s // 2} requests/s"} for s in (24, 52)]
    return _sweep(axes, points, "workload.arrivals.rate", answers)


def grid_sweep() -> Document:
    """Slots and tokens of a batch."""
    points = [
        ({"seats": seats, "tokens": tokens}, 12.0, seats / 4 + tokens / 512)
        for seats in (16, 32, 64, 128)
        for tokens in (1024, 2048, 4096)
    ]
    return _sweep({"seats": "seats", "tokens": "tokens"}, points, None, [])


def policy_sweep() -> Document:
    """Three batching policies on two GPUs."""
    strength = {"static": 5.0, "request": 9.0, "continuous": 26.0}
    points = [
        ({"scheduler.batching": policy, "fleet.0.gpu": gpu}, 8.0, factor * full)
        for policy, full in strength.items()
        for gpu, factor in (("h100-sxm", 1.0), ("l40s", 0.4))
    ]
    return _sweep({"scheduler.batching": "batching", "fleet.0.gpu": "gpu"}, points, None, [])


def _sweep(
    axes: Mapping[str, str],
    points: Sequence[tuple[dict[str, Any], float, float]],
    load: str | None,
    answers: list[dict[str, Any]],
) -> Document:
    results = []
    for index, (settings, rate, capacity) in enumerate(points):
        label = ", ".join(f"{axes[key]}={value}" for key, value in settings.items())
        row: Document = {"index": index, "settings": settings, "exit_code": 0, "error": None}
        row["label"] = label
        results.append(row | {"summary": _summary(rate, capacity)})
    values = {key: list(dict.fromkeys(row["settings"][key] for row in results)) for key in axes}
    return {
        "command": "sweep",
        "infersim": "made up",
        "name": "made up",
        "axes": [{"key": key, "name": axes[key], "values": values[key]} for key in axes],
        "load": load,
        "points": len(results),
        "failed": 0,
        "answers": answers,
        "notes": [],
        "run_notes": [],
        "results": results,
    }


def _latencies(load: float) -> tuple[float, float]:
    """p99 TTFT and p99 TPOT in ms at a load, 1 being all that can be served."""
    slow = 1 / (1 - load) if load < 0.95 else 20 * load
    return 60 * slow, 8 + 24 * min(load, 1.5)


def _summary(rate: float, capacity: float) -> dict[str, Any]:
    served, load = min(rate, capacity), rate / capacity
    ttft, tpot = _latencies(load)
    holds = ttft <= LIMITS["ttft"] and tpot <= LIMITS["tpot"]
    kept = 1.0 if holds else 0.8 / load
    verdict = {
        "state": "overloaded" if load > 1 else "stable",
        "limits": {
            name: {"limit_ms": at, "attainment": kept, "percentile": 99.0}
            for name, at in LIMITS.items()
        },
        "slo_met": holds,
        "slo_state": "met" if holds else "missed",
        "requests_to_decide": None,
        "utilisation": load,
        "attainment": kept,
    }
    return {
        "request_throughput": served,
        "output_throughput": 200 * served,
        "p50_ttft_ms": ttft / 3,
        "p99_ttft_ms": ttft,
        "median_tpot_ms": 0.7 * tpot,
        "p99_tpot_ms": tpot,
        "infersim": {
            "gpus": 1,
            "notes": [],
            "verdict": verdict,
            "cost": {
                "usd_per_million_tokens": 4.0 / (3.6e-3 * 1000 * served),
                "usd_per_million_output_tokens": 9.0 / (3.6e-3 * 1000 * served),
            },
        },
    }


def comparison() -> Document:
    """Three policies, the first being the base."""
    means = {
        "request_goodput": ("Goodput", "1/s", "higher", [0.5, 5.6, 0.4]),
        "output_throughput": ("Output tokens", "1/s", "higher", [900.0, 1310.0, 905.0]),
        "verdict.attainment": ("Within SLO", "share", "higher", [0.1, 1.0, 0.08]),
        "cost.usd_per_million_output_tokens": (
            "USD per 1M output tokens", "USD", "lower", [0.75, 0.55, 0.74]
        ),
        "p99_ttft_ms": ("TTFT p99", "ms", "lower", [8120.0, 165.0, 7980.0]),
        "p99_tpot_ms": ("TPOT p99", "ms", "lower", [24.0, 11.0, 24.1]),
    }  # fmt: skip
    figures = []
    for key, (title, unit, better, values) in means.items():
        apart = [None, *(_apart(value, values[0]) for value in values[1:])]
        figure = {"key": key, "title": title, "unit": unit, "better": better, "means": values}
        behind = [None if value == values[1] else _apart(value, values[1]) for value in values]
        best = {"first": 1, "best": [1], "to_first": behind}
        figures.append({**figure, **best, "differences": apart})
    variants: list[dict[str, Any]] = [
        {"label": label, "settings": {"scheduler.batching": label}, "error": None}
        for label in ("static", "continuous", "request")
    ]
    return {
        "command": "compare",
        "infersim": "made up",
        "name": "made up",
        "axes": [
            {
                "key": "scheduler.batching",
                "name": "batching",
                "values": ["static", "continuous", "request"],
            }
        ],
        "pairing": "5 runs of each variant",
        "same_traffic": True,
        "base": 0,
        "variants": [variant | {"exit_code": 0, "state": "stable"} for variant in variants],
        "figures": figures,
        "notes": [],
    }


def _apart(value: float, base: float) -> dict[str, Any]:
    share, half = value / base - 1, 0.03
    ends = {"mean": share * base, "low": (share - half) * base, "high": (share + half) * base}
    sure = {"relative": share, "relative_half_width": half, "certain": abs(share) > half}
    return {**ends, **sure, "pairs": 5}


def highest_load() -> Document:
    """A highest rate of 20 requests per second."""
    probes = [_probe(float(load)) for load in (2, 5, 8, 11, 14, 17, 19, 20, 21, 23)]
    return {
        **HEAD,
        "command": "find",
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "gpus": 1,
        "hardware": "1 x h100-sxm",
        "max": "rate",
        "unit": "requests/s",
        "load": 20.0,
        "chance": {"holds_up_to": None, "fails_from": None},
        "trust": {"sure_up_to": None},
        "first_to_break": "tpot",
        "saturated": 24.0,
        "with_answer": [],
        "opening_left_out": False,
        "breaks": "First to break: TPOT. Full batches would serve 24 requests/s.",
        "fails_at": 21.0,
        "promises": [PROMISE],
        "own": {"load": 11.0, "holds": True, "outcome": "holds"},
        "shares": {"ttft": 0.99, "tpot": 0.99, "e2el": 0.99},
        "headroom": 20 / 11 - 1,
        "knee": {"load": 14.0, "between": [11.0, 17.0], "at_end": False},
        "limits_ms": dict(LIMITS),
        "probes": probes,
        "sentences": ["Highest load: 20 requests/s (21 fails)", f"SLO: {PROMISE}."],
    }


def _probe(load: float) -> dict[str, Any]:
    kept = min(1.0, 0.995 + 0.002 * (20 - load))
    objective = {
        "target": 0.99,
        "attainment": kept,
        "low": 0.99 * kept,
        "high": min(1, kept * 1.005),
    }
    return {
        "load": load,
        "holds": load <= 20,
        "sure": load != 20,
        "outcome": "too close to call" if load == 20 else "holds" if load < 20 else "fails",
        "requests_to_decide": 12_000 if load == 20 else None,
        "breaks": "tpot",
        "runs": 3,
        "requests": 3000,
        "requests_per_run": 3000,
        "promises": [objective],
        "request_throughput": load,
        "output_throughput": 200 * load,
        "slo_ttft_ms": 100 + 400 / max(0.4, 22 - load),
        "slo_tpot_ms": 8 + 32 * load / 20,
        "mean_e2el_ms": 2000 / max(0.1, 1 - load / 24),
    }


def fleet_plan() -> Document:
    """Five fleets, some of which are on the fronts, and one layout that was rejected."""
    rows = (
        ("2 x h200-sxm", 184.0, 470.0, 38.0),
        ("4 x h200-sxm", 202.0, 380.0, 34.0),
        ("4 x h100-sxm", 208.0, 385.0, 36.0),
        ("8 x h100-sxm", 255.0, 300.0, 29.0),
        ("8 x a100-sxm-80gb", 386.0, 640.0, 44.0),
    )
    rejected = {
        "layout": "1 x l40s",
        "gpu": "l40s",
        "precision": None,
        "reason": "memory",
        "usd_per_hour": None,
    }
    return {
        **HEAD,
        "command": "plan",
        "file": "made-up.yaml",
        "model": "llama-3.1-70b",
        "engine": "vllm",
        "router": "least-outstanding",
        "rate": 40.0,
        "target": 48.0,
        "headroom": 0.2,
        "promises": [PROMISE],
        "limits_ms": dict(LIMITS),
        "constraints": {"usd_per_hour": None, "gpus": None, "replicas": None},
        "survive": {"replicas": 0, "text": []},
        "run_lengths": {"lasts": False, "text": []},
        "scaling": None,
        "traffic_notes": [],
        "notes": [],
        "format_notes": [],
        "shares": {"ttft": 0.99, "tpot": 0.99, "e2el": 0.99},
        "layouts": len(rows) + 1,
        "fleets": [_fleet(rank, *row) for rank, row in enumerate(rows[:4], 1)],
        "ranking": {
            "survives": False,
            "sure": None,
            "text": "4 x h200-sxm could then be cheaper.",
            "prices": {"survives": None, "conditions": [], "text": "No range is known."},
        },
        "hours": {"month": 730, "year": 8760},
        "break_even": {"gpu": "b200-sxm", "usd_per_gpu_hour": 7.1, "proven": True, "next": None},
        "prices": [_price("b200-sxm", 6.0, None), _price("h200-sxm", 4.0, 3.8)],
        "sized": [
            {
                **_layout(layout, cost, ttft, tpot),
                "precision": None,
                "usd_per_month": 730 * cost,
                "usd_per_replica": cost,
                "rate_alone": 4.0,
                "rate_of_a_replica": 4.0,
                "one_down": "fails",
                "trust": "likely",
                "tokens_per_s_of_a_user": 900 / tpot,
                "tokens_per_s_of_a_gpu": 9600 / int(layout.split()[0]),
                "front_slo_ttft_ms": ttft in (470.0, 380.0, 300.0),
                "front_slo_tpot_ms": tpot in (38.0, 34.0, 29.0),
            }
            for layout, cost, ttft, tpot in rows
        ],
        "worth": None,
        "whole_runs": "No published run of vllm was compared with its prediction.",
        "rejected": [rejected | {"text": "the weights need 141 GB, one GPU has 48"}],
    }


def split_plan() -> Document:
    """Two fleets that prefill and decode apart, and one that does both."""
    seen = {
        "outcome": "holds",
        "sure": True,
        "promises": [{"attainment": 0.995, "low": 0.992, "high": 0.997, "target": 0.99}],
        "slo_ttft_ms": 410.0,
        "slo_tpot_ms": 31.0,
    }

    def phase(gpu: str, replicas: int, breaks: str | None) -> Document:
        text = f"{replicas} x (1 x {gpu})"
        said = {"layout": f"1 x {gpu}", "gpu": gpu, "tensor_parallel": 1, "replicas": replicas}
        return {**said, "text": text, "one_less_breaks": breaks}

    def tried(prefill: int, decode: int, kept: float) -> Document:
        outcome = "holds" if kept > 0.99 else "fails"
        said = {"prefill": prefill, "decode": decode, "usd_per_hour": 4.0 * (prefill + decode)}
        return {
            **said,
            "outcome": outcome,
            "holds": kept > 0.99,
            "breaks": "ttft",
            "attainment": kept,
        }

    rows = ((1, "h100-sxm", 20.0, "sure"), (2, "h200-sxm", 22.0, "likely"))
    fleets = [
        {
            "rank": rank,
            "prefill": phase(gpu, 2, "ttft"),
            "decode": phase("h100-sxm", 3, None),
            "gpus": 5,
            "usd_per_hour": cost,
            "trust": sure,
            "at_target": seen,
            "tried": [tried(1, 3, 0.4), tried(2, 2, 0.9), tried(2, 3, 0.995)],
            "run": "--set 'fleet=[{role: prefill}, {role: decode}]'",
        }
        for rank, gpu, cost, sure in rows
    ]
    both = {"reason": None, "text": "6 x (1 x h100-sxm)", "gpus": 6, "usd_per_hour": 24.0}
    rejected = {"layout": "1 x l40s | 1 x l40s", "reason": "TPOT missed", "usd_per_hour": 9.0}
    return {
        **HEAD,
        "command": "plan",
        "kind": "apart",
        "file": "made-up.yaml",
        "model": "llama-3.1-8b",
        "engine": "vllm",
        "router": "least-outstanding",
        "rate": 12.0,
        "headroom": 0.2,
        "target": 14.4,
        "promises": [PROMISE],
        "limits_ms": dict(LIMITS),
        "shares": {"ttft": 0.99, "tpot": 0.99, "e2el": 0.99},
        "scaling": None,
        "traffic_notes": [],
        "notes": [],
        "run_lengths": {"lasts": False, "text": []},
        "layout_pairs": 9,
        "fleets": fleets,
        "unified": {**both, "trust": "sure", "at_target": seen},
        "text": "To prefill and decode apart saves 17% against 6 x (1 x h100-sxm).",
        "rejected": [rejected | {"text": "even 4 that prefill and 4 that decode do not hold it"}],
    }


def _price(gpu: str, usd: float, wins_below: float | None) -> dict[str, Any]:
    said = {"gpu": gpu, "usd_per_gpu_hour": usd, "origin": "list", "text": "list price, Acme, 2026"}
    whose = {"provider": "Acme", "date": "2026", "low": None, "high": 2 * usd}
    return {**said, **whose, "gpus": 32, "gpus_proven": True, "wins_below": wins_below}


def _layout(layout: str, cost: float, ttft: float, tpot: float) -> dict[str, Any]:
    figures = {"usd_per_hour": cost, "slo_ttft_ms": ttft, "slo_tpot_ms": tpot}
    return {
        "layout": layout,
        "gpu": layout.rpartition(" ")[2],
        "replicas": 8,
        "gpus": 32,
        **figures,
    }


def _fleet(rank: int, layout: str, cost: float, ttft: float, tpot: float) -> dict[str, Any]:
    command = f"serve --tensor-parallel-size {layout[0]}"
    return {
        **_layout(layout, cost, ttft, tpot),
        "precision": None,
        "rank": rank,
        "rate_at_slo": 50.0 + rank,
        "headroom": 0.25 + rank / 40,
        "binds": "ttft",
        "smaller_breaks": None,
        "notes": ["too close to call at 48 requests/s"] if rank == 2 else [],
        "at_target": {
            "outcome": "too close to call" if rank == 2 else "holds",
            "sure": rank != 2,
            "promises": [{"attainment": 0.992, "low": 0.988, "high": 0.996, "target": 0.99}],
            "slo_ttft_ms": ttft,
            "slo_tpot_ms": tpot,
        },
        "usd_per_month": 730 * cost,
        "usd_per_year": 8760 * cost,
        "usd_per_million_output_tokens": cost / 30,
        "usd_per_million_tokens": cost / 200,
        "joules_per_output_token": 0.4,
        "kwh_per_month": 900.0,
        "co2e_kg_per_month": None,
        "error_band": {
            "error": 0.06,
            "half": 0.02,
            "trust": "sure" if rank > 1 else "likely",
            "parts": {"kernels": 0.05, "run": 0.03},
            "replicas": [8, 9],
            "usd_per_hour": [cost, cost * 9 / 8],
            "holds_if_slower": rank > 1,
            "survives": rank > 1,
            "rivals": ["#2 4 x h200-sxm"] if rank == 1 else [],
        },
        "run": "--set fleet.0.replicas=8",
        "launch": {"vllm": command, "sglang": command, "tensorrt-llm": command, "notes": []},
    }


def fleet_course() -> Document:
    """Two pools over ten seconds, one of which grows, with hand-overs between them."""
    ten = [float(second) for second in range(10)]
    grown = [1.0] * 5 + [2.0] * 5
    return {
        "edges": [*ten, 10.0],
        "pools": [
            {"name": "prompts", "held": [2.0] * 10, "running": ten, "waiting": [0.5] * 10},
            {"name": "answers", "held": grown, "running": ten[::-1], "waiting": [0.0] * 10},
        ],
        "handed": [0.25] * 10,
    }


def failures() -> Document:
    """A minute of requests with an outage, after which clients send more than before."""
    times = [float(second) for second in range(60)]
    gone = [20 <= second < 30 for second in range(60)]
    return {
        "course": {
            "time_s": times,
            "arrived": [10.0] * 60,
            "sent": [10.0 if second < 20 else 24.0 for second in range(60)],
            "good": [2.0 if away else 9.5 for away in gone],
        },
        "outages": [{"since_s": 20.0, "until_s": 30.0}, {"since_s": 50.0, "until_s": None}],
    }
