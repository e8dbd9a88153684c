"""Says how far the difference of two variants can be trusted: what measurements would find.

More runs narrow what chance leaves open, and nothing else. What the errors of predicted times leave
open of a ratio is ``sim.metrics.bands.ratio_bands``; the word for it is that of every decision
(``sim.metrics.bands.trust``).
"""

from __future__ import annotations

import math
from typing import Any

from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import CAUSES
from sim.metrics.bands.ratio_bands import Bands, error_of, ratio_band, shared_parts
from sim.metrics.bands.trust import trust
from sim.metrics.latency.intervals import Z95
from sim.planning.contrast.paired import Difference

NO_TRUST: dict[str, Any] = {"band50": None, "band90": None, "parts": {}, "trust": None}
"""Of a difference of which nothing is known but itself."""


def trusted(key: str, apart: Difference, mine: Bands | None, base: Bands | None) -> dict[str, Any]:
    """Of the figure ``key`` of a variant over that of the base, runs with these ``infersim.bands``:
    ``band50`` and ``band90`` of the ratio that measurements would find ([low, high]; high is None
    where the slower end is overloaded), what each part comes to alone at 90 % (``parts``), and
    ``trust``, how sure it is which of both is larger; all None where that is not known."""
    one, other = error_of(mine, key), error_of(base, key)
    relative = apart.relative
    if one is None or other is None or not relative or relative <= -1:
        return NO_TRUST
    ratio, half = 1 + relative, apart.relative_half_width or 0.0
    chance = math.log1p(half / ratio) / Z95
    found = ratio_band(ratio, one, other, learnt().everything, chance)
    return {
        "band50": list(found.band50),
        "band90": list(found.band90),
        "parts": dict(found.parts),
        "trust": trust(
            decided=apart.certain,
            at_band=_excludes(found.band90),
            at_half=_excludes(found.band50),
        ),
    }


def _excludes(band: tuple[float, float | None]) -> bool:
    """Whether both variants cannot be equal."""
    low, high = band
    return low > 1 or (high is not None and high < 1)


def errors(mine: Bands | None, base: Bands | None) -> dict[str, list[str]] | None:
    """Parts of the bands in which a variant errs as the base does (``shared``), and the others
    (``own``); None where that is not known."""
    if not mine or not base or "kin" not in mine or "kin" not in base:
        return None
    causes = {
        name for bands in (mine, base) for e in bands["figures"].values() for name in e["causes"]
    }
    used = dict.fromkeys(cause.part for name, cause in CAUSES.items() if name in causes)
    alike = shared_parts(mine["kin"], base["kin"])
    return {
        "shared": [part for part in used if part in alike],
        "own": [part for part in used if part not in alike],
    }
