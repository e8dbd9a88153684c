"""Provides the result of a validation as plain data: ready for JSON, a terminal or a page.

``validate`` does all of it. Latencies in milliseconds under the keys of ``summary.json``, other
times in seconds; errors are predicted over observed, less one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calibrate.validation import wording
from calibrate.validation.advice import MEDIUM, Advice, Change, advise, failures_explain
from calibrate.validation.alternatives import TriedSetting
from calibrate.validation.composition import COLUMNS, Agreement, agreement, levels
from calibrate.validation.engine_file import sampled
from calibrate.validation.expected import Expected, expect
from calibrate.validation.figures import HEADLINES, ValidatedFigure, figures
from calibrate.validation.observed import ObservedRun
from calibrate.validation.prediction import Prediction, ValidationQuestion, predict
from calibrate.validation.proposals import FEW
from calibrate.validation.regimes import Regime, all_iterations, by_regime, scatter
from calibrate.validation.residuals import Term, explain
from sim.planning.answers.validated import ErrorRow, RegimeRow
from sim.version import version


@dataclass(frozen=True)
class Validation:
    """One observed run with its prediction; ``repeats`` are further observations of it."""

    run: ObservedRun
    repeats: Sequence[ObservedRun]
    asked: ValidationQuestion

    @cached_property
    def predicted(self) -> Prediction:
        """The prediction, with a row for each iteration where the observed ones are known."""
        return predict(self.run, self.asked, leap=self.run.iterations is None)

    @cached_property
    def rows(self) -> list[ValidatedFigure]:
        """The error table."""
        others = [repeat.summary for repeat in self.repeats]
        return figures(self.run.summary, self.predicted.summary, others)

    @cached_property
    def expected(self) -> Expected | None:
        """The predicted times of the observed iterations."""
        if self.run.iterations is None:
            return None
        return expect(self.run.iterations, self.asked.setup.only.deployment)

    @cached_property
    def terms(self) -> list[Term]:
        """Terms that the residuals of the iterations ask for."""
        if self.run.iterations is None or self.expected is None:
            return []
        engine = self.asked.setup.only.deployment.engine
        return explain(self.run.iterations.duration, self.expected, engine)

    @cached_property
    def agreement(self) -> Agreement | None:
        """How far both sides ran the same batches."""
        single = self.asked.scenario.replicas == 1
        if self.run.iterations is None or not single:
            return None
        return agreement(self.run.iterations, self.predicted.result.record.plans)

    @cached_property
    def advice(self) -> Advice:
        """The changes advised."""
        return advise(self.run, self.asked, self.predicted, self.rows, self.terms)

    @cached_property
    def document(self) -> dict[str, Any]:
        """All of it as texts, numbers, lists and mappings."""
        own = self.predicted.summary["infersim"]
        return {
            "infersim": version(),
            "observed": _observed(self.run),
            "repeats": [repeat.name for repeat in self.repeats],
            "predicted": {
                "scenario": own["scenario"],
                "model": own["model"],
                "gpu": own["gpu"],
                "engine": own["engine"],
                "batching": own["batching"],
                "provenance": own["provenance"],
            },
            "headline": wording.headline(self.rows),
            "sample": self._sample(),
            "figures": [_figure(row) for row in self.rows],
            "band": {key: own["error_band"][key] for key in ("throughput", "ttft", "tpot")},
            "iterations": self._iterations(),
            "composition": self._composition(),
            "advice": self._advice(),
            "notes": [*self.asked.notes, *self._notes()],
        }

    def _sample(self) -> dict[str, Any]:
        engine = self.asked.setup.only.deployment.engine
        state = sampled(engine, self.run)
        runs = ", ".join(fit.run for fit in engine.fitted_to)
        texts = {
            "in sample": f"IN SAMPLE: the engine's times were fitted to this very run ({runs}), so "
            "the errors say nothing of another one.",
            "held out": f"Held out: the engine's times were fitted to other runs ({runs}).",
            None: "The engine's times were not fitted to observed runs.",
        }
        return {"state": state, "text": texts[state]}

    def _iterations(self) -> dict[str, Any] | None:
        iterations, expected = self.run.iterations, self.expected
        if iterations is None or expected is None:
            return None
        whole = all_iterations(iterations, expected)
        busy = [
            float(r.iterations.duration.sum()) for r in self.repeats if r.iterations is not None
        ]
        both = [whole.busy_observed, *busy]
        noise = float(np.std(both, ddof=1) / np.mean(both)) if len(both) > 1 else None
        return {
            "regimes": [_regime(regime) for regime in by_regime(iterations, expected)],
            "all": _regime(whole),
            "busy_noise": noise,
            "scatter": scatter(iterations),
        }

    def _composition(self) -> dict[str, Any]:
        found = None if self.agreement is None else _agreement(self.agreement)
        memory = self.predicted.summary["infersim"]["kv_cache"]["tokens"]
        return {
            "agreement": found,
            "text": "" if found is None else wording.agreement_text(found),
            "kv_tokens": {"observed": self.run.figure("kv_cache", "tokens"), "predicted": memory},
            "levels": [level._asdict() for level in levels(self.run, self.predicted.summary)],
        }

    def _advice(self) -> dict[str, Any]:
        advice = self.advice
        text = ""
        if advice.quiet:
            text = wording.quiet(1 + len(self.repeats), self._worst())
        elif failures_explain(self.run, advice.before):
            text = wording.FAILURES
        elif not advice.changes and advice.setting is None:
            text = self._nothing_found()
        measured = len(self.repeats) > 0
        return {
            "quiet": advice.quiet,
            "text": text,
            "noise": f"measured over {1 + len(self.repeats)} runs" if measured else "assumed",
            "error": advice.before,
            "left": advice.left,
            "summary": wording.advice_summary(advice.before, advice.left)
            if (advice.changes or advice.setting) and not advice.quiet
            else "",
            "changes": [
                *([] if advice.setting is None else [_setting(advice.setting, advice.before)]),
                *(self._change(change) for change in advice.changes),
            ],
            "tried": [
                {"settings": list(each.options), "left": each.left, "explains": each.explains}
                for each in advice.tried
            ],
        }

    def _nothing_found(self) -> str:
        """Why nothing is proposed although the error is large."""
        if self.run.summary_only:
            return wording.ONLY_A_SUMMARY
        served = len(self.run.requests)
        if self.run.iterations is None and served < FEW:
            return wording.too_few(served, FEW)
        return wording.NOTHING_FOUND

    def _worst(self) -> float:
        """The largest error of the main metrics, without its sign."""
        return max((abs(row.error) for row in self.rows if row.key in HEADLINES), default=0.0)

    def _change(self, change: Change) -> dict[str, Any]:
        cause, setup = change.cause, self.asked.setup
        title, text = wording.words(
            cause, setup.only.deployment.engine, setup.only.capacity.num_gpu_blocks
        )
        finite = [x is not None and bool(np.isfinite(x)) for x in (cause.low, cause.high)]
        return {
            "cause": cause.name,
            "value": cause.value,
            "low": cause.low if finite[0] else None,
            "high": cause.high if finite[1] else None,
            "share": change.share,
            "share_text": wording.share_text(change.share),
            "confidence": change.confidence,
            "rivals": list(cause.rivals),
            "title": title,
            "text": text,
        }

    def _notes(self) -> list[str]:
        notes = []
        completed = self.predicted.summary["completed"]
        observed = self.run.summary.get("completed")
        if observed not in (None, completed):
            notes.append(
                f"{observed} requests were completed, "
                f"{completed} are predicted: the metrics are of different ones."
            )
        if (maker := self.run.simulated_by) is not None:
            notes.append(f"The record was simulated by {maker}: nothing here was measured.")
        if self.run.failed:
            notes.append(wording.failed(self.run.failed))
        if isinstance(meaning := self.run.manifest.get("ttft"), str):
            notes.append(f"Of the record: {meaning}")
        if self.run.manifest.get("status") == "interrupted":
            notes.append("The observed run was interrupted.")
        if self.run.summary_only:
            notes.append(
                "The record is a summary: the requests that are predicted were drawn from the laws "
                "of its scenario, so that chance is part of every error."
            )
        elif self.run.iterations is None:
            notes.append(
                "The record has no iterations (iterations.csv): errors of iteration times cannot "
                "be separated from those of scheduling."
            )
        return [*notes, *map(wording.tried_text, self._short_of())]

    def _short_of(self) -> list[TriedSetting]:
        """Open settings that were simulated and do not explain the metrics."""
        return [each for each in self.advice.tried if not each.explains]


def _setting(each: TriedSetting, before: float) -> dict[str, Any]:
    """A setting that explains the metrics, as a change."""
    share = 1 - each.left / before
    title, text = wording.setting_words(each)
    return {
        "cause": "setting",
        **{"value": None, "low": None, "high": None},
        "share": share,
        "share_text": wording.share_text(share),
        "confidence": MEDIUM,
        "rivals": [],
        "title": title,
        "text": text,
    }


def _observed(run: ObservedRun) -> dict[str, Any]:
    return {
        "directory": str(run.path),
        "name": run.name,
        "engine": run.engine,
        "device": run.device,
        "precision": run.precision,
        "date": run.date,
        "requests": run.summary.get("completed") if run.summary_only else len(run.requests),
        "completed": run.summary.get("completed"),
    }


def _figure(row: ValidatedFigure) -> dict[str, Any]:
    sides = row.observed, row.predicted
    return ErrorRow(row.key, row.unit, *sides, row.error, row.noise, row.within_band)._asdict()


def _regime(regime: Regime) -> dict[str, Any]:
    return RegimeRow(*regime, regime.error)._asdict()


def _agreement(found: Agreement) -> dict[str, Any]:
    parting = found.parting
    return {
        "observed": found.observed,
        "predicted": found.predicted,
        "same": found.same,
        "share": found.share,
        "first_difference": None
        if parting is None
        else {
            "iteration": parting.iteration,
            "columns": list(COLUMNS),
            "observed": None if parting.observed is None else list(parting.observed),
            "predicted": None if parting.predicted is None else list(parting.predicted),
        },
    }
