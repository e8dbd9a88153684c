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


def test_the_page_states_the_errors_of_products_by_blocks() -> None:
    """One row of errors for each framework, below the names of the GPUs, of which none is
    missing."""
    lines = (ROOT / "calibrate" / "QUANTISED.md").read_text("utf-8").splitlines()
    rows = list(map(_cells, lines))
    (head,) = (at for at, (first, *_) in enumerate(rows) if first == "fp8-block")
    _, *gpus = rows[head]
    told = {
        (gpu, framework): error
        for framework, *errors in rows[head + 2 : head + 4]
        for gpu, error in zip(gpus, errors, strict=True)
    }
    found = {}
    for gpu in names("aiconfigurator").values():
        for framework in catalog.frameworks(gpu):
            gemm = catalog.shipped_profile(gpu, framework).kernels.get("gemm", {})
            if "fp8-block" in gemm:
                score = gemm["fp8-block"].holdout
                found[gpu, framework] = f"{score.median * 100:.1f} / {score.p90 * 100:.0f}"
    assert told == found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
