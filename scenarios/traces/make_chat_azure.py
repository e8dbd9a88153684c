"""Write ``chat-azure.csv``, an invented chat trace in the format of Azure's 2023 traces.

    python scenarios/traces/make_chat_azure.py [FILE]

Nothing in it was recorded; every value is drawn from the laws below with a fixed seed, so the file
comes out the same each time:

- arrivals: a rate of 5 requests/s on average that swings by 30 % with a period of five minutes;
  gaps have a gamma law with coefficient of variation 1.08 before the rate stretches them
  (about 1.1 after);
- prompt tokens: three in ten requests open a conversation (lognormal, mean 300), the others carry
  its history (lognormal, mean 1,500); up to 7,000, drawn again above;
- output tokens: lognormal with mean 210 and 99th percentile 600; up to 1,200, drawn again above.

The format: header ``TIMESTAMP,ContextTokens,GeneratedTokens``, lines end in CR LF except for the
last one, which has no end, and fractions of a second have seven digits (ticks of 100 ns).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 20250601
REQUESTS = 3_000
RATE, SWING, PERIOD = 5.0, 0.3, 300.0  # requests/s, share, s
GAP_CV = 1.08
START = np.datetime64("2025-06-02T09:00:00", "ns")


def main() -> None:
    """Write the trace next to this script, or to the file named on the command line."""
    default = Path(__file__).with_name("chat-azure.csv")
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    target.write_bytes(trace())


def trace() -> bytes:
    """The whole file."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    ticks = np.floor(arrivals(rng) * 1e7).astype(np.int64)  # of 100 ns
    prompts = prompt_tokens(rng)
    outputs = below(1_200, lambda size: lognormal(rng, 210.0, 0.506, size))
    stamps = np.datetime_as_string(START + ticks * np.timedelta64(100, "ns"), unit="ns")
    rows = [
        f"{stamp[:27].replace('T', ' ')},{prompt},{output}"
        for stamp, prompt, output in zip(stamps, prompts, outputs, strict=True)
    ]
    return "\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]).encode("ascii")


def arrivals(rng: np.random.Generator) -> NDArray[np.float64]:
    """Seconds since the start: even-paced gamma arrivals, then time is stretched by the rate.

    With the rate r(t) = RATE (1 + SWING sin(2 pi t / PERIOD)), request i arrives when the integral
    of r reaches the i-th sum of gaps of mean 1.
    """
    shape = GAP_CV**-2
    expected = np.cumsum(rng.standard_gamma(shape, REQUESTS) / shape)
    clock = np.linspace(0.0, 2 * REQUESTS / RATE, 1_000_001)
    wave = SWING * PERIOD / (2 * np.pi) * (1 - np.cos(2 * np.pi * clock / PERIOD))
    times: NDArray[np.float64] = np.interp(expected, RATE * (clock + wave), clock)
    return times


def prompt_tokens(rng: np.random.Generator) -> NDArray[np.int64]:
    """Openings and continuations of conversations, mixed three to seven."""

    def draw(size: int) -> NDArray[np.float64]:
        opening = rng.random(size) < 0.3
        return np.where(
            opening, lognormal(rng, 300.0, 0.8, size), lognormal(rng, 1_500.0, 0.7, size)
        )

    return below(7_000, draw)


def lognormal(
    rng: np.random.Generator, mean: float, sigma: float, size: int
) -> NDArray[np.float64]:
    """Lognormal values with this mean; sigma is that of their logarithm."""
    logarithms = np.log(mean) - sigma**2 / 2 + sigma * rng.standard_normal(size)
    values: NDArray[np.float64] = np.exp(logarithms)
    return values


def below(limit: int, draw: Callable[[int], NDArray[np.float64]]) -> NDArray[np.int64]:
    """``REQUESTS`` whole numbers from 1 to ``limit``; what comes out larger is drawn again."""
    values = draw(REQUESTS)
    while (outside := values > limit).any():
        values[outside] = draw(int(outside.sum()))
    whole: NDArray[np.int64] = np.maximum(np.rint(values), 1).astype(np.int64)
    return whole


if __name__ == "__main__":
    main()
