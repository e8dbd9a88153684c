"""Compares predictions with the engine on a drifting machine: interleaved, in one process.

For each trace: a small calibration at the model's shapes, the engine under each discipline, the
calibration again, the engine again, and so on, with a calibration at the end. Each round of runs is
predicted from the two calibrations around it. An anchor step with each calibration shows how much
the machine drifted. A trace is finished or not at all: the files of an unfinished one are deleted,
and finished ones are not run again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from calibrate.bench import families
from calibrate.bench.arena import Arena
from calibrate.bench.base import Scope, element
from calibrate.device import Device
from calibrate.engine.observed import Observed
from calibrate.engine.record import ObservedResult
from calibrate.engine.run import run
from calibrate.measurement_store import Store
from calibrate.measurements import Table, read
from calibrate.plan import Plan, crude_rates
from calibrate.profile import write_profile, write_text
from calibrate.session import RANKED
from calibrate.settle import settled
from calibrate.suite import Bench, Suite
from calibrate.timing import timer_for
from calibrate.verify import host, iterations, score, shapes, traffic
from calibrate.verify.disturbance import Watch
from calibrate.verify.pace import AROUND, Pace, trace_length
from calibrate.verify.traffic import BATCHINGS, Setting, Trace
from sim import catalog
from sim.errors import UsageError
from sim.model import ModelSpec
from sim.scenario import Scenario
from sim.simulation import simulate

ANCHOR_STEPS = 3
"""Times that the anchor request is served; its typical decode counts."""

LONGEST = 1 / 8
"""Share of a calibration that one point may take."""

MATRICES = 4
"""Products of a layer, between which small operators run."""

RESULT, SETTING = "result.json", "setting.json"
PROFILE, ENGINE = "profile.yaml", "engine.yaml"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plans:
    """The work to do: traces under disciplines on a device, into ``folder``; ``budget`` is the
    seconds of one calibration."""

    device: Device
    setting: Setting
    folder: Path
    traces: Sequence[str]
    batchings: Sequence[str]
    budget: float


def verify(plans: Plans, say: Say = lambda line: None) -> dict[str, Any]:
    """Run every trace that has no result yet; what all of them came to, finished ones included.

    UsageError if ``folder`` holds results of other settings.
    """
    plans.folder.mkdir(parents=True, exist_ok=True)
    _same_setting(plans)
    open_traces = [n for n in plans.traces if not (plans.folder / n / RESULT).exists()]
    setting = plans.setting
    one = trace_length(plans.budget, setting.seconds, len(plans.batchings), setting.repeats)
    pace = Pace(one * len(open_traces), say)
    for name in plans.traces:
        folder = plans.folder / name
        if (folder / RESULT).exists():
            say(f"{name}: already done, {folder}")
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        _write_json(folder / RESULT, _trace(plans, name, folder, pace))
    return score.document(plans.setting, plans.device.facts, list(_results(plans.folder)))


def _results(folder: Path) -> Iterator[dict[str, Any]]:
    for name in traffic.TRACES:
        path = folder / name / RESULT
        if path.exists():
            yield json.loads(path.read_text(encoding="utf-8"))


def _trace(plans: Plans, name: str, folder: Path, pace: Pace) -> dict[str, Any]:
    """Everything about one trace, and its result as JSON."""
    device, setting = plans.device, plans.setting
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    model = catalog.model(setting.model)
    again = f"{name}: calibration"
    pace.begin(again, plans.budget)
    tables = [_calibrate(plans, model, folder / "calibration-0.csv", pace)]
    profile = write_profile(settled(tables[0]), device.facts, folder / PROFILE)
    pace.begin(f"{name}: host terms", AROUND * plans.budget)
    terms = [_host(plans, folder)]
    trace = traffic.trace_of(name, setting, folder / PROFILE, folder / ENGINE)
    anchors = [_anchor(plans, folder)]
    shutil.copy(folder / PROFILE, folder / "profile-0.yaml")
    told: list[dict[str, Any]] = []
    for number in range(1, setting.repeats + 1):
        runs = list(_round(plans, trace, number, folder, pace))
        anchors.append(_anchor(plans, folder))
        pace.begin(again, plans.budget)
        tables.append(_calibrate(plans, model, folder / f"calibration-{number}.csv", pace))
        profile = write_profile(settled(tables[-1]), device.facts, folder / PROFILE)
        pace.begin(f"{name}: host terms", AROUND * plans.budget)
        terms.append(_host(plans, folder))
        host.write_engine(folder / ENGINE, _between(*terms[-2:]), device)
        profile = write_profile(score.joined(*tables[-2:]), device.facts, folder / PROFILE)
        told += [_told(plans, trace, number, folder, run) for run in runs]
        shutil.copy(folder / PROFILE, folder / f"profile-{number}.yaml")
    return {
        "trace": name,
        "arrivals": dict(trace.arrivals),
        "requests": trace.requests,
        "started": started,
        "host": [found._asdict() for found in terms],
        "anchors_s": anchors,
        "drift": score.drift(tables),
        "holdout": score.holdout(profile),
        "runs": told,
    }


def _round(
    plans: Plans, trace: Trace, number: int, folder: Path, pace: Pace
) -> Iterator[tuple[str, Observed, float | None]]:
    """Every discipline once; each run is on disk before the next begins. Discipline, run, and the
    share of its time in which other programs used the processors."""
    for batching in plans.batchings:
        scenario = traffic.scenario(
            plans.setting, trace, batching, folder / PROFILE, folder / ENGINE
        )
        run = f"{trace.name}: {batching}, run {number}, {trace.requests} requests"
        pace.begin(run, plans.setting.seconds)
        observed, disturbed = _watched(plans.device, scenario, pace)
        ObservedResult(observed).save(folder / "observed" / f"{batching}-{number}")
        yield batching, observed, disturbed


def _watched(device: Device, scenario: Scenario, pace: Pace) -> tuple[Observed, float | None]:
    watch = Watch()

    def tick(done: int, total: int) -> None:
        watch.tick()
        pace.tick()

    observed = run(scenario, device, sampling="random", progress=tick)
    watch.done()
    return observed, watch.disturbed


def _told(
    plans: Plans,
    trace: Trace,
    number: int,
    folder: Path,
    run: tuple[str, Observed, float | None],
) -> dict[str, Any]:
    """A run with its prediction by the profile of its round."""
    batching, observed, disturbed = run
    scenario = traffic.scenario(plans.setting, trace, batching, folder / PROFILE, folder / ENGINE)
    predicted = simulate(scenario)
    predicted.save(folder / "simulated" / f"{batching}-{number}")
    return {
        "batching": batching,
        "round": number,
        "duration_s": observed.record.end,
        "disturbed": disturbed,
        "measured": score.metrics(ObservedResult(observed).summary),
        "predicted": score.metrics(predicted.summary),
        "iterations": iterations.compare(observed, scenario),
    }


def _host(plans: Plans, folder: Path) -> host.Terms:
    """The engine's host terms by the profile that is there, as a file too."""
    terms = host.measure(plans.device, plans.setting, folder / PROFILE, folder)
    host.write_engine(folder / ENGINE, terms, plans.device)
    return terms


def _between(one: host.Terms, other: host.Terms) -> host.Terms:
    """The mean of both."""
    return host.Terms(*((a + b) / 2 for a, b in zip(one, other, strict=True)))


def _anchor(plans: Plans, folder: Path) -> float:
    """Seconds of a decode of one short sequence."""
    scenario = traffic.anchor(plans.setting, folder / PROFILE, folder / ENGINE)
    steps = []
    for _ in range(ANCHOR_STEPS):
        observed = run(scenario, plans.device, sampling="random")
        steps += [i.end - i.start for i in observed.iterations if not i.prefills]
    return median(steps)


def _calibrate(plans: Plans, model: ModelSpec, path: Path, pace: Pace) -> Table:
    """Measure the model's shapes; operands take turns as they do in the model."""
    device, setting = plans.device, plans.setting
    kind = device.facts.kind
    scope = Scope(kind, device.free_memory(), 1, [model], [setting.precision], str(path.parent))
    found = families(scope)
    plan = Plan(
        points=shapes.points(model, setting, kind),
        shares={name: share for family in found for name, share in family.shares.items()},
        rates=crude_rates(kind, device.facts.units, device.facts.cache),
        budget=plans.budget,
        ranked=RANKED[kind],
        longest=LONGEST,
    )
    owners = {name: family for family in found for name in family.shares}
    arena = Arena(device, turnover=model.weight_bytes(setting.precision))
    with Store(path, device.facts, {"models": [model.name]}) as store:
        timer = timer_for(device, model.linear_parameters() / MATRICES * element(setting.precision))
        bench, report = Bench(device, arena), lambda progress: pace.tick()
        Suite(plan, owners, bench, timer, store, report=report, first_pass=0.9).run()
    arena.release()
    return read(path)


def _same_setting(plans: Plans) -> None:
    """Results of two settings must not meet in one folder."""
    path, wanted = plans.folder / SETTING, plans.setting.document()
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != wanted:
        raise UsageError(f"{plans.folder}: holds results of other settings; give another folder")
    _write_json(path, wanted)


def _write_json(path: Path, document: Any) -> None:
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


__all__ = ["BATCHINGS", "Plans", "verify"]
