"""Provides the pages of commands that need many runs of a scenario: sweeps, comparisons, plans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.pages.planning import findings
from sim.findings import Heading
from sim.results.whole_file import write_text


def write_page(
    command: str, target: Path, document: Mapping[str, Any], more: Heading | None = None
) -> Path:
    """Write the page of a command's answer to ``target``, whole or not at all, and return it.

    ``more`` is a section beyond the answer. OSError if it cannot be written.
    """
    write_text(target, findings.render(command, document, more))
    return target
