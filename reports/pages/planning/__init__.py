"""Provides the pages of commands that need many runs of a scenario: sweeps, comparisons, plans.

The page of a command is the module of its name here: ``render(document)`` gives it as HTML.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from reports.pages.planning import findings
from sim.findings import Heading
from sim.results.whole_file import write_text

FOUND = ("ablate", "claims", "compare", "diagnose", "find", "sensitivity", "sweep")
"""Commands whose answers have ``sim.findings``; another one has a page of its own."""


def write_page(
    command: str, target: Path, document: Mapping[str, Any], more: Heading | None = None
) -> Path:
    """Write the page of a command's answer to ``target``, whole or not at all, and return it.

    ``more`` is a section beyond the answer. OSError if it cannot be written.
    """
    if command in FOUND:
        page = findings.render(command, document, more)
    else:
        page = import_module(f"{__name__}.{command}").render(document)
    write_text(target, page)
    return target
