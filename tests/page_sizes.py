"""Measures how big a page of each kind is, and how long it takes to make.

    python -m tests.page_sizes

Prints a Markdown table: megabytes of the file, of which the drawing library is what all have in
common, and seconds of CPU to render it from its data, the library packed before.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from reports.frame.page import plotly_js
from tests.page_kinds import KINDS, LARGE


def main() -> None:
    """Render every page once and print the table."""
    library = len(plotly_js().packed)
    for kind in KINDS.values():  # the first of all pays for imports and templates
        with tempfile.TemporaryDirectory() as folder:
            kind.render(Path(folder))
    print("| page | MB | of its own (kB) | CPU to render (s) |")
    print("|---|---|---|---|")
    for name, kind in {**KINDS, "run of 100,000 requests": LARGE}.items():
        with tempfile.TemporaryDirectory() as folder:
            begin = time.process_time()
            size = len(kind.render(Path(folder)).encode())
            spent = time.process_time() - begin
        print(f"| {name} | {size / 1e6:.2f} | {(size - library) / 1e3:,.0f} | {spent:.2f} |")


if __name__ == "__main__":
    main()
