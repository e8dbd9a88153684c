"""Provides scored rows as one JSON object. Errors in %.

The object: ``rows`` (each with its figures and their unit, seconds or per second, what was assumed,
or the reason why there is none, and the 50 % and the 90 % band of the prediction as [low, high], by
what is known without its source; where the publisher leaves open how it was measured, ``ways`` has
the prediction under each plausible way), ``groups`` by source, engine, GPU and model, ``kinds`` by
kind of measurement, ``clients`` by what is published of them, ``all``; ``advice`` says what
predictions of each engine, GPU and kind are good for. Predictions count facts that are published;
where others were read off measured results, ``inferred`` is the prediction with those, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from calibrate.scoring.errors import ErrorGroup, client, groups, kind, source
from calibrate.scoring.predict import Scored
from calibrate.scoring.uses import uses
from sim.version import version

SOURCE = ("source", "engine", "version", "gpu", "model")


def to_document(rows: Sequence[Scored]) -> dict[str, Any]:
    """The JSON document of ``rows``."""
    everything = groups(rows, lambda row: ("all",))
    return {
        "version": version(),
        "scored": sum(group.scored for group in everything),
        "skipped": sum(sum(group.skipped.values()) for group in everything),
        "all": [group_document(group, ("name",)) for group in everything],
        "kinds": [group_document(group, ("kind",)) for group in groups(rows, kind)],
        "clients": [group_document(group, ("client",)) for group in groups(rows, client)],
        "groups": [group_document(group, SOURCE) for group in groups(rows, source)],
        "advice": [
            each._asdict() | {"use": each.text}
            for each in uses([row for row in rows if row.bands is not None])
        ],
        "rows": [_row(row) for row in rows],
    }


def group_document(group: ErrorGroup, names: tuple[str, ...]) -> dict[str, Any]:
    """The errors of a group, whose name has the parts ``names``."""
    return dict(zip(names, group.name, strict=True)) | {
        "scored": group.scored,
        "skipped": sum(group.skipped.values()),
        "reasons": group.skipped,
        "errors": {quantity: asdict(found) for quantity, found in group.errors.items()},
        "bands": None if group.bands is None else asdict(group.bands),
    }


def _row(row: Scored) -> dict[str, Any]:
    published, bands = row.row, row.bands
    return {
        "source": published.file,
        "line": published.line,
        "engine": published["engine"],
        "version": published["engine_version"],
        "gpu": published["gpu"],
        "model": published["model"],
        "metric": published["metric"],
        "quantity": row.quantity,
        "preset": row.engine or None,
        "hardware": row.known.gpu if row.known else None,
        "measured": row.measured,
        "predicted": row.predicted,
        "error": None if row.error is None else 100 * row.error,
        "inferred": row.inferred,
        "band50": None if bands is None else list(bands[0]),
        "band90": None if bands is None else list(bands[1]),
        "ways": dict(row.ways),
        "client": client(row)[0] if row.known else None,
        "assumed": list(row.known.assumed) if row.known else [],
        "reason": row.reason or None,
    }
