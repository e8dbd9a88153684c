"""Brings ``sim/catalog/whole_runs.yaml`` up to the evidence.

Errors of dense models come from its part on those, errors of models with experts from that on every
row; which kinds of runs are quoted, and of which models, stays as the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from calibrate.scoring.report import TITLES, Part
from sim.errors import UsageError

ENTRY = re.compile(
    r'(?P<before>  - \{kind: "(?P<kind>[^"]+)".*of: (?P<of>\S+), rows: )\d+, '
    r"median: [\d.]+, p90: [\d.]+(?P<after>.*)"
)
"""A line of the file."""

KindErrors = Mapping[tuple[str, str], tuple[int, float, float]]
"""Rows, median and p90 of each kind and quantity."""


def errors_by_kind(summary: Part) -> KindErrors:
    """The errors of a summary of the evidence, in percent to one decimal; quantities as texts name
    them."""
    return {
        (group["kind"], TITLES[of]): (
            found["count"],
            round(found["median"], 1),
            round(found["p90"], 1),
        )
        for group in summary["kinds"]
        for of, found in group["errors"].items()
    }


def updated(text: str, evidence: Part) -> str:
    """The file ``text`` with the errors of dense models and of every row, where dense models are
    that the other part lacks.

    Raises UsageError for an entry that the evidence does not have.
    """
    dense, every = (errors_by_kind(evidence[part]) for part in ("dense", "every"))
    engine, lines = "", []
    for line in text.split("\n"):
        if re.fullmatch(r"\S+:", line):
            engine = line[:-1]
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            kind, of, experts = entry["kind"], entry["of"], "experts: true" in line
            names = [f"{kind}, {engine}, experts"] if experts else [kind, f"{kind}, {engine}"]
            known = every if experts else {**every, **dense}
            found = next((known[name, of] for name in names if (name, of) in known), None)
            if found is None:
                raise UsageError(f"{engine}: the evidence has no {of} of {kind}")
            rows, median, p90 = found
            lines.append(f"{entry['before']}{rows}, median: {median}, p90: {p90}{entry['after']}")
        else:
            lines.append(line)
    return "\n".join(lines)
