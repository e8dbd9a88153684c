"""Defines what the parts of a layer share in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calibrate.engine.attend import Attend
from calibrate.engine.batch import EngineStep
from calibrate.engine.cache import Cache
from calibrate.lazy_torch import Tensor

PassPart = Callable[[str], None]
"""Called with the name of each part of the pass as it begins."""


@dataclass(slots=True)
class LayerPass:
    """One pass over layer ``number``. ``angles`` has cosine and sine of the step's positions by the
    size of heads and the base."""

    step: EngineStep
    cache: Cache
    attend: Attend
    angles: Mapping[tuple[int, float], tuple[Tensor, Tensor]]
    part: PassPart
    number: int = 0
