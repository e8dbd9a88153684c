"""Lists the inputs of a prediction that are not known for sure, each with its range.

Each input has a low and a high end as settings; where it has no end on one side, or none at all,
that is stated. Ranges are those of ``RANGES`` unless others are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from sim import catalog
from sim.errors import UsageError, did_you_mean
from sim.metrics.bands.confidence import HOST_ERROR
from sim.metrics.bands.end_times import TimeBand
from sim.planning.load.loads import LoadAxis, Scale, check_copies
from sim.planning.points.points import Settings
from sim.scenario import Scenario
from sim.scenario.sections.model import STEEPEST

RANGES: Mapping[str, tuple[float, float]] = {
    "host_time": (1 - 2 * HOST_ERROR, 1 + 2 * HOST_ERROR),
    "kv_blocks": (0.9, 1.1),
    "prompt_tokens": (0.8, 1.2),
    "output_tokens": (0.8, 1.2),
    "rate": (0.9, 1.1),
    "burstiness": (0.5, 2.0),
    "acceptance": (0.9, 1.1),
    "expert_skew": (0.5, 1.5),
    "link": (0.8, 1.2),
}
"""Factors at the low and the high end. Twice the error of fitted host times, since few engines were
fitted on the hardware at hand; a tenth for the blocks that an engine finds at start; what a
forecast of traffic may be off by; a fifth for the links between GPUs, by which data sheets miss
all-reduces of 2 MB (``sim.cost.communication``). Kernel times have the error band of the run
itself, with the ends at which ``find`` asks again (``sim.metrics.bands.end_times``)."""

TITLES: Mapping[str, str] = {
    "kernel_time": "kernel times",
    "host_time": "host overhead",
    "kv_blocks": "KV blocks",
    "prompt_tokens": "prompt lengths",
    "output_tokens": "answer lengths",
    "rate": "request rate",
    "burstiness": "burstiness",
    "acceptance": "acceptance rate",
    "expert_skew": "skew of the experts",
    "link": "links between GPUs",
}

STEEP = 1.2
"""The skew that experts may have where nothing is said of it: the steeper of the two power laws
that published kernel timings have (aiconfigurator-core 0.12)."""


@dataclass(frozen=True)
class Input:
    """One uncertain input: settings at the ``low`` and ``high`` end (None: there is none), what
    these are in words, and why an end is missing."""

    name: str
    title: str
    low: Settings | None
    high: Settings | None
    texts: tuple[str, str]
    missing: str = ""


def uncertain(
    scenario: Scenario,
    band: float,
    ranges: Mapping[str, tuple[float, float]],
    scale: Scale = "compress",
) -> list[Input]:
    """Every uncertain input of ``scenario``; ``band`` is the relative error of its kernel times,
    ``ranges`` replace the usual ones, ``scale`` says how a trace gets another rate. UsageError for
    a range of nothing."""
    check_copies(scenario, scale)
    for name in ranges:
        if name not in TITLES:
            raise UsageError(
                f"--range: no input is called {name!r}{did_you_mean(name, TITLES)}; "
                f"known: {', '.join(TITLES)}"
            )
    faster, slower = TimeBand(band, band).ends
    known = {**RANGES, "kernel_time": (faster.iterations, slower.iterations), **ranges}
    found = [_factor(scenario, name, known[name]) for name in ("kernel_time", "host_time")]
    if scenario.kv_cache.num_gpu_blocks is None or "kv_blocks" in ranges:
        found.append(_factor(scenario, "kv_blocks", known["kv_blocks"]))
    else:
        found.append(_none("kv_blocks", "given as the engine found them"))
    found += [_factor(scenario, name, known[name]) for name in ("prompt_tokens", "output_tokens")]
    found += [_rate(scenario, known["rate"], scale), _burstiness(scenario, known["burstiness"])]
    found.append(_acceptance(scenario, known["acceptance"]))
    if "expert_skew" in ranges or catalog.model(scenario.model.path, scenario.base).has_experts:
        found.append(_skew(scenario, known["expert_skew"]))
    if "link" in ranges or any(pool.layout.linked for pool in scenario.pools):
        found.append(_link(scenario, known["link"], chosen="link" in ranges))
    for each in found:
        if each.name in ranges and each.low is None and each.high is None:
            raise UsageError(f"--range {each.name}: {each.missing}, so it has no range")
    return found


def _factor(scenario: Scenario, name: str, ends: tuple[float, float]) -> Input:
    """A factor on top of what the scenario assumes already."""
    now = float(getattr(scenario.assume, name))
    low, high = ({f"assume.{name}": now * end} for end in ends)
    return Input(name, TITLES[name], low, high, _texts(ends))


def _texts(ends: tuple[float, float]) -> tuple[str, str]:
    return f"x {ends[0]:.3g}", f"x {ends[1]:.3g}"


def _none(name: str, why: str) -> Input:
    return Input(name, TITLES[name], None, None, ("", ""), why)


def _rate(scenario: Scenario, ends: tuple[float, float], scale: Scale) -> Input:
    arrivals, trace = scenario.workload.arrivals, scenario.workload.trace
    settings: Sequence[Settings]
    texts = _texts(ends)
    if trace is not None and scale == "overlay":
        axis = LoadAxis(scenario, "rate", 1.0, scale)  # loads relative to the scenario's own
        settings = [axis.settings(end) for end in ends]
        texts = f"{texts[0]} ({_copies(ends[0])})", f"{texts[1]} ({_copies(ends[1])})"
    elif trace is not None:
        texts = _paced(texts[0], ends[0]), _paced(texts[1], ends[1])
        settings = [
            {"workload.trace.rate": trace.rate * end}
            if trace.rate is not None
            else {"workload.trace.time_scale": trace.time_scale / end}
            for end in ends
        ]
    elif arrivals is not None and hasattr(arrivals, "rate"):
        keys = [key for key in ("rate", "final_rate", "peak_rate") if hasattr(arrivals, key)]
        settings = [
            {f"workload.arrivals.{key}": getattr(arrivals, key) * end for key in keys}
            for end in ends
        ]
    else:
        return _none("rate", "these arrivals have no rate")
    return Input("rate", TITLES["rate"], settings[0], settings[1], texts)


def _paced(text: str, end: float) -> str:
    """The end of a trace's rate, and what becomes of its time."""
    return f"{text} (time {'stretched' if end < 1 else 'compressed'})"


def _copies(end: float) -> str:
    return f"{'fewer' if end < 1 else 'more'} copies of the trace"


def _burstiness(scenario: Scenario, ends: tuple[float, float]) -> Input:
    """The coefficient of variation of the gaps between arrivals."""
    arrivals = scenario.workload.arrivals
    if arrivals is None:
        return _none("burstiness", "a trace is as bursty as it was recorded")
    if arrivals.kind == "constant":
        poisson = {"workload.arrivals": {"kind": "poisson", "rate": arrivals.rate}}
        why = "nothing is less bursty than constant gaps"
        return Input("burstiness", TITLES["burstiness"], None, poisson, ("", "poisson"), why)
    if arrivals.kind not in ("poisson", "gamma"):
        return _none("burstiness", f"arrivals of kind {arrivals.kind} have none to vary")
    now = arrivals.cv if arrivals.kind == "gamma" else 1.0
    low, high = (
        {"workload.arrivals": {"kind": "gamma", "rate": arrivals.rate, "cv": now * end}}
        for end in ends
    )
    texts = f"CV {now * ends[0]:g}", f"CV {now * ends[1]:g}"
    return Input("burstiness", TITLES["burstiness"], low, high, texts)


def _acceptance(scenario: Scenario, ends: tuple[float, float]) -> Input:
    guesses = scenario.speculative
    if guesses is None:
        return _none("acceptance", "nothing is speculated in this scenario")
    low, high = (_accepted(guesses.rates_of_drafts(), end) for end in ends)
    if guesses.match_rate is not None:
        for changes, end in zip((low, high), ends, strict=True):
            changes["speculative.match_rate"] = min(1.0, guesses.match_rate * end)
    return Input("acceptance", TITLES["acceptance"], low, high, _texts(ends))


def _accepted(rates: Sequence[float], end: float) -> dict[str, object]:
    """Drafts that are right ``end`` times as often, given that those before them were."""
    given = [rate / before if before else 0.0 for before, rate in pairwise((1.0, *rates))]
    scaled = accumulate((min(1.0, each * end) for each in given), mul)
    return {
        "speculative.acceptance": {"rates": [max(rate, 1e-9) for rate in scaled]},
        "speculative.acceptance_rate": None,
    }


def _skew(scenario: Scenario, ends: tuple[float, float]) -> Input:
    """How unevenly experts are chosen: around what is given, else from even to steep."""
    name, key, now = "expert_skew", "model.expert_skew", scenario.model.expert_skew
    if not catalog.model(scenario.model.path, scenario.base).has_experts:
        return _none(name, "the model has no experts")
    if not now:
        why = "nothing is less skewed than experts chosen equally often"
        return Input(name, TITLES[name], None, {key: STEEP}, ("", f"{STEEP:g}"), why)
    low, high = (min(now * end, STEEPEST) for end in ends)
    return Input(name, TITLES[name], {key: low}, {key: high}, (f"{low:.3g}", f"{high:.3g}"))


def _link(scenario: Scenario, ends: tuple[float, float], *, chosen: bool) -> Input:
    """The bandwidth between GPUs; of cards on PCIe of which nothing says whether they reach each
    other, unless a range is ``chosen``, both cases."""
    name, pools = "link", [pool for pool in scenario.pools if pool.layout.linked]
    if not pools:
        return _none(name, "each replica has one GPU")
    unsaid = [
        pool
        for pool in pools
        if catalog.gpu(pool.gpu, scenario.base).link.kind == "pcie"
        and (pool.link is None or (pool.link.kind == "pcie" and pool.link.peer_to_peer is None))
    ]
    if not unsaid or chosen:
        return _factor(scenario, name, ends)
    apart, direct = (
        {pool.key("link"): {"kind": "pcie", "peer_to_peer": each} for pool in unsaid}
        for each in (False, True)
    )
    texts = ("through the host", "peer to peer")
    return Input(name, TITLES[name], apart, direct, texts)


def read_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The ranges in these ``name=low:high``; UsageError for what is none, or given twice."""
    found: dict[str, tuple[float, float]] = {}
    for name, ends in map(read_range, texts):
        if name in found:
            raise UsageError(f"--range {name}: is given twice")
        found[name] = ends
    return found


def read_range(text: str) -> tuple[str, tuple[float, float]]:
    """``name=low:high``, such as ``host_time=0.5:2``; UsageError for anything else.

    >>> read_range("host_time=0.5:2")
    ('host_time', (0.5, 2.0))
    """
    name, equals, ends = text.partition("=")
    low, colon, high = ends.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (0.0, 0.0)
    if not (equals and colon) or not 0 < found[0] <= found[1] < float("inf"):
        raise UsageError(
            f"--range {text}: give an input and two factors above 0, the lower one first, such as "
            "host_time=0.5:2"
        )
    return name.strip(), found
