"""Quantisation of activations in published tables: both halves, and tables that contradict."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import Tables, quantise
from sim import catalog
from sim.errors import UsageError

LATENCY, SHARE = 9e-6, 0.35
SIZES = [(m, k) for m in (1, 16, 64, 256, 1024, 4096, 16384) for k in (512, 2048, 8192)]


def timed(m: int, k: int, share: float = SHARE) -> float:
    """Seconds: a launch and three bytes a number, one after the other."""
    return LATENCY + 3 * m * k / (catalog.gpu("h100-sxm").bandwidth * share)


def tables(root: Path, product: float = 2.0, share: float = SHARE) -> Tables:
    """Milliseconds: a third of the time finds the scale, and a whole product takes ``product``
    times the quantisation of its inputs."""
    rows = pd.DataFrame([{"m": m, "k": k, "kernel_source": "op"} for m, k in SIZES])
    seconds = pd.Series([timed(m, k, share) for m, k in SIZES])
    whole = rows.assign(n=4096, gemm_dtype="fp8", latency=product * seconds * 1e3)
    narrow = whole.assign(n=128, latency=1e-6)
    for family, name, frame in (
        ("quantize", "computescale_perf", rows.assign(latency=seconds * 1e3 / 3)),
        ("quantize", "scale_matrix_perf", rows.assign(latency=seconds * 1e3 * 2 / 3)),
        ("gemm", "gemm_perf", pd.concat([whole, narrow])),
    ):
        folder = root / "data" / "h100_sxm" / family / "trtllm" / "1.3"
        folder.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(folder / f"{name}.parquet")
    return Tables(root)


def test_the_sum_of_both_halves_gives_its_parameters_back(tmp_path: Path) -> None:
    fit = quantise.fit_system(tables(tmp_path), "h100_sxm", "trtllm")["quantise"]["fp8"]
    assert fit.parameters["latency"] == pytest.approx(LATENCY, rel=0.02)
    assert fit.parameters["share"] == pytest.approx(SHARE, rel=0.02)
    assert fit.kernel == "trtllm 1.3: op + op"
    assert fit.ranges["bytes"] == (3 * 512, 3 * 16384 * 8192)


def test_products_that_are_quicker_than_their_own_quantisation_refuse_it(tmp_path: Path) -> None:
    """Narrow products do not count: their inputs may lie in the cache."""
    with pytest.raises(UsageError, match="trtllm on h100_sxm: quantising alone takes longer"):
        quantise.fit_system(tables(tmp_path, product=0.9), "h100_sxm", "trtllm")


def test_a_table_that_is_faster_than_the_memory_is_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trtllm on h100_sxm: quantising is timed in the cache"):
        quantise.fit_system(tables(tmp_path, share=1.2), "h100_sxm", "trtllm")
