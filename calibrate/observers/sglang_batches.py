"""Records the batches that SGLang runs for given requests, to compare with the simulator's.

    python -m calibrate.observers.sglang_batches RECORDING.json... [--check]

records each file again, as ``vllm_batches`` does those of vLLM. A recording is one JSON object:

    sglang     the version that was recorded, by driving its scheduler alone
    date       when
    settings   SGLang's names
    requests   [prompt tokens, output tokens, steps that had ended before it came] of each
    steps      what ran: [{request: tokens computed}, [who was retracted], [who finished]]

With overlap a step is planned while the one before runs; who finished in a step stands in it all
the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibrate.observers.sglang_engine import SglangAlone, SglangSettings, version
from calibrate.observers.vllm_batches import Asked, VllmStep


@dataclass(frozen=True)
class SglangRecording:
    """The requests and settings given to SGLang, and what it ran."""

    sglang: str
    date: str
    settings: SglangSettings
    requests: list[Asked]
    steps: list[VllmStep]

    def dumps(self) -> str:
        """As JSON, a line for each step."""
        head: dict[str, Any] = {
            "sglang": self.sglang,
            "date": self.date,
            "settings": asdict(self.settings),
            "requests": [list(request[:3]) for request in self.requests],
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in self.steps)
        return "{" + ",\n".join(lines) + f',\n"steps": [\n{steps}\n]}}\n'

    @classmethod
    def loads(cls, text: str) -> SglangRecording:
        """What ``dumps`` wrote."""
        document = json.loads(text)
        steps = [
            VllmStep({int(number): n for number, n in tokens.items()}, retracted, finished)
            for tokens, retracted, finished in document["steps"]
        ]
        return cls(
            sglang=document["sglang"],
            date=document["date"],
            settings=SglangSettings(**document["settings"]),
            requests=[Asked(*request) for request in document["requests"]],
            steps=steps,
        )


def record(settings: SglangSettings, requests: Sequence[Asked]) -> SglangRecording:
    """Give ``requests`` to SGLang's scheduler with ``settings`` and write down what it runs.

    UsageError without SGLang.
    """
    driver = SglangAlone(settings)
    coming = list(enumerate(requests))
    steps: list[VllmStep] = []
    while coming or driver.unfinished:
        ended = len(steps) - driver.in_flight
        while coming and (coming[0][1].before <= ended or not driver.unfinished):
            number, asked = coming.pop(0)
            driver.add(number, asked.prompt, asked.output)
        tokens, retracted, finished = driver.turn()
        if settings.disable_overlap_schedule:
            steps.append(VllmStep(tokens, retracted, finished))
            continue
        if finished:
            steps[-1].finished.extend(finished)
        if tokens:
            steps.append(VllmStep(tokens, retracted, []))
    today = datetime.now(UTC).date().isoformat()
    return SglangRecording(version(), today, settings, list(requests), steps)


def main(arguments: Sequence[str]) -> int:
    """Record the files again that ``arguments`` name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.observers.sglang_batches")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    options = parser.parse_args(arguments)
    changed = 0
    for path in options.recordings:
        old = SglangRecording.loads(path.read_text(encoding="utf-8"))
        new = record(old.settings, old.requests)
        if not options.check:
            path.write_text(new.dumps(), encoding="utf-8")
        differs = new.steps != old.steps
        changed += differs
        outcome = f"different from those of SGLang {old.sglang}" if differs else "the same"
        print(f"{path}: {len(new.steps)} steps of SGLang {new.sglang}, {outcome}")
    return int(options.check and changed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
