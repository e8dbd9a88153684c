"""Makes up a whole result of each study, so that its page can be shown without a run.

The numbers are plausible and consistent, and they predict nothing. Every function returns what its
command would have in ``result.json``, anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.made_up import HEAD, Document

KEYS = ("output_throughput", "request_goodput", "p99_ttft_ms", "p99_tpot_ms", "capacity")
_TITLES = ("output tokens/s", "goodput", "TTFT p99", "TPOT p99", "capacity")
_UNITS = ("tokens/s", "requests/s", "ms", "ms", "x the traffic")
_MORE = (True, True, False, False, True)


def ablation() -> Document:
    """Figures that grow tenfold in four steps."""
    names = ("continuous batching", "batches of up to 256", "paged KV cache", "chunked prefill")
    factors = (5.0, 1.8, 1.1, 1.01)
    base = dict(zip(KEYS, (200.0, 0.5, 9000.0, 30.0, 0.2), strict=True))
    better = dict(zip(KEYS, _MORE, strict=True))
    reached, every = dict(base), [("baseline", dict(base))]
    for name, factor in zip(names, factors, strict=True):
        for key in KEYS:
            reached[key] *= factor if better[key] else 1 / factor
        every.append((name, dict(reached)))

    def of(key: str) -> dict[str, Any]:
        grown = [factor if better[key] else 1 / factor for factor in factors]
        return {
            "baseline": base[key],
            "full": reached[key],
            "factor": reached[key] / base[key],
            "difference": reached[key] - base[key],
            "steps": [{"title": name, "value": values[key]} for name, values in every[1:]],
            "parts": [
                {"title": name, "factor": factor, "difference": None}
                for name, factor in zip(names, grown, strict=True)
            ],
        }

    subsets = [
        {"with": list(names[:count]), "figures": values, "state": "stable"}
        for count, (_, values) in enumerate(every)
    ]
    return {
        **HEAD,
        "kind": "ablation",
        "setup": "llama-3.1-8b on 1 x h100-sxm",
        "saturated": False,
        "baseline": {"text": "static batches of 8"},
        "techniques": [{"title": name} for name in names],
        "orders": {"text": "Means over every order."},
        "figures": _figures(of),
        "subsets": subsets,
        "infeasible": [],
        "notes": [],
    }


def _figures(of: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "title": title, "unit": unit, "more": more, **of(key)}
        for key, title, unit, more in zip(KEYS, _TITLES, _UNITS, _MORE, strict=True)
    ]


def diagnosis() -> Document:
    """A run that memory bandwidth binds."""
    effects = {"2x memory bandwidth": 0.4, "2x GPU memory": 0.02, "half the slots": -0.3}
    trials = [
        {
            "name": title,
            "title": title,
            "effort": "setting",
            "command": "infersim run made-up.yaml",
            "error": None,
            "changes": _changes(effect),
            "effect": effect,
            "attainment": 0.97 + effect / 20,
            "slo_met": effect > 0.1,
            "slo_state": "met" if effect > 0.1 else "missed",
            "rejects": 0.0,
            "told": f"SLO {'met' if effect > 0.1 else 'missed'}; TTFT p99 {-effect:+.0%}",
        }
        for title, effect in effects.items()
    ]
    ttft = {"front_end": 12.0, "queue": 30.0, "prefill": 25.0, "prefill_delay": 8.0}
    e2el = ttft | {"decode": 900.0, "decode_delay": 80.0}
    latency = {"ttft": ttft, "e2el": e2el}
    slowest = {f"slowest_{n}": {k: 3 * v for k, v in p.items()} for n, p in latency.items()}
    return {
        **HEAD,
        "kind": "diagnosis",
        "setup": "llama-3.1-8b on 1 x h100-sxm",
        "bound": {
            "by": "memory bandwidth",
            "text": "TTFT p99: memory bandwidth (2x memory bandwidth: -40%).",
            "figures": {},
            "padding": "",
            "busy": "",
        },
        "order": "",
        "footnotes": [],
        "sure": [],
        "verdict": {"text": "Stable.", "slo_met": False, "slo_state": "missed", "attainment": 0.97},
        "headline": "The SLO is missed: only 97% of requests are within the SLO.",
        "state": "The SLO is missed: only 97% of requests are within the SLO.",
        "least": "",
        "at_ease": False,
        "rejection": None,
        "plan": "infersim plan made-up.yaml --gpus h100-sxm",
        "figures": _figures(lambda key: {"value": 100.0}),
        "efforts": [{"name": "setting", "title": "a setting"}],
        "trials": trials,
        "advice": ["2x memory bandwidth"],
        "latency": latency | slowest,
        "notes": [],
    }


def uncertainty() -> Document:
    """A verdict that one input flips."""
    ranges = {"prompt lengths": (0.2, -0.25), "burstiness": (-0.02, -0.4), "host": (0.03, -0.03)}
    inputs = [
        {
            "title": title,
            "missing": None,
            "low": _end("x 0.8", low),
            "high": _end("x 1.2", high),
        }
        for title, (low, high) in ranges.items()
    ]
    return {
        **HEAD,
        "kind": "sensitivity",
        "setup": "llama-3.1-8b on 1 x h100-sxm",
        "verdict": {
            "text": "Stable.",
            "attainment": 0.995,
            "target": 0.99,
            "slo_state": "met",
            "limits": {"ttft": {}},
        },
        "holds": True,
        "answer": "Is the SLO met? Yes, but burstiness x 1.2 flips it",
        "short": "Is the SLO met? Yes, but burstiness x 1.2 flips it",
        "scaling": None,
        "footnotes": [],
        "sure": [],
        "flips": ["burstiness"],
        "band": 0.05,
        "figures": _figures(lambda key: {"value": 100.0}),
        "inputs": inputs,
        "together": _end("all worse ends together", -0.6),
        "notes": [],
    }


def _changes(effect: float) -> dict[str, float]:
    """An effect is good above 0, whatever the figure."""
    return {key: effect if more else -effect for key, more in zip(KEYS, _MORE, strict=True)}


def _end(text: str, effect: float) -> dict[str, Any]:
    holds = effect > -0.3
    slo = "met" if holds else "missed"
    state = {"holds": holds, "attainment": 0.995 + effect / 100 if holds else 0.9, "slo_state": slo}
    return {"text": text, "settings": {}, "error": None, "changes": _changes(effect), **state}
