"""Evaluates every point of a grid of a scenario's values: how its metrics change with them.

Outcomes are stored as they come; the document in the end is a function of the question alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import UsageError
from sim.metrics.question.question_text import asked, changed, hardware
from sim.metrics.words.format_words import formats
from sim.planning.points.executors import Executor
from sim.planning.points.figures import is_open, meets
from sim.planning.points.footnote_words import notes_of, sure_of_all
from sim.planning.points.grid import MOST_POINTS, Axis, check_values, points
from sim.planning.points.points import Outcome, Point, show
from sim.planning.points.store import QUESTION, Store, digests, question_of, to_row
from sim.planning.points.study import Study, Tell, told_of
from sim.planning.points.wording import short_keys
from sim.scenario import Scenario, load_scenario
from sim.setup import is_random
from sim.units import show_load
from sim.version import version

LOADS = ("workload.arrivals.rate", "workload.arrivals.concurrency")
"""Keys that say how much traffic there is, and nothing else."""


@dataclass(frozen=True)
class Sweep:
    """A scenario and the grid over which it is swept."""

    scenario: Scenario
    axes: tuple[Axis, ...]
    begun_with: tuple[str, ...] | None = None
    """Changes to the scenario's file, of a sweep that is read back from its directory."""

    def __post_init__(self) -> None:
        if not self.axes:
            raise UsageError("nothing is swept: give --sweep KEY=VALUES")

    @property
    def grid(self) -> list[Point]:
        """Every point, in order."""
        return points(self.axes)

    def question(self) -> dict[str, Any]:
        """All that decides the result, as plain data."""
        return {
            "command": "sweep",
            "infersim": version(),
            "scenario": self.scenario.written(),
            "axes": [{"key": axis.key, "values": list(axis.values)} for axis in self.axes],
            "files": self._files(),
        }

    def changes(self) -> list[str]:
        """Changes to the scenario's file; the result does not depend on them."""
        if self.begun_with is not None:
            return list(self.begun_with)
        found: list[str] = changed(self.scenario, [axis.key for axis in self.axes])["changes"]
        return found

    def _files(self) -> dict[str, str]:
        """Contents of the files that the scenario, or a value on an axis, names by path."""
        swept = [value for axis in self.axes for value in axis.values]
        return digests([self.scenario.written(), swept], self.scenario.folders)

    def create(self, path: Path) -> Store:
        """A directory for this sweep; UsageError if it cannot be, or a value is
        one that no point can have."""
        check_values(self.scenario, self.axes)
        return Store.create(path, self.scenario, self.question() | {"changes": self.changes()})

    def resume(self, path: Path) -> Store:
        """The directory of this very sweep, begun before; UsageError if it is of another one."""
        begun, wanted = question_of(path), self.question()
        for key, value in wanted.items():
            if begun.get(key) != value:
                raise UsageError(
                    f"{path}: was begun with another {_WORDS[key]}; {_instead(key)}begin a new "
                    "directory"
                )
        return Store.resume(path, self.grid, self.scenario)

    def run(self, store: Store, executor: Executor, progress: Tell | None = None) -> None:
        """Evaluate what the store does not have yet, and store it."""
        done = {outcome.point.index for outcome in store.known}
        missing = [point for point in self.grid if point.index not in done]
        for outcome in Study(self.scenario, executor, progress).each(missing, len(done)):
            store.add(outcome)
            store.known.append(outcome)


_WORDS = {
    "command": "question",
    "infersim": "release of infersim",
    "scenario": "scenario",
    "axes": "--sweep",
    "files": "content of the files that it reads",
}


def _instead(key: str) -> str:
    """The remedy for a question that is not the one that was begun."""
    if key in ("scenario", "axes"):
        return "leave out the scenario and --sweep to continue the sweep in the directory, or "
    return ""


def begun_in(path: Path) -> Sweep:
    """The sweep that a directory holds; UsageError if it holds none."""
    where, question = path / QUESTION, question_of(path)
    for key, kind, what in (("scenario", dict, "a mapping"), ("axes", list, "a list")):
        if not isinstance(question.get(key), kind):
            raise UsageError(f"{where}: {key}: expected {what}, as a sweep writes it")
    try:
        axes = tuple(Axis(axis["key"], tuple(axis["values"])) for axis in question["axes"])
    except (KeyError, TypeError):
        raise UsageError(f"{where}: axes: expected mappings with key and values") from None
    if not all(isinstance(axis.key, str) and axis.values for axis in axes):
        raise UsageError(f"{where}: axes: expected a text as key and a list of values")
    if math.prod(len(axis.values) for axis in axes) > MOST_POINTS:
        raise UsageError(f"{where}: axes: span more than {MOST_POINTS:,} points")
    try:
        return Sweep(load_scenario(question["scenario"]), axes, _begun_with(where, question))
    except UsageError as error:
        raise UsageError(f"{where}: holds no sweep that can be resumed: {error}") from None


def _begun_with(where: Path, question: Mapping[str, Any]) -> tuple[str, ...]:
    """Changes to the scenario's file; empty in directories of older versions."""
    found = question.get("changes", [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise UsageError(f"{where}: changes: expected a list of texts, as a sweep writes it")
    return tuple(found)


def document(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The result: the question, its answer in a few words, and every point in order."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.point.index)
    keys = [axis.key for axis in sweep.axes]
    names, question = short_keys(keys), sweep.question()
    axes = [{**axis, "name": names[axis["key"]]} for axis in question["axes"]]
    load = load_axis(sweep.axes)
    answers = _answers(sweep, ordered, names)
    told = told_of((_named(o.point.settings, names), o) for o in ordered)
    served = [summary for _, summary in told]
    return {
        **question,
        "axes": axes,
        "load": None if load is None else load.key,
        "name": sweep.scenario.name,
        "model": str(sweep.scenario.model),
        "formats": formats(sweep.scenario, keys),
        "hardware": hardware(sweep.scenario, keys),
        "asked": asked(sweep.scenario, keys) | {"changes": sweep.changes(), "still_asks": False},
        "points": len(ordered),
        "failed": sum(outcome.summary is None for outcome in ordered),
        "answers": answers,
        "notes": [*_notes(sweep, answers), *sure_of_all(served)],
        "run_notes": notes_of(told),
        "results": [
            {**to_row(outcome), "label": _named(outcome.point.settings, names)}
            for outcome in ordered
        ],
    }


def _named(settings: Mapping[str, object], names: Mapping[str, str]) -> str:
    return ", ".join(f"{names[key]}={show(value)}" for key, value in settings.items())


def load_axis(axes: Sequence[Axis]) -> Axis | None:
    """The axis along which only the load grows, if there is one."""
    return next((axis for axis in axes if axis.key in LOADS and axis.numeric), None)


def _answers(
    sweep: Sweep, ordered: Sequence[Outcome], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """For each combination of the other axes the highest load, of those that were tried, up to
    which the SLO is met; None if the lowest one misses it. Empty without a load or an SLO."""
    axis = load_axis(sweep.axes)
    limited = any(o.summary and o.summary["infersim"]["verdict"]["limits"] for o in ordered)
    if axis is None or not limited:
        return []
    lines: dict[str, list[Outcome]] = {}
    for outcome in ordered:
        lines.setdefault(_named(_others(outcome.point.settings, axis), names), []).append(outcome)
    return [_answer(axis, label, line) for label, line in lines.items()]


def _others(settings: Mapping[str, object], axis: Axis) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key != axis.key}


def _answer(axis: Axis, label: str, line: Sequence[Outcome]) -> dict[str, Any]:
    """How far up the load of one combination goes. A load that could not be tried (a mistake, a
    failure) says nothing; one that is infeasible is missed.

    ``meets`` is the highest load below all that are missed at which the SLO is met beyond doubt,
    ``misses`` the lowest at which it is missed; ``open`` are the loads too close to call.
    """
    highest = missed = None
    tried = [outcome for outcome in line if outcome.summary is not None or outcome.infeasible]
    tried.sort(key=lambda outcome: _number(outcome, axis))
    open_at = [_number(outcome, axis) for outcome in tried if is_open(outcome.summary)]
    if any(outcome.summary is not None for outcome in tried):
        for outcome in tried:
            if meets(outcome.summary):
                highest = _number(outcome, axis)
            elif not is_open(outcome.summary):
                missed = _number(outcome, axis)
                break
    text = answer_text(axis.key, highest, missed, open_at)
    return {
        "settings": _others(line[0].point.settings, axis),
        "label": label,
        "meets": highest,
        "misses": missed,
        "open": open_at,
        "text": f"{label}: {text}" if label else text,
    }


def answer_text(
    load: str, meets: float | None, misses: float | None, open_at: Sequence[float] = ()
) -> str:
    """How much load is held, in a sentence.

    >>> answer_text("workload.arrivals.rate", 8, 10)
    'SLO met up to 8 requests/s, missed at 10'
    >>> answer_text("workload.arrivals.rate", 7, 10, [8, 9])
    'SLO met up to 7 requests/s, missed at 10; too close to call at 8 and 9'
    >>> answer_text("workload.arrivals.rate", None, None, [8])
    'SLO too close to call at 8 requests/s, and met for sure at no load that was tried'
    """
    unit = "users" if load.endswith("concurrency") else "requests/s"
    *first, last = (show_load(number) for number in open_at or [math.nan])
    open_loads = f"{', '.join(first)} and {last}" if first else last
    if meets is None and misses is None:
        if not open_at:
            return "no point could be simulated"
        doubtful = f"SLO too close to call at {open_loads} {unit}"
        return f"{doubtful}, and met for sure at no load that was tried"
    below = any(number < (misses or math.inf) for number in open_at)
    if meets is None:
        assert misses is not None
        lowest = "met for sure at no load that was tried, missed at" if below else "missed even at"
        which = "" if below else ", the lowest load that was tried"
        text = f"SLO {lowest} {show_load(misses)} {unit}{which}"
    elif misses is None:
        above = any(number > meets for number in open_at)
        highest = "" if above else ", the highest load that was tried"
        text = f"SLO met up to {show_load(meets)} {unit}{highest}"
    else:
        text = f"SLO met up to {show_load(meets)} {unit}, missed at {show_load(misses)}"
    return f"{text}; too close to call at {open_loads}" if open_at else text


def _notes(sweep: Sweep, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on the gaps of one run of each point, and on what fills them."""
    if not answers or sweep.scenario.run.repetitions > 1:
        return []
    if not is_random(sweep.scenario):
        return [
            "Each point is one run. `infersim find` brackets the highest load that meets the SLO "
            "to 2 %."
        ]
    return [
        "Each point is one run under one seed, so chance may move the highest load. `infersim "
        "find` repeats runs under other seeds until their intervals decide, and brackets the "
        "highest load to 2 %."
    ]


def _number(outcome: Outcome, axis: Axis) -> float:
    value = outcome.point.settings[axis.key]
    assert isinstance(value, int | float)
    return value
