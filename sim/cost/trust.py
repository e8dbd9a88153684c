"""Provides the uncertainty of operators that were not measured in a shape. Relative errors.

Where one was measured, the hold-out error of its profile says so. These are for everything else.
"""

from __future__ import annotations

from sim.specs.precision import precision_bytes

ATTENTION_ERROR = 0.225
PROJECTION_ERROR = 0.125
"""Relative error of operators of a GPU known only from its data sheet: the middle of 15 to 30 % for
attention and of 10 to 15 % for 16-bit GEMMs, found by predicting one measured GPU from another."""

EIGHT_BIT_ERROR = 0.165
"""Relative error of a plain roofline of 8-bit GEMMs with dynamic quantisation: 15 to 18 %."""

EXPERTS_ERROR = 0.23
"""Relative error of the experts of a layer: the mean over the timings of vLLM's expert kernels on
six GPUs, 0.22 in bf16 and 0.23 in fp8 (aiconfigurator-core tables, about 46,000 timings without
expert parallelism); half of them are within 0.17, a tenth are off by more than 0.4 to 0.6. The
floor of an expert layer was chosen on the same timings, so this is no error on held-out ones."""

LATENT_ERROR = 0.21
"""Relative error of latent attention: the mean over four GPUs of the median error of whole blocks
of attention that decode over 16 bits, by the parameters of an H200: H100 4.8 %, RTX PRO 6000 18 %,
L40S 21 %, B200 41 % (vLLM 0.24, aiconfigurator-core tables)."""

COMPRESSED_ERROR = 0.105
"""Relative error of attention to compressed rows: the mean over three GPUs of the median error of
whole blocks of attention over prompts, 8 to 14 %, by parameters fitted to an H200; decoding is
within half of that (``sim.cost.compressed_kernels`` has them one by one)."""

RECURRENT_ERROR = 0.19
"""Relative error of layers with a constant state: the mean over four GPUs of the median error, 18 %
for decoding and 19 % for prompts (``sim.cost.parts.recurrent`` has them one by one)."""


def projection_error(arithmetic: str) -> float:
    """The error of a GEMM in that precision on a GPU known from its data sheet."""
    return EIGHT_BIT_ERROR if precision_bytes(arithmetic) < 2 else PROJECTION_ERROR
