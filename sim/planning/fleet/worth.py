"""Says what a measurement would be worth: which part of the error band it would narrow, and how.

A band has named parts (``sim.metrics.bands.bands``). The part whose absence narrows the band the
most is the one to measure first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.bands.bands import without

HOW: Mapping[str, str] = {
    "kernels": "kernels measured on one such GPU (`infersim calibrate`, some five minutes)",
    "links": "what joins the GPUs, stated (fleet.0.link) or measured (`infersim calibrate` on two)",
    "engine": "one run of your server, recorded (`infersim observe`, then `validate-run`, which "
    "proposes its host times)",
    "run": "one run of your server under this traffic (`infersim observe` and `validate-run`)",
}
"""The measurement that would settle each part of a band of times."""


def worth(parts: Mapping[str, float]) -> dict[str, Any] | None:
    """For each part, the largest first: what the ``error`` would be if it were known exactly, and
    ``how`` to know it; and a ``text`` about the first. None without a band."""
    known = {name: without(parts, name) for name in parts if name in HOW}
    if not known:
        return None
    whole = without(parts, "")
    order = sorted(known.items(), key=lambda item: item[1])
    name, left = order[0]
    return {
        "error": whole,
        "parts": [{"part": part, "error": error, "how": HOW[part]} for part, error in order],
        "text": (
            f"What a measurement is worth: with {HOW[name]}, times would be within {left:.0%} "
            f"instead of {whole:.0%}."
        ),
    }
