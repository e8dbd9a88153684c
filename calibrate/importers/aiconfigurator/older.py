"""Fits kernels of TensorRT-LLM's release 1.0, which an older package has.

The package ``aiconfigurator`` 0.2 (NVIDIA, Apache-2.0), from which aiconfigurator-core was split
later, has tables of its own as texts, ``data/SYSTEM/FRAMEWORK/VERSION/TABLE.txt``. On Hopper its
grouped products of 1.0 take up to 1.4 times as long as those of 1.3 where many tokens go to an
expert, and its sums of 1 to 4 MB over two GPUs twice as long. Experts of 0.20 in the same package
are left out: with 512 tokens and more they take two to
seven times as long as either, as kernels do that were not tuned.

Decode attention is fitted with one query head per KV head alone, which 1.0 does over an fp8 cache
in 0.86 of the time of 1.3. By its timings of grouped heads 28 to 83 % of the large caches would be
read faster than the memory can, as if half of each were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from calibrate.importers.aiconfigurator.attention import fit_alone
from calibrate.importers.aiconfigurator.collective import fit_table
from calibrate.importers.aiconfigurator.moe import by_operator, fit_rows, usable
from calibrate.importers.aiconfigurator.tables import KernelTable
from sim.errors import UsageError
from sim.specs.profile import OLDER, KernelFit

FRAMEWORK, VERSION = "trtllm", "1.0.0rc3"
PACKAGE = "aiconfigurator 0.2.0"

PRECISIONS: Mapping[str, str] = {"bf16": "float16", "fp8": "fp8"}
"""The table's ``moe_dtype`` for each precision of the simulator: 16 bits are 16 bits."""


def table_of(package: Path, system: str, table: str) -> KernelTable:
    """A table of ``system`` in the folder of the package, wherever it was unpacked."""
    name = Path("systems", "data", system, FRAMEWORK, VERSION, f"{table}.txt")
    for path in (package / name, package / "aiconfigurator" / name):
        if path.exists():
            return KernelTable(pd.read_csv(path), system, FRAMEWORK, VERSION)
    raise UsageError(f"{package}: no {name}; give the folder of the package {PACKAGE}")


def fit_system(package: Path, system: str, framework: str) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and precision; UsageError for another framework's profile."""
    if framework != FRAMEWORK:
        raise UsageError(f"{PACKAGE} has no kernels of {framework}, only of {FRAMEWORK}")
    table = table_of(package, system, "moe_perf")
    experts = {
        precision: fit_rows(table, by_operator(usable(table, name))["moe"], precision)
        for precision, name in PRECISIONS.items()
    }
    sums = fit_table(table_of(package, system, "custom_allreduce_perf"))
    decodes = fit_alone(_sixteen(table_of(package, system, "generation_attention_perf")))
    return {
        "all_reduce" + OLDER: {"bf16": sums},
        "decode_attention" + OLDER: decodes,
        "moe" + OLDER: experts,
    }


def _sixteen(table: KernelTable) -> KernelTable:
    """``table`` with 16 bits called as newer tables do."""
    columns = ["attn_dtype", "kv_cache_dtype"]
    named = {name: table.frame[name].replace("float16", "bfloat16") for name in columns}
    return replace(table, frame=table.frame.assign(**named))
