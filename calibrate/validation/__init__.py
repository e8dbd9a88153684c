"""Compares predictions with observed runs: how far off they are, why, and what corrects them.

One directory of an observed run (``observed``, ``iterations``) is served once more by the
simulator: the same requests at the same times (``traffic``, ``prediction``). Then both are laid
side by side: metrics (``figures``), batches (``composition``), and the observed iterations next to
the cost model's times for them (``expected``, ``regimes``), which separates its errors from those
of scheduling. ``residuals`` and ``proposals`` look for what may be wrong, ``advice`` runs the
prediction again with each of these corrected (``variant``), ``wording`` words it, ``correction``
makes an engine file of it. ``engine_fit`` makes an engine preset of observed iterations,
``engine_file`` writes it. ``document`` is all of it as plain data, ``console`` as tables,
``series`` what is drawn.
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
