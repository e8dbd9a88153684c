"""Brings ``sim/catalog/whole_runs.yaml`` up to the pages of validation.

Errors of dense models come from one page, those of models with experts from that of all rows; which
kinds of runs are quoted, and of which models, stays as the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sim.errors import UsageError
from sim.results.whole_file import write_text

KIND = re.compile(r"^\| (.+?) \| (\S+) \| (\d+) \| \S+ \| (\S+) \| (\S+) \|", re.MULTILINE)
"""A row of a page: the kind of measurement, of which quantity, how many, bias, median and p90."""

ENTRY = re.compile(
    r'(?P<before>  - \{kind: "(?P<kind>[^"]+)".*of: (?P<of>\S+), rows: )\d+, '
    r"median: [\d.]+, p90: [\d.]+(?P<after>.*)"
)
"""A line of the file."""

Published = Mapping[tuple[str, str], tuple[int, float, float]]
"""Rows, median and p90 of each kind and quantity."""

PAGES = Path(__file__).parents[1]
FILE = PAGES.parent / "sim" / "catalog" / "whole_runs.yaml"


def published(page: str) -> Published:
    """The errors of a page by kind of measurement and quantity."""
    table = page.split("## By kind of measurement", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    return {
        (kind, of): (int(rows), float(median), float(p90))
        for kind, of, rows, median, p90 in KIND.findall(table)
    }


def updated(text: str, dense: Published, every: Published) -> str:
    """The file ``text`` with the errors of the page of ``dense`` models and of that of ``every``
    row, where dense models are that the other lacks.

    Raises UsageError for an entry that its page does not have.
    """
    engine, lines = "", []
    for line in text.split("\n"):
        if re.fullmatch(r"\S+:", line):
            engine = line[:-1]
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            kind, of, experts = entry["kind"], entry["of"], "experts: true" in line
            names = [f"{kind}, {engine}, experts"] if experts else [kind, f"{kind}, {engine}"]
            page = every if experts else {**every, **dense}
            found = next((page[name, of] for name in names if (name, of) in page), None)
            if found is None:
                raise UsageError(f"{engine}: no page has {of} of {kind}")
            rows, median, p90 = found
            lines.append(f"{entry['before']}{rows}, median: {median}, p90: {p90}{entry['after']}")
        else:
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Write the file anew."""
    dense, every = (
        published((PAGES / name).read_text(encoding="utf-8"))
        for name in ("VALIDATION.md", "VALIDATION-wide.md")
    )
    write_text(FILE, updated(FILE.read_text(encoding="utf-8"), dense, every))


if __name__ == "__main__":
    main()
