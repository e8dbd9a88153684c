"""States how sure the metrics are, and where the kernel timings behind them come from."""

from __future__ import annotations

from typing import Any

from sim.cost import Deployment
from sim.cost.latent_kernels import DEFAULTS
from sim.cost.measured_experts import fit_for
from sim.metrics.attribution import HOST, Attribution
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery

HOST_ERROR = 0.15
"""About half the width of the range that fits of vLLM's host time an iteration gave, 1.0 to 1.3 ms.
For engines whose overheads are estimates it is too small; their catalogue entries say so."""

WINDOWED = ("window_decode", "window_prefill")
"""Operators of a profile for attention through a window, where it has them."""


def error_band(attribution: Attribution, *, links_open: bool = False) -> dict[str, Any]:
    """Relative half-widths for this mix of operators, and what they mean.

    Each operator counts with the error of its predicted time (hold-out error of the profile, or
    that of a data sheet), the host with its own. That all of them err in one direction is the
    careful assumption. Where it is left open how the GPUs are joined (``links_open``), the band
    holds if they are as assumed, and says so.
    """
    total = attribution.seconds
    if not total:
        return {
            "throughput": None, "ttft": None, "tpot": None, "measured": None,
            "text": "Nothing was run.",
        }  # fmt: skip
    host = attribution.by_operator[HOST]
    error = (sum(attribution.errors.values()) + HOST_ERROR * host) / total
    kernels = total - host
    measured = attribution.measured / kernels if kernels > 0 else 0.0
    return {
        "throughput": error,
        "ttft": error,
        "tpot": error,
        "measured": measured,
        "text": (
            f"Times of iterations are within about {error:.0%}"
            f"{', if the cards are joined as assumed (see the notes),' if links_open else ''} "
            f"({measured:.0%} of the kernel time in shapes that were measured). Below saturation "
            "throughput is set by the arrivals; near it, waiting times can be off by far more."
        ),
    }


def provenance(d: Deployment) -> str:
    """Where the speed of the deployment's GPU comes from, and how far off its kernels were."""
    gpu = d.gpu
    if gpu.profile is None:
        e = gpu.efficiency
        lacking = gpu.sources.get("profile")
        return (
            f"{gpu.title}: no kernels were measured; data sheet, with GEMM at {e.compute:.0%} of "
            f"the peak compute and {e.bandwidth:.0%} of the peak bandwidth "
            f"({_first_sentence(e.source)})" + (f"; {lacking}" if lacking else "")
        )
    profile = gpu.profile
    used = {"GEMM": profile.find("gemm", d.arithmetic)}
    operators = [name for group in d.model.layers for name in group.attention.operators]
    if any(_slides(group.attention) for group in d.model.layers):
        operators += [name for name in WINDOWED if profile.find(name, d.attention_kernel or "")]
    for name in dict.fromkeys(operators):
        used[_title(name)] = profile.find(name, d.attention_kernel or "")
    if any(isinstance(group.mlp, MixtureOfExperts) for group in d.model.layers):
        experts = fit_for(d)
        used["experts"] = None if experts is None else experts.fit
    if d.layout.gpus > 1:
        used["all-reduce"] = profile.find("all_reduce", "bf16")
    errors = ", ".join(
        f"{name} {fit.holdout.median:.1%}" for name, fit in used.items() if fit is not None
    )
    elsewhere = [_title(name) for name in DEFAULTS if _title(name) in used]
    elsewhere = [title for title in elsewhere if used[title] is None]
    missing = ", ".join(name for name, fit in used.items() if fit is None and name not in elsewhere)
    drift = max((fit.drift for fit in used.values() if fit is not None), default=0.0)
    return (
        f"{gpu.title}: {profile.source.rstrip('.')}; fitted {profile.date}, median error on shapes "
        f"held out: {errors or 'none measured'}"
        + (f"; the machine's speed wandered by {drift:.1%} meanwhile" if drift else "")
        + (f"; from the data sheet: {missing}" if missing else "")
        + (f"; as on an H200: {', '.join(elsewhere)}" if elsewhere else "")
    )


def _slides(attention: object) -> bool:
    return isinstance(attention, GroupedQuery) and attention.sliding_window is not None


def _title(operator: str) -> str:
    """An operator of a profile in words.

    >>> _title("prefill_attention"), _title("mla_decode")
    ('prefill attention', 'MLA decode')
    """
    return operator.replace("_", " ").replace("mla", "MLA").replace("dsa", "DSA")


def _first_sentence(text: str) -> str:
    """What a source says first.

    >>> _first_sentence("Taken from vLLM 0.19 logs. Attention reaches less.")
    'Taken from vLLM 0.19 logs'
    """
    return text.partition(". ")[0].rstrip(".")
