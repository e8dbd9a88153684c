"""Batches beyond those that are tabulated take what the table would say."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cost import decode_table
from sim.cost.decode_table import DecodeTable
from sim.cost.measured import Amount, Timing


class Kernel:
    """A floor, and bytes by the parts that a context is split into; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def timing(self, batch: Amount, context: Amount) -> Timing:
        sizes, lengths = np.asarray(batch, dtype=float), np.asarray(context, dtype=float)
        self.asked += np.broadcast(sizes, lengths).size
        seconds = 1e-5 + 3e-9 * sizes * lengths / np.ceil(np.sqrt(lengths / sizes))
        return Timing(seconds, 0.0, 0.0, 0.1, 1.0)

    def parts(self, batch: Amount, context: Amount) -> Timing:
        return Timing(0.0, 0.0, 0.0, 0.1, 1.0)


def test_a_large_batch_alone_is_timed_as_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = np.array([[1, 7, 64], [900, 0, 2999]])
    context = batch * np.array([[10, 1000, 50], [4000, 3, 77]])
    tabulated = DecodeTable(Kernel(), 32).timing(batch, context)
    monkeypatch.setattr(decode_table, "MANY", 64)
    kernel = Kernel()
    alone = DecodeTable(kernel, 32).timing(batch, context)
    assert np.array_equal(alone.seconds, tabulated.seconds)
    assert np.asarray(alone.seconds)[1, 1] == 0.0
    assert kernel.asked < 6 * len(decode_table.KNOTS)
