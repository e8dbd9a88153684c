"""Provides the page of a profile: what is known of a GPU's kernels, and how well.

``render_profile`` makes it as text, ``write_profile_report`` writes it to a file. Both take what
``infersim calibrate report`` has gathered: a mapping of texts, numbers and lists, and the measured
points as columns. Errors are shares, times seconds, work FLOP and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.results.whole_file import write_text

__all__ = ["render_profile", "write_profile_report"]


def render_profile(document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]) -> str:
    """The page as HTML; a function of its arguments alone."""
    from reports.pages.profile import page  # noqa: PLC0415 - plotly takes long to import

    return page.render(document, points)


def write_profile_report(
    target: Path, document: Mapping[str, Any], points: Mapping[str, Sequence[Any]]
) -> None:
    """Write the page to ``target``, whole or not at all; OSError if that cannot be."""
    write_text(target, render_profile(document, points))
