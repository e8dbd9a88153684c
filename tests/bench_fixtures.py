"""A small CPU with a small cache, so that pools of operands are small too."""

from __future__ import annotations

from calibrate.bench.arena import Arena
from calibrate.device import Device, DeviceFacts

CACHE = 64 * 1024


def small_arena() -> Arena:
    facts = DeviceFacts("cpu", "Small", 2**32, 1, CACHE, {})
    return Arena(Device(facts), least=2**18, advance=0.0)
