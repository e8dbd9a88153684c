"""Draws the lengths of prompts and answers in tokens, always whole and at least 1.

A law takes one value from its generator per request, in order (``Fixed`` takes none). So request i
keeps its place in the distribution when a parameter changes (a larger mean makes the same requests
longer), and the sequence does not depend on how it is cut into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.rng import stream
from sim.scenario.sections.lengths import Z95
from sim.workload.traffic import MAX_TOKENS

Lengths = NDArray[np.int64]

_LARGEST_EXPONENT = 50.0  # its exponential is beyond any length, and still a number


class LengthLaw(Protocol):
    """Anything that can say how many tokens the next requests have."""

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """The lengths of the next ``size`` requests."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has ``value`` tokens; draws nothing."""

    value: int

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """The value, ``size`` times."""
        return np.full(size, self.value, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from ``low`` to ``high``, both included, is equally likely."""

    low: int
    high: int

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """Independent uniform integers."""
        drawn: Lengths = rng.integers(self.low, self.high, size, dtype=np.int64, endpoint=True)
        return drawn


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(``mu`` + ``sigma`` z) for a standard normal z, clipped to [min, max], then rounded.

    ``with_p95`` and ``with_cv`` solve for mu and sigma. They describe the law *before* clipping.
    Clipping moves what lies outside onto the bounds, so a ``max`` lowers the mean by the part of
    the tail that it cuts off: little for a max far above p95 (mean 800, p95 2,400 and max 6,000
    average 790), but a max at the p95 costs 9 %. Clipping rather than drawing again keeps one
    value per request.
    """

    mu: float
    sigma: float
    min: int = 1
    max: int = MAX_TOKENS

    @classmethod
    def with_p95(cls, mean: float, p95: float, min: int = 1, max: int = MAX_TOKENS) -> Lognormal:  # noqa: A002
        """The law with this mean and this 95th percentile; UsageError where none exists."""
        sigma = lognormal_sigma(mean, p95)
        return cls(math.log(mean) - sigma**2 / 2, sigma, min, max)

    @classmethod
    def with_cv(cls, mean: float, cv: float, min: int = 1, max: int = MAX_TOKENS) -> Lognormal:  # noqa: A002
        """The law with this mean and this standard deviation over mean."""
        variance = 2 * math.log(math.hypot(1.0, cv))  # ln(1 + cv^2), whatever the size of cv
        return cls(math.log(mean) - variance / 2, math.sqrt(variance), min, max)

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """Independent values; clipped first, so that rounding always sees a number that fits."""
        exponents = self.mu + self.sigma * rng.standard_normal(size)
        values = np.exp(np.minimum(exponents, _LARGEST_EXPONENT))
        whole: Lengths = np.rint(np.clip(values, self.min, self.max)).astype(np.int64)
        return whole


@dataclass(frozen=True, slots=True)
class Normal:
    """``mean`` + ``std`` z for a standard normal z, clipped to [min, max], then rounded.

    Clipping at 1 raises the mean where the spread is wide: by 8 % for a std as large as the mean.
    """

    mean: float
    std: float
    min: int = 1
    max: int = MAX_TOKENS

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """Independent values; clipped first, so that rounding always sees a number that fits."""
        values = np.clip(self.mean + self.std * rng.standard_normal(size), self.min, self.max)
        whole: Lengths = np.rint(values).astype(np.int64)
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Lengths that were seen somewhere, drawn with replacement."""

    values: Lengths

    def draw(self, rng: np.random.Generator, size: int) -> Lengths:
        """Each of the values is equally likely at every draw."""
        drawn: Lengths = self.values[rng.integers(0, len(self.values), size)]
        return drawn

    @classmethod
    def from_file(cls, path: Path, column: str | None = None) -> Empirical:
        """Lengths from ``column`` of a CSV or JSON lines file, one request a row.

        None takes the only column; bare numbers, one per line, need no header. TraceError as for a
        trace: file and line, the value, what is allowed.
        """
        from sim.workload.traces.columns import read_column  # noqa: PLC0415 - only where files are

        return cls(read_column(path, column))


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Prompts and answers that were seen together, drawn together, with replacement.

    So what they have to do with each other stays: their correlation is that of the record.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths

    def draw(self, rng: np.random.Generator, size: int) -> tuple[Lengths, Lengths]:
        """The prompts and answers of ``size`` requests; each recorded one is equally likely."""
        rows = rng.integers(0, len(self.prompt_tokens), size)
        return self.prompt_tokens[rows], self.output_tokens[rows]

    @classmethod
    def from_file(cls, path: Path, columns: tuple[str, str] | None = None) -> Joint:
        """Pairs from two columns of a CSV or JSON file: prompts, answers.

        None finds them by the names that are in use. TraceError with file and line.
        """
        from sim.workload.traces.columns import read_pair  # noqa: PLC0415 - only where files are

        return cls(*read_pair(path, columns))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Requests of several kinds: the share of each, and the laws of its prompts and answers."""

    shares: tuple[float, ...]
    laws: tuple[tuple[LengthLaw, LengthLaw], ...]

    def chunks(self, seed: int, sizes: Iterable[int]) -> Iterator[tuple[Lengths, Lengths]]:
        """The prompts and answers of so many requests at a time.

        Every law has a stream of its own and draws for every request: with other shares, a request
        that stays of its kind keeps its lengths.
        """
        kinds = stream(seed, "lengths/mixture")
        drawn = [
            (law, stream(seed, f"lengths/mixture/{number}/{what}"))
            for number, pair in enumerate(self.laws)
            for what, law in zip(("prompt", "output"), pair, strict=True)
        ]
        bounds = np.cumsum(self.shares)[:-1]
        for size in sizes:
            kind = np.searchsorted(bounds, kinds.random(size), side="right")
            values = [law.draw(rng, size) for law, rng in drawn]
            rows = np.arange(size)
            yield np.stack(values[::2])[kind, rows], np.stack(values[1::2])[kind, rows]


def lognormal_sigma(mean: float, p95: float) -> float:
    """The sigma of the lognormal law with this mean and 95th percentile (same unit).

    With p95 = exp(mu + z s) and mean = exp(mu + s^2/2), s solves z s - s^2/2 = ln(p95/mean). Of
    the two roots the smaller one is meant; the larger one puts nearly everything near 0. The ratio
    p95/mean is thus at least 1 (no spread at all) and at most exp(z^2/2) = 3.87: UsageError
    outside.

    >>> round(lognormal_sigma(800, 2400), 4)
    0.9319
    """
    ratio = p95 / mean
    largest = math.exp(Z95**2 / 2)
    if not 1 <= ratio <= largest:
        raise UsageError(
            f"no lognormal law has mean {mean:g} and p95 {p95:g}: p95 must lie between the mean"
            f" and {largest:.2f} times the mean, here {mean:g} to {mean * largest:.0f}"
        )
    return Z95 - math.sqrt(Z95**2 - 2 * math.log(ratio))
