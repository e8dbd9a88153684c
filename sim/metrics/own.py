"""Evaluates a user's own metrics: functions of a result that give a number or several by name.

A scenario names them in ``metrics``. They are called after a run, for each repetition by itself;
one that fails has no value and leaves a note, and everything else stays the same.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from sim.errors import UsageError, shorten
from sim.plugins import load_function

PREFIX = "metrics."
"""The prefix of such a metric's name where headline metrics are listed."""

FAILED = "The metric "
"""How the note on a metric without a value begins."""

Values = dict[str, float | None]


def load_metrics(texts: Sequence[str], folders: Sequence[Path]) -> dict[str, Callable[..., Any]]:
    """Each function by the name of its metric, which is its own.

    UsageError for a text that leads nowhere, and for two functions of one name.
    """
    names = Counter(text.rpartition(":")[2] for text in texts)
    for name, count in names.items():
        if count > 1:
            raise UsageError(f"metrics: {count} functions are called {name!r}; rename one of them")
    return {text.rpartition(":")[2]: load_function(text, "metric", folders) for text in texts}


def own_metrics(
    functions: Mapping[str, Callable[..., Any]], result: Callable[[], object]
) -> tuple[Values, list[str]]:
    """The value of each metric, and a note on each that failed.

    ``result`` makes what a function is given, anew for each, so that none can change what another
    one sees. A mapping ``{"p50": 1.0}`` of the function ``wait`` is the metric ``wait.p50``. NaN
    and None mean undefined. What a function prints goes to stderr.
    """
    values: Values = {}
    notes = []
    for name, function in functions.items():
        try:
            with redirect_stdout(sys.stderr):
                found = function(result())
            values |= _read(name, found)
        except (Exception, SystemExit) as error:  # whatever a user's function does
            values[name] = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            notes.append(f"{FAILED}{name} failed and has no value ({shorten(reason)}).")
    return values, notes


def failures(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The notes on metrics that failed in runs with these summaries, each once."""
    notes = [note for summary in summaries for note in summary["infersim"]["notes"]]
    return list(dict.fromkeys(note for note in notes if note.startswith(FAILED)))


def mean_metrics(details: Sequence[Mapping[str, Any]]) -> Values:
    """The mean of each metric over the repetitions in which it is defined.

    ``details`` are the ``infersim`` entries of their summaries.
    """
    names = dict.fromkeys(name for detail in details for name in detail.get("metrics") or {})
    means: Values = {}
    for name in names:
        known = [value for d in details if (value := d["metrics"].get(name)) is not None]
        same = bool(known) and all(value == known[0] for value in known)
        means[name] = known[0] if same else math.fsum(known) / len(known) if known else None
    return means


def headline_metrics(own: Mapping[str, Any]) -> Values:
    """The metrics of the ``infersim`` entry of a summary, by the names that headlines have."""
    return {PREFIX + name: value for name, value in (own.get("metrics") or {}).items()}


def _read(name: str, found: object) -> Values:
    """A function's result as plain numbers by name; TypeError for anything else."""
    if not isinstance(found, Mapping):
        return {name: _number(found)}
    values = {}
    for key, value in found.items():
        if not isinstance(key, str) or not key.strip() or not key.isprintable():
            raise TypeError(f"returned a mapping with the key {key!r}; expected one line of text")
        values[f"{name}.{key}"] = _number(value)
    return values


def _number(value: object) -> float | int | None:
    """``value`` as JSON can hold it."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # of numpy
    if value is None or isinstance(value, Integral):
        return None if value is None else int(value)
    if not isinstance(value, Real):
        kind = type(value).__name__
        raise TypeError(f"returned {kind}; expected a number or a mapping of texts to numbers")
    number = float(value)
    if math.isinf(number):
        raise ValueError("returned an infinite number")
    return None if math.isnan(number) else number
