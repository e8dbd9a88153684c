"""Defines the data that a form is fitted to: columns of one operator's measurements. Seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Floats


@dataclass(frozen=True, slots=True)
class Data:
    """Measurements of one operator in one precision: columns by variable, and seconds.

    ``weight`` counts a point more or less than others (all alike without it).
    """

    shape: Mapping[str, Floats]
    seconds: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: NDArray[np.bool_]) -> Data:
        """The chosen points."""
        columns = {name: column[chosen] for name, column in self.shape.items()}
        return Data(columns, self.seconds[chosen], self.weight[chosen])
