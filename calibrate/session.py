"""Brings device, families, plan, store and fit together in one calibration.

The composition root of measuring, without anything of the command line: ``prepare`` checks all
there is to check, ``measure`` takes the time, ``fit`` writes the profile.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrate import only
from calibrate.bench import families, vllm_cpu
from calibrate.bench.arena import Arena
from calibrate.bench.base import Family, Kernels, Scope, UnsupportedError
from calibrate.bench.gemm import PRECISIONS
from calibrate.bench.of_model import check_measured
from calibrate.dense import dense_layer
from calibrate.device import Device, DeviceFacts, open_device
from calibrate.measurement_store import MeasurementStore, now
from calibrate.measurements import Measurement, MeasurementTable, facts_of, read, read_meta
from calibrate.plan import CalibrationPlan, crude_rates
from calibrate.settle import settled
from calibrate.stability import MOST, Steadiness, drift, noise, steadiness, sums
from calibrate.suite import ANCHORED, Bench, Report, Suite, SuitePace
from calibrate.timing import timer_for
from sim import catalog
from sim.errors import InfersimError, UsageError, did_you_mean
from sim.specs.model import ModelSpec
from sim.specs.profile import Profile

BUDGETS = {"cuda": 300.0, "cpu": 230.0}
"""Seconds measured for when nothing else is asked, a quarter of them for experts, latent attention
and windows. An H200 times some 5,000 points in three minutes."""

MODELS = {
    "cuda": ("llama-3.1-8b", "llama-3.2-1b", "qwen2.5-7b", "llama-3.1-70b"),
    "cpu": ("llama-3.2-1b", "llama-3.1-8b"),
}
"""Models whose layers are measured when none are named: small, common and large ones."""

DEFAULT_PRECISIONS = {"cuda": ("bf16", "fp8", "int8", "fp16"), "cpu": ("bf16", "fp32")}
"""On a GPU no products of weights in 8 or 4 bits with activations in 16: PyTorch's are not those of
engines. On an H200, 640 rows by 2048 x 1536 take 4.5 ms with int8 weights, a thousand times as long
as their traffic, and 512 rows by 14336 x 6144 take 3 ms with int4 weights, made for single rows."""

FIRST_PASS = {"cuda": 0.85, "cpu": 0.5}
"""Share of the budget for new points; the rest is for timing them once more. On a CPU, which is
shared and changes its clock, that makes a fit better than more points would."""

RANKED: dict[str, frozenset[str]] = {"cuda": frozenset(), "cpu": frozenset(["m"])}
"""Variables of which every offered value is to be met: the library of a CPU has other kernels for
7 rows than for 8."""

SHARED_BY: dict[str, tuple[int, ...]] = {"cuda": (1, 2, 4, 8), "cpu": (1,)}
"""Over how many devices the models' layers are shared out: on a CPU they are whole, and parts of
them would take the time that every number of rows needs."""

LEAST_BUDGET = 1.0
MOVING = ("memory", "memory_read", "norm", "activation", "rotary", "embedding")
"""Operators of which one has to be measured on a device that the catalogue does not know."""

MEMORY_SHARE = 0.6
"""Of the memory free at the start, what points may plan with: there are pools of several types, and
a CPU is shared."""


SPARED = 0.85
"""Of the memory free at the start, what measuring on a CPU may take in all."""


class WriteProfile(Protocol):
    """Fits every form to the measurements and writes the profile."""

    def __call__(
        self,
        measurements: Sequence[Measurement],
        device: DeviceFacts,
        path: Path,
        *,
        drift: float = 0.0,
    ) -> Profile:
        """The profile that was written to ``path``; ``drift`` widens its errors."""
        ...


class UnsteadyError(InfersimError):
    """The machine differed from itself too much while it was measured; the table is kept."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """The request of a calibration; None and empty stand for the device's defaults. Seconds."""

    device: str
    measurements: Path
    models: Sequence[str] = ()
    precisions: Sequence[str] = ()
    budget: float | None = None
    threads: int | None = None
    resume: bool = False
    scratch: Path = Path()
    kernels: Kernels = "torch"
    only: Sequence[str] = ()
    fitted: bool = True


@dataclass(frozen=True, slots=True)
class Session:
    """Everything needed to measure; weights are ``packed`` where an engine packs its own."""

    device: Device
    plan: CalibrationPlan
    owners: Mapping[str, Family]
    store: MeasurementStore
    models: Sequence[ModelSpec]
    anchored: frozenset[str]
    packed: bool = False


def prepare(request: CalibrationRequest) -> Session:
    """Open the device and the table, choose the points. UsageError for whatever is not right."""
    precisions = [_precision(name) for name in request.precisions]
    models = [catalog.model(name) for name in request.models]
    if request.budget is not None and request.budget < LEAST_BUDGET:
        raise UsageError(f"--time-budget: expected at least {LEAST_BUDGET:.0f} s")
    for model in models:
        check_measured(model)
    _check_kernels(request, models)
    own = request.kernels == "torch"
    device = open_device(request.device, request.threads, huge_pages=own)
    kind = device.facts.kind
    models = models or [catalog.model(name) for name in MODELS[kind]]
    scope = Scope(
        kind=kind,
        memory=MEMORY_SHARE * device.free_memory(),
        devices=int(device.facts.details.get("devices", "1")),
        models=models,
        precisions=precisions or DEFAULT_PRECISIONS[kind],
        scratch=str(request.scratch),
        tensor_parallel=SHARED_BY[kind],
        kernels=request.kernels,
    )
    found = families(scope)
    shares = {name: share for family in found for name, share in family.shares.items()}
    operators = only.chosen(request.only, shares)
    if request.fitted and not request.resume:
        only.check_ceilings(operators, device.facts, MOVING)
    budget = request.budget or only.budget(BUDGETS[kind], operators, shares)
    context = {
        "models": [model.name for model in models],
        "precisions": list(scope.precisions),
        "time_budget_s": budget,
        "kernels": request.kernels,
        "processors": os.cpu_count(),
    }
    store = MeasurementStore(request.measurements, device.facts, context, resume=request.resume)
    plan = CalibrationPlan(
        points=(
            point
            for family in found
            for point in family.points(scope)
            if point.memory <= scope.memory and point.operator in operators
        ),
        shares=shares,
        rates=crude_rates(kind, device.facts.units, device.facts.cache),
        budget=budget,
        done=frozenset(row.key for row in store.table.rows if not row.purpose),
        ranked=RANKED[kind],
    )
    owners = {name: family for family in found for name in family.shares}
    anchored = operators.intersection(ANCHORED) or operators
    return Session(device, plan, owners, store, models, anchored, packed=not own)


def _check_kernels(request: CalibrationRequest, models: Sequence[ModelSpec]) -> None:
    """Raise UsageError where the kernels asked for are not here, or are not those of before."""
    if request.resume and request.measurements.exists():
        before = read_meta(request.measurements).get("kernels", "torch")
        if before != request.kernels:
            raise UsageError(
                f"--resume: {request.measurements} holds timings of {before}'s kernels, not of "
                f"{request.kernels}'s; give another table"
            )
    if request.kernels == "torch":
        return
    if request.device != "cpu":
        raise UsageError(f"--kernels {request.kernels}: works only on a CPU so far")
    for model in models:
        dense_layer(model)
    try:
        vllm_cpu.operators()
    except UnsupportedError as error:
        raise UsageError(f"--kernels {request.kernels}: {error}") from None


def measure(session: Session, report: Report) -> MeasurementTable:
    """Measure until the budget is used; the table of everything measured, earlier runs included.

    Whatever ends it, the store is closed and says so.
    """
    device, store = session.device, session.store
    arena = Arena(device)
    suite = Suite(
        session.plan,
        session.owners,
        Bench(device, arena),
        timer_for(device, packed=session.packed),
        store,
        report=report,
        pace=SuitePace(FIRST_PASS[device.facts.kind], anchored=session.anchored),
    )
    ended = "interrupted"
    try:
        with _limited_memory(device):
            suite.run()
        ended = "finished"
    finally:
        store.note(ended=ended, finished=now(), **_agreement(store.table, session.models))
        store.close()
        arena.release()
    return store.table


@contextmanager
def _limited_memory(device: Device) -> Iterator[None]:
    """Let a point that needs more than most of a CPU's free memory fail, rather than have the
    system kill the process. Where there are no such limits (not on Linux) nothing is done."""
    if device.facts.kind != "cpu" or sys.platform != "linux":
        yield
        return
    resource = importlib.import_module("resource")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + int(SPARED * device.free_memory())
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = min(limit, *(v for v in (before, hard) if v != resource.RLIM_INFINITY), limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def _agreement(table: MeasurementTable, models: Sequence[ModelSpec]) -> dict[str, object]:
    """Noise, drift and sums of parts for the meta file."""
    return {
        "noise": {e.operator: [e.median, e.p90, e.points] for e in noise(table)},
        "drift": {e.operator: e.change for e in drift(table)},
        "wandered": steadiness(table).drift,
        "layers": [[e.operator, e.variant, e.shape, e.excess] for e in sums(table, models)],
    }


def load_fit() -> WriteProfile:
    """The function that fits and writes profiles; UsageError if it lacks a package."""
    try:
        module = importlib.import_module("calibrate.profile")
    except ImportError as error:
        raise UsageError(
            f"fitting needs {error.name}, which cannot be imported; install infersim[calibrate], "
            "or measure with --no-fit and fit elsewhere"
        ) from None
    write: WriteProfile = module.write_profile
    return write


def fit(
    measurements: Path, out: Path, write: WriteProfile, *, accept_drift: bool = False
) -> tuple[Profile, MeasurementTable]:
    """Fit a table measured earlier, on any machine, and write the profile to ``out``.

    UnsteadyError, and no profile, where the machine drifted or was disturbed too much; with
    ``accept_drift`` a profile all the same, whose errors say so.
    """
    table = read(measurements)
    usable = settled(table)
    if not usable:
        raise UsageError(f"{measurements}: holds no timing to fit")
    found = steadiness(table)
    if found.problems and not accept_drift:
        raise UnsteadyError(_unsteady(measurements, found))
    return write(usable, facts_of(measurements), out, drift=found.drift), table


def _unsteady(measurements: Path, found: Steadiness) -> str:
    """Why there is no profile, and what to do about it."""
    meta = read_meta(measurements)
    load = (meta["device"].get("details") or {}).get("load")
    processors = meta.get("processors")
    busy = f"; its load was {load} when it began" if load is not None else ""
    busy += f", on {processors} processors" if busy and processors else ""
    again = f"infersim calibrate fit {measurements} --accept-drift"
    return (
        "no profile is written: the machine was busy or not steady: "
        f"{' and '.join(found.problems)}{busy}. Beyond {MOST:.1%} a profile is worth no more than "
        f"no calibration. The measurements are in {measurements}. Measure again when the "
        f"machine is idle (under another name, or after removing that file); or run `{again}` "
        "for a profile whose predictions include the drift in their error"
    )


NEEDED = ("gemm", "decode_attention", "prefill_attention")
"""Operators that take most of the time of any iteration."""


def doubts(profile: Profile, measurements: Path) -> list[str]:
    """Why predictions with ``profile`` are worth little, in words; empty if they are not: errors on
    held-out shapes beyond those of a GPU that was not measured, or operators without any."""
    bad = [
        f"{operator} in {precision} {fit.holdout.median:.0%} "
        f"(90th percentile {fit.holdout.p90:.0%})"
        for operator, fits in profile.kernels.items()
        for precision, fit in fits.items()
        if fit.holdout.median > MOST
    ]
    lacking = [name for name in NEEDED if name not in profile.kernels]
    found = []
    if bad:
        found.append(
            f"the errors on shapes held out of the fit are large: {', '.join(bad)}, where a device "
            f"that was not measured is predicted with about {MOST:.1%}"
        )
    if len(lacking) > 1:
        found.append(
            f"too few points of {' and '.join(lacking)} were measured to fit them: they are "
            "predicted without any measurement"
        )
    if not found:
        return []
    return [
        *found,
        f"few points or a busy machine{_load(measurements)} are the usual reasons: measure for "
        "longer (--time-budget) on an idle machine; until then the error band of runs is wider",
    ]


def _load(measurements: Path) -> str:
    """The load when the measurement began, in brackets; empty where it is not known."""
    meta = read_meta(measurements)
    load = (meta["device"].get("details") or {}).get("load")
    processors = meta.get("processors")
    on = f" on {processors} processors" if processors else ""
    return "" if load is None else f" (its load was {load}{on})"


def models_of(measurements: Path) -> list[ModelSpec]:
    """The models whose layers a table was measured for, as far as the catalogue knows them."""
    known = set(catalog.names("models"))
    names = read_meta(measurements).get("models", [])
    return [catalog.model(name) for name in names if name in known]


def _precision(name: str) -> str:
    if name not in PRECISIONS:
        raise UsageError(
            f"--precision {name}: not known{did_you_mean(name, PRECISIONS)}; "
            f"known: {', '.join(PRECISIONS)}"
        )
    return name
