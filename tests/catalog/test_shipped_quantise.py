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
    """One row of errors, below the names of the GPUs, of which none is missing."""
    lines = (ROOT / "calibrate" / "QUANTISED.md").read_text("utf-8").splitlines()
    table = {first: rest for first, *rest in map(_cells, lines) if first in ("fp8-block", "error")}
    found = {}
    for gpu in names("aiconfigurator").values():
        for framework in catalog.frameworks(gpu):
            gemm = catalog.shipped_profile(gpu, framework).kernels.get("gemm", {})
            if "fp8-block" in gemm:
                assert framework == "vllm"
                score = gemm["fp8-block"].holdout
                found[gpu] = f"{score.median * 100:.1f} / {score.p90 * 100:.0f}"
    assert dict(zip(table["fp8-block"], table["error"], strict=True)) == found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
