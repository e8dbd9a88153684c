"""Describes a diagnosis as one plain mapping, for JSON, the terminal and the page.

Changes of metrics are relative (0.1: a tenth more); ``effect`` is a factor less 1 (0.1: a tenth
better, over all metrics).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from sim.metrics.asked import asked, changed
from sim.planning.counterfactuals import EFFORTS, PROBE, lacking
from sim.planning.diagnose import WORTH, Diagnosis, Trial
from sim.planning.diagnose_words import bound_text, headline, told
from sim.planning.gains import FIGURES, figures_of
from sim.planning.points import Settings, show


def document(found: Diagnosis) -> dict[str, Any]:
    """The content of ``result.json``."""
    base = figures_of(found.base)
    own = found.base["infersim"]
    return {
        "kind": "diagnosis",
        "infersim": version("infersim"),
        "scenario": found.scenario.name,
        "description": found.scenario.description,
        "asked": asked(found.scenario) | changed(found.scenario),
        "target": found.target,
        "setup": f"{own['model']} on {own['gpus']} x {own['gpu']}, {own['engine']}",
        "verdict": own["verdict"],
        "headline": headline(found),
        "at_ease": found.at_ease,
        "rejection": None if found.rejection is None else found.rejection.document(),
        "figures": [
            {"key": f.key, "title": f.title, "unit": f.unit, "more": f.more, "value": base[f.key]}
            for f in FIGURES
        ],
        "bound": _bound(found),
        "busy_time": own["bound_by"],
        "latency": {name: dict(means) for name, means in found.latency.items()},
        "efforts": [e._asdict() for e in EFFORTS],
        "trials": [_trial(found, trial, base) for trial in found.trials],
        "advice": [trial.change.name for trial in found.advice],
        "savings": [trial.change.name for trial in found.savings],
        "plan": _plan_command(found),
        "not_tried": _not_tried(),
        "notes": [*own["notes"], *_not_tried()],
    }


def _not_tried() -> list[str]:
    """What was left out because it cannot be simulated, in a sentence."""
    missing = lacking()
    if not missing:
        return []
    return [f"Not tried, since the simulator does not have it: {', '.join(missing)}."]


def command(target: str, settings: Settings, given: Sequence[str] = ()) -> str:
    """The command that tries ``settings``, on top of the overrides ``given``.

    >>> command("chat.yaml", {"router": "random", "assume.host_time": 0.0})
    'infersim run chat.yaml --set router=random --set assume.host_time=0'
    """
    texts = [*given, *(f"{key}={show(value)}" for key, value in settings.items())]
    sets = (f"--set {shlex.quote(text)}" for text in texts)
    return " ".join(["infersim run", shlex.quote(target), *sets])


def _trial(found: Diagnosis, trial: Trial, base: Mapping[str, float | None]) -> dict[str, Any]:
    change = trial.change
    return {
        "name": change.name,
        "title": change.title,
        "settings": dict(change.settings),
        "effort": change.effort.name,
        "bound": change.bound or None,
        "command": command(found.target, change.settings, found.given),
        "error": trial.outcome.error,
        "figures": dict(trial.figures) or None,
        "changes": {key: _relative(base[key], value) for key, value in trial.figures.items()},
        "effect": None if trial.effect is None else math.expm1(trial.effect),
        "per_effort": None if change.effort is PROBE or trial.effect is None else trial.rank,
        "attainment": _verdict(trial, "attainment"),
        "told": told(found, trial),
        "slo_met": _verdict(trial, "slo_met"),
        "state": _verdict(trial, "state"),
    }


def _verdict(trial: Trial, key: str) -> Any:
    summary = trial.outcome.summary
    return None if summary is None else summary["infersim"]["verdict"][key]


def _relative(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def _plan_command(found: Diagnosis) -> str:
    """The command that looks for the cheapest fleet instead of twice the one there is."""
    length = None if found.rejection is None else found.rejection.wanted_length
    given = [*found.given, *([] if length is None else [f"max_model_len={length}"])]
    sets = "".join(f" --set {shlex.quote(text)}" for text in given)
    gpu = shlex.quote(found.scenario.fleet[0].gpu)
    return f"infersim plan {shlex.quote(found.target)} --gpus {gpu}{sets}"


def _bound(found: Diagnosis) -> dict[str, Any]:
    """What limits each figure: the what-if that helps it most."""
    helping = [trial for trial in found.probes if (trial.effect or 0.0) > WORTH]
    figures = {}
    for figure in FIGURES:
        trial = found.helping(figure.key)
        if trial is not None:
            figures[figure.key] = {"by": trial.change.bound, "shown_by": trial.change.title}
    return {
        "by": helping[0].change.bound if helping else None,
        "figures": figures,
        "text": bound_text(found),
    }
