"""States how sure the metrics are, and where the kernel timings behind them come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sim.catalog.spreads import UNSTATED, ComparedFigures, learnt
from sim.catalog.whole_runs import whole_run_errors
from sim.cost import Deployment
from sim.cost.latent_kernels import DEFAULTS
from sim.cost.measured import ALIKE
from sim.cost.measured_experts import fit_for
from sim.metrics.bands.bands import LEAN, LEVELS, Question, Reach, reach, shares, with_longer
from sim.metrics.bands.end_times import factors
from sim.metrics.record.attribution import Attribution
from sim.metrics.record.links import OpenLinks
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.profile import TRITON, KernelFit

HOST_ERROR = 0.15
"""About half the width of the range that fits of vLLM's host time an iteration gave, 1.0 to 1.3 ms:
how far ``infersim sensitivity`` moves it."""

AT_A_RATE = (
    " Below saturation throughput is set by the arrivals; near it, waiting times can be off by far "
    "more."
)

WINDOWED = ("window_decode", "window_prefill")
"""Operators of a profile for attention through a window, where it has them."""


def widest(band: Mapping[str, Any]) -> float | None:
    """The larger side of an error band: how far iterations may be off, or longer, as a share."""
    found: float | None = band.get("slower", band["throughput"])
    return found


def error_band(
    attribution: Attribution, at: Question, links: OpenLinks | None = None
) -> dict[str, Any]:
    """How far the times of iterations may be off, as a share of them: with a chance of 90 %
    (``throughput``, ``ttft`` and ``tpot`` alike) and of 50 % (``half``), and what each part of the
    band comes to alone (``parts``). The wider side of the band of token times counts on both.
    With ``links`` that are open, ``slower`` is how far they may be longer. ``basis`` says what was
    compared, and on which GPU kernels were timed if on a relative; ``text`` also what follows.
    ``first_tokens`` has the factors by which TTFT may be off in all."""
    total = attribution.seconds
    if not total:
        empty = dict.fromkeys(("throughput", "ttft", "tpot", "half", "measured", "first_tokens"))
        return {**empty, "parts": {}, "basis": "", "text": "Nothing was run."}
    usual = reach("mean_tpot_ms", at)
    widest = max(usual.ends("band90"))
    parts = shares(usual.parts, usual.ninety, usual.centre)
    parts, slower = with_longer(parts, widest, links)
    error, half = math.expm1(widest), math.expm1(max(usual.ends("band50")))
    kernels = attribution.kernels
    known = attribution.measured / kernels if kernels > 0 else 0.0
    measured = 0.0 if at.relative else known
    where = f" on the {at.relative}, whose kernels these are" if at.relative else ""
    timed = f" Kernels are timed as on the {at.relative}." if at.relative else ""
    basis, follows = _compared(usual, slower, at)
    alone = ", ".join(
        f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005 and name != LEAN
    )
    text = f"{basis}: {follows}" if follows else basis
    text += f" ({alone})."
    if links is not None:
        text += (
            f" Nothing says whether the cards reach each other over PCIe: if they do not as "
            f"assumed, iterations take {links.slower:.0%} longer, which is in it."
        )
    return {
        "throughput": error,
        "ttft": error,
        "tpot": error,
        "half": half,
        "first_tokens": _first_tokens(at, links),
        "measured": measured,
        "parts": parts,
        **({"slower": math.expm1(slower)} if slower > widest else {}),
        "basis": f"{basis}.{timed}",
        "text": text
        + f" {known:.0%} of the kernel time is in shapes that were measured{where}."
        + (AT_A_RATE if at.driven == "online" else ""),
    }


def _first_tokens(at: Question, links: OpenLinks | None) -> dict[str, list[float]]:
    """How far TTFT may be off in all, as factors from the lowest to the highest of each band."""
    usual = reach("mean_ttft_ms", at)
    found = {level: usual.ends(level) for level in reversed(LEVELS)}
    down, up = found["band90"]
    found["band90"] = down, with_longer({}, up, links)[1]
    return {level: factors(*ends) for level, ends in found.items()}


def _compared(usual: Reach, slower: float, at: Question) -> tuple[str, str]:
    """What the band rests on, the nearest runs that were compared first, and what follows for times
    between tokens, which may be longer by as much as ``slower`` (a logarithm)."""
    where, known = at.place, learnt()
    ninety = (usual.ends("band90")[0], slower)
    follows = (
        f"expect real times between tokens to lie {off_by(*ninety)} from those predicted nine "
        f"times in ten, and {off_by(*usual.ends('band50'))} five times in ten"
    )
    releases = known.releases(where, "tpot")
    if at.own:
        return "The engine was fitted to runs of your own", follows
    if releases:
        runs = f"Published runs of {where.model} on {where.gpu} under {where.engine} were compared"
        same = [row for row in known.rows if row.place.deployment == where.deployment]
        runs += _lacking(at, same)
        if where.release in releases:
            return runs, follows
        named = " and ".join(
            "a release not stated" if each == UNSTATED else f"release {each}" for each in releases
        )
        return f"{runs}, in {named}, not in {where.release or 'this one'}", follows
    if at.compared:
        here = [r for r in known.rows if (r.place.engine, r.place.gpu) == (where.engine, where.gpu)]
        runs = f"Published runs of {where.engine} on {where.gpu} were compared"
        runs += _lacking(at, here)
        return f"{runs}, of other models or figures", follows
    lacks = [
        f"no run {words}"
        for words, there in (
            (f"of {where.engine}", known.compared(engine=where.engine)),
            (f"on {where.gpu}{_apart(at)}", known.compared(gpu=where.gpu)),
        )
        if not there
    ] or [f"no run of {where.engine} on {where.gpu}, where runs of {_others(where.gpu)} were"]
    like = f"Nothing like this was ever compared with a measurement ({', '.join(lacks)})"
    low, high = math.exp(-ninety[0]), math.exp(ninety[1])
    return f"{like}: expect {low:.1f} to {high:.1f} times the predicted times between tokens", ""


def _lacking(at: Question, rows: Iterable[ComparedFigures]) -> str:
    """What ``rows`` that were compared do not show: times to first token, and requests that come as
    they do here."""
    kinds = [row.kind for row in rows]
    lacks = [
        words
        for words, there in (
            ("no TTFT", any(kind.startswith("ttft") for kind in kinds)),
            (
                "none at a rate",
                at.driven != "online" or any(", online" in kind for kind in kinds),
            ),
        )
        if not there
    ]
    return f" ({', '.join(lacks)})" if lacks else ""


def off_by(down: float, up: float) -> str:
    """How far a figure may lie from its prediction, both ways as logarithms, 0 or more.

    >>> off_by(0.0, math.log(1.31)), off_by(math.log(1.25), 0.1)
    ('0% to +31%', '-20% to +11%')
    """
    ends = (f"{share:+.0%}" for share in (math.expm1(-down), math.expm1(up)))
    return " to ".join("0%" if end in ("+0%", "-0%") else end for end in ends)


def _apart(at: Question) -> str:
    """What is said of a run that the data of the GPU were adjusted to, where there is one."""
    known = whole_run_errors(at.place.engine, experts=at.experts)
    adjusted = any(each.in_sample and at.place.gpu in each.gpus for each in known)
    return " apart from the one that the data of this GPU were adjusted to" * adjusted


def _others(gpu: str) -> str:
    """The engines of which runs on that GPU were compared."""
    rows = learnt().rows
    return " and ".join(sorted({row.place.engine for row in rows if row.place.gpu == gpu}))


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
    if d.layout.linked:
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
    if low <= min(own) and max(own) <= high:
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
