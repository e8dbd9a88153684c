"""Recognises a user's GPU file that copies a part of the catalogue, whose kernels then hold."""

from __future__ import annotations

from dataclasses import replace

from sim.catalog.relatives import SPEED
from sim.specs.gpu import GpuSpec
from sim.specs.profile import Profile

_SHARES = ("efficiency", "attention")


def is_copy(spec: GpuSpec, part: GpuSpec) -> bool:
    """Whether all numbers on which the time of an operator depends are those of ``part``.

    The efficiencies were set by hand for each part, so that no other part has them all by chance.
    """
    return not differences(spec, part)


def differences(spec: GpuSpec, part: GpuSpec) -> list[str]:
    """The keys of a GPU file by which ``spec`` is faster or slower than ``part``."""
    peaks = [name for name in SPEED if getattr(spec, name) != getattr(part, name)]
    return [*peaks, *(name for name in _SHARES if _numbers(spec, name) != _numbers(part, name))]


def _numbers(spec: GpuSpec, name: str) -> object:
    """An efficiency without its source."""
    return replace(getattr(spec, name), source="")


def taken_over(profile: Profile, spec: GpuSpec, part: GpuSpec) -> Profile:
    """The profile of ``part`` for its copy, with a word on where it comes from."""
    whose = f"{spec.name} has the numbers of the catalogue's {part.name}, so it has its kernels. "
    return replace(profile, source=whose + profile.source)


def not_taken_over(spec: GpuSpec, part: GpuSpec) -> str:
    """Why a GPU with the title of ``part`` does not have its kernels, and how it gets them."""
    return (
        f"the title is that of {part.name}, whose fitted kernels are not used since other numbers "
        f"are given ({', '.join(differences(spec, part))}): `extends: {part.name}` in the file "
        "takes them over"
    )
