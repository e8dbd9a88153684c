"""Corrects published rows: settings that their notes add, and columns known to be wrong.

Notes are read for the few settings that change a prediction. ``KNOWN`` holds what is known of whole
publications (never of single rows); whatever it changes is stated as a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.scoring.table import Row


@dataclass(frozen=True, slots=True)
class Statement:
    """Settings found in the notes of a row; None or empty where nothing is stated.

    ``spread`` are the shortest and the longest length as shares of the nominal one.
    """

    weights: str = ""
    kv_cache: str = ""
    spread: tuple[float, float] | None = None
    memory_fraction: float | None = None
    max_num_batched_tokens: int | None = None
    whole_system: bool = False
    more: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What holds for a publication, that is for rows whose cells match ``where`` (column: pattern),
    whatever they state: the format ``kv_cache``, figures of the ``whole_system`` where one of a GPU
    is announced, ``more`` requests in flight than stated. ``why`` says how that is known."""

    where: tuple[tuple[str, str], ...]
    why: str
    kv_cache: str = ""
    whole_system: bool = False
    more: int = 0

    def covers(self, row: Row) -> bool:
        """Whether ``row`` belongs to the publication."""
        return all(re.search(pattern, row[column], re.I) for column, pattern in self.where)


KNOWN = (
    Known(
        (("engine", "^vllm"), ("kv_dtype", "^fp8"), ("notes", "InferenceMAX")),
        "the KV cache is taken for bf16: its capacity and the slope of the token time in the "
        "context say so, although fp8 is stated",
        kv_cache="bf16",
    ),
    Known(
        (("engine", "tensorrt"), ("engine_version", r"^0\.[56]\."), ("tp", "^[^1]")),
        "the figure is that of all GPUs together, although one of a GPU is announced: later "
        "releases on the same hardware give a quarter of it with four GPUs",
        whole_system=True,
    ),
    Known(
        (("engine", "^trtllm"), ("source_path", "silicon_sample"), ("notes", "aic-auto-gap")),
        "one request more is in flight than stated, and waits for a seat: the time to first token "
        "grows with the length of answers as such a wait does",
        more=1,
    ),
)

_SPREAD = re.compile(r"uniform in \[([\d.]+),\s*([\d.]+)\]\s*\*?\s*nominal")
_FRACTION = re.compile(
    r"(?:mem(?:ory)?[-_](?:util\w*|fraction)|kv frac|mem_fraction)\D{0,3}(0\.\d+)"
)
_TOKENS = re.compile(r"max[-_]num[-_]batched[-_]tokens\D{0,3}(\d+)")


def statement(row: Row) -> Statement:
    """What is known of ``row`` in addition to its columns."""
    notes = row["notes"]
    known = next((known for known in KNOWN if known.covers(row)), None)
    spread = _SPREAD.search(notes)
    fraction, tokens = _FRACTION.search(notes), _TOKENS.search(notes)
    return Statement(
        kv_cache=known.kv_cache if known else "",
        whole_system=known.whole_system if known else False,
        more=known.more if known else 0,
        spread=(float(spread[1]), float(spread[2])) if spread else None,
        memory_fraction=float(fraction[1]) if fraction else None,
        max_num_batched_tokens=int(tokens[1]) if tokens else None,
        remarks=(known.why,) if known else (),
    )
