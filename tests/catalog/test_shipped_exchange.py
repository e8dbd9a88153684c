"""The exchange of tokens in the catalogue's profiles: as good as calibrate/EXCHANGE.md says."""

from __future__ import annotations

from calibrate.gpu_names import names
from sim import catalog
from sim.cost.kernels.all_to_all import OPERATORS, OVER_NVLINK, kind_of
from sim.specs.profile import GATHERS
from tests.places import ROOT

DEEPEP = [name for name in OPERATORS if kind_of(name) not in OVER_NVLINK]
NVLINK = [name for name in OPERATORS if kind_of(name) in OVER_NVLINK]


def test_the_page_states_the_errors_of_the_files() -> None:
    """Each row of the tables of calibrate/EXCHANGE.md, and none is missing."""
    told: dict[str, set[tuple[str, str]]] = {DEEPEP[0]: set(), NVLINK[0]: set()}
    operators = DEEPEP
    for line in (ROOT / "calibrate" / "EXCHANGE.md").read_text("utf-8").splitlines():
        operators = NVLINK if line.startswith("## Over NVLink") else operators
        if line.startswith("## Sums over GPUs"):
            break
        gpu, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if gpu not in names("aiconfigurator").values():
            continue
        framework, *scores = cells
        kernels = catalog.shipped_profile(gpu, framework).kernels
        for operator, cell in zip(operators, scores, strict=True):
            held = kernels[operator]["bf16"].holdout
            assert cell == f"{held.median * 100:.1f} / {held.p90 * 100:.0f}", (line, operator)
        told[operators[0]].add((gpu, framework))
    for operator, rows in told.items():
        assert rows == {
            (gpu, framework)
            for gpu in names("aiconfigurator").values()
            for framework in catalog.frameworks(gpu)
            if operator in catalog.shipped_profile(gpu, framework).kernels
        }


def test_the_page_states_the_errors_of_gathers() -> None:
    """The same library is in the profiles of every framework."""
    page = (ROOT / "calibrate" / "EXCHANGE.md").read_text("utf-8")
    told = {}
    for line in page.partition("## Gathers over GPUs")[2].splitlines():
        gpu, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if gpu in names("aiconfigurator").values():
            told[gpu] = cells
    assert told.keys() == set(names("aiconfigurator").values())
    for gpu, (version, *scores) in told.items():
        for framework in catalog.frameworks(gpu):
            kernels = catalog.shipped_profile(gpu, framework).kernels
            for operator, cell in zip(GATHERS, scores, strict=True):
                fit = kernels[operator]["bf16"]
                held = fit.holdout
                assert fit.kernel == f"nccl {version}: NCCL"
                assert cell == f"{held.median * 100:.1f} / {held.p90 * 100:.0f}", (gpu, operator)
