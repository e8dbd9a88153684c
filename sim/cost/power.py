"""Predicts the energy of operators from their time, bytes and FLOP. Joules of one GPU.

While an operator starts or waits for the links, the GPU draws ``waiting``, for the rest of its time
``working``, and each byte and FLOP costs on top of that (``sim.specs.power``). No operator draws
more than the power limit: large matrix products and decode attention would, and do run at it.
"""

from __future__ import annotations

import numpy as np

from sim.cost.operators import Amount, Operator
from sim.specs.deployment import Deployment
from sim.specs.power import PowerDraw


class PowerModel:
    """The energy of one deployment's operators.

    ``limit`` is what one GPU draws at most (W), ``idle`` what it draws with nothing to do, ``flop``
    the energy of a FLOP in the deployment's arithmetic (J). ``freed``: the limit is that of the
    card, whatever the deployment sets; its clocks stay.
    """

    def __init__(self, deployment: Deployment, *, freed: bool = False) -> None:
        gpu = deployment.gpu
        self.draw: PowerDraw = gpu.power_draw
        self.limit = gpu.power / gpu.clocks if freed else gpu.power
        self.idle = min(self.draw.idle, gpu.power)
        sixteen_bits = max(gpu.peak_flops.get(name, 0.0) for name in ("bf16", "fp16"))
        faster = gpu.flops(deployment.arithmetic) / sixteen_bits
        self.flop = self.draw.flop / max(1.0, faster)

    def joules(self, operator: Operator) -> Amount:
        """The energy of an operator, in each pass."""
        draw, waits = self.draw, operator.latency + operator.communication
        drawn = (
            draw.waiting * waits
            + draw.working * operator.roof
            + draw.byte * operator.bytes
            + self.flop * operator.flops
        )
        return np.minimum(drawn, self.limit * operator.seconds)

    def reading(self, flops: Amount, traffic: Amount) -> Amount:
        """The cost of decode attention's FLOP and bytes beyond the time that it takes."""
        return self.draw.kv_byte * traffic + self.flop * flops
