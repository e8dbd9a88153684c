"""The exchange of tokens in the catalogue's profiles: as good as calibrate/EXCHANGE.md says."""

from __future__ import annotations

from calibrate.gpu_names import names
from sim import catalog
from sim.cost.kernels.all_to_all import OPERATORS
from tests.places import ROOT


def test_the_page_states_the_errors_of_the_files() -> None:
    """Each row of the table of calibrate/EXCHANGE.md, and none is missing."""
    told = set()
    for line in (ROOT / "calibrate" / "EXCHANGE.md").read_text("utf-8").splitlines():
        gpu, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if gpu not in names("aiconfigurator").values():
            continue
        framework, *scores = cells
        kernels = catalog.shipped_profile(gpu, framework).kernels
        for operator, cell in zip(OPERATORS, scores, strict=True):
            held = kernels[operator]["bf16"].holdout
            assert cell == f"{held.median * 100:.1f} / {held.p90 * 100:.0f}", (line, operator)
        told.add((gpu, framework))
    assert told == {
        (gpu, framework)
        for gpu in names("aiconfigurator").values()
        for framework in catalog.frameworks(gpu)
        if OPERATORS[0] in catalog.shipped_profile(gpu, framework).kernels
    }
