"""What is a trace, and what must a trace format say about itself?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.workload.traces.rows import Head


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests that were recorded once, as three arrays of equal length.

    ``arrivals`` in seconds (from any origin as a reader returns it; since the first request, and
    sorted, as ``read_trace`` returns it), lengths in tokens, each at least 1.
    """

    arrivals: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrivals)

    @classmethod
    def joined(cls, parts: Iterable[Trace]) -> Trace:
        """One trace from consecutive parts of it (at least one)."""
        rows = list(parts)
        return cls(
            np.concatenate([part.arrivals for part in rows]),
            np.concatenate([part.prompt_tokens for part in rows]),
            np.concatenate([part.output_tokens for part in rows]),
        )


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format: ``recognises`` looks at nothing but column names, never at values."""

    name: str
    layout: str
    """The format in one line, for people who must write or recognise it."""
    recognises: Callable[[Head], bool]
    read: Callable[[Path], Trace]
    """All rows of a file, in its order; TraceError where the file breaks the format."""
