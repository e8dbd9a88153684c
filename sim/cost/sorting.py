"""Predicts what top-k and top-p sampling takes where each row of logits is sorted. Seconds.

PyTorch sorts fewer than 128 rows together, by value and then by row, and from 128 on each row in a
block of its own (aten/src/ATen/native/cuda/SortStable.cu); what else the sampler does with the
sorted rows (softmax, running sum, mask, scatter) is in these rates too. They are read off the
timings of vLLM's own sampler in its pull request 40376 (benchmarks/benchmark_topk_topp.py, column
PyTorch, top-p): 0.37, 0.63 and 1.69 ms for 64, 128 and 512 rows of 32,768 logits; 1.00, 2.30 and
6.13 ms for as many rows of 131,072. Which GPU that was is not said. An H200 (pull request 51507) is
within 13 % for 64 and 512 rows, and takes 1.8 times as long for 128.
"""

from __future__ import annotations

import numpy as np

from sim.cost.operators import Amount, Operator

NAME = "sorting logits"

LAUNCHES = 0.16e-3
"""Seconds of the sampler that do not grow with the logits: some twenty kernels, one by one."""

ROWS_APART = 128
"""The fewest rows that PyTorch sorts each by itself."""

TOGETHER, APART = 9.9e9, 11.3e9
"""Logits a second where all rows are sorted together, and each by itself on a full GPU."""

ONE_ROW = 58e6
"""Logits a second of the block that sorts one row."""

MEASURED_SMS = 132
"""Streaming multiprocessors of an H100 or H200: others are taken to be as much faster or slower as
they have more or less."""

ERROR = 0.3
"""Relative error to expect of this: half of the difference between the two GPUs above, at worst."""


def sorting(rows: Amount, vocabulary: int, sms: int) -> Operator:
    """Top-k or top-p over so many ``rows`` of logits, by sorting them.

    >>> round(1e3 * float(sorting(64, 131_072, 132).seconds), 2)
    1.01
    >>> round(1e3 * float(sorting(512, 131_072, 132).seconds), 2)
    6.1
    """
    rate = np.where(np.less(rows, ROWS_APART), TOGETHER, np.minimum(APART, ONE_ROW * rows))
    logits = np.multiply(rows, vocabulary)
    compute = logits / (rate * (sms / MEASURED_SMS))
    latency = np.where(np.greater(rows, 0), LAUNCHES, 0.0)
    return Operator(NAME, 0.0, 0.0, compute, 0.0, latency, 0.0, False, ERROR)
