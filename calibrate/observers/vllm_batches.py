"""Records the batches that vLLM runs for given requests, to compare with the simulator's.

    python -m calibrate.observers.vllm_batches RECORDING.json... [--check]

records each file again: its settings and requests stay, its steps are replaced; with ``--check``
nothing is written, and the exit code is 1 if any step differs. A recording is one JSON object:

    vllm       the version that was recorded
    executed   whether a model ran; otherwise vLLM's scheduler alone was driven
    settings   vLLM's names
    requests   [prompt tokens, output tokens, steps that ran before it came, priority] of each
    steps      what ran: [{request: tokens computed}, [who was preempted], [who finished]]

Requests are numbered from 0 in the order of the list, which is that of arrival.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.observers import lazy_vllm
from calibrate.observers.vllm_engine import Driver, SchedulerAlone, VllmSettings, WholeEngine
from calibrate.observers.vllm_watch import VllmWatch
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec

TINY = ModelSpec(
    name="tiny",
    hidden_size=64,
    layers=(
        LayerGroup(
            count=1,
            attention=GroupedQuery(
                num_heads=2, num_kv_heads=1, head_dim=32, attention_bias=False, qk_norm=False
            ),
            mlp=DenseMlp(intermediate_size=64),
        ),
    ),
    vocab_size=128,
    max_position_embeddings=8192,
    tie_word_embeddings=False,
    source="made up",
)
"""A model that takes no time; what it generates does not matter."""


class Asked(NamedTuple):
    """One request; it comes when ``before`` steps have run."""

    prompt: int
    output: int
    before: int = 0
    priority: int = 0


class VllmStep(NamedTuple):
    """One step in which a request was served: tokens computed of each request; which requests were
    preempted since the step before, first to last; which got their last token."""

    tokens: dict[int, int]
    preempted: list[int]
    finished: list[int]


@dataclass(frozen=True)
class VllmRecording:
    """The requests and settings given to vLLM, and what it ran."""

    vllm: str
    executed: bool
    settings: VllmSettings
    requests: list[Asked]
    steps: list[VllmStep]

    def dumps(self) -> str:
        """As JSON, a line for each step."""
        head: dict[str, Any] = {
            "vllm": self.vllm,
            "executed": self.executed,
            "settings": asdict(self.settings),
            "requests": [list(request) for request in self.requests],
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in self.steps)
        return "{" + ",\n".join(lines) + f',\n"steps": [\n{steps}\n]}}\n'

    @classmethod
    def loads(cls, text: str) -> VllmRecording:
        """What ``dumps`` wrote."""
        document = json.loads(text)
        steps = [
            VllmStep({int(number): n for number, n in tokens.items()}, preempted, finished)
            for tokens, preempted, finished in document["steps"]
        ]
        return cls(
            vllm=document["vllm"],
            executed=document["executed"],
            settings=VllmSettings(**document["settings"]),
            requests=[Asked(*request) for request in document["requests"]],
            steps=steps,
        )


def record(
    settings: VllmSettings, requests: Sequence[Asked], *, execute: bool = False
) -> VllmRecording:
    """Give ``requests`` to vLLM with ``settings`` and write down what it runs; with ``execute`` the
    whole engine and a tiny model.

    UsageError without vLLM.
    """
    driver: Callable[[ModelSpec, VllmSettings], Driver] = SchedulerAlone
    if execute:
        driver = _executing
    steps = list(_steps(driver(TINY, settings), requests))
    return VllmRecording(lazy_vllm.version(), execute, settings, list(requests), steps)


def _executing(spec: ModelSpec, settings: VllmSettings) -> WholeEngine:
    return WholeEngine(spec, settings, dtype="float32", enforce_eager=True)


def _steps(driver: Driver, requests: Sequence[Asked]) -> list[VllmStep]:
    watch = VllmWatch(driver.scheduler, time.perf_counter)
    coming = list(enumerate(requests))
    steps: list[VllmStep] = []
    idle = False
    while coming or driver.busy():
        while coming and (coming[0][1].before <= len(steps) or idle):
            number, asked = coming.pop(0)
            driver.add(number, [1] * asked.prompt, asked.output, asked.priority)
            idle = False
        if not driver.busy():
            idle = True  # the next one comes early: steps do not pass by themselves
            continue
        driver.step()
        turn = watch.take()
        if turn is not None:
            steps.append(
                VllmStep(
                    {driver.numbers[name]: n for name, n in turn.scheduled.items()},
                    [driver.numbers[name] for name in turn.preempted],
                    [driver.numbers[name] for name in turn.finished],
                )
            )
    return steps


def main(arguments: Sequence[str]) -> int:
    """Record the files again that ``arguments`` name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.observers.vllm_batches")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    options = parser.parse_args(arguments)
    changed = 0
    for path in options.recordings:
        old = VllmRecording.loads(path.read_text(encoding="utf-8"))
        new = record(old.settings, old.requests, execute=old.executed)
        if not options.check:
            path.write_text(new.dumps(), encoding="utf-8")
        differs = new.steps != old.steps
        changed += differs
        outcome = f"different from those of vLLM {old.vllm}" if differs else "the same"
        print(f"{path}: {len(new.steps)} steps of vLLM {new.vllm}, {outcome}")
    return int(options.check and changed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
