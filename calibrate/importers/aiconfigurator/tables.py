"""Finds the published kernel tables and reads them.

A folder ``systems`` holds ``data/SYSTEM/FAMILY/FRAMEWORK/VERSION/TABLE.parquet``; a system is a
GPU ("h100_sxm"), a family a group of operators ("gemm"), a framework "vllm", "trtllm" or "sglang".
The column ``latency`` is in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from sim import catalog
from sim.catalog.gpu_names import names
from sim.errors import InfersimError, UsageError, did_you_mean
from sim.specs.gpu import GpuSpec

PACKAGES = ("aiconfigurator_core", "aiconfigurator")
"""Modules that carry the tables: the newer package, and the one it was split from."""

L2_BYTES = {
    "a100_sxm": 40e6,
    "b200_sxm": 126e6,
    "b300_sxm": 126e6,
    "gb200": 126e6,
    "gb300": 126e6,
    "h100_sxm": 50e6,
    "h200_sxm": 50e6,
    "l40s": 96e6,
    "rtx_pro_6000_server": 128e6,
}
"""Last-level cache of each system (NVIDIA's architecture whitepapers): what a benchmark that works
on less finds there again, and a model's layers do not."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """One table, and where it comes from."""

    frame: pd.DataFrame
    system: str
    framework: str
    version: str

    @property
    def gpu(self) -> GpuSpec:
        """The catalogue's GPU on which it was measured."""
        return gpu_of(self.system)

    def source(self, chosen: pd.DataFrame) -> str:
        """Framework, version and the kernels behind the ``chosen`` rows."""
        kernels = ", ".join(sorted(chosen["kernel_source"].astype(str).unique()))
        return f"{self.framework} {self.version}: {kernels}"


class Tables:
    """The tables below one folder ``systems``. Names that it lacks are UsageErrors."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def systems(self) -> list[str]:
        """Systems with tables here that are also in the catalogue."""
        return sorted(set(names("aiconfigurator")) & set(_folders(self.root / "data")))

    def frameworks(self, system: str, family: str) -> list[str]:
        """Frameworks with tables of that family."""
        _known("system", system, self.systems())
        return _folders(self.root / "data" / system / family)

    def versions(self, system: str, family: str, framework: str, table: str) -> list[str]:
        """Versions of the framework that have the table, oldest first."""
        _known("framework", framework, self.frameworks(system, family))
        folder = self.root / "data" / system / family / framework
        having = [
            name for name in _folders(folder) if (folder / name / f"{table}.parquet").exists()
        ]
        return sorted(having, key=_age)

    def read(
        self, system: str, family: str, framework: str, table: str, version: str | None = None
    ) -> KernelTable:
        """One table of ``version``, or of the newest that has it."""
        versions = self.versions(system, family, framework, table)
        if not versions:
            raise UsageError(f"{framework} on {system}: no {table} in any version")
        chosen = versions[-1] if version is None else version
        _known("version", chosen, versions)
        path = self.root / "data" / system / family / framework / chosen / f"{table}.parquet"
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            raise InfersimError(f"{path}: not a table that can be read ({error})") from None
        return KernelTable(frame, system, framework, chosen)


def locate(path: Path | None = None) -> Tables:
    """The tables at ``path``, or those of the installed package.

    ``path`` is the folder ``systems``, the package's folder, or the one that holds the package.
    Raises UsageError if there are none.
    """
    if path is not None:
        inner = [path / package for package in PACKAGES]
        for folder in (path, path / "systems", *(folder / "systems" for folder in inner)):
            if (folder / "data").is_dir():
                return Tables(folder)
        raise UsageError(f"{path}: no folder systems/data with kernel tables in it")
    for package in PACKAGES:
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(place) / "systems"
            if (folder / "data").is_dir():
                return Tables(folder)
    raise UsageError(
        "the package aiconfigurator-core, which carries the kernel tables, is not installed here; "
        "install it or give the folder of its tables with --path"
    )


def gpu_of(system: str) -> GpuSpec:
    """The catalogue's GPU for a system of the tables."""
    _known("system", system, names("aiconfigurator"))
    return catalog.gpu(names("aiconfigurator")[system])


def require(table: KernelTable, columns: Iterable[str]) -> None:
    """Raises InfersimError unless the table has these columns."""
    missing = sorted(set(columns) - set(table.frame.columns))
    if missing:
        raise InfersimError(
            f"{table.framework} {table.version} on {table.system}: the table lacks "
            f"{', '.join(missing)}; it has {', '.join(map(str, table.frame.columns))}"
        )


def _known(kind: str, name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        raise UsageError(
            f"unknown {kind} {name!r}{did_you_mean(name, names)}; the tables have: "
            f"{', '.join(names) or 'none'}"
        )


def _folders(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def _age(version: str) -> list[tuple[int, int]]:
    """Sorts versions by age: 1.3.0rc20 before 1.3.0, and that before 1.3.0.post1."""
    rank = {"rc": -1, "post": 1}
    parts = re.findall(r"(rc|post)?(\d+)", version)
    numbers = [(rank.get(kind, 0), int(number)) for kind, number in parts]
    if not any(kind == "rc" for kind, _ in parts):
        last = next((i for i, (kind, _) in enumerate(parts) if kind), len(parts))
        numbers.insert(last, (0, 0))
    return numbers
