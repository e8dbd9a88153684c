"""Says how far a figure of a run may be off, and why so far.

How far follows from published runs that were compared (``sim.catalog.spreads``): the less is known,
the further the run is from those. Three things add to that because they decide and no published run
shows them: kernels in shapes that were not measured on the GPU, links between cards that nothing
states, and the chance of one run. Bands are relative: of one hundred measurements under conditions
as stated the 90 % band is meant to hold ninety, the 50 % band fifty.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sim.catalog.spreads import Deployed, ExpectedError, learnt, place
from sim.metrics.question.question_text import driven_by
from sim.metrics.record.links import OpenLinks
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State

LEVELS = ("band50", "band90")

WITHIN, KERNELS, CHANCE, LINKS, LEAN = "this run", "kernels", "chance", "links", "usual bias"
"""Parts of a band next to those of ``sim.catalog.spreads.PARTS``."""

UNMEASURED = 0.25
"""Standard deviation of the logarithm of times of kernels that were not measured on a GPU: 15 to
30 % by which one measured GPU predicts another (``sim.cost.trust``)."""

TRANSFERRED = 0.15
"""Standard deviation of the logarithm of times of kernels that were measured on a relative of the
GPU: passes of timed parts, each described by one of another chip, are 10 % off in the median; by
one of the same chip 2 % (``calibrate.left_out``)."""

LARGEST = 30.0
"""No figure is said to be off by more than e to this power: what is wider says nothing."""


class Question(NamedTuple):
    """Of a run what decides how far its figures may be off: its ``place``, how requests are
    ``driven``, whether the model has ``experts``, the standard deviation that its own kernels add
    to the times of those that were compared (``kernels``), whether its engine was fitted to runs of
    one's ``own``, whether more comes than it can serve (``full``), and the part that its kernels
    were measured on where it is a ``relative`` of its GPU."""

    place: Deployed
    driven: str
    experts: bool
    kernels: float = 0.0
    own: bool = False
    full: bool = False
    relative: str = ""

    @property
    def compared(self) -> bool:
        """Whether runs of this engine on this GPU were compared, of any model."""
        return self.own or learnt().compared(engine=self.place.engine, gpu=self.place.gpu)


def question(run: RunRecord, state: str = "") -> Question:
    """The question that ``run`` answers; of several pools that of the one whose token times are
    the least known. ``state`` is that of its verdict."""
    driven = driven_by(run.scenario)
    if any(pool.settings.role == "decode" for pool in run.pools):
        driven = APART
    found = []
    for pool in run.pools:
        d = pool.deployment
        experts = d.model.has_experts
        where = place(
            d.engine.origin or d.engine.name,
            d.gpu.compared_as,
            d.model.name,
            _model(experts),
            d.engine.release,
        )
        own = bool(d.engine.fitted_to)
        full = state in (State.OVERLOADED, State.NEAR_SATURATION)
        compared = learnt().compared(gpu=where.gpu)
        relative = "" if d.gpu.profile is None else d.gpu.profile.relative
        kernels = _kernels(run, compared=compared, transferred=bool(relative))
        found.append(Question(where, driven, experts, kernels, own, full, relative))
    return max(found, key=lambda each: reach("mean_tpot_ms", each).ninety)


def _kernels(run: RunRecord, *, compared: bool, transferred: bool) -> float:
    """The standard deviation of the times of the run's kernels: of those in shapes that were not
    measured, of those that are ``transferred`` from a relative, and on a GPU of which no run was
    ``compared`` what its own measurements say."""
    kernels = run.attribution.kernels
    if kernels <= 0:
        return 0.0
    unmeasured = max(0.0, 1.0 - run.attribution.measured / kernels)
    own = 0.0 if compared else sum(run.attribution.errors.values()) / kernels
    known = TRANSFERRED * (1.0 - unmeasured) if transferred else 0.0
    return math.hypot(UNMEASURED * unmeasured, known, own)


def kind(key: str, at: Question) -> str:
    """The kind of the figure ``key`` of a summary, as ``spreads.yaml`` names it. Times between
    tokens are those of full iterations, however requests come; only workers that prefill and decode
    apart have others.

    >>> here = place("vllm", "l4", "qwen3-8b", "dense")
    >>> kind("p99_tpot_ms", Question(here, "closed loop", False))
    'tpot, dense'
    >>> kind("p99_ttft_ms", Question(here, "closed loop", False))
    'ttft, closed loop, dense'
    >>> kind("output_throughput", Question(here, "online", False, full=True))
    'rate, offline, dense'
    """
    parts = key.split("_")
    quantity = parts[1] if parts[-1] == "ms" else "rate"
    driven = at.driven
    if quantity == "rate" and (key == "capacity" or (at.full and driven == "online")):
        driven = "offline"
    if quantity in OF_TOKENS and driven != APART:
        return f"{quantity}, {_model(at.experts)}"
    return f"{quantity}, {driven}, {_model(at.experts)}"


OF_TOKENS = frozenset({"tpot", "itl", "e2el"})
"""Quantities that times between tokens decide."""

SERVED = "rate, online"
"""The first words of the kinds of throughput that arrivals set."""

APART = "apart"
"""How requests come where workers prefill and decode apart."""


def _model(experts: bool) -> str:
    return "experts" if experts else "dense"


class Reach(NamedTuple):
    """How far a figure may be off (logarithms): where its measurements are expected (``centre``),
    how far from there those of a 50 % (``half``) and of a 90 % band (``ninety``) lie, and the
    standard deviation of each part."""

    centre: float
    half: float
    ninety: float
    parts: Mapping[str, float]

    def ends(self, level: str) -> tuple[float, float]:
        """How far down and up the band of that level (of ``LEVELS``) reaches, both 0 or more."""
        width = self.half if level == "band50" else self.ninety
        return max(0.0, width - self.centre), max(0.0, width + self.centre)


def reach(key: str, at: Question, without: Deployed | None = None) -> Reach:
    """The reach of the figure ``key``; as if the deployment of ``without`` had not been
    compared."""
    expected = learnt().expected(at.place, kind(key, at), without=without, own=at.own)
    return reach_of(kind(key, at), expected, at.kernels)


def reach_of(of: str, expected: ExpectedError, kernels: float) -> Reach:
    """The reach of a figure of the kind ``of`` with such an error, to which the run's own
    ``kernels`` add where not arrivals decide it."""
    parts = {**expected.common, WITHIN: expected.within}
    if kernels and not of.startswith(SERVED):
        parts[KERNELS] = kernels
    spread = math.sqrt(sum(each**2 for each in parts.values()))
    half, ninety = (min(each * spread, LARGEST) for each in expected.multiples)
    return Reach(expected.centre, half, ninety, parts)


def shares(parts: Mapping[str, float], ninety: float, centre: float = 0.0) -> dict[str, float]:
    """By how much each part alone may make a figure larger with a chance of 90 %, the largest
    first: the parts of a band that reaches ``ninety`` to either side of its ``centre``. Where that
    is not the prediction, its wider side has a ``LEAN``."""
    whole = math.sqrt(sum(each**2 for each in parts.values()))
    reach = {name: ninety * each / whole for name, each in parts.items()}
    reach[LEAN] = math.sqrt((ninety + abs(centre)) ** 2 - ninety**2)
    order = sorted(reach.items(), key=lambda item: -item[1])
    return {name: math.expm1(each) for name, each in order if each > 0}


def with_longer(
    parts: dict[str, float], reach: float, links: OpenLinks | None
) -> tuple[dict[str, float], float]:
    """The parts of a band and how far it reaches to the side of longer times, where cards may reach
    each other otherwise than assumed: by as much as iterations are longer then."""
    if links is None or links.slower <= 0:
        return parts, reach
    further = reach + math.log1p(links.slower)
    return parts | {LINKS: math.expm1(math.sqrt(further**2 - reach**2))}, further


def half_of(error: float) -> float:
    """The 50 % band of times whose 90 % band reaches to ``error`` (both as shares).

    >>> 0 < half_of(0.2) < 0.2
    True
    """
    half, ninety = learnt().multiples["tpot"]
    return math.expm1(math.log1p(error) * half / ninety)


def without(parts: Mapping[str, float], known: Collection[str]) -> float:
    """The width of a band of such ``parts`` if those were ``known`` exactly.

    >>> round(without({"kernels": 0.3, "engine": 0.1}, ["kernels"]), 3)
    0.1
    """
    rest = sum(math.log1p(share) ** 2 for part, share in parts.items() if part not in known)
    return math.expm1(math.sqrt(rest))


def band(value: float, down: float, up: float) -> tuple[float, float]:
    """The values that are by a factor of e to the power ``down`` smaller, and ``up`` larger.

    >>> low, high = band(100.0, 0.1, 0.2)
    >>> round(low, 1), round(high, 1)
    (90.5, 122.1)
    """
    return value / math.exp(min(down, LARGEST)), value * math.exp(min(up, LARGEST))
