"""Finds the profile that a name or a path stands for, and the measurements next to it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sim import catalog
from sim.errors import UsageError, did_you_mean
from sim.specs.gpu import GpuSpec
from sim.specs.profile import Profile

SAMPLES = Path(__file__).with_name("samples")
"""A sample of what each profile of the catalogue was fitted to: ``GPU.FRAMEWORK.csv.gz``."""


class FoundProfile(NamedTuple):
    """A profile, the GPU it belongs to, and the table it was fitted to (None: not there), or a
    sample of that (``sampled``)."""

    name: str
    gpu: GpuSpec
    profile: Profile
    measurements: Path | None
    sampled: bool = False

    def holds_sample(self, path: Path) -> bool:
        """Whether the table at ``path`` is the sample that it came with."""
        return self.sampled and path == self.measurements


def find(text: str, framework: str = catalog.DEFAULT_KERNELS) -> FoundProfile:
    """The profile of a catalogue GPU (``h100-sxm``, ``h100-sxm.sglang``) or of a GPU's YAML file.

    ``framework`` is whose kernels are meant where the name does not say. The measurements of a file
    are the CSV file of the same name next to it, which may be compressed. Raises UsageError where
    there is no profile.
    """
    name, _, after = text.partition(".")
    if name in catalog.names("gpus") and not Path(text).is_file():
        return _of_catalogue(name, after or framework)
    gpu = catalog.gpu(text)
    if gpu.profile is None:
        raise UsageError(
            f"{text}: holds no profile; `infersim calibrate` measures one, and these GPUs of the "
            f"catalogue have one: {', '.join(_profiled()) or 'none'}"
        )
    tables = (Path(text).with_suffix(suffix) for suffix in (".csv", ".csv.gz"))
    table = next((path for path in tables if path.is_file()), None)
    return FoundProfile(gpu.name, gpu, gpu.profile, table)


def _of_catalogue(name: str, framework: str) -> FoundProfile:
    known = catalog.frameworks(name)
    if framework not in known:
        hint = did_you_mean(framework, known)
        has = f"it has {', '.join(known)}" if known else "nothing was measured on it"
        others = "" if known else f"; profiles: {', '.join(_profiled()) or 'none'}"
        raise UsageError(f"{name}: no profile of {framework!r}{hint}; {has}{others}")
    gpu = catalog.gpu(name, kernels=framework)
    assert gpu.profile is not None
    sample = SAMPLES / f"{name}.{framework}.csv.gz"
    there = sample.is_file()
    return FoundProfile(
        f"{name}.{framework}", gpu, gpu.profile, sample if there else None, sampled=there
    )


def _profiled() -> list[str]:
    return [name for name in catalog.names("gpus") if catalog.frameworks(name)]


USUAL = ("gemm", "decode_attention", "prefill_attention", "all_reduce")
"""Operators of nearly every model."""


def profile_lines(gpu: str) -> list[str]:
    """A line for each profile that the catalogue has of a GPU: whose kernels, since when, and the
    median error of ``USUAL`` operators on shapes held out, in the profile's first precision."""
    lines = []
    for framework in catalog.frameworks(gpu):
        profile = catalog.shipped_profile(gpu, framework)
        errors = ", ".join(
            f"{operator.removesuffix('_attention')} {next(iter(fits.values())).holdout.median:.1%}"
            for operator, fits in profile.kernels.items()
            if fits and operator in USUAL
        )
        lines.append(f"{framework}, {profile.date}, error: {errors}")
    return lines


def profile_details(gpu: str) -> list[str]:
    """The profile with its source, and a line for each operator and precision."""
    lines = []
    for framework in catalog.frameworks(gpu):
        profile = catalog.shipped_profile(gpu, framework)
        lines.append(f"profile {gpu}.{framework}: {profile.source} ({profile.date})")
        for operator, fits in profile.kernels.items():
            for precision, fit in fits.items():
                error = fit.holdout
                lines.append(
                    f"  {operator} {precision}: error on shapes held out {error.median:.1%} "
                    f"(median), {error.p90:.1%} (p90), {error.points:,} points"
                )
    return lines
