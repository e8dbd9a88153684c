"""States how sure the metrics are, and where the kernel timings behind them come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.catalog.spreads import Spreads, learnt
from sim.cost import Deployment
from sim.cost.latent_kernels import DEFAULTS
from sim.cost.measured import ALIKE
from sim.cost.measured_experts import fit_for
from sim.metrics.bands.bands import Situation, by_part, scaled, setting, spread_of
from sim.metrics.record.attribution import HOST, Attribution
from sim.metrics.record.links import OpenLinks
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.profile import TRITON, KernelFit

HOST_ERROR = 0.15
"""About half the width of the range that fits of vLLM's host time an iteration gave, 1.0 to 1.3 ms:
how far ``infersim sensitivity`` moves it."""

TELLING = 0.05
"""A cause that alone makes the 90 % band less than so wide is not mentioned as a reason."""

WHY: Mapping[str, str] = {
    "data sheet": "the GPU is known from its data sheet alone",
    "unmeasured": "many of its kernels are in shapes that were not measured",
    "experts": "kernels of experts were off by that much in published runs",
    "open links": "nothing says whether the cards reach each other over PCIe",
    "links": "collectives take much of the time",
    "host estimate": "the engine's overheads are estimates",
    "older release": "the engine is older than the releases whose kernels were timed",
}
"""The reasons for a wide band, in words."""

AT_A_RATE = (
    " Below saturation throughput is set by the arrivals; near it, waiting times can be off by far "
    "more."
)

WINDOWED = ("window_decode", "window_prefill")
"""Operators of a profile for attention through a window, where it has them."""


def times_causes(attribution: Attribution, at: Situation) -> dict[str, float]:
    """With how much of its spread each cause (``sim.metrics.bands.bands``) moves the busy time.

    Kernels bound by arithmetic are those of passes with prompts, near enough. A profile whose own
    hold-out error is more than the usual counts with that.
    """
    total, spreads = attribution.seconds, learnt().everything.of
    if not total:
        return {}
    shares = {name: seconds / total for name, seconds in attribution.kernels.items()}
    kernels = sum(attribution.kernels.values())
    own = sum(attribution.errors.values()) / kernels if kernels else 0.0
    other = "unmeasured" if at.measured else "data sheet"
    found = {
        name: shares[part] * max(1.0, own / spreads[name])
        for name, part in (("prompts", "computing"), ("decodes", "reading"), (other, "unmeasured"))
    } | {
        "experts": shares["experts"],
        "open links" if at.links else "links": shares["links"],
        "host" if at.fitted else "host estimate": attribution.by_operator[HOST] / total,
        "run, tokens": 1.0 if kernels else 0.0,
        "older release": float(at.older),
    }
    return {name: weight for name, weight in found.items() if weight}


def widest(band: Mapping[str, Any]) -> float | None:
    """The larger side of an error band: how far iterations may be off, or longer, as a share."""
    found: float | None = band.get("slower", band["throughput"])
    return found


def error_band(
    attribution: Attribution, at: Situation, links: OpenLinks | None = None
) -> dict[str, Any]:
    """How far the times of iterations may be off, as a share of them: with a chance of 90 %
    (``throughput``, ``ttft`` and ``tpot`` alike) and of 50 % (``half``), and what each part of the
    band comes to alone (``parts``). With ``links`` that are open, ``slower`` is how far they may be
    longer, if that is farther: in the other case, by what is usual where links are known."""
    total = attribution.seconds
    if not total:
        empty = dict.fromkeys(("throughput", "ttft", "tpot", "half", "measured"))
        return {**empty, "parts": {}, "text": "Nothing was run."}
    spreads = learnt().everything
    scale = spreads.scale(setting("mean_tpot_ms", at))
    causes = scaled(times_causes(attribution, at), scale)
    spread = spread_of(causes, spreads)
    error, half = (math.expm1(times * spread) for times in (spreads.ninety, spreads.half))
    slower = error
    if links is not None:
        known = scaled(times_causes(attribution, at._replace(links=False)), scale)
        reach = math.exp(spreads.ninety * spread_of(known, spreads))
        slower = max(error, (1 + links.slower) * reach - 1)
    kernels = sum(attribution.kernels.values())
    measured = attribution.measured / kernels if kernels > 0 else 0.0
    parts = by_part(causes, spreads)
    return {
        "throughput": error,
        "ttft": error,
        "tpot": error,
        "half": half,
        "measured": measured,
        "parts": parts,
        **({"slower": slower} if slower > error else {}),
        "text": _band_text(error, half, measured, parts, _reasons(causes, spreads), at)
        + (
            f" If the cards do not reach each other over PCIe as assumed, iterations take "
            f"{links.slower:.0%} longer: on that side the band reaches {slower:.0%}."
            if links is not None and slower > error
            else ""
        )
        + (AT_A_RATE if at.driven == "online" else ""),
    }


def _band_text(
    error: float,
    half: float,
    measured: float,
    parts: Mapping[str, float],
    why: Sequence[str],
    at: Situation,
) -> str:
    alone = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005)
    wide = f" It is wide because {' and '.join(why)}." if why else ""
    if not at.compared:
        return (
            "How far times of iterations are off is not known: no published run of this engine on "
            "this GPU was compared with its prediction. The bands are those of runs with the same "
            f"causes of errors: {error:.0%} in nine of ten, {half:.0%} in five of ten ({alone}; "
            f"{measured:.0%} of the kernel time in shapes that were measured).{wide}"
        )
    return (
        f"Times of iterations are within about {error:.0%} in nine of ten published runs like "
        f"this, and within {half:.0%} in five of ten ({alone}; {measured:.0%} of the kernel time "
        f"in shapes that were measured).{wide}"
    )


def _reasons(causes: Mapping[str, float], spreads: Spreads) -> list[str]:
    """Why a band is wide: causes that rest on little, the heaviest first."""
    alone = {
        name: spreads.ninety * weight * spreads.of[name]
        for name, weight in causes.items()
        if name in WHY
    }
    return [WHY[name] for name in sorted(alone, key=lambda n: -alone[n]) if alone[name] > TELLING]


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
    weights = d.formats["projections"]
    used = {"GEMM": profile.find("gemm", d.arithmetic)}
    if ALIKE.get(weights) == d.arithmetic:
        used["GEMM"] = profile.find("gemm", weights) or used["GEMM"]
    operators = [name for group in d.model.layers for name in group.attention.operators]
    if any(_slides(group.attention) for group in d.model.layers):
        operators += [name for name in WINDOWED if profile.find(name, d.attention_kernel or "")]
    if d.engine.triton_attention:
        operators = [name + TRITON for name in d.model.layers[0].attention.operators]
    for name in dict.fromkeys(operators):
        fit = profile.find(name, d.attention_kernel or "")
        used[_title(name) + _of_other_heads(fit, d)] = fit
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


def _of_other_heads(fit: KernelFit | None, d: Deployment) -> str:
    """The heads that were timed, where those of the model are narrower or wider."""
    kinds = [group.attention for group in d.model.layers]
    own = {each.head_dim for each in kinds if isinstance(each, GroupedQuery)}
    if fit is None or "head_dim" not in fit.ranges or not own:
        return ""
    low, high = fit.ranges["head_dim"]
    if low > high or (low <= min(own) and max(own) <= high):  # a relative's: none was timed
        return ""
    return f" (timed with heads of {low:g}{'' if low == high else f' to {high:g}'})"


def _slides(attention: object) -> bool:
    return isinstance(attention, GroupedQuery) and attention.sliding_window is not None


def _title(operator: str) -> str:
    """An operator of a profile in words.

    >>> _title("prefill_attention_triton"), _title("mla_decode")
    ('prefill attention by Triton', 'MLA decode')
    """
    title = operator.replace(TRITON, " by Triton").replace("_", " ")
    return title.replace("mla", "MLA").replace("dsa", "DSA")


def _first_sentence(text: str) -> str:
    """The first sentence of a source.

    >>> _first_sentence("Taken from vLLM 0.19 logs. Attention reaches less.")
    'Taken from vLLM 0.19 logs'
    """
    return text.partition(". ")[0].rstrip(".")
