"""Provides random generators: one named stream per purpose, all from the scenario's seed.

Streams are independent of one another, so that drawing more from one ("routing") never shifts
another ("arrivals"): two scenarios that differ in one policy see the same traffic. The state of a
stream is the same on every platform and in every process; the values drawn from it are those of
the installed NumPy, whose distributions may change between its releases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

LARGEST_SEED = 2**63 - 1
"""The largest seed that a scenario may have."""


def repetition_seed(seed: int, repetition: int) -> int:
    """The seed of the ``repetition``-th independent run of a scenario whose own seed is ``seed``.

    Repetition 0 is the scenario itself. The others are hashed from both numbers: with ``seed +
    repetition`` the runs of seeds 1 and 2 would be nearly the same ones.

    >>> repetition_seed(42, 0), repetition_seed(42, 1)
    (42, 8376769457060201316)
    """
    if repetition == 0:
        return seed
    digest = hashlib.sha256(f"repetition {repetition} of seed {seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & LARGEST_SEED


def stream(seed: int, name: str) -> np.random.Generator:
    """A fresh generator for ``name`` ("arrivals", "lengths/prompt", ...) under ``seed``.

    Equal arguments give generators that draw equal values. ``seed`` is any whole number that is
    not negative (ValueError otherwise). The generator's algorithm is named, not NumPy's default of
    the day, and the name enters through SHA-256: ``hash`` differs from one process to the next.

    >>> int(stream(42, "arrivals").integers(1000)), int(stream(42, "arrivals").integers(1000))
    (311, 311)
    """
    if seed < 0:
        raise ValueError(f"a seed must not be negative, got {seed}")
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=words)))


def numbered(seed: int, name: str) -> Callable[[int], np.random.Generator]:
    """The streams under ``seed`` of things with numbers, such as requests, at their beginning.

    Much cheaper than a ``stream`` of each: one counter-based generator starts again, with the
    number as half of its key. What it was before is gone.

    >>> of = numbered(42, "acceptance")
    >>> int(of(7).integers(1000)), int(of(7).integers(1000)), int(of(8).integers(1000))
    (620, 620, 876)
    """
    digest = hashlib.sha256(f"{name} of seed {seed}".encode()).digest()
    key = np.array([int.from_bytes(digest[:8], "little"), 0], dtype=np.uint64)
    bits = np.random.Philox(key=key)
    generator, beginning = np.random.Generator(bits), bits.state
    mine = beginning["state"]["key"]

    def of(number: int) -> np.random.Generator:
        mine[1] = number
        bits.state = beginning
        return generator

    return of
