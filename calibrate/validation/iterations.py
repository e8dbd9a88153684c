"""Reads which iterations an engine ran, how long each took, and which requests were in it.

The table ``iterations.csv`` of an observed run, as columns. Seconds and tokens.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError, shorten

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")

NEEDED = ("start_s", "duration_s", "decode_seqs", "prefills", "context_tokens")
"""Columns without which nothing can be said of an iteration."""


class Prefill(NamedTuple):
    """``tokens`` of one request's prompt, on top of ``before``."""

    request: int
    before: int
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class ObservedIterations:
    """One entry for each iteration, in their order.

    ``decode`` counts the sequences that got a token, ``padded`` slots computed for no request,
    ``context`` the KV tokens that both held before. ``decodes`` are request ids, None where they
    were not written down. ``seen`` is how much of the context the decodes saw through each window
    of the model; empty where there is none, or it was not written down. ``accepted`` has how many
    drafts of each decode were right, of the ``drafts`` that were checked, empty likewise.
    """

    start: Floats
    duration: Floats
    decode: Ints
    padded: Ints
    context: Ints
    prefills: Sequence[tuple[Prefill, ...]]
    decodes: Sequence[tuple[int, ...]] | None
    preempted: Ints
    seen: Sequence[tuple[int, ...]]
    accepted: Sequence[tuple[int, ...]]
    drafts: Sequence[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def sequences(self) -> Ints:
        """Sequences that the decode kernels run over."""
        return self.decode + self.padded

    @property
    def prefill_seqs(self) -> Ints:
        """Prompts, or parts of them, in each iteration."""
        return np.array([len(parts) for parts in self.prefills], dtype=np.int64)

    @property
    def prefill_tokens(self) -> Ints:
        """Tokens of prompts in each iteration."""
        return np.array([sum(p.tokens for p in parts) for parts in self.prefills], dtype=np.int64)

    @property
    def admitted(self) -> Ints:
        """Requests that entered the batch: those whose prompt begins, again after a preemption."""
        return np.array([sum(p.before == 0 for p in parts) for parts in self.prefills], np.int64)

    def acceptance(self, drafts: int) -> tuple[float, ...] | None:
        """The share of decodes whose first 1, 2, ... of that many ``drafts`` were all right, to six
        digits; None where it was not written down."""
        right = np.array([count for counts in self.accepted for count in counts], dtype=np.int64)
        if not len(right):
            return None
        shares = [float((right > place).mean()) for place in range(drafts)]
        return tuple(round(share, 6) for share in shares)

    def match_rate(self, drafts: int) -> float | None:
        """How many of that many ``drafts`` of each decode were made, as a share to six digits: less
        than 1 where a text is searched that does not always repeat. None where it was not written
        down."""
        made = [count for counts in self.drafts for count in counts]
        if not made:
            return None
        return round(sum(made) / (drafts * len(made)), 6)

    @property
    def end(self) -> Floats:
        """When the tokens of each were there (s)."""
        return self.start + self.duration


def read_iterations(path: Path) -> ObservedIterations | None:
    """The table at ``path``; None if there is none, or it holds no iteration.

    UsageError, with file and line, for whatever is not what ``infersim observe`` writes.
    """
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        names = table.fieldnames or []
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise UsageError(f"{path}: has no column {', '.join(missing)}")
        rows = [_row(path, number, cells) for number, cells in enumerate(table, 2)]
    if not rows:
        return None
    columns = zip(*rows, strict=True)
    (
        start,
        duration,
        decode,
        context,
        padded,
        prefills,
        decodes,
        preempted,
        seen,
        accepted,
        drafts,
    ) = columns
    return ObservedIterations(
        start=np.array(start),
        duration=np.array(duration),
        decode=np.array(decode, dtype=np.int64),
        padded=np.array(padded, dtype=np.int64),
        context=np.array(context, dtype=np.int64),
        prefills=prefills,
        decodes=decodes if "decodes" in names else None,
        preempted=np.array(preempted, dtype=np.int64),
        seen=seen,
        accepted=accepted,
        drafts=drafts,
    )


Counts = tuple[int, ...]
Row = tuple[float, float, int, int, int, tuple[Prefill, ...], Counts, int, Counts, Counts, Counts]
"""The cells of a row that are read, in the order of ``_row``."""


def _row(path: Path, line: int, cells: Mapping[str, str | None]) -> Row:
    def read(name: str, convert: Callable[[str], T], absent: str = "") -> T:
        text = cells.get(name) if name in NEEDED else cells.get(name, absent) or absent
        try:
            if text is None:
                raise ValueError
            return convert(text)
        except ValueError:
            raise UsageError(f"{path}:{line}: {name} is {shorten(repr(text))}") from None

    return (
        read("start_s", _seconds),
        read("duration_s", _seconds),
        read("decode_seqs", _count),
        read("context_tokens", _count),
        read("padded_seqs", _count, "0"),
        read("prefills", _parts),
        read("decodes", _counts),
        len(read("preempted", _counts)),
        read("seen_tokens", _counts),
        read("accepted", _counts),
        read("drafts", _counts),
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not isfinite(value) or value < 0:
        raise ValueError
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _counts(text: str) -> Counts:
    return tuple(map(_count, text.split()))


def _parts(text: str) -> tuple[Prefill, ...]:
    parts = []
    for word in text.split():
        request, _, span = word.partition(":")
        before, _, tokens = span.partition("+")
        parts.append(Prefill(_count(request), _count(before), _count(tokens)))
    return tuple(parts)
