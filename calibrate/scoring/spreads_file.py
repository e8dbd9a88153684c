"""Writes what was learnt of the errors of predictions as ``sim/catalog/spreads.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from calibrate.scoring.learning import (
    BEFORE,
    FREEDOM,
    learn_left_out,
    sample,
    sources_of_causes,
)
from calibrate.scoring.predict import Scored
from sim.catalog.spreads import Spreads
from sim.errors import UsageError
from sim.metrics.bands.bands import CAUSES
from sim.version import version

FEWEST = 5
"""Sources without which there is nothing to learn."""


def spreads_yaml(rows: Sequence[Scored]) -> str:
    """The file. Raises UsageError for too few sources."""
    known = sample(rows)
    counts, sources = sources_of_causes(known), len(set(known.source))
    if sources < FEWEST:
        raise UsageError(
            f"--learn-bands needs predicted rows of {FEWEST} sources (engine, GPU and model) or "
            f"more, not of {sources}"
        )
    everything, without = learn_left_out(known)
    lines = [
        "# How far each part of a prediction is usually off: sim/catalog/spreads.py. Made by",
        "# `infersim score TABLES --learn-bands FILE`; not to be edited.",
        f"origin: errors of {len(known.error):,} published figures of {len(without)} sources "
        f"(engine, GPU and model), infersim {version()}, {date.today():%Y-%m-%d}; tails "
        f"of Student's t with {FREEDOM:g} degrees of freedom",
        f"multiples: {_multiples(everything)}",
        f"scales: {_scales(everything)}",
        "causes:",
    ]
    for name in CAUSES:
        prior, why = BEFORE[name]
        text = f"spread: {everything.of[name]:g}, sources: {counts[name]}, before: {prior:g}"
        lines.append(f'  {name!r}: {{{text}, why: "{why}"}}')
    lines.append("without:")
    for source, spreads in without.items():
        differ = {n: value for n, value in spreads.of.items() if value != everything.of[n]}
        named = ", ".join(f"{name!r}: {value:g}" for name, value in differ.items())
        lines += [
            f"  - source: {source!r}",
            f"    multiples: {_multiples(spreads)}",
            f"    scales: {_scales(spreads)}",
            f"    spreads: {{{named}}}",
        ]
    return "\n".join(lines) + "\n"


def _scales(spreads: Spreads) -> str:
    named = ", ".join(f"{name!r}: {value:g}" for name, value in spreads.scales.items())
    return f"{{{named}}}"


def _multiples(spreads: Spreads) -> str:
    half, ninety = f"half: {spreads.half:g}", f"ninety: {spreads.ninety:g}"
    return f"{{{half}, {ninety}, shared: {spreads.shared:g}}}"
