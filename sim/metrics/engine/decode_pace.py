"""Says how a run decodes: how many sequences at once, and how long its iterations take."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from sim.metrics.record.run_record import RunRecord

Column = NDArray[Any]


class DecodePace(NamedTuple):
    """How a run decodes: the mean batch, the mean time (s) of an iteration that decodes alone and
    of one that also prefills, and the share of the latter."""

    batch: float
    alone: float
    mixed: float
    mixed_share: float

    @classmethod
    def of(
        cls, decode: Column, prefill: Column, iterations: Column, seconds: Column
    ) -> DecodePace | None:
        """The pace of plans of so many decoding sequences, tokens of prompts and iterations; None
        where none of them decodes alone."""
        decodes, prefills = decode > 0, prefill > 0
        alone, mixed = decodes & ~prefills, decodes & prefills
        counts = [int(iterations[each].sum()) for each in (alone, mixed)]
        if not counts[0]:
            return None
        return cls(
            float((decode * iterations)[decodes].sum() / sum(counts)),
            float(seconds[alone].sum() / counts[0]),
            float(seconds[mixed].sum() / counts[1]) if counts[1] else 0.0,
            float(counts[1] / sum(counts)),
        )


def decode_pace(run: RunRecord) -> DecodePace | None:
    """The pace of a run."""
    columns = (run.plans[name] for name in ("decode", "prefill_tokens", "iterations"))
    decode, prefill, iterations = (each.astype("int64") for each in columns)
    return DecodePace.of(decode, prefill, iterations, run.durations)
