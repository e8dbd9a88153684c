"""Records the batches that vLLM runs for given requests, to compare with the simulator's.

    python -m calibrate.observers.vllm_batches RECORDING.json... [--check]

records each file again: its settings and requests stay, its steps are replaced; with ``--check``
nothing is written, and the exit code is 1 if any step differs. A recording is one JSON object:

    vllm       the version that was recorded
    executed   whether a model ran; otherwise vLLM's scheduler alone was driven
    settings   vLLM's names
    requests   [prompt tokens, output tokens, steps that ran before it came, priority] of each;
               with a prefix cache also [[text, end], ...]: with which texts the prompt begins, and
               where each ends. What follows is the request's own text, -1 - its number, and its
               answer goes on with it
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
from sim.request import Prefix
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
        """As JSON has it."""
        return list(self if self.prefix else self[:4])

    @classmethod
    def of(cls, row: Sequence[Any]) -> Asked:
        """What ``row`` made."""
        prompt, output, before, priority, *texts = row
        prefix = tuple((text, end) for text, end in (texts[0] if texts else ()))
        return cls(prompt, output, before, priority, prefix)


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
            "settings": _stated(self.settings),
            "requests": [request.row() for request in self.requests],
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
            requests=[Asked.of(row) for row in document["requests"]],
            steps=steps,
        )


def _stated(settings: VllmSettings) -> dict[str, Any]:
    """The settings as a recording has them: a prefix cache only where it is on."""
    named = asdict(settings)
    if not settings.enable_prefix_caching:
        del named["enable_prefix_caching"]
    return named


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
    steps = _steps(driver(TINY, settings), requests, texts=settings.enable_prefix_caching)
    return VllmRecording(lazy_vllm.version(), execute, settings, list(requests), steps)


def _executing(spec: ModelSpec, settings: VllmSettings) -> WholeEngine:
    return WholeEngine(spec, settings, dtype="float32", enforce_eager=True)


def _steps(driver: Driver, requests: Sequence[Asked], *, texts: bool) -> list[VllmStep]:
    """The steps of ``requests``, whose tokens do not matter unless they have ``texts``."""
    watch = VllmWatch(driver.scheduler, time.perf_counter)
    coming = list(enumerate(requests))
    steps: list[VllmStep] = []
    idle = False
    while coming or driver.busy():
        while coming and (coming[0][1].before <= len(steps) or idle):
            number, asked = coming.pop(0)
            tokens = asked.tokens(number) if texts else [1] * asked.prompt
            prompt, answer = tokens[: asked.prompt], tokens[asked.prompt :]
            driver.add(number, prompt, asked.output, asked.priority, answer)
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
