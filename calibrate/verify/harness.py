"""Compares predictions with the engine on a drifting machine: interleaved, in one process.

For each trace: a small calibration at the model's shapes, the engine under each discipline, the
calibration again, the engine again, and so on, with a calibration at the end. Each round of runs is
predicted from the two calibrations around it. An anchor step with each calibration shows how much
the machine drifted, and one after each run how much it did so within the round (``drift``). A
trace is finished or not at all: the files of an unfinished one are deleted,
and finished ones are not run again. Once the time is over nothing is begun any more, and what is
under way is cut short: a run is left out, a calibration after runs counts as far as it came.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from calibrate.bench import families
from calibrate.bench.arena import Arena
from calibrate.bench.base import Scope, element
from calibrate.device import Device
from calibrate.engine.observed import Observed
from calibrate.engine.record import ObservedResult
from calibrate.engine.run import run
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import MeasurementTable, read
from calibrate.plan import CalibrationPlan, crude_rates
from calibrate.profile import LEAST_POINTS, write_profile
from calibrate.session import RANKED
from calibrate.settle import settled
from calibrate.suite import Bench, Progress, Suite, SuitePace
from calibrate.timing import timer_for
from calibrate.verify import host, iterations, score, shapes, traffic
from calibrate.verify.budget import Wish
from calibrate.verify.course import TimeOverError, VerifyCourse
from calibrate.verify.disturbance import Watch
from calibrate.verify.drift import drift_of
from calibrate.verify.traffic import BATCHINGS, TrafficSetting, VerifyTrace
from sim import catalog
from sim.errors import UsageError
from sim.results.whole_file import write_text
from sim.scenario import Scenario
from sim.simulation import simulate

ANCHOR_STEPS = 2
"""Times that the anchor request is served; its typical decode counts."""

LONGEST = 1 / 8
"""Share of a calibration that one point may take."""

SHORT = 150
"""Parts of a calibration, one of which the short calls of a point are sampled for at most."""

FIRST_PASS = 0.9
"""Share of a calibration for new points; a round has another calibration at its end."""

ANCHOR_EVERY = 1 / 6
"""Share of a calibration after which its anchors are timed again: in a short one they would take
most of the time otherwise."""

MATRICES = 4
"""Products of a layer, between which small operators run."""

RESULT, SETTING = "result.json", "setting.json"
PROFILE, ENGINE = "profile.yaml", "engine.yaml"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plans:
    """The work to do on a device, into ``folder``; ``started`` is when its time began, by
    ``time.monotonic``."""

    device: Device
    setting: TrafficSetting
    folder: Path
    wish: Wish
    started: float | None = None


def verify(plans: Plans, say: Say = lambda line: None) -> dict[str, Any]:
    """Run every trace that has no result yet and for which there is time; what all of them came to,
    finished ones included.

    UsageError if ``folder`` holds results of other settings, or the time is too short.
    """
    plans.folder.mkdir(parents=True, exist_ok=True)
    _same_setting(plans)
    wish = plans.wish
    done = _done(plans)
    for trace in done:
        say(f"{trace}: already done, {plans.folder / trace}")
    rest = [trace for trace in wish.traces if trace not in done]
    course = VerifyCourse(replace(wish, traces=rest), say, started=plans.started)
    while (name := course.next_trace()) is not None:
        folder = plans.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        result = _trace(plans, name, folder, course)
        if result is None and not any(_results(plans.folder)):
            shutil.rmtree(folder)
            raise course.too_late()
        if result is None:
            shutil.rmtree(folder)
        else:
            _write_json(folder / RESULT, result)
        course.finished(name)
    results = list(_results(plans.folder))
    left_out = score.left_out(wish, results)
    return score.document(plans.setting, plans.device.facts, results) | {"left_out": left_out}


def _done(plans: Plans) -> list[str]:
    return [name for name in plans.wish.traces if (plans.folder / name / RESULT).exists()]


def _results(folder: Path) -> Iterator[dict[str, Any]]:
    for name in traffic.TRACES:
        path = folder / name / RESULT
        if path.exists():
            yield json.loads(path.read_text(encoding="utf-8"))


def _trace(plans: Plans, name: str, folder: Path, course: VerifyCourse) -> dict[str, Any] | None:
    """Everything about one trace, and its result as JSON; None if there is no time for it."""
    device, setting = plans.device, plans.setting
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        tables = [_calibrate(plans, name, 0, course)]
        profile = write_profile(settled(tables[0]), device.facts, folder / PROFILE)
        course.fitted()
        terms, anchors = [_host(plans, folder, course)], [_anchor(plans, folder)]
        opened = _opened(plans, name, folder, course, anchors[0])
    except TimeOverError:
        course.cut_short(f"{name}: left out, the time is over before its first run")
        return None
    if opened is None:
        return None
    trace, batchings = opened
    shutil.copy(folder / PROFILE, folder / "profile-0.yaml")
    told: list[dict[str, Any]] = []
    whole = True
    for number in range(1, setting.repeats + 1):
        opening = anchors[-1]
        runs = list(_round(plans, trace, batchings, number, folder, course, opening))
        if not runs:
            break
        anchors.append(runs[-1].after)
        whole = _closing(plans, name, number, tables, terms, course)
        if whole:
            host.write_engine(folder / ENGINE, _between(*terms[-2:]), device)
        profile = write_profile(score.joined(*tables[-2:]), device.facts, folder / PROFILE)
        around = opening, anchors[-1] if whole else opening
        told += [_told(plans, trace, number, folder, each, around) for each in runs]
        shutil.copy(folder / PROFILE, folder / f"profile-{number}.yaml")
        if not whole or not course.closed():
            break
    if not told:
        return None
    return {
        "trace": name,
        "arrivals": dict(trace.arrivals),
        "requests": trace.requests,
        "started": started,
        "host": [found._asdict() for found in terms],
        "anchors_s": anchors,
        "drift": score.drift(tables),
        "cut_short": not whole,
        "holdout": score.holdout(profile),
        "runs": told,
    }


def _closing(
    plans: Plans,
    name: str,
    number: int,
    tables: list[MeasurementTable],
    terms: list[host.Terms],
    course: VerifyCourse,
) -> bool:
    """The calibration after the runs of a round, and the host terms by it, put to the others;
    whether there was time for all of it. Where there was not, the points that were measured count,
    and host terms are those from before the runs."""
    folder = plans.folder / name
    try:
        tables.append(_calibrate(plans, name, number, course))
        write_profile(settled(tables[-1]), plans.device.facts, folder / PROFILE)
        terms.append(_host(plans, folder, course))
    except TimeOverError:
        if len(tables) == number:
            tables.append(read(_table(plans, name, number)))
        course.cut_short(f"{name}: the calibration after the runs is cut short, the time is over")
        return False
    return True


def _table(plans: Plans, name: str, number: int) -> Path:
    """The file of a calibration."""
    return plans.folder / name / f"calibration-{number}.csv"


def _opened(
    plans: Plans, name: str, folder: Path, course: VerifyCourse, step: float
) -> tuple[VerifyTrace, tuple[str, ...]] | None:
    """The trace as long as there is time for, and its disciplines; None if there is none. An anchor
    ``step`` (s) belongs to each run."""
    files = (folder / PROFILE, folder / ENGINE)
    shortest = {
        other: traffic.trace_of(other, plans.setting, *files) for other in plans.wish.traces
    }
    version = course.opened(
        {
            other: traffic.predicted(plans.setting, trace, plans.wish.batchings, *files)
            + ANCHOR_STEPS * (traffic.PREPARING + traffic.ANCHOR_TOKENS * step)
            for other, trace in shortest.items()
        }
    )
    if version is None:
        return None
    return traffic.longer(shortest[name], course.longer(name)), version.batchings


class RoundRun(NamedTuple):
    """A run of a round: its discipline, the share of its time in which other programs used the
    processors, and the anchor step ``before`` and ``after`` it (s)."""

    batching: str
    observed: Observed
    disturbed: float | None
    before: float
    after: float


def _round(
    plans: Plans,
    trace: VerifyTrace,
    batchings: Sequence[str],
    number: int,
    folder: Path,
    course: VerifyCourse,
    opening: float,
) -> Iterator[RoundRun]:
    """Every discipline once; each run is on disk before the next begins. ``opening`` is the anchor
    step before the first."""
    before = opening
    for batching in batchings:
        scenario = traffic.scenario(
            plans.setting, trace, batching, folder / PROFILE, folder / ENGINE
        )
        if not course.run(f"{trace.name}: {batching}, run {number}, {trace.requests} requests"):
            return
        try:
            observed, disturbed = _watched(plans, scenario, course.heed)
        except TimeOverError:
            course.cut_short(
                f"{trace.name}: {batching}, run {number} is left out, the time is over"
            )
            return
        ObservedResult(observed).save(folder / "observed" / f"{batching}-{number}")
        after = _anchor(plans, folder)
        course.ran()
        yield RoundRun(batching, observed, disturbed, before, after)
        before = after


def _watched(
    plans: Plans, scenario: Scenario, heed: Callable[[], None]
) -> tuple[Observed, float | None]:
    """A run, and the share of it that other programs disturbed; None where that is not known, or
    does not count, since the run was timed by processor time."""
    watch, setting = Watch(), plans.setting

    def tick(done: int, total: int) -> None:
        watch.tick()
        heed()

    observed = run(scenario, plans.device, sampling="random", clock=setting.clock(), progress=tick)
    watch.done()
    return observed, None if setting.cpu_time else watch.disturbed


def _told(
    plans: Plans,
    trace: VerifyTrace,
    number: int,
    folder: Path,
    run: RoundRun,
    around: tuple[float, float],
) -> dict[str, Any]:
    """A run with its prediction by the profile of its round, and with the machine's drift against
    the anchor steps ``around`` the round."""
    batching, observed, disturbed = run[:3]
    scenario = traffic.scenario(plans.setting, trace, batching, folder / PROFILE, folder / ENGINE)
    predicted = simulate(scenario)
    predicted.save(folder / "simulated" / f"{batching}-{number}")
    return {
        "batching": batching,
        "round": number,
        "duration_s": observed.record.end,
        "disturbed": disturbed,
        "drift": drift_of(run.before, run.after, *around),
        "measured": score.metrics(ObservedResult(observed).summary),
        "predicted": score.metrics(predicted.summary),
        "iterations": iterations.compare(observed, scenario),
    }


def _host(plans: Plans, folder: Path, course: VerifyCourse) -> host.Terms:
    """The engine's host terms by the profile that is there, as a file too."""
    terms = host.measure(plans.device, plans.setting, folder / PROFILE, folder, course.heed)
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
        observed = run(scenario, plans.device, sampling="random", clock=plans.setting.clock())
        steps += [i.end - i.start for i in observed.iterations if not i.prefills]
    return median(steps)


def _calibrate(plans: Plans, trace: str, number: int, course: VerifyCourse) -> MeasurementTable:
    """Measure the model's shapes; operands take turns as they do in the model."""
    device, setting = plans.device, plans.setting
    path = _table(plans, trace, number)
    model, kind = catalog.model(setting.model), device.facts.kind
    scope = Scope(kind, device.free_memory(), 1, [model], [setting.precision], str(path.parent))
    found = families(scope)
    budget = course.calibration(trace)
    rates = crude_rates(kind, device.facts.units, device.facts.cache)
    plan = CalibrationPlan(
        points=shapes.points(model, setting, kind),
        shares={name: share for family in found for name, share in family.shares.items()},
        rates=replace(rates, timing=min(rates.timing, budget / SHORT)),
        budget=budget,
        ranked=RANKED[kind],
        longest=LONGEST,
        least=LEAST_POINTS,
    )
    owners = {name: family for family in found for name in family.shares}
    arena = Arena(device, turnover=model.weight_bytes(setting.precision))
    useful: list[float] = []

    def report(progress: Progress) -> None:
        course.heed()
        if not useful and not plan.lacking():
            useful.append(progress.used)

    layer = model.linear_parameters() / model.num_layers
    timer = timer_for(device, layer / MATRICES * element(setting.precision))
    try:
        with MeasurementStore(path, device.facts, {"models": [model.name]}) as store:
            Suite(
                plan,
                owners,
                Bench(device, arena),
                timer,
                store,
                report=report,
                pace=SuitePace(FIRST_PASS, ANCHOR_EVERY),
            ).run()
    finally:
        arena.release()
    course.calibrated(trace, useful[0] if useful else budget)
    return read(path)


def _same_setting(plans: Plans) -> None:
    """Results of two settings must not meet in one folder; a setting without results is void."""
    path, wanted = plans.folder / SETTING, plans.setting.document()
    if (
        any(_results(plans.folder))
        and path.exists()
        and json.loads(path.read_text(encoding="utf-8")) != wanted
    ):
        raise UsageError(f"{plans.folder}: holds results of other settings; give another folder")
    _write_json(path, wanted)


def _write_json(path: Path, document: Any) -> None:
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


__all__ = ["BATCHINGS", "Plans", "verify"]
