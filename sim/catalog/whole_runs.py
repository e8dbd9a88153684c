"""Provides the errors of predictions of whole runs, engine by engine, on published measurements.

``whole_runs.yaml`` has the numbers of ``calibrate/evidence.json``, from which
``calibrate.scoring.pages`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml
from sim.catalog.spreads import learnt, related

_FILE = Path(__file__).with_name("whole_runs.yaml")


class WholeRunError(NamedTuple):
    """The error of one metric (``of``) over the ``rows`` of a ``kind`` of measurement: median and
    90th percentile of its absolute value, in percent of the measurement. ``models`` and ``gpus``
    are those of the rows. ``in_sample``: the catalogue was adjusted to these very rows."""

    kind: str
    models: str
    gpus: tuple[str, ...]
    of: str
    rows: int
    median: float
    p90: float
    in_sample: bool = False


DRIVEN = {
    "closed loop": "a closed loop",
    "online": "requests that arrive at a rate",
    "offline": "all requests at once",
    "static batch": "static batches",
}
"""The first words of a kind of measurement: how requests came, and how a sentence says it."""


@cache
def whole_run_errors(engine: str, *, experts: bool = False) -> tuple[WholeRunError, ...]:
    """The errors of runs of this engine preset, of dense models or of those with ``experts``; none
    where no published run was predicted."""
    entry = Fields(str(_FILE), read_yaml(_FILE))
    engine = related(engine)
    if not entry.has(engine):
        return ()
    return tuple(
        WholeRunError(
            row.text("kind"),
            row.text("models"),
            tuple(row.text("gpus").split()),
            row.text("of"),
            row.count("rows"),
            row.number("median"),
            row.number("p90"),
            row.flag("in_sample", absent=False),
        )
        for row in entry.mappings(engine)
        if row.flag("experts", absent=False) == experts
    )


def whole_runs_text(engine: str, gpus: Sequence[str], driven: str, *, experts: bool = False) -> str:
    """The evidence from whole runs of this engine preset on ``gpus``, of dense models or of those
    with ``experts``, in a sentence or two. ``driven`` (a key of ``DRIVEN``) says how requests come
    in the run that it is about.

    >>> whole_runs_text("ideal", ["h100-sxm"], "online")
    'No published run of ideal was compared with its prediction.'
    >>> whole_runs_text("vllm", ["l4"], "online")
    'No published run of vllm on l4 was compared with its prediction.'

    It is empty where runs on those GPUs were compared of which no errors are quoted here: the band
    rests on them, which is said where those of other GPUs are quoted.

    >>> whole_runs_text("vllm", ["b200-sxm"], "online")
    ''
    >>> whole_runs_text("vllm", ["b200-sxm", "h100-sxm"], "closed loop").partition("Those")[2]
    ' on b200-sxm are in the error band alone.'
    """
    engine = related(engine)
    known = [each for each in whole_run_errors(engine, experts=experts) if not each.in_sample]
    of = f"{engine} with experts" if experts else engine
    errors = [each for each in known if set(each.gpus) & set(gpus)]
    compared = learnt().compared
    if not errors:
        if any(compared(engine=engine, gpu=gpu) for gpu in gpus):
            return ""
        on = f" on {' or '.join(dict.fromkeys(gpus))}" if known else ""
        return f"No published run of {of}{on} was compared with its prediction."
    kinds: dict[str, list[WholeRunError]] = {}
    for each in errors:
        kinds.setdefault(f"{each.kind}, {each.models} on {' and '.join(each.gpus)}", []).append(
            each
        )
    parts = [f"{kind}: {_of_kind(rows)}" for kind, rows in kinds.items()]
    text = (
        f"Whole published runs of {of} were predicted with these errors (median / p90): "
        f"{'; '.join(parts)}."
    )
    quoted = {gpu for each in errors for gpu in each.gpus}
    unquoted = [gpu for gpu in dict.fromkeys(gpus) if gpu not in quoted]
    lacking = [gpu for gpu in unquoted if not compared(engine=engine, gpu=gpu)]
    banded = [gpu for gpu in unquoted if gpu not in lacking]
    text += f" Those on {' and '.join(banded)} are in the error band alone." if banded else ""
    if not any(each.kind.startswith(driven) for each in errors):
        lacking.append(DRIVEN[driven])
    return text + (f" None of them with {', nor with '.join(lacking)}." if lacking else "")


def _of_kind(errors: Sequence[WholeRunError]) -> str:
    return ", ".join(f"{e.of} {e.median:.0f} / {e.p90:.0f} %" for e in errors)
