"""Splits the latency of fast and of slow requests into its parts, by bands of percentiles.

Requests are sorted by a latency and cut into bands of percentiles; each band has the mean of every
part over its requests. Since the parts of each request add up to its latency, the means of a band
add up to the band's mean latency, exactly. Seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Of = Literal["ttft", "e2el"]

PROMPT_PARTS = ("front_end", "queue", "prefill", "prefill_delay", "prefill_preempted")
TTFT_PARTS = (*PROMPT_PARTS, "transfer")
AFTER_PARTS = ("decode", "decode_delay", "decode_preempted")

PARTS: Mapping[Of, tuple[str, ...]] = {
    "ttft": TTFT_PARTS,
    "e2el": (*PROMPT_PARTS, *AFTER_PARTS, "transfer"),
}
"""Latency -> the parts that add up to it, in order of time; ``<part>_s`` is the column."""

TITLES: Mapping[str, str] = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "delayed by others' prefill",
    "prefill_preempted": "preempted before the first token",
    "decode": "decode",
    "decode_delay": "decode delayed by prefill",
    "decode_preempted": "preempted while decoding",
    "transfer": "KV transfer",
}
"""Part -> what it is called."""

EDGES = (0, 10, 25, 50, 75, 90, 95, 99, 100)
"""Percentiles between which the bands lie."""


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands that have requests, from fast to slow.

    ``parts[name][i]`` is the mean of a part over the ``counts[i]`` requests of band ``i``,
    ``whole[i]`` that of the latency; ``mean`` has the mean of each part over all of them.
    """

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    parts: dict[str, Floats]
    whole: Floats
    mean: dict[str, float]


def bands(requests: pd.DataFrame, of: Of) -> Bands | None:
    """The bands of ``of`` over completed requests after the warm-up.

    None where no request has parts: none was completed, or parts were not recorded.
    """
    columns = [f"{name}_s" for name in PARTS[of]]
    if not set(columns) <= set(requests.columns):
        return None
    counted = (requests["status"] == "completed") & ~requests["warmup"].astype(bool)
    rows = requests.loc[counted, [f"{of}_s", *columns]].to_numpy(float)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return None
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    edges = [round(len(rows) * percentile / 100) for percentile in EDGES]
    taken = [i for i in range(len(EDGES) - 1) if edges[i + 1] > edges[i]]
    means = np.array([rows[edges[i] : edges[i + 1]].mean(axis=0) for i in taken])
    return Bands(
        labels=tuple(f"p{EDGES[i]}–{EDGES[i + 1]}" for i in taken),
        counts=tuple(edges[i + 1] - edges[i] for i in taken),
        parts={name: means[:, column] for column, name in enumerate(PARTS[of], start=1)},
        whole=means[:, 0],
        mean=dict(zip(PARTS[of], rows[:, 1:].mean(axis=0).tolist(), strict=True)),
    )
