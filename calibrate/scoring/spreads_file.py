"""Writes what was learnt of the errors of predictions as ``sim/catalog/spreads.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from calibrate.scoring.learning import figures, learn
from calibrate.scoring.predict import Scored
from sim.errors import UsageError
from sim.version import version

FEWEST = 5
"""Places without which there is nothing to learn."""


def spreads_yaml(rows: Sequence[Scored]) -> str:
    """The file. Raises UsageError for too few places."""
    known = figures(rows)
    places = {each.place.deployment for each in known}
    if len(places) < FEWEST:
        raise UsageError(
            f"--learn-bands needs predicted rows of {FEWEST} deployments (engine, GPU and model) "
            f"or more, not of {len(places)}"
        )
    found = learn(known)
    common = ", ".join(f"{part}: {size:g}" for part, size in found.common.items())
    lines = [
        "# How far published figures lie from their predictions: sim/catalog/spreads.py. Made by",
        "# `infersim score TABLES --learn-bands FILE`; not to be edited.",
        f"origin: errors of {len(known):,} published figures of {len(places)} deployments "
        f"(engine, GPU and model), infersim {version()}, {date.today():%Y-%m-%d}",
        "# standard deviation of what errors have in common, in units of `within`",
        f"common: {{{common}}}",
        "# how far errors within a deployment are shared by two of its figures",
        f"shared: {found.shared:g}",
        "# spreads to either side that hold half and nine tenths of figures that were left out",
        "multiples:",
        *(
            f"  '{name}': {{half: {each.half:g}, ninety: {each.ninety:g}}}"
            for name, each in sorted(found.multiples.items())
        ),
        "# median of log(measured / predicted), and how far figures of a deployment lie apart",
        "kinds:",
        *(
            f"  '{name}': {{centre: {each.centre:.3f}, within: {each.within:.3f}}}"
            for name, each in sorted(found.kinds.items())
        ),
        "compared:",
    ]
    for row in sorted(found.rows, key=lambda row: (row.place, row.kind)):
        named: Mapping[str, object] = {
            "engine": row.place.engine,
            "gpu": row.place.gpu,
            "model": row.place.model,
            "release": f"'{row.place.release}'",
            "of": f"'{row.kind}'",
            "figures": row.figures,
            "layouts": row.layouts,
            "centre": f"{row.centre:.3f}",
            "within": f"{row.within:.3f}",
        }
        lines.append(f"  - {{{', '.join(f'{key}: {value}' for key, value in named.items())}}}")
    return "\n".join(lines) + "\n"
