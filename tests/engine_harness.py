"""A tiny model and a driver without a clock: requests arrive before a given iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from calibrate.engine.attention import BySequence, EngineAttention
from calibrate.engine.executor import Drafting, EngineExecutor
from calibrate.engine.graphs import Capture
from calibrate.engine.model import Transformer
from calibrate.lazy_torch import torch
from sim.memory import Allocator, PagedAllocator
from sim.request import Request
from sim.schedulers import Limits, Plan, Scheduler
from sim.specs.model import ModelSpec
from tests.dense_models import LLAMA_2_7B, changed

VOCABULARY = 128


class Asked(NamedTuple):
    """One request; ``before`` is the iteration before which it arrives."""

    prompt: int
    output: int
    before: int = 0


def tiny(**changes: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "name": "tiny",
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "source": "made up",
    }
    return changed(LLAMA_2_7B, **fields | changes)


def make_model(spec: ModelSpec | None = None, dtype: Any = None) -> Transformer:
    return Transformer(
        spec or tiny(), dtype=dtype or torch.float64, device="cpu", seed=3, max_positions=512
    )


def prompt(request: Request) -> list[int]:
    rng = np.random.default_rng((11, request.id))
    return [int(token) for token in rng.integers(1, VOCABULARY, request.prompt_tokens)]


@dataclass
class Served:
    """Tokens and logits of each request, and the plans that brought them."""

    answers: dict[int, list[int]]
    logits: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    plans: list[Plan] = field(default_factory=list)
    preempted: int = 0
    accepted: int = 0


def serve(
    scheduler: Scheduler,
    asked: Sequence[Asked],
    model: Transformer,
    *,
    attention: EngineAttention | None = None,
    order: Sequence[int] | None = None,
    capture: Capture | None = None,
    only: int | None = None,
    drafting: Drafting | None = None,
) -> Served:
    """Run everything that was ``asked`` (or ``only`` one of it, under its own number)."""
    rows: list[Any] = []

    def sampler(logits: Any) -> Any:
        rows.append(logits.clone())
        return logits.argmax(-1)

    executor = EngineExecutor(
        scheduler,
        model,
        attention or BySequence(),
        prompt,
        sampler=sampler,
        order=order,
        capture=capture,
        drafting=drafting,
    )
    numbers = range(len(asked)) if only is None else [only]
    coming = sorted(numbers, key=lambda number: asked[number].before)
    served = Served(executor.sequences.answers)
    step = 0
    while True:
        while coming and asked[coming[0]].before <= step:
            number = coming.pop(0)
            request = Request(number, float(step), *asked[number][:2])
            assert scheduler.refusal(request) is None
            scheduler.submit(request)
        if not coming:
            scheduler.flush()
        plan = scheduler.schedule(float(step))
        if plan is None:
            if not coming:
                break
            step = asked[coming[0]].before
            continue
        before = len(rows)
        done = executor.run(plan)
        sampling = [span.request for span in done.spans if span.samples]
        served.accepted += sum((done.accepted or {}).values())
        for batch in rows[before:] if drafting is None else ():
            for number, row in zip(sampling, batch, strict=True):
                if number in done.served:
                    served.logits[number].append(row)
        served.plans.append(plan)
        served.preempted += plan.preempted
        step += 1
        executor.sequences.settle(scheduler.complete(plan, 1, float(step)))
        scheduler.check_integrity()
    assert executor.tables.used == 0
    assert not scheduler.members()
    return served


def scheduler(
    kind: Callable[[Limits, Allocator], Scheduler],
    *,
    blocks: int = 64,
    block_size: int = 4,
    kv: Allocator | None = None,
    **limits: Any,
) -> Scheduler:
    knobs = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 256} | limits
    return kind(Limits(**knobs), kv or PagedAllocator(blocks, block_size))
