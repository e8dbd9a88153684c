"""Fits the quantisation of activations to the published tables ``quantize``.

Two tables time the two halves of what brings 16-bit activations (m x k) to fp8 as a model runs:
``computescale_perf`` finds the scale, ``scale_matrix_perf`` converts by it. Their sum is one
operator of a profile, ``quantise``, by the bytes read and written. The timings of whole fp8
products contain it already (``gemm``): it is for activations that are quantised apart from them.

Left out: more than ``gemm.MOST_ROWS`` rows, widths below ``gemm.NARROWEST``; and, of a framework
whose products say otherwise, all (``contradicted``). A fit that is faster than the memory is of
activations that the benchmark finds in the cache, and is left out, too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator import gemm
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, require
from sim.cost.kernels import stream
from sim.errors import UsageError
from sim.specs.profile import KernelFit

HALVES = ("computescale_perf", "scale_matrix_perf")
KEYS = ["m", "k"]

WIDE = 1024
"""Columns from which on a whole product is compared with the quantisation of its inputs."""

CONTRADICTED = 0.05
"""Share of the sizes at which quantisation alone takes no less than the quickest whole product that
contains it: beyond that it is another kernel than the framework's own. A part cannot take longer
than its whole, other than by the noise of both timings: at quick products of few rows that is one
size in twenty, the share that a deviation of two standard errors has by chance."""

BYTES = 3.0
"""Of a number read at 16 bits and written at 8."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """The fit of ``quantise`` in fp8. UsageError for names that the tables lack, or timings that
    are left out."""
    halves = [tables.read(system, "quantize", framework, name, version) for name in HALVES]
    for half in halves:
        require(half, (*KEYS, "latency", "kernel_source"))
    both = sizes(halves)
    products = tables.read(system, "gemm", framework, "gemm_perf", version)
    if contradicted(both, products.frame) > CONTRADICTED:
        raise UsageError(
            f"{framework} on {system}: quantising alone takes longer than products that contain it"
        )
    size = BYTES * both["m"].to_numpy(dtype=np.float64) * both["k"].to_numpy(dtype=np.float64)
    data = Data({"bytes": size}, both["seconds"].to_numpy(dtype=np.float64), np.ones(len(both)))
    kernel = f"{framework} {halves[0].version}: " + " + ".join(
        ", ".join(sorted(half.frame["kernel_source"].astype(str).unique())) for half in halves
    )
    form, ceilings = stream.form("quantise"), gemm.ceilings(products, "fp8")
    found = fit(form, data, ceilings, kernel=kernel)
    if found.parameters["share"] >= 1:
        raise UsageError(f"{framework} on {system}: quantising is timed in the cache")
    return {"quantise": {"fp8": found}}


def sizes(halves: list[KernelTable]) -> pd.DataFrame:
    """Rows, width and seconds of both halves one after the other."""
    each = [half.frame.groupby(KEYS)["latency"].median() for half in halves]
    both = (sum(each[1:], each[0]).dropna() / 1e3).rename("seconds").reset_index()
    kept = (both["m"] <= gemm.MOST_ROWS) & (both["k"] >= gemm.NARROWEST) & (both["seconds"] > 0)
    chosen: pd.DataFrame = both[kept]
    return chosen


def contradicted(both: pd.DataFrame, products: pd.DataFrame) -> float:
    """The share of sizes at which quantising takes no less than the quickest fp8 product of
    ``WIDE`` columns or more, its inputs quantised; 0 without such products."""
    whole = products[(products["gemm_dtype"] == "fp8") & (products["n"] >= WIDE)]
    quickest = (whole.groupby(KEYS)["latency"].min() / 1e3).rename("product").reset_index()
    compared = both.merge(quickest, on=KEYS)
    if compared.empty:
        return 0.0
    return float((compared["seconds"] >= compared["product"]).mean())
