"""Recordings of the batches that an engine runs: what those of all engines share.

The requests, the steps, the file, and the command that records files again. Requests are numbered
from 0 in the order of the list, which is that of arrival.
"""

from __future__ import annotations

import argparse
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sim.request import Prefix


class Asked(NamedTuple):
    """One request; it comes when ``before`` steps have run. ``prefix`` as ``Request`` has it."""

    prompt: int
    output: int
    before: int = 0
    priority: int = 0
    prefix: Prefix = ()

    def tokens(self, number: int) -> list[int]:
        """Tokens of the prompt and the answer of the request with that ``number``: of a text the
        same ones at the same places, of different texts different ones."""
        texts = [*self.prefix, (~number, self.prompt + self.output)]
        found: list[int] = []
        for text, end in texts:
            found += [1 + (text % 1000) * 100_000 + place for place in range(len(found), end)]
        return found

    def row(self) -> list[Any]:
        """The row as JSON has it."""
        return list(self if self.prefix else self[:4])

    @classmethod
    def of(cls, row: Sequence[Any]) -> Asked:
        """What ``row`` made."""
        prompt, output, before, priority, *texts = row
        prefix = tuple((text, end) for text, end in (texts[0] if texts else ()))
        return cls(prompt, output, before, priority, prefix)


class BatchStep(NamedTuple):
    """One step in which a request was served: tokens computed of each request; which requests were
    preempted since the step before, first to last; which got their last token."""

    tokens: dict[int, int]
    preempted: list[int]
    finished: list[int]


def right(number: int, steps: int, drafts: int) -> list[int]:
    """How many ``drafts`` in a row the request with that ``number`` accepts in each of the first
    that many steps of its decoding.

    >>> right(7, steps=6, drafts=3)
    [3, 3, 3, 2, 2, 2]
    """
    return [
        ((number + 1) * (step + 3) * 2_654_435_761 % 2**32 >> 16) % (drafts + 1)
        for step in range(steps)
    ]


class BatchRecording(ABC):
    """The requests and settings given to an engine, and what it ran."""

    requests: list[Asked]
    steps: list[BatchStep]

    @property
    @abstractmethod
    def version(self) -> str:
        """The release that was recorded."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """All but the steps, as JSON has it."""

    def dumps(self) -> str:
        """The steps as JSON, a line for each."""
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in self.head().items()]
        steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in self.steps)
        return "{" + ",\n".join(lines) + f',\n"steps": [\n{steps}\n]}}\n'


Recorded = TypeVar("Recorded", bound=BatchRecording)


def steps_of(document: dict[str, Any]) -> list[BatchStep]:
    """The steps of a recording's file."""
    return [
        BatchStep({int(number): n for number, n in tokens.items()}, preempted, finished)
        for tokens, preempted, finished in document["steps"]
    ]


def record_again(
    module: str,
    engine: str,
    arguments: Sequence[str],
    loads: Callable[[str], Recorded],
    again: Callable[[Recorded], Recorded],
) -> int:
    """The command ``python -m module``: records the files again that ``arguments`` name; the exit
    code."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    options = parser.parse_args(arguments)
    changed = 0
    for path in options.recordings:
        old = loads(path.read_text(encoding="utf-8"))
        new = again(old)
        if not options.check:
            path.write_text(new.dumps(), encoding="utf-8")
        differs = new.steps != old.steps
        changed += differs
        outcome = f"different from those of {engine} {old.version}" if differs else "the same"
        print(f"{path}: {len(new.steps)} steps of {engine} {new.version}, {outcome}")
    return int(options.check and changed > 0)
