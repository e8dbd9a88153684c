"""Records the batches that vLLM runs for given requests, to compare with the simulator's.

    python -m tests.conformance.vllm_batches RECORDING.json... [--check]

records each file again: its settings and requests stay, its steps are replaced; with ``--check``
nothing is written, and the exit code is 1 if any step differs. A recording is one JSON object:

    vllm       the version that was recorded
    executed   whether a model ran; otherwise vLLM's scheduler alone was driven
    settings   vLLM's names
    requests   [prompt tokens, output tokens, steps that ran before it came, priority] of each;
               with a prefix cache also [[text, end], ...]: with which texts the prompt begins, and
               where each ends. What follows is the request's own text, -1 - its number, and its
               answer goes on with it
               of drafts each step of the decoding accepts what ``right`` says
    steps      what ran: [{request: tokens computed}, [who was preempted], [who finished]]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibrate.observers import lazy_vllm
from calibrate.observers.vllm_engine import Arriving, Driver, WholeEngine
from calibrate.observers.vllm_watch import VllmWatch
from sim.specs.dense_mlp import DenseMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.model import ModelSpec
from tests.conformance.batches import (
    Asked,
    BatchRecording,
    BatchStep,
    record_again,
    right,
    steps_of,
)
from tests.conformance.vllm_alone import AloneSettings, SchedulerAlone

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


@dataclass(frozen=True)
class VllmRecording(BatchRecording):
    """The requests and settings given to vLLM, and what it ran."""

    vllm: str
    executed: bool
    settings: AloneSettings
    requests: list[Asked]
    steps: list[BatchStep]

    @property
    def version(self) -> str:
        """The release of vLLM."""
        return self.vllm

    def head(self) -> dict[str, Any]:
        """All but the steps."""
        return {
            "vllm": self.vllm,
            "executed": self.executed,
            "settings": _stated(self.settings),
            "requests": [request.row() for request in self.requests],
        }

    @classmethod
    def loads(cls, text: str) -> VllmRecording:
        """What ``dumps`` wrote."""
        document = json.loads(text)
        return cls(
            vllm=document["vllm"],
            executed=document["executed"],
            settings=_settings(document["settings"]),
            requests=[Asked.of(row) for row in document["requests"]],
            steps=steps_of(document),
        )


OFF: Mapping[str, Any] = {
    "enable_prefix_caching": False,
    "kv_groups": ((None, False),),
    "async_scheduling": False,
    "prefill_schedule_interval": 1,
    "drafts": 0,
    "watermark": 0.0,
}
"""Settings that a recording leaves out where they have these values."""


def _stated(settings: AloneSettings) -> dict[str, Any]:
    """The settings as a recording has them: features only where they are on, groups of layers only
    where there are several."""
    named = asdict(settings)
    return {name: value for name, value in named.items() if value != OFF.get(name)}


def _settings(named: dict[str, Any]) -> AloneSettings:
    """What ``_stated`` stated."""
    groups = named.get("kv_groups", [[None, False]])
    return AloneSettings(**named | {"kv_groups": tuple((size, cut) for size, cut in groups)})


def record(
    settings: AloneSettings, requests: Sequence[Asked], *, execute: bool = False
) -> VllmRecording:
    """Give ``requests`` to vLLM with ``settings`` and write down what it runs; with ``execute`` the
    whole engine and a tiny model.

    UsageError without vLLM.
    """
    driver: Callable[[ModelSpec, AloneSettings], Driver] = SchedulerAlone
    if execute:
        driver = _executing
    steps = _steps(driver(TINY, settings), requests, settings)
    return VllmRecording(lazy_vllm.version(), execute, settings, list(requests), steps)


def _executing(spec: ModelSpec, settings: AloneSettings) -> WholeEngine:
    return WholeEngine(spec, settings, dtype="float32", enforce_eager=True)


def _steps(driver: Driver, requests: Sequence[Asked], settings: AloneSettings) -> list[BatchStep]:
    """The steps of ``requests``, whose tokens do not matter without a prefix cache."""
    texts, drafts = settings.enable_prefix_caching, settings.drafts
    watch = VllmWatch(driver.scheduler, time.perf_counter)
    coming = list(enumerate(requests))
    steps: list[BatchStep] = []
    idle = False
    ended: list[str] = []  # in the step before: not known yet when the next one was scheduled
    while coming or driver.busy():
        while coming and (coming[0][1].before <= len(steps) or idle):
            number, asked = coming.pop(0)
            tokens = asked.tokens(number) if texts else [1] * asked.prompt
            prompt, answer = tokens[: asked.prompt], tokens[asked.prompt :]
            accepted = right(number, asked.output, drafts)
            driver.add(Arriving(number, prompt, asked.output, asked.priority, answer, accepted))
            idle = False
        if not driver.busy():
            idle = True  # the next one comes early: steps do not pass by themselves
            continue
        driver.step()
        turn = watch.take()
        if turn is not None:
            steps.append(
                BatchStep(
                    {driver.numbers[name]: n for name, n in turn.scheduled.items()},
                    [driver.numbers[name] for name in turn.preempted if name not in ended],
                    [driver.numbers[name] for name in turn.finished],
                )
            )
            ended = turn.finished
    return steps


def main(arguments: Sequence[str]) -> int:
    """Record the files again that ``arguments`` name; the exit code."""
    module = "tests.conformance.vllm_batches"
    return record_again(module, "vLLM", arguments, VllmRecording.loads, _again)


def _again(old: VllmRecording) -> VllmRecording:
    return record(old.settings, old.requests, execute=old.executed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
