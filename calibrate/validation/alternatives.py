"""Tries what the notes of a prediction leave open, before any kernel is blamed.

A note may carry settings that would say what it leaves open (``sim.metrics.texts``):
whether cards reach each other over PCIe. Two more come from the record: whether its prefix cache
was on, where the traffic has prefixes, and the lengths of requests of which only the mean is known.
Each is simulated; the one that brings the metrics into their bands is the first thing to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from calibrate.validation.figures import HEADLINES, ValidatedFigure, figures, mean_error
from calibrate.validation.observed import ObservedRun
from calibrate.validation.prediction import Prediction, ValidationQuestion, of_scenario, predict
from sim.errors import InfersimError
from sim.metrics.texts import OpenNote, Settings
from sim.metrics.words.notes import notes

EXPLAINS = 0.5
"""Share of the error that must be gone with a setting which is to explain it: most of it."""

TEXTS = {"p95": 2.5, "max": 4.0}
"""Lengths of texts in means: those of ShareGPT's answers by Llama 2's tokeniser
(``calibrate/scoring/facts.yaml``)."""


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """An open setting that was simulated: the ``settings``, the ``note`` that leaves them open, the
    mean error that is ``left`` with them, how many metrics are ``within`` their bands of all
    ``metrics``, and whether that ``explains`` them: the headlines are, and most of the error is
    gone."""

    settings: Settings
    note: str
    left: float
    within: int
    metrics: int
    explains: bool

    @property
    def options(self) -> tuple[str, ...]:
        """The settings as ``--set`` takes them."""
        return tuple(f"{key}={_written(value)}" for key, value in self.settings.items())


def _written(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n...\n").strip()


def tried(
    run: ObservedRun,
    asked: ValidationQuestion,
    baseline: Prediction,
    rows: Sequence[ValidatedFigure],
) -> list[TriedSetting]:
    """Every open setting of ``baseline``, whose error table is ``rows``, the best first; one that
    cannot be simulated is left out."""
    before, found = mean_error(rows), []
    for note in _open(run, asked, baseline):
        for settings in note.settings:
            try:
                other = of_scenario(run, asked.scenario.override(dict(settings)), asked.notes)
                after = _table(run, predict(run, other), rows)
            except InfersimError:
                continue
            left = mean_error(after)
            held = [row for row in after if row.within_band]
            within = all(row in held for row in after if row.key in HEADLINES)
            explains = within and left <= (1 - EXPLAINS) * before
            counts = len(held), len(after)
            found.append(TriedSetting(settings, str(note), left, *counts, explains))
    return sorted(found, key=lambda each: (not each.explains, each.left))


def _table(
    run: ObservedRun, other: Prediction, rows: Sequence[ValidatedFigure]
) -> list[ValidatedFigure]:
    wanted = {row.key for row in rows}
    return [row for row in figures(run.summary, other.summary, []) if row.key in wanted]


def _open(run: ObservedRun, asked: ValidationQuestion, baseline: Prediction) -> Iterator[OpenNote]:
    yield from (note for note in notes(baseline.result.record) if isinstance(note, OpenNote))
    yield from _prefix_cache(asked)
    if run.summary_only:
        yield from _lengths(asked)


def _prefix_cache(asked: ValidationQuestion) -> Iterator[OpenNote]:
    workload, cache = asked.scenario.workload, asked.scenario.kv_cache
    if workload.shared_prefix is None and workload.sessions is None:
        return
    key = "enable_prefix_caching"
    if asked.scenario.states(f"kv_cache.{key}"):
        return
    on = cache.enable_prefix_caching
    yield OpenNote(
        f"Whether the prefix cache was on is not stated; it is taken to be "
        f"{'on' if on else 'off'}.",
        {f"kv_cache.{key}": not on},
    )


def _lengths(asked: ValidationQuestion) -> Iterator[OpenNote]:
    """Lengths that differ as those of texts do, where all are taken to be the mean."""
    laws: dict[str, Mapping[str, Any]] = {}
    for name in ("prompt_tokens", "output_tokens"):
        law = getattr(asked.scenario.workload, name)
        if law is None or law.kind != "fixed" or law.value < 2:
            return
        mean = law.value
        shape = {key: round(times * mean) for key, times in TEXTS.items()}
        laws[f"workload.{name}"] = {"kind": "lognormal", "mean": mean, **shape}
    yield OpenNote(
        "Of the lengths of requests only the means are known; all are taken to be alike.", laws
    )
