"""Fits all-gathers and reduce-scatters to the published tables ``nccl_perf``.

``message_size`` counts elements of the whole tensor that is gathered or scattered; rows of 16 bits
are taken. The library is the same under every framework, so the newest table is taken, whatever
the framework and its version. Sizes are held out whole, as for all-reduces.
"""

from __future__ import annotations

import numpy as np

from calibrate.fit import FitTrial, fit
from calibrate.importers.aiconfigurator.collective import to_data
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, require
from sim.cost.kernels import all_gather
from sim.cost.kernels.form import Ceilings
from sim.specs.profile import GATHERS, KernelFit

LIBRARY, SIXTEEN_BITS = "nccl", "half"

AXES = {"bytes": tuple(float(power) for power in range(9, 30)), "gpus": (1.0, 2.0, 3.0)}
"""Knots of the residual table, base-2 logarithms: all that were timed, since the library changes
its protocol between neighbouring sizes, and where it does so depends on the number of GPUs."""

TRIAL = FitTrial((0.003, 0.01), 1.0)
"""How the table is tried: it follows each size that was timed, if sizes that were not are rather
better off with it."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """The fits of ``all_gather`` and ``reduce_scatter`` in bf16, the same for every ``framework``.

    Raises UsageError for names that the tables lack.
    """
    table = tables.read(system, "comm", LIBRARY, "nccl_perf")
    return {name: {"bf16": fit_table(table, name)} for name in GATHERS}


def fit_table(table: KernelTable, operator: str) -> KernelFit:
    """The fit of one of ``GATHERS``, in 16 bits."""
    columns = ("kernel_source", "op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
    require(table, columns)
    frame = table.frame
    chosen = (frame["op_name"] == operator) & (frame["nccl_dtype"] == SIXTEEN_BITS)
    rows = frame[chosen & (frame["latency"] > 0)]
    data = to_data(rows)
    return fit(
        all_gather.form(operator).given(most=float(data.shape["gpus"].max())),
        data,
        Ceilings(peak=1.0, bandwidth=table.gpu.link.bandwidth, sms=1),
        axes=AXES,
        kernel=table.source(rows),
        judged=np.ones(len(data), dtype=bool),
        trial=TRIAL,
    )
