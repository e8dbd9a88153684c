"""Enumerates the layouts of a replica and rejects those that analysis alone rules out.

The analytic screening: what does not fit, cannot be shared out, rejects too many requests, or is
too slow even for a request that has the replica for itself; and for the rest, how many replicas are
needed *at least*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim import catalog
from sim.cost import missing_format
from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.metrics.fleet.rejection import Rejection, SpareRate, foreseen, room_of
from sim.metrics.latency.intervals import wilson
from sim.metrics.slo.objectives import Objective
from sim.metrics.words.slo_text import within
from sim.planning.fits import most_of
from sim.planning.fleet.constraints import UNCONSTRAINED, Constraints
from sim.planning.load.loads import Scale, Traffic, traffic_of
from sim.planning.load.saturation import Alone, acceptable, alone, saturation
from sim.planning.points.points import Settings
from sim.planning.points.wording import counted, limit_name, share
from sim.pools import PreparedPool
from sim.scenario import Scenario
from sim.scenario.prices import price_of
from sim.setup import prepare
from sim.specs.gpu import GpuSpec
from sim.specs.precision import formats_of
from sim.units import show_load, show_time


def small_cache(pool: PreparedPool) -> str:
    """The sentence on a KV cache that cannot hold one request of ``max_model_len`` tokens; empty
    where it can."""
    longest = pool.limits.max_model_len
    if pool.capacity.holds(longest):
        return ""
    return (
        f"the KV cache holds {pool.kv_longest:,} tokens for requests, less than max_model_len "
        f"({longest:,}), so vLLM would refuse to start without more memory or a lower max_model_len"
    )


def too_many_rejected(
    traffic: Traffic, room: SpareRate, objectives: Sequence[Objective]
) -> Rejection | None:
    """The requests that a replica rejects, if they are more than some part of the SLO allows."""
    found = foreseen(traffic.prompts + traffic.outputs, room)
    if found is None:
        return None
    accepted = wilson(1 - found.share, found.requests)[1]
    return found if any(accepted < objective.share for objective in objectives) else None


SLACK = 1.2
"""By how much a fleet may serve more than predicted for its full batches: those are within 6 % of
what simulated ones serve, and this must never rule out a fleet that holds."""

ALONE_SLACK = 1.1
"""By how much lone requests may miss a latency limit before a layout is ruled out."""

OWN_SIZES = (1, 2, 4, 8)
"""GPUs that share each layer in the layouts that are searched where none are asked for."""

REJECTS, SMALL_CACHE = "requests rejected", "KV cache too small"
"""Reasons that come before any about speed: no faster GPU would help."""

BEFORE_SPEED = (REJECTS, "constraint", "no price", "cannot be simulated")
"""Reasons that stand whatever the size of the KV cache."""


@dataclass(frozen=True)
class Candidate:
    """One replica: that many of one GPU, in one precision (None: the scenario's own).

    ``whole_experts`` says whether each GPU has whole experts (None: as the scenario has it).
    """

    gpu: str
    tensor_parallel: int
    precision: str | None
    data_parallel: int = 1
    whole_experts: bool | None = None
    pipeline_parallel: int = 1
    layer_split: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        ranks = self.tensor_parallel * self.data_parallel
        return ranks * self.pipeline_parallel * self.layer_split

    @property
    def text(self) -> str:
        """``4 x h100-sxm, fp8`` or ``8 x h200-sxm (TP 2 x DP 4, EP)``."""
        ways = []
        parts = {"PP": self.pipeline_parallel, "DP": self.data_parallel}
        if others := [f"{name} {count}" for name, count in parts.items() if count > 1]:
            tensor = [f"TP {self.tensor_parallel}"] if self.tensor_parallel > 1 else []
            ways.append(" x ".join([*tensor, *others]))
        if self.whole_experts:
            ways.append("EP")
        spread = f" ({', '.join(ways)})" if ways else ""
        told = "" if self.precision is None else f", {self.precision}"
        return f"{self.gpus} x {self.gpu}{spread}{told}"

    def document(self) -> dict[str, Any]:
        """The layout as plain data."""
        return {
            "layout": self.text,
            "gpu": self.gpu,
            "tensor_parallel": self.tensor_parallel,
            "data_parallel": self.data_parallel,
            "pipeline_parallel": self.pipeline_parallel,
            "expert_parallel": self.whole_experts,
            "precision": self.precision,
        }

    def format_note(self, scenario: Scenario) -> str | None:
        """Note on a number format that the GPU lacks; None where it has it."""
        asked = scenario.override(_precision(self.precision))
        stored = asked.precision.experts or asked.precision.weights
        return missing_format(self.gpu_of(asked), stored, asked.precision.activations)

    def gpu_of(self, scenario: Scenario) -> GpuSpec:
        """Its GPU, as kernels of the scenario's engine use it."""
        kernels = catalog.engine(scenario.engine, scenario.base).kernels
        return catalog.gpu(self.gpu, scenario.base, kernels)

    def settings(self, scenario: Scenario) -> Settings:
        """Settings that make the replica of ``scenario`` one of these."""
        pool = scenario.only_pool
        changes: dict[str, object] = {
            pool.key("gpu"): self.gpu,
            pool.key("tensor_parallel"): self.tensor_parallel,
            pool.key("replicas"): 1,
        }
        if self.data_parallel != pool.layout.data:
            changes[pool.key("data_parallel")] = self.data_parallel
        if self.pipeline_parallel != pool.layout.pipeline:
            changes[pool.key("pipeline_parallel")] = self.pipeline_parallel
        if self.whole_experts is not None:
            changes[pool.key("expert_parallel")] = self.whole_experts
        elif self.tensor_parallel * self.data_parallel == 1 and pool.layout.expert > 1:
            changes[pool.key("expert_parallel")] = False
        if self.gpu != pool.gpu:  # what is said of another GPU and of its host
            changes |= {pool.key(key): None for key in pool.of_the_gpu()}
        by_gpu = isinstance(pool.price_per_gpu_hour, dict)
        if self.gpu != pool.gpu and not by_gpu:
            changes[pool.key("price_per_gpu_hour")] = "catalogue"  # its price is of another GPU
        if pool.kv_cache.num_gpu_blocks is not None:
            changes["kv_cache.num_gpu_blocks"] = None  # those of another layout
        return changes | _precision(self.precision)


@dataclass(frozen=True)
class FleetQuestion:
    """``rate`` in requests per second, ``headroom`` the share by which fleets must hold more;
    ``scale`` says how a trace gets that load."""

    layouts: tuple[Candidate, ...]
    rate: float
    headroom: float
    top: int
    constraints: Constraints = UNCONSTRAINED
    scale: Scale = "compress"

    @property
    def target(self) -> float:
        """Requests per second that a fleet must hold."""
        return self.rate * (1 + self.headroom)


def _precision(name: str | None) -> dict[str, object]:
    """The settings of a precision; none for that of the scenario itself."""
    given = {} if name is None else formats_of(name)
    return {f"precision.{key}": value for key, value in given.items()}


ALL = "all"
"""The choice of every GPU of the catalogue that has a price."""


def cards(scenario: Scenario, gpus: Sequence[str]) -> list[str]:
    """``gpus``; for ``ALL`` alone every one of the catalogue whose price is listed."""
    if list(gpus) != [ALL]:
        return list(gpus)
    kernels = catalog.engine(scenario.only_pool.engine, scenario.base).kernels
    every = catalog.names("gpus")
    return [name for name in every if catalog.gpu(name, kernels=kernels).price is not None]


def layouts(
    scenario: Scenario,
    gpus: Sequence[str],
    tensor_parallel: Sequence[int],
    precisions: Sequence[str],
    data_parallel: Sequence[int] = (),
    whole_experts: Sequence[bool] = (),
    pipeline_parallel: Sequence[int] = (),
) -> list[Candidate]:
    """All those of ``cards``, each once; UsageError for a GPU or a precision that does not exist.

    Without ``tensor_parallel`` there are all ``OWN_SIZES`` that keep a replica within a node.
    Without ``data_parallel`` or ``pipeline_parallel`` there are as many data ranks or stages as the
    scenario has; data ranks are not combined with stages. Without ``whole_experts`` a model with
    experts gets both kinds wherever GPUs share them.
    """
    gpus = cards(scenario, gpus)
    for precision in precisions:
        scenario.override(_precision(precision))
    kernels = catalog.engine(scenario.only_pool.engine, scenario.base).kernels
    most = {gpu: most_of(catalog.gpu(gpu, scenario.base, kernels)) for gpu in gpus}
    kinds: Sequence[str | None] = precisions or [None]
    ranks = data_parallel or [scenario.only_pool.layout.data]
    stages = pipeline_parallel or [scenario.only_pool.layout.pipeline]
    split = scenario.only_pool.layout.split
    has_experts = catalog.model(scenario.model.path, scenario.base).has_experts
    made = [
        Candidate(gpu, tp, kind, dp, whole, pp, split)
        for gpu in gpus
        for kind in kinds
        for tp in tensor_parallel or OWN_SIZES
        for pp in stages
        for dp in ranks
        if pp == 1 or dp == 1
        if tensor_parallel or tp == 1 or tp * pp * dp <= most[gpu]
        for whole in _experts(whole_experts, shared=has_experts and tp * dp > 1)
    ]
    return list(dict.fromkeys(made))


def _experts(asked: Sequence[bool], *, shared: bool) -> Sequence[bool | None]:
    """How the experts of a layout may be spread; as the scenario says where there is no choice."""
    if not shared:
        return [None]
    return asked or [False, True]


@dataclass(frozen=True)
class Rejected:
    """A layout that is no answer: ``reason`` in two or three words, ``text`` with the figures;
    ``cost`` is what its fleet would cost per hour at least, where that is known;
    ``unsimulated`` if that is a bound which no simulation confirmed."""

    layout: Candidate
    reason: str
    text: str
    cost: float | None = None
    unsimulated: bool = False

    def noted(self, note: str) -> Rejected:
        """The rejection with ``note`` on its KV cache, if there is one, before what it says of
        speed."""
        if not note:
            return self
        reason = self.reason if self.reason in BEFORE_SPEED else SMALL_CACHE
        return replace(self, reason=reason, text=f"{note}; {self.text}")

    def document(self) -> dict[str, Any]:
        """The rejection as plain data."""
        said = {"reason": self.reason, "text": self.text, "usd_per_hour": self.cost}
        return self.layout.document() | said


@dataclass(frozen=True)
class Screened:
    """A layout that may hold the load: ``price`` of a replica in USD per hour, ``rate`` that it
    cannot exceed, and so the ``least`` replicas that the fleet has. ``note`` says that its KV cache
    is small.
    """

    layout: Candidate
    price: float
    rate: float
    least: int
    note: str = ""

    @property
    def cost(self) -> float:
        """USD per hour of the fleet, at least."""
        return self.price * self.least


def screen(
    scenario: Scenario,
    layout: Candidate,
    target: float,
    objectives: Sequence[Objective],
    constraints: Constraints,
) -> Screened | Rejected:
    """Whether a fleet of ``layout`` may hold ``target`` requests per second."""
    try:
        asked = scenario.override(layout.settings(scenario))
        pool, everything = prepare(asked).only, traffic_of(asked)
        traffic = acceptable(pool, everything)
    except InfeasibleError as error:
        return Rejected(layout, "does not fit", str(error))
    except UsageError as error:
        return Rejected(layout, "layout impossible", str(error))
    except InfersimError as error:
        return Rejected(layout, "cannot be simulated", str(error))
    price = _price(pool)
    if price is None:
        return _unpriced(layout)
    note = small_cache(pool)
    broken = _refusing(layout, too_many_rejected(everything, room_of([pool]), objectives), price)
    if broken is None and not pool.policy.shape.whole:
        broken = _slow_alone(layout, objectives, alone(pool, traffic), price)
    if broken is not None:
        return broken.noted(note)
    rate = SLACK * saturation(pool, traffic).rate
    found = Screened(layout, price, rate, math.ceil(target / rate), note)
    return _affordable(found, constraints)


def _unpriced(layout: Candidate) -> Rejected:
    """Rejected since nothing says what the GPUs cost."""
    text = (
        f"nothing says what {layout.gpu} costs; give its fleet.0.price_per_gpu_hour or the "
        "price_per_hour of its file"
    )
    return Rejected(layout, "no price", text)


def _refusing(layout: Candidate, found: Rejection | None, price: float) -> Rejected | None:
    """Rejected for the requests that its replicas would reject."""
    if found is None:
        return None
    cure = f"; {found.remedy}" if found.remedy else ""
    return Rejected(layout, REJECTS, f"{found.text}{cure}", price)


def _slow_alone(
    layout: Candidate, objectives: Sequence[Objective], lone: Alone, price: float
) -> Rejected | None:
    """Rejected where even lone requests miss the SLO beyond doubt."""
    for objective in objectives:
        relaxed = Objective(
            {name: ALONE_SLACK * limit for name, limit in objective.limits.items()}, objective.share
        )
        if wilson(lone.keeping(relaxed), len(lone.ttft))[1] < objective.share:
            return _too_slow(layout, objective, lone, price)
    return None


def _too_slow(layout: Candidate, objective: Objective, lone: Alone, price: float) -> Rejected:
    """Rejected for the limit that the fewest lone requests meet."""
    kept = {
        name: lone.keeping(Objective({name: limit}, objective.share))
        for name, limit in objective.limits.items()
    }
    worst = min(kept, key=lambda name: kept[name])
    name = limit_name(worst)
    text = (
        f"{within(kept[worst], share(kept[worst]), enough=False)} within {name} "
        f"{show_time(objective.limits[worst])} even when each has the replica for itself; the SLO "
        f"asks for {share(objective.share)}"
    )
    return Rejected(layout, f"{name} missed at any load", text, price)


def _affordable(found: Screened, constraints: Constraints) -> Screened | Rejected:
    """Rejected where even the least fleet breaks a constraint."""
    broken = next(over_budget(found.layout, found.least, found.price, constraints), None)
    if broken is None:
        return found
    text = f"at {show_load(found.rate, 3)} requests/s a replica, more than it can serve, {broken}"
    return Rejected(found.layout, "constraint", text, found.cost).noted(found.note)


def over_budget(
    layout: Candidate, replicas: int, price: float, constraints: Constraints
) -> Iterator[str]:
    """The constraints of size and cost that a fleet breaks, in words."""
    cost, gpus = price * replicas, replicas * layout.gpus
    fleet = f"{counted(replicas, 'replica')} {'takes' if replicas == 1 else 'take'}"
    if constraints.cost is not None and cost > constraints.cost:
        yield f"{fleet} ${cost:,.2f}/h, more than ${constraints.cost:,.2f}/h"
    if constraints.gpus is not None and gpus > constraints.gpus:
        yield f"{fleet} {counted(gpus, 'GPU')}, more than {constraints.gpus:,}"
    if constraints.replicas is not None and replicas > constraints.replicas:
        yield f"{counted(replicas, 'replica')} needed, more than {constraints.replicas:,}"


def _price(pool: PreparedPool) -> float | None:
    """USD per hour of one replica."""
    price = price_of(pool.settings, pool.deployment.gpu)
    return None if price is None else price.usd * pool.deployment.layout.gpus
