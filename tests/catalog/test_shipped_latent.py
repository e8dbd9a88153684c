"""Latent and sparse attention in the catalogue's profiles: as good as calibrate/LATENT.md says."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.gpu_names import names
from sim import catalog
from sim.cost import CostModel, Deployment
from sim.iteration import Part
from sim.specs.layout import Layout
from tests.places import ROOT

OPERATORS = ("mla_decode", "mla_prefill", "dsa_decode", "dsa_prefill")


def test_the_page_states_the_errors_of_the_files() -> None:
    """Each row of the table of calibrate/LATENT.md, and none is missing."""
    told = set()
    for line in (ROOT / "calibrate" / "LATENT.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[2] in OPERATORS:
            told.add(tuple(cells))
    found = set()
    for gpu in names("aiconfigurator").values():
        for framework in catalog.frameworks(gpu):
            profile = catalog.gpu(gpu, kernels=framework).profile
            assert profile is not None
            for operator in OPERATORS:
                for precision, fit in profile.kernels.get(operator, {}).items():
                    score = fit.holdout
                    error = f"{score.median * 100:.1f} / {score.p90 * 100:.0f}"
                    found.add((gpu, framework, operator, precision, error))
    assert told == found


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm"])
@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v3.2", "glm-5"])
def test_it_is_measured_on_eight_gpus(gpu: str, model: str) -> None:
    for kv in ("bf16", "fp8"):
        d = Deployment(
            catalog.model(model), catalog.gpu(gpu), catalog.engine("ideal"), "fp8", "fp8", kv,
            layout=Layout(tensor=8),
        )  # fmt: skip
        attention = CostModel(d).attention
        for operator in (attention.decode(32, 32 * 4000), attention.prefill([Part(3000, 0)], 0)):
            assert float(np.asarray(operator.measured)) == 1
            assert 0 < float(np.asarray(operator.error)) < 0.22
