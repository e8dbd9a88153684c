"""Predictions beside observed runs: how far off they are, why, and what puts them right.

One directory of an observed run (``observed``, ``iterations``) is served once more by the
simulator: the same requests at the same times (``traffic``, ``prediction``). Then both are laid
side by side: figures (``figures``), batches (``composition``), and the observed iterations beside
what the cost model asks for them (``pricing``, ``regimes``), which tells its errors from those of
scheduling. ``residuals`` and ``proposals`` look for what may be wrong, ``advice`` plays the run
again with each of these put right (``variant``), ``wording`` tells it, ``correction`` makes an
engine file of it. ``engine_fit`` makes an engine preset of observed iterations, ``engine_file``
writes it. ``document`` is all of it as plain data, ``console`` as tables, ``series`` what is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Called(NamedTuple):
    """With what ``infersim validate-run`` was called, so that it can be called again."""

    run: Path
    scenario: Path | None
    overrides: Sequence[str]
    gpu: str | None
    repeat: Sequence[Path]
