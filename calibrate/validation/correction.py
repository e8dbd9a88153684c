"""Builds the engine file and the settings that correct a prediction, and the commands to use them.

The changes are those that the advice proposes together. An engine file holds all that concern the
engine, multiples of its kernels' times included; the number of KV blocks is a setting of the
scenario.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from calibrate.validation import Called
from calibrate.validation.advice import Advice, Change, all_changes
from calibrate.validation.engine_file import NO_ITERATIONS
from calibrate.validation.observed import ITERATIONS, ObservedRun
from calibrate.validation.prediction import ValidationQuestion, changed_engine
from calibrate.validation.proposals import BLOCKS, FRONT_END
from calibrate.validation.residuals import HOST
from calibrate.validation.wording import words
from sim import catalog
from sim.catalog.engine_file import FACTORS
from sim.catalog.releases import spelled
from sim.results.run_directory import SCENARIO
from sim.results.run_result import REQUESTS
from sim.specs.engine import EngineSpec, FittedTo

TIMES = (*HOST, FRONT_END)
"""The host's times that the advice changes, by the keys of an engine file."""


class Correction(NamedTuple):
    """The changes: ``engine`` as a mapping for YAML, None if it stays; ``settings`` of the scenario
    as ``key=value``; ``confirmed`` if nothing changes but that the engine names the run."""

    engine: Mapping[str, object] | None
    settings: tuple[str, ...]
    confirmed: bool = False


def correction(
    run: ObservedRun, asked: ValidationQuestion, advice: Advice, today: date
) -> Correction | None:
    """The correction of the prediction ``asked`` of ``run``; None if nothing is to change in a
    prediction that the run does not confirm, or that rests on it already."""
    changes = [change for change in advice.changes if change.share > 0]
    blocks = [int(change.cause.value) for change in changes if change.cause.name == BLOCKS]
    opened = () if advice.setting is None else advice.setting.options
    settings = (*opened, *(f"kv_cache.num_gpu_blocks={count}" for count in blocks))
    engine = _engine(run, asked, changes, today)
    if engine is not None or settings:
        return Correction(engine, settings)
    base = catalog.engine(asked.scenario.engine, asked.scenario.base)
    fitted = _fitted_to(run, base)
    if not advice.quiet or len(fitted) == len(base.fitted_to):
        return None
    title = f"{base.title.removesuffix(CONFIRMED)}{CONFIRMED}"
    named = {"extends": _named(asked), "title": title, "fitted_to": fitted}
    return Correction(named, (), confirmed=True)


def _engine(
    run: ObservedRun, asked: ValidationQuestion, changes: Sequence[Change], today: date
) -> dict[str, object] | None:
    """The engine with the changes made, each next to its old value; None if none concerns it."""
    base, slower = (
        catalog.engine(asked.scenario.engine, asked.scenario.base),
        asked.scenario.assume.host_time,
    )
    of_engine = {change.cause.name: change for change in changes if change.cause.name != BLOCKS}
    if run.front_end == "none":  # it is left out of such a prediction, whatever the file says
        of_engine.pop(FRONT_END, None)
    if not of_engine or not slower:
        return None
    assumed = asked.setup.only.deployment.engine
    wanted = changed_engine(assumed, all_changes(Advice(changes, False, 0.0, 0.0)))
    title = base.title.removesuffix(CORRECTED)
    document: dict[str, object] = {"extends": _named(asked), "title": f"{title}{CORRECTED}"}
    keys = {name: key for key, name in FACTORS.items()}
    for name, change in of_engine.items():
        told = words(change.cause, assumed, asked.setup.only.capacity.num_gpu_blocks).title
        source = f"{today.isoformat()}, corrected after {run.name}: {told}"
        if name in TIMES:
            value: object = f"{getattr(wanted, name) / slower * 1e6:.5g}us"
            for key in (name, "per_iteration_ahead") if name == "per_iteration" else (name,):
                document[key] = {"value": value, "source": source}
        else:
            value = float(f"{getattr(wanted.factors, name):.5g}")
            document[keys[name]] = {"value": value, "source": source}
    return document | {"fitted_to": _fitted_to(run, base)}


def _named(asked: ValidationQuestion) -> str:
    """The engine that is predicted with, as an engine file anywhere can name it."""
    name = asked.scenario.engine
    if spelled(name).name in catalog.names("engines"):
        return name
    return str(((asked.scenario.base or Path()) / name).absolute())


CORRECTED = ", corrected after an observed run"
CONFIRMED = ", confirmed by an observed run"


def _fitted_to(run: ObservedRun, base: EngineSpec) -> list[dict[str, str]]:
    """The runs that the file rests on, so that errors on them are called in sample."""
    here = FittedTo(run.name, run.hashes.get(ITERATIONS, NO_ITERATIONS), run.hashes[REQUESTS])
    return [each._asdict() for each in dict.fromkeys((*base.fitted_to, here))]


def commands(
    found: Correction, engine: Path | None, called: Called, asked: ValidationQuestion
) -> tuple[str, ...]:
    """The commands to give next: the same comparison with the correction, unless nothing changes,
    and a plan with it."""
    kept = [text for text in called.overrides if _key(text) != "engine" or engine is None]
    with_engine = [] if engine is None else [f"engine={engine.absolute()}"]
    again = ["infersim", "validate-run", str(called.run)]
    again += [] if called.scenario is None else [str(called.scenario)]
    again += [] if called.gpu is None else ["--gpu", called.gpu]
    again += _options("--repeat", map(str, called.repeat))
    again += _options("--set", [*kept, *with_engine, *found.settings])
    pool = asked.scenario.only_pool
    plan = ["infersim", "plan", str(called.scenario or called.run / SCENARIO), "--gpus", pool.gpu]
    slo = asked.scenario.slo
    limits = [] if slo.ttft or slo.tpot else ["slo.ttft=500ms", "slo.tpot=50ms"]
    chosen = [] if called.gpu is None else [f"{pool.key('gpu')}={pool.gpu}"]
    opened = [text for text in found.settings if not text.startswith("kv_cache.num_gpu_blocks")]
    plan += _options("--set", [*kept, *chosen, *with_engine, *opened, *limits])
    if found.confirmed:
        return (shlex.join(plan),)
    return shlex.join(again), shlex.join(plan)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _options(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]
