"""Makes a sample of the published timings that a shipped profile was fitted to.

A profile's page draws predicted against measured times with it. The whole tables are not in the
project; of each operator of nearly every model, in each precision, ``COUNT`` points are: of those
with the shapes of real layers, by which the profile's errors are judged, evenly spaced ones in the
order of their times.

    python -m calibrate.importers.aiconfigurator.samples FOLDER_OF_THE_TABLES

writes them for every profile of the catalogue that was fitted to these tables.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrate.data import Data
from calibrate.importers.aiconfigurator import attention, collective, gemm, locate
from calibrate.importers.aiconfigurator.tables import Tables
from calibrate.inspection.find import SAMPLES
from calibrate.inspection.measured import WARM
from calibrate.measurements import EARLIER
from sim import catalog
from sim.catalog.gpu_names import names
from sim.errors import UsageError

COUNT = 150
"""Points of an operator in one precision; all where there are fewer."""

COLUMNS = ("operator", "precision", "kernel", *EARLIER, "seconds", "low", "high", "status", WARM)


class FittedPoints(NamedTuple):
    """The points fitted for an operator in one precision, the kernels that were timed, and the
    bytes of cache in which the timings found their buffers again."""

    operator: str
    precision: str
    kernel: str
    data: Data
    warm: float


def sample(tables: Tables, system: str, framework: str) -> str:
    """The sample as a table that ``calibrate.inspection.measured`` reads; seconds have four
    digits."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    for found in _families(tables, system, framework):
        own = {"operator": found.operator, "precision": found.precision, "kernel": found.kernel}
        own[WARM] = f"{found.warm:.12g}"
        for place in thinned(found.data.seconds):
            shape = {
                name: f"{column[place]:.12g}"
                for name, column in found.data.shape.items()
                if name in EARLIER
            }
            seconds = f"{found.data.seconds[place]:.4g}"
            table.writerow({**own, **shape, "seconds": seconds, "status": "ok"})
    return text.getvalue()


def thinned(seconds: np.ndarray) -> list[int]:
    """The places of the points that are kept.

    >>> thinned(np.array([3.0, 1.0, 2.0]))
    [0, 1, 2]
    """
    order = np.argsort(seconds, kind="stable")
    chosen = np.linspace(0, len(order) - 1, min(COUNT, len(order))).round().astype(int)
    return sorted(order[chosen].tolist())


def _families(tables: Tables, system: str, framework: str) -> Iterator[FittedPoints]:
    """The points of each operator by which its fit is judged."""
    products = tables.read(system, "gemm", framework, "gemm_perf")
    for name, precision in gemm.PRECISIONS.items():
        rows = products.frame[products.frame["gemm_dtype"] == name]
        if len(rows):
            data = gemm.to_data(rows)
            data = data.take(gemm.at_layers(data))
            warm = gemm.ceilings(products, precision).cache
            yield FittedPoints("gemm", precision, products.source(rows), data, warm)
    generation = tables.read(system, "attention", framework, "generation_attention_perf")
    context = tables.read(system, "attention", framework, "context_attention_perf")
    cache = attention.ceilings(system).cache
    for precision in attention.PRECISIONS:
        table, rows = attention.decode_source(tables, generation, precision)
        if len(rows):
            data = attention.decode_data(rows)
            data = data.take(attention.at_layers(data))
            yield FittedPoints("decode_attention", precision, table.source(rows), data, cache)
        rows = attention.prefill_rows(context, precision)
        if len(rows):
            data = attention.prefill_data(rows)
            data = data.take(attention.at_layers(data))
            yield FittedPoints("prefill_attention", precision, context.source(rows), data, cache)
    try:
        sums = tables.read(system, "comm", framework, "custom_allreduce_perf")
    except UsageError:
        return  # a GPU that has none to add up with
    rows = collective.all_reduce_rows(sums.frame)
    yield FittedPoints("all_reduce", "bf16", sums.source(rows), collective.to_data(rows), 0.0)


def main(folder: str) -> None:
    """Write the sample of every profile that was fitted to the tables below ``folder``."""
    tables = locate(Path(folder))
    SAMPLES.mkdir(exist_ok=True)
    for system, gpu in names("aiconfigurator").items():
        for framework in catalog.frameworks(gpu) if system in tables.systems() else ():
            text = sample(tables, system, framework)
            path = SAMPLES / f"{gpu}.{framework}.csv.gz"
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
            print(f"{path.name}: {text.count(chr(10)) - 1:,} points")


if __name__ == "__main__":
    main(*sys.argv[1:])
