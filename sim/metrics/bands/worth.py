"""Says what a measurement of one's own would make of an error band.

A band has named parts (``sim.metrics.bands.bands``). A recorded run of one's own is the nearest to
another that there can be: it settles all that runs have in common. The measurement whose parts
narrow the band the most is the one to make first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.catalog.spreads import PARTS
from sim.metrics.bands.bands import KERNELS, LEAN, LINKS, without


class Remedy(NamedTuple):
    """A measurement: the ``parts`` of a band that it settles, and ``how`` it is made."""

    parts: tuple[str, ...]
    how: str


MEASUREMENTS: Mapping[str, Remedy] = {
    "run": Remedy(
        (*PARTS, LEAN),
        "one run of your server, recorded (`infersim observe`, then `validate-run`, which writes "
        "an engine file)",
    ),
    KERNELS: Remedy(
        (KERNELS,), "kernels measured on one such GPU (`infersim calibrate`, some five minutes)"
    ),
    LINKS: Remedy(
        (LINKS,),
        "what joins the GPUs, stated (fleet.0.link) or measured (`infersim calibrate` on two)",
    ),
}


def worth(parts: Mapping[str, float]) -> dict[str, Any] | None:
    """For each measurement that settles some of the ``parts``, the most telling first: what the
    ``error`` would be after it, and ``how`` to make it; and a ``text`` about the first. None
    without a band."""
    known = {
        name: without(parts, each.parts)
        for name, each in MEASUREMENTS.items()
        if any(part in parts for part in each.parts)
    }
    if not known:
        return None
    whole = without(parts, ())
    order = sorted(known.items(), key=lambda item: item[1])
    name, left = order[0]
    return {
        "error": whole,
        "parts": [
            {"part": part, "error": error, "how": MEASUREMENTS[part].how} for part, error in order
        ],
        "text": (
            f"What a measurement is worth: with {MEASUREMENTS[name].how}, times would be within "
            f"{left:.0%} instead of {whole:.0%}."
        ),
    }
