"""Predicts one layer's attention to compressed rows and a window (DeepSeek V4), in seconds.

Contexts are of vectors: those of the window and all rows. A query attends to ``most`` of them; with
an indexer the rows are rated before. An SM takes one query's tile of 64 heads through its vectors.
The products before and after are not in it, nor are the compressors.

Decoding:

- ``waves``  = queries x tiles of heads / SMs; where that is below 1, shortened by ``SPLIT``
- seconds    = waves x (``TILE`` + vectors x FLOP / (SM's peak x ``COMPUTE``))
               + keys of all rows / (bandwidth x ``SHARE``) + ``CHOICE`` x queries

Prompts:

- seconds    = ``FLOOR`` + FLOP of pairs, and of ``PADDED`` more vectors for each query, / (peak x
               ``DENSE``) + FLOP of rated pairs / what products in 8 bits reach
               + ``CHOSEN`` x tokens that have more rows than they attend to

Peaks are those of 16 bits. What rates and chooses is of layers with an indexer alone.

The constants are fitted to what vLLM 0.24's blocks of attention take on an H200 beyond their
products (aiconfigurator-core 0.12 tables ``dsv4_csa`` and ``dsv4_hca``, DeepSeek V4 Flash and Pro,
8 to 128 heads on a GPU, cache in fp8), and are relative to the peaks of the GPU at hand. Whole
blocks, median of the error: decoding H200 4.6 %, H100 4.6 %, B200 6.4 %, a tenth off by more than
12, 10 and 14 %; prompts H200 9 %, H100 8 %, B200 14 %, a tenth by more than 25, 24 and 36 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.cost.measured import Amount, Timing
from sim.cost.trust import COMPRESSED_ERROR
from sim.specs.compressed import CompressedLatent
from sim.specs.gpu import GpuSpec

HEADS = 64
"""Heads of a tile."""

TILE = 1.62e-5
"""Seconds of an SM for a query's tile however few its vectors."""

SPLIT = 0.33
"""How far SMs that would be idle shorten a wave."""

COMPUTE = 0.4
"""Share of an SM's peak on the vectors of a tile."""

SHARE = 0.25
"""Share of the bandwidth at which keys of rows are rated."""

CHOICE = 1.8e-8
"""Seconds for one decoding query to choose its rows."""

FLOOR = 2.1e-5
"""Seconds of all kernels of a prompt, however short it is."""

DENSE, PADDED = 0.75, 580
"""Share of the peak on the pairs of prompts, and the vectors that each query costs on top of
those that it attends to."""

CHOSEN = 2.5e-7
"""Seconds for one token of a prompt to choose its rows."""


@dataclass(frozen=True)
class CompressedKernels:
    """Attention of ``one`` GPU's heads over vectors of ``row_bytes`` in the cache, in arithmetic of
    ``unit``; ``most`` is the number of vectors that a query attends to at most."""

    gpu: GpuSpec
    one: CompressedLatent
    row_bytes: float
    unit: str

    @property
    def _tiles(self) -> int:
        return -(-self.one.num_heads // HEADS)

    def attended(self, vectors: Amount) -> Amount:
        """The vectors that a query attends to, of so many."""
        return np.minimum(vectors, self.one.sliding_window + self.one.most_rows)

    def rated(self, vectors: Amount) -> Amount:
        """The rows that an indexer rates for a query, of so many vectors."""
        if self.one.index_topk is None:
            return 0.0 * vectors
        return np.maximum(vectors - self.one.sliding_window, 0.0)

    def timing(self, batch: Amount, context: Amount) -> Timing:
        """``batch`` sequences of ``context`` vectors each, the new one included."""
        gpu, one = self.gpu, self.one
        waves = batch * self._tiles / gpu.sms
        waves = np.where(waves < 1, waves**SPLIT, waves)
        flops = 4.0 * HEADS * one.head_dim  # of a tile
        each = flops * gpu.sms / (gpu.flops(self.unit) * COMPUTE)
        seconds = waves * (TILE + self.attended(context) * each)
        if one.index_topk is not None:
            keys = batch * self.rated(context) * one.index_bytes
            seconds = seconds + keys / (gpu.bandwidth * SHARE) + CHOICE * batch
        return self.parts(batch, context)._replace(seconds=seconds)

    def parts(self, batch: Amount, context: Amount) -> Timing:
        """The timing with its seconds left at 0: arithmetic and traffic at full rates."""
        one, attended, rated = self.one, self.attended(context), self.rated(context)
        flops = attended * one.flops_per_pair() + rated * one.index_flops_per_row()
        read = attended * self.row_bytes + rated * one.index_bytes
        compute = batch * flops / self.gpu.flops(self.unit)
        memory = batch * read / self.gpu.bandwidth
        return Timing(0.0, compute, memory, COMPRESSED_ERROR, 0.0)

    def prompts(self, pairs: float, rated: float, tokens: int, choosing: int) -> float:
        """Prompts of ``tokens`` in sum, of which those ``choosing`` have more rows than they attend
        to, with so many ``pairs`` of queries and vectors, and of queries and ``rated`` rows."""
        gpu, one = self.gpu, self.one
        place = 4.0 * self._tiles * HEADS * one.head_dim
        work = (pairs + PADDED * tokens) * place / (gpu.flops(self.unit) * DENSE)
        if one.index_topk is not None:
            reached = gpu.flops("fp8") * gpu.efficiency.compute
            work += rated * one.index_flops_per_row() / reached + CHOSEN * choosing
        return FLOOR + work
