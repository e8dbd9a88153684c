"""Experts, windows, sinks and latent vectors: a request's tokens are those of its plain sequence,
computed whole for each token, whatever its company, chunks, blocks and preemptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from calibrate.engine.attention import BySequence
from calibrate.engine.batch import Span, make_step
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.executor import EngineExecutor
from calibrate.engine.model import Transformer
from calibrate.engine.places import groups_of, kv_places
from calibrate.lazy_torch import torch
from sim.errors import UsageError
from sim.growth.windowed import Windowed
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request
from sim.schedulers import (
    ChunkedPrefill,
    Limits,
    PrefillFirst,
    RankedPrefill,
    RequestLevel,
    Scheduler,
    Static,
)
from sim.schedulers.queues import Ranked
from sim.specs.dense_mlp import DenseMlp
from sim.specs.layers import LayerGroup
from tests.engine_harness import Asked, Served, prompt, serve
from tests.engine_models import KINDS, Kind, heads, memory, model

CROWD = [
    Asked(13, 9),
    Asked(5, 1),
    Asked(21, 12),
    Asked(2, 14, before=2),
    Asked(3, 15, before=2),
    Asked(34, 5, before=3),
    Asked(17, 8, before=6),
]


pytestmark = pytest.mark.usefixtures("device")


class Proof:
    """A model of one kind, and what each of ``CROWD`` gets from it."""

    def __init__(self, kind: Kind, dtype: Any = None, tolerance: float = 1e-10) -> None:
        self.spec = kind.spec
        self.model = make(kind, dtype)
        self.tolerance = tolerance
        self.answers: dict[int, list[int]] = {}
        self.logits: dict[int, Any] = {}
        for number, asked in enumerate(CROWD):
            found = uncached(self.model, Request(number, 0.0, *asked[:2]))
            self.answers[number], self.logits[number] = found

    def serve(self, kind: Callable[..., Scheduler], **options: Any) -> Served:
        """The crowd served by a scheduler of that ``kind``; tokens and logits are right."""
        order = options.pop("order", None)
        served = serve(self.scheduler(kind, **options), CROWD, self.model, order=order)
        assert served.answers == self.answers
        for number, logits in self.logits.items():
            assert float((torch.stack(served.logits[number]) - logits).abs().max()) < self.tolerance
        return served

    def scheduler(
        self,
        kind: Callable[..., Scheduler],
        *,
        blocks: int = 90,
        block_size: int = 4,
        kv: Allocator | None = None,
        **changes: Any,
    ) -> Scheduler:
        knobs = {"max_num_seqs": 4, "max_num_batched_tokens": 34, "max_model_len": 96}
        limits = Limits(**knobs | changes)
        kv = kv or memory(self.spec, blocks, block_size, limits)
        made = kind(limits, kv or PagedAllocator(blocks, block_size))
        if self.spec.windows:
            made.decoding = Windowed(self.spec.windows)
        return made

    def least(self, kind: Callable[..., Scheduler], **changes: Any) -> int:
        """The fewest blocks that hold each request of the crowd alone."""
        longest = max(asked.prompt + asked.output for asked in CROWD)
        for blocks in range(1, 90):
            if self.scheduler(kind, blocks=blocks, **changes).kv.can_ever_fit(longest):
                return blocks
        raise AssertionError


def make(kind: Kind, dtype: Any = None) -> Transformer:
    return Transformer(
        kind.spec,
        dtype=dtype or torch.float64,
        device="cpu",
        seed=5,
        max_positions=96,
        arithmetic=kind.arithmetic,
    )


def uncached(model: Transformer, request: Request) -> tuple[list[int], Any]:
    """Tokens and logits of a request alone, each by computing all before it anew."""
    tokens, rows = prompt(request), []
    for _ in range(request.output_tokens):
        tables = BlockTables(1, 96)
        tables.resize(0, len(tokens))
        cache = Cache(kv_places(model.spec), 1, 96, dtype=model.dtype, device="cpu")
        span = Span(0, tokens, 0, 0, samples=True, prompt=True)
        step = make_step([span], tables, nowhere=1, device="cpu")
        with torch.inference_mode():
            logits = model.forward(step, cache, BySequence().of(step))
        rows.append(logits[0])
        tokens = [*tokens, int(logits[0].argmax())]
    return tokens[request.prompt_tokens :], torch.stack(rows)


@pytest.fixture(scope="module", params=KINDS)
def proof(request: pytest.FixtureRequest) -> Proof:
    return Proof(KINDS[request.param])


def test_there_are_as_many_parameters_as_the_simulator_counts(proof: Proof) -> None:
    assert proof.model.parameters == proof.spec.parameters


def test_tokens_vary(proof: Proof) -> None:
    """What the other tests compare is not a constant."""
    assert len({token for tokens in proof.answers.values() for token in tokens}) > 5


def test_chunks_and_decodes_in_any_blocks(proof: Proof) -> None:
    for size, order in ((4, None), (1, None), (7, range(89, -1, -1))):
        blocks = 90 * 4 if size == 1 else 90
        served = proof.serve(
            ChunkedPrefill,
            block_size=size,
            blocks=blocks,
            order=order,
            max_num_batched_tokens=7,
        )
        assert any(plan.chunks and plan.decode for plan in served.plans)
        assert any(chunk.context for plan in served.plans for chunk in plan.chunks)


@pytest.mark.parametrize("kind", [ChunkedPrefill, PrefillFirst])
def test_preempted_requests_go_on_where_they_were(proof: Proof, kind: Any) -> None:
    knobs = {"scheduler_reserve_full_isl": False, "max_num_seqs": 7}
    if kind is ChunkedPrefill:
        knobs["max_num_batched_tokens"] = 12
    preempted = [
        proof.serve(kind, blocks=proof.least(kind, **knobs) + more, **knobs).preempted
        for more in (0, 1, 3)
    ]
    assert max(preempted) >= 1


def ranked(limits: Limits, kv: Allocator) -> Scheduler:
    made = RankedPrefill(limits, kv)
    made.waiting = Ranked(lambda request: request.id % 3)
    return made


def test_preemption_by_rank(proof: Proof) -> None:
    knobs = {"max_num_batched_tokens": 9, "scheduler_reserve_full_isl": False}
    preempted = [
        proof.serve(ranked, blocks=proof.least(ranked, **knobs) + more, **knobs).preempted
        for more in (0, 1, 2, 5)
    ]
    assert max(preempted) >= 2


@pytest.mark.parametrize("kind", [Static, RequestLevel])
def test_whole_batches(proof: Proof, kind: Any) -> None:
    proof.serve(kind)
    proof.serve(kind, kv=ContiguousAllocator(capacity=4 * 96, slab=96))


@pytest.mark.parametrize("name", ["mixtral", "oss", "latent"])
def test_single_precision_within_rounding(name: str) -> None:
    Proof(KINDS[name], torch.float32, tolerance=2e-5).serve(ChunkedPrefill)


def test_blocks_behind_windows_are_used_again() -> None:
    """A window of 10 tokens in blocks of 4 needs 4 blocks at most, however long the request."""
    proof = Proof(KINDS["gemma"])
    own = proof.scheduler(ChunkedPrefill, max_num_batched_tokens=1, blocks=3 * 4 + 15)
    executor = EngineExecutor(own, proof.model, BySequence(), prompt)
    assert [window is None for window in executor.tables.windows] == [False, False, False, True]
    request = Request(0, 0.0, 20, 40)
    own.submit(request)
    most: Counter[int] = Counter()
    for step in range(59):
        plan = own.schedule(float(step))
        assert plan is not None
        executor.run(plan)
        for group in range(4):
            most[group] = max(most[group], len(executor.tables.blocks(0, group)))
        executor.sequences.settle(own.complete(plan, 1, float(step)))
    assert [most[group] for group in range(4)] == [4, 4, 4, 15]
    assert executor.tables.used == 0


def test_layers_of_a_group_lie_side_by_side() -> None:
    spec = KINDS["gemma"].spec
    own = Proof(KINDS["gemma"]).scheduler(ChunkedPrefill)
    places = kv_places(spec, groups_of(own.kv))
    assert [tuple(place) for place in places.layers] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert [tuple(place) for place in kv_places(spec).layers] == [(0, n) for n in range(4)]
    assert (places.size, places.token) == (1, 2 * 24)


def test_layers_that_keep_different_amounts_are_refused() -> None:
    layers = [LayerGroup(1, heads(num_kv_heads=n), DenseMlp(64)) for n in (2, 4)]
    with pytest.raises(UsageError, match="odd has layers that keep different amounts"):
        kv_places(model("odd", *layers))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"softcap": True}, "a soft cap"), ({"output_gate": True}, "gates"), ({"head_dim": 7}, "odd")],
)
def test_other_layers_are_refused(changes: dict[str, Any], message: str) -> None:
    spec = model("odd", LayerGroup(1, heads(**changes), DenseMlp(64)))
    with pytest.raises(UsageError, match=f"odd has .*{message}"):
        make(Kind(spec))
