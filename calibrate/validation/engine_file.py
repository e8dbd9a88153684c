"""Writes a fitted engine as a file, and recognises one that was fitted to the run it is judged on.

The file has the form of the catalogue's own: each value with its source. It also names the runs
that it was fitted to by the hashes of their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from math import inf
from pathlib import Path
from typing import Literal

import yaml

from calibrate.validation.engine_fit import NOTHING_IN_FRONT, EngineFit, FittedTerm
from calibrate.validation.observed import ITERATIONS, ObservedRun
from sim.catalog.engine_file import FACTORS
from sim.errors import UsageError
from sim.results.run_result import REQUESTS
from sim.results.whole_file import write_text
from sim.specs.engine import (
    NO_FACTORS,
    EngineDefaults,
    EngineSpec,
    ExpertInputs,
    FittedTo,
    FusedSums,
    Mxfp4Padding,
)
from sim.units import show_time

_FITTED = ", fitted to observed runs"

NO_ITERATIONS = "none"
"""The stand-in for the hash of iterations that a run has not recorded."""

Entries = list[tuple[str, object]]
NOTHING = ("", inf, ())
"""Values by which an entry of a list limits nothing."""

OF_RELEASES = ("releases", "release", "per_iteration_ahead")
"""The keys that a fitted engine lacks: it is of one release, and of one way to plan iterations."""

Sampled = Literal["in sample", "held out"]


def sampled(engine: EngineSpec, run: ObservedRun) -> Sampled | None:
    """Whether ``engine`` was fitted to ``run``; None for one that was fitted to nothing."""
    if not engine.fitted_to:
        return None
    ours = (run.hashes.get(ITERATIONS, NO_ITERATIONS), run.hashes[REQUESTS])
    seen = any((fit.iterations, fit.requests) == ours for fit in engine.fitted_to)
    return "in sample" if seen else "held out"


def engine_document(
    fit: EngineFit, runs: Sequence[ObservedRun], kernels: str, today: date
) -> dict[str, object]:
    """The engine as a mapping for YAML; ``kernels`` says where the kernel timings come from."""
    base = fit.base
    names = ", ".join(run.name for run in runs)
    count = sum(quality.iterations for quality in fit.after)
    origin = f"{today.isoformat()}, {count:,} iterations of {names}"
    title = base.title.removesuffix(_FITTED)
    document: dict[str, object] = {"title": f"{title}{_FITTED}"}
    for term in fit.terms:
        document[term.name] = _entry(term, base, f"Fitted {origin}")
    document["front_end"] = _entry(
        fit.front_end, base, f"Requests that met an idle engine, {origin}"
    )
    keys = {name: key for key, name in FACTORS.items()}
    for term in fit.factors:
        document[keys[term.name]] = _factor(term, f"Fitted {origin}; kernels: {kernels}")
    document["overlapped"] = {
        "value": False,
        "source": f"Host and kernels are fitted as a sum. Kernels: {kernels}",
    }
    document = inherited(document, base)  # iterations say nothing of the rest
    fitted = [FittedTo(run.name, run.hashes[ITERATIONS], run.hashes[REQUESTS]) for run in runs]
    whys = {term.why for term in (*fit.terms, *fit.factors, fit.front_end)}
    kept = bool(whys - {"", NOTHING_IN_FRONT})
    if kept or (base.factors != NO_FACTORS and not fit.factors):
        fitted += base.fitted_to  # something of those runs is still in it
    document["fitted_to"] = [run._asdict() for run in fitted]
    return document


def inherited(document: Mapping[str, object], base: EngineSpec) -> dict[str, object]:
    """``document`` with every other value of ``base``, unchanged."""
    rest = {
        key: {"value": _plain(_value(base, key)), "source": f"As in {base.name}: {source}"}
        for key, source in base.sources.items()
        if key not in document and key not in OF_RELEASES
    }
    return {**document, **rest}


def _entry(term: FittedTerm, base: EngineSpec, origin: str) -> dict[str, str]:
    if term.why == NOTHING_IN_FRONT:
        source = f"{term.why.capitalize()} of the observed engine."
    elif term.why:
        source = f"As in {base.name}, since {term.why}: {base.sources[term.name]}"
    else:
        source = f"{origin}; 95 %: {show_time(term.low)} to {show_time(term.high)}."
    return {"value": f"{term.value * 1e6:.5g}us", "source": source}


def _factor(term: FittedTerm, origin: str) -> dict[str, object]:
    """A factor, which is always the product with the one that the base had."""
    told = f"kept, since {term.why}" if term.why else f"95 %: {term.low:.3f} to {term.high:.3f}"
    return {"value": float(f"{term.value:.5g}"), "source": f"{origin}; {told}."}


def _value(engine: EngineSpec, key: str) -> object:
    """The base's own value of ``key``."""
    name = FACTORS.get(key)
    return getattr(engine, key) if name is None else getattr(engine.factors, name)


def _stated(entry: EngineDefaults | Mxfp4Padding | ExpertInputs | FusedSums) -> Entries:
    """The keys of an entry with their values, without those that say nothing."""
    return [(key, _plain(each)) for key, each in entry._asdict().items() if each not in NOTHING]


def _plain(value: object) -> object:
    """A value as YAML has it, in SI units."""
    if isinstance(value, EngineDefaults):
        return {("set" if key == "settings" else key): each for key, each in _stated(value)}
    if isinstance(value, Mxfp4Padding | ExpertInputs | FusedSums):
        return dict(_stated(value))
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def write_engine(path: Path, document: Mapping[str, object], option: str = "--fit-engine") -> None:
    """Write the engine to ``path``, which ``option`` named; UsageError where that is there already,
    or cannot be."""
    if path.exists():
        raise UsageError(f"{option} {path}: exists; give another name, or remove it")
    text = yaml.safe_dump(dict(document), sort_keys=False, width=100, allow_unicode=True)
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written ({error.strerror})") from None
