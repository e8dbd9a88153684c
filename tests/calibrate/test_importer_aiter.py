"""Fits to tables of aiter's tuned kernels, on timings made by known parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiter import DEVICES, from_aiter
from sim import catalog
from sim.cost.kernels import gemm
from sim.cost.kernels.form import Ceilings
from sim.cost.parts.mixture_of_experts import ROUTING_FLOOR
from sim.errors import InfersimError, UsageError

TRUE = {each.name: each.start for each in gemm.PARAMETERS}
TRUE |= {"convert": 0.0, "row": 0.0, "compute": 0.5, "bandwidth": 0.7}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Products in fp8 as ``TRUE`` has them, experts that read memory at half of its bandwidth."""
    gpu, device = catalog.gpu("mi355x"), DEVICES["mi355x"]
    m, n, k = (
        np.array(each, dtype=float).ravel()
        for each in np.meshgrid([1, 16, 256, 4096], [1024, 4096, 8192], [2048, 4096, 8192])
    )
    limits = Ceilings(gpu.flops("fp8"), gpu.bandwidth, gpu.sms)
    seconds = gemm.parts(TRUE, {"m": m, "n": n, "k": k}, limits, gemm.WIDTHS["fp8"]).total
    products = pd.DataFrame({"m": m, "n": n, "k": k, "latency_us": seconds * 1e6})
    products = products.assign(device=device, dtype="a8w8", weight_dtype="torch.float8_e4m3fn")
    wrong = products.head(3).assign(latency_us=[0.0, 1e-3, np.nan])  # no time, or too short a one
    other = products.head(3).assign(device="another", latency_us=1.0)
    batched = products.head(3).assign(batched=16, latency_us=1.0)
    rows = [
        {"hidden": hidden, "inter": inter, "experts": 64, "topk": 8, "tokens": tokens}
        for hidden, inter in ((2048, 768), (4096, 1536), (7168, 256))
        for tokens in (1, 8, 64, 512)
    ]
    experts = pd.DataFrame(rows)
    touched = 64 * (1 - (1 - 8 / 64) ** experts["tokens"])
    moved = 3 * experts["hidden"] * experts["inter"] * touched
    experts = experts.assign(
        device=device, dtype_a="torch.float8_e4m3fn", dtype_w="torch.float8_e4m3fn",
        latency_us=1e6 * (5e-6 + moved / (0.5 * gpu.bandwidth)),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("aiter")
    pd.concat([products, wrong, other, batched]).to_csv(folder / "products.csv", index=False)
    experts.to_csv(folder / "experts.csv", index=False)
    return folder / "products.csv", folder / "experts.csv"


def test_products_are_fitted_without_conversion(tables: tuple[Path, Path]) -> None:
    profile = from_aiter(*tables, "mi355x")
    fit = profile.kernels["gemm"]["fp8"]
    assert fit.holdout.median < 0.03
    assert fit.holdout.points == 28  # of shapes that layers have
    assert fit.parameters["bandwidth"] == pytest.approx(0.7, abs=0.02)
    assert fit.parameters["convert"] == fit.parameters["row"] == 0.0
    assert "lower bound" in profile.source


def test_experts_get_the_routing_that_was_not_timed(tables: tuple[Path, Path]) -> None:
    fit = from_aiter(*tables, "mi355x").kernels["moe"]["fp8"]
    assert fit.holdout.median < 0.2
    assert fit.parameters["latency"] > ROUTING_FLOOR
    assert fit.ranges["tokens"] == (1.0, 512.0)
    assert "rows" not in fit.ranges


def test_gpus_and_tables_that_are_not_there(tables: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no timings of 'l40s'; it has those of mi300x"):
        from_aiter(*tables, "l40s")
    with pytest.raises(InfersimError, match=r"mi300x: no format has enough timings"):
        from_aiter(*tables, "mi300x")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"not a table of aiter's timings"):
        from_aiter(other, other, "mi300x")
