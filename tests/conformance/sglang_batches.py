"""Records the batches that SGLang runs for given requests, to compare with the simulator's.

    python -m tests.conformance.sglang_batches RECORDING.json... [--check]

records each file again, as ``vllm_batches`` does. A recording is one JSON object:

    sglang     the version that was recorded, by driving its scheduler alone
    date       when
    settings   SGLang's names
    requests   [prompt tokens, output tokens, steps that had ended before it came] of each; with
               texts that others share as in ``vllm_batches``
    steps      what ran: [{request: tokens computed}, [who was retracted], [who finished]]

With overlap a step is planned while the one before runs; who finished in a step stands in it all
the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tests.conformance.batches import (
    Asked,
    BatchRecording,
    BatchStep,
    record_again,
    steps_of,
)
from tests.conformance.sglang_engine import SglangAlone, SglangSettings
from tests.conformance.sglang_package import version


@dataclass(frozen=True)
class SglangRecording(BatchRecording):
    """The requests and settings given to SGLang, and what it ran."""

    sglang: str
    date: str
    settings: SglangSettings
    requests: list[Asked]
    steps: list[BatchStep]

    @property
    def version(self) -> str:
        """The release of SGLang."""
        return self.sglang

    def head(self) -> dict[str, Any]:
        """All but the steps."""
        return {
            "sglang": self.sglang,
            "date": self.date,
            "settings": _stated(self.settings),
            "requests": [r.row() if r.prefix else list(r[:3]) for r in self.requests],
        }

    @classmethod
    def loads(cls, text: str) -> SglangRecording:
        """What ``dumps`` wrote."""
        document = json.loads(text)
        return cls(
            sglang=document["sglang"],
            date=document["date"],
            settings=SglangSettings(**document["settings"]),
            requests=[
                Asked.of([*row, 0] if len(row) == 3 else row) for row in document["requests"]
            ],
            steps=steps_of(document),
        )


def _stated(settings: SglangSettings) -> dict[str, Any]:
    """The settings as a recording has them: an order only where it is not that of arrival."""
    named = asdict(settings)
    if settings.schedule_policy == "fcfs":
        del named["schedule_policy"]
    return named


def record(settings: SglangSettings, requests: Sequence[Asked]) -> SglangRecording:
    """Give ``requests`` to SGLang's scheduler with ``settings`` and write down what it runs.

    UsageError without SGLang.
    """
    driver = SglangAlone(settings)
    coming = list(enumerate(requests))
    steps: list[BatchStep] = []
    while coming or driver.unfinished:
        ended = len(steps) - driver.in_flight
        while coming and (coming[0][1].before <= ended or not driver.unfinished):
            number, asked = coming.pop(0)
            text = asked.tokens(number)
            driver.add(number, text[: asked.prompt], text[asked.prompt :])
        tokens, retracted, finished = driver.turn()
        if settings.disable_overlap_schedule:
            steps.append(BatchStep(tokens, retracted, finished))
            continue
        if finished:
            steps[-1].finished.extend(finished)
        if tokens:
            steps.append(BatchStep(tokens, retracted, []))
    today = datetime.now(UTC).date().isoformat()
    return SglangRecording(version(), today, settings, list(requests), steps)


def main(arguments: Sequence[str]) -> int:
    """Record the files again that ``arguments`` name; the exit code."""
    module = "tests.conformance.sglang_batches"
    return record_again(module, "SGLang", arguments, SglangRecording.loads, _again)


def _again(old: SglangRecording) -> SglangRecording:
    return record(old.settings, old.requests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
