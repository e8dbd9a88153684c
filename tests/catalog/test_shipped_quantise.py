"""Quantisation in the catalogue's profiles: as good as calibrate/QUANTISED.md says."""

from __future__ import annotations

from calibrate.gpu_names import names
from sim import catalog
from tests.places import ROOT


def test_the_page_states_the_errors_of_the_files() -> None:
    """Each row of the table of calibrate/QUANTISED.md, and none is missing."""
    told = set()
    for line in (ROOT / "calibrate" / "QUANTISED.md").read_text("utf-8").splitlines():
        gpu, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if gpu in names("aiconfigurator").values():
            told.add((gpu, *cells[:2]))
    found = set()
    for gpu in names("aiconfigurator").values():
        for framework in catalog.frameworks(gpu):
            for fit in catalog.shipped_profile(gpu, framework).kernels.get("quantise", {}).values():
                score = fit.holdout
                found.add((gpu, framework, f"{score.median * 100:.1f} / {score.p90 * 100:.0f}"))
    assert told == found
