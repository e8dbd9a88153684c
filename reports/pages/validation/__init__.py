"""Provides the page of a validation: an observed run and its prediction side by side.

``render_validation`` makes it as text, ``write_validation_report`` writes it to a file. They take
what ``infersim validate-run`` has gathered: a mapping of texts, numbers and lists, the tables of
both runs, and series for the figures. Times in seconds unless a key says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.frame.run_directory import Frames
from sim.results.whole_file import write_text

__all__ = ["Frames", "render_validation", "write_validation_report"]


def render_validation(
    document: Mapping[str, Any], observed: Frames, predicted: Frames, series: Mapping[str, Any]
) -> str:
    """The page as HTML; a function of its arguments alone."""
    from reports.pages.validation import page  # noqa: PLC0415 - plotly takes long to import

    return page.render(document, observed, predicted, series)


def write_validation_report(
    target: Path,
    document: Mapping[str, Any],
    observed: Frames,
    predicted: Frames,
    series: Mapping[str, Any],
) -> None:
    """Write the page to ``target``, whole or not at all; OSError if that cannot be."""
    write_text(target, render_validation(document, observed, predicted, series))
