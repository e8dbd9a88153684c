"""Describes what electricity costs, in money and in carbon dioxide."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Nonnegative, at_most

WORLD_GRID = 473.0
"""Grams of CO2 equivalent for a kWh of electricity, mean of the world in 2024 (Ember, Global
Electricity Review 2025). Countries range from below 50 to above 700."""

DIRTIEST = 10_000.0
"""Grams for a kWh that no grid emits."""
DEAREST = 1_000.0
"""US dollars for a kWh, more than is paid anywhere."""


class Energy(Section):
    """Settings for the energy of the GPUs; they change no other figure."""

    grid_intensity: Annotated[Nonnegative, at_most(DIRTIEST)] | None = Field(
        default=WORLD_GRID,
        description="Grams of CO2 equivalent per kWh. Default: the world's mean of 2024 (Ember, "
        "Global Electricity Review 2025). null: no emissions are shown.",
        examples=[50],
    )
    price_per_kwh: Annotated[Nonnegative, at_most(DEAREST)] | None = Field(
        default=None,
        description="US dollars per kWh, unless the price of a GPU hour already includes it. "
        "null: no cost of energy.",
        examples=[0.12],
    )
