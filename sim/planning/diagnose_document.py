"""What does a diagnosis say? One plain mapping, for JSON, the terminal and the page.

Changes of figures are relative (0.1: a tenth more); ``effect`` is a factor less 1 (0.1: a tenth
better, over all figures).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from sim.planning.counterfactuals import EFFORTS, PROBE, lacking
from sim.planning.diagnose import WORTH, Diagnosis, Trial
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
        "target": found.target,
        "setup": f"{own['model']} on {own['gpus']} x {own['gpu']}, {own['engine']}",
        "verdict": own["verdict"],
        "figures": [
            {"key": f.key, "title": f.title, "unit": f.unit, "more": f.more, "value": base[f.key]}
            for f in FIGURES
        ],
        "bound": _bound(found),
        "latency": {name: dict(means) for name, means in found.latency.items()},
        "efforts": [e._asdict() for e in EFFORTS],
        "trials": [_trial(found, trial, base) for trial in found.trials],
        "advice": [trial.change.name for trial in found.advice],
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
        "slo_met": _verdict(trial, "slo_met"),
        "state": _verdict(trial, "state"),
    }


def _verdict(trial: Trial, key: str) -> Any:
    summary = trial.outcome.summary
    return None if summary is None else summary["infersim"]["verdict"][key]


def _relative(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def _bound(found: Diagnosis) -> dict[str, Any]:
    """What binds, in words: the probe that helps most, and the batch if that helps more."""
    helping = [trial for trial in found.probes if (trial.effect or 0.0) > WORTH]
    if not helping:
        text = (
            "Neither memory, bandwidth, arithmetic nor host time binds: twice as much of any "
            "changes less than 2 %. What is left is the traffic itself, or a setting."
        )
        return {"by": None, "text": text}
    first = helping[0]
    text = f"Bound by {first.change.bound}: {_told(first)}."
    if len(helping) > 1:
        others = "; ".join(_told(trial) for trial in helping[1:])
        text += f" For comparison: {others}."
    return {"by": first.change.bound, "text": text}


def _told(trial: Trial) -> str:
    """``twice the memory: output tokens/s +20 %, p99 TTFT -31 %``."""
    told = []
    for figure in FIGURES:
        gain = trial.gains.get(figure.key)
        if gain is not None and abs(gain) > WORTH:
            told.append(f"{figure.title} {math.expm1(gain if figure.more else -gain):+.0%}")
    return f"{trial.change.title}: {', '.join(told) or 'next to nothing'}"
