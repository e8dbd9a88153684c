"""Finds what a GPU hour costs in a scenario, and whose price that is. "Price" always means money.

A price that the user gives (``price_per_gpu_hour`` of the fleet, a number or one by GPU) goes
before ``price_per_hour`` of the catalogue or of a GPU file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from sim.scenario.pools import PoolSettings
from sim.specs.gpu import GpuSpec
from sim.units import dollars

Origin = Literal["given", "list", "file"]
"""The user's own price; a provider's list price; a number in a GPU's file that names no provider.
"""


@dataclass(frozen=True)
class GpuPrice:
    """``usd`` for one GPU and hour.

    ``provider``, ``date``, ``low`` and ``high`` as in ``sim.specs.gpu.ListPrice``, all None for a
    price that the user gives.
    """

    usd: float
    origin: Origin
    provider: str | None = None
    date: str | None = None
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """Whose price it is, in a few words.

        >>> GpuPrice(3.99, "list", "Lambda", "2026-11", 2.5, 12).text
        'list price, Lambda, Nov 2026; others 2.50 to 12'
        """
        if self.origin == "given":
            return "your price"
        offer = [each for each in (self.provider, shown_date(self.date)) if each]
        whose = ", ".join(["list price" if self.provider else "price in the GPU's file", *offer])
        return f"{whose}{_others(self.low, self.high)}"

    def document(self) -> dict[str, Any]:
        """Whose price it is, as plain data; without the price itself."""
        said = {key: value for key, value in asdict(self).items() if key != "usd"}
        return {**said, "text": self.text}


def _others(low: float | None, high: float | None) -> str:
    """The known range of other prices."""
    if low is not None and high is not None:
        return f"; others {dollars(low)} to {dollars(high)}"
    if low is not None:
        return f"; others from {dollars(low)}"
    return "" if high is None else f"; others up to {dollars(high)}"


def shown_date(date: str | None) -> str | None:
    """A date as people write it.

    >>> shown_date("2026-11"), shown_date("2025"), shown_date("2026-11-05")
    ('Nov 2026', '2025', '5 Nov 2026')
    """
    if date is None or len(date) == 4:
        return date
    month = datetime(int(date[:4]), int(date[5:7]), 1)
    day = f"{int(date[8:])} " if len(date) > 7 else ""
    return f"{day}{month:%b %Y}"


def named(prices: Mapping[str, float]) -> dict[str, float]:
    """Prices by the names that GPUs have: that of a file is its own, without folder and ending."""
    return {name_of(gpu): usd for gpu, usd in prices.items()}


def name_of(gpu: str) -> str:
    """The name that a GPU has in results, from how a scenario spells it.

    >>> name_of("h100-sxm"), name_of("./ours/h100.2026.yaml")
    ('h100-sxm', 'h100.2026')
    """
    return Path(gpu).stem if Path(gpu).suffix in (".yaml", ".yml") else gpu


def price_of(pool: PoolSettings, gpu: GpuSpec) -> GpuPrice | None:
    """The price of a GPU hour in ``pool``, which has ``gpu``; None where none is known or none is
    wanted."""
    given = pool.price_per_gpu_hour
    if given is None:
        return None
    usd = named(given).get(gpu.name) if isinstance(given, dict) else given
    if isinstance(usd, float):
        return GpuPrice(usd, "given")
    if gpu.price is None:
        return None
    p = gpu.price
    origin: Origin = "file" if p.provider is None else "list"
    return GpuPrice(p.usd, origin, p.provider, p.date, p.low, p.high)
