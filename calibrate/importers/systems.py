"""Builds profiles from published measurements, out of the fits of each operator family."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from calibrate.importers import vidur
from calibrate.importers.aiconfigurator import (
    Tables,
    attention,
    collective,
    exchange,
    gather,
    gemm,
    latent,
    moe,
    older,
    quantise,
    triton,
)
from sim import catalog
from sim.catalog.gpu_names import names
from sim.errors import UsageError
from sim.specs.profile import GATHERS, KernelFit, Profile

TITLES = {"vllm": "vLLM", "trtllm": "TensorRT-LLM", "sglang": "SGLang"}

Fits = dict[str, dict[str, KernelFit]]


def from_aiconfigurator(
    tables: Tables,
    system: str,
    framework: str,
    version: str | None = None,
    before: Path | None = None,
) -> Profile:
    """The profile of a GPU under one framework's kernels, from published tables.

    ``before`` is the folder of an older package that has experts of an older release (``older``).
    Families of operators that the tables lack are left out. Raises UsageError for an unknown name,
    InfersimError if nothing could be fitted.
    """
    tables.frameworks(system, "gemm")  # names the systems there are
    kernels: Fits = {}
    missing: list[str] = []
    families = (attention, collective, gather, exchange, moe, latent, quantise, triton)
    for family in (_gemm, *(each.fit_system for each in families)):
        try:
            kernels |= family(tables, system, framework, version)
        except UsageError as error:
            missing.append(str(error))
    if kernels.keys() <= set(GATHERS):  # which are not the framework's
        raise UsageError("; ".join(missing))
    if before is not None:
        kernels |= older.fit_system(before, system, framework)
    fits = [fit for each in kernels.values() for fit in each.values()]
    found = sorted({_version(fit) for fit in fits if fit.kernel.startswith(framework)})
    title = TITLES.get(framework, framework)
    return Profile(
        source=(
            f"Kernel timings of {title} {', '.join(found)} on {system}, published in "
            "aiconfigurator-core (NVIDIA, Apache-2.0)"
        )
        + (f"; those of {older.VERSION} in {older.PACKAGE}" if before is not None else ""),
        date=datetime.now(UTC).date().isoformat(),
        facts={
            "gpu": names("aiconfigurator")[system],
            "made with": f"infersim calibrate import aiconfigurator --system {system} "
            f"--framework {framework}" + ("" if before is None else " --before FOLDER"),
            "not measured": "prompts on top of a cached prefix, unequal contexts in one batch, "
            "norms and other element-wise operators, eager launches, long-term clocks",
        },
        kernels=kernels,
    )


def from_vidur(files: Sequence[Path], gpu: str) -> Profile:
    """The profile of the catalogue's ``gpu`` from Vidur's profiling files.

    Raises UsageError for an unknown GPU or a file that is none of Vidur's, InfersimError if nothing
    could be fitted.
    """
    return Profile(
        source=f"Kernel timings of Sarathi-Serve on {gpu}, profiled for Vidur (Microsoft, MIT)",
        date=datetime.now(UTC).date().isoformat(),
        facts={"gpu": gpu, "files": ", ".join(sorted({path.name for path in files}))},
        kernels=vidur.fit_files(files, catalog.gpu(gpu)),
    )


def _gemm(tables: Tables, system: str, framework: str, version: str | None) -> Fits:
    return {"gemm": gemm.fit_system(tables, system, framework, version)}


def _version(fit: KernelFit) -> str:
    """The framework's version, the second word of what was measured."""
    words = fit.kernel.split(":", maxsplit=1)[0].split()
    return words[1] if len(words) > 1 else "of an unknown version"
