"""A request's tokens do not depend on its company: not on who shares the batch, at which positions,
in which blocks, nor on chunks, padding or a preemption in between."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from calibrate.engine.attention import gathered, prompts_one_by_one
from calibrate.engine.attention_cuda import Batched
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.places import kv_places
from calibrate.lazy_torch import torch
from sim.memory import Allocator, ContiguousAllocator
from sim.request import Request
from sim.schedulers import (
    Chunk,
    ChunkedPrefill,
    Limits,
    Plan,
    PrefillFirst,
    RankedPrefill,
    RequestLevel,
    Scheduler,
    Static,
)
from sim.schedulers.queues import Ranked
from tests.engine_harness import Asked, Served, make_model, scheduler, serve, tiny

CROWD = [
    Asked(13, 9),
    Asked(5, 1),
    Asked(21, 14),
    Asked(2, 6, before=2),
    Asked(40, 5, before=3),
    Asked(9, 11, before=6),
    Asked(1, 3, before=6),
    Asked(17, 8, before=20),
]


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def alone(model):
    return all_alone(model)


def all_alone(model) -> Served:
    """Each request by itself: one prefill of the whole prompt, then decodes."""
    together = Served({})
    for number in range(len(CROWD)):
        own = scheduler(ChunkedPrefill, max_num_batched_tokens=256, block_size=16)
        served = serve(own, CROWD, model, only=number)
        assert served.plans[0].chunks[0].tokens == CROWD[number].prompt
        together.answers.update(served.answers)
        together.logits.update(served.logits)
    return together


def assert_same(served: Served, alone: Served, tolerance: float = 1e-10) -> None:
    assert served.answers == alone.answers
    assert {number: len(tokens) for number, tokens in served.answers.items()} == {
        number: asked.output for number, asked in enumerate(CROWD)
    }
    for number, rows in alone.logits.items():
        ours, theirs = torch.stack(served.logits[number]), torch.stack(rows)
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= tolerance


def test_tokens_vary_and_depend_on_the_prompt(alone):
    """What the other tests compare is not a constant."""
    assert len({tuple(tokens[:3]) for tokens in alone.answers.values()}) > 5
    assert len(set(alone.answers[2])) > 3
    logits = torch.stack([row for rows in alone.logits.values() for row in rows])
    assert 0.3 < float(logits.std()) < 3


@pytest.mark.parametrize("kind", [Static, RequestLevel, ChunkedPrefill, PrefillFirst])
def test_any_policy_gives_what_the_request_gets_alone(model, alone, kind):
    tokens = 40 if kind is PrefillFirst else 16
    served = serve(scheduler(kind, max_num_batched_tokens=tokens), CROWD, model)
    assert_same(served, alone)
    assert any(plan.sequences > 1 for plan in served.plans)


def test_static_batches_are_padded_and_finished_slots_computed(model):
    served = serve(scheduler(Static), CROWD, model)
    first = served.plans[0]
    assert [chunk.tokens for chunk in first.chunks] == [21, 21, 21, 21][: len(first.chunks)]
    assert sum(plan.sequences - plan.decode for plan in served.plans) > 10


def test_chunks_mix_with_decodes(model, alone):
    served = serve(scheduler(ChunkedPrefill, max_num_batched_tokens=7), CROWD, model)
    assert_same(served, alone)
    assert any(plan.chunks and plan.decode for plan in served.plans)
    assert any(chunk.context for plan in served.plans for chunk in plan.chunks)


@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize("kind", [ChunkedPrefill, PrefillFirst])
def test_preempted_requests_go_on_where_they_were(model, alone, kind, reserve):
    tight = scheduler(
        kind,
        blocks=12,
        max_num_batched_tokens=48,
        scheduler_reserve_full_isl=reserve,
    )
    served = serve(tight, CROWD, model)
    assert served.preempted >= 2
    assert_same(served, alone)


def ranked(limits: Limits, kv: Allocator) -> Scheduler:
    made = RankedPrefill(limits, kv)
    made.waiting = Ranked(lambda request: request.id % 3)
    return made


def test_preemption_by_rank_with_sequences_passed_over(model, alone):
    served = serve(scheduler(ranked, blocks=12, max_num_batched_tokens=24), CROWD, model)
    assert served.preempted >= 1
    assert_same(served, alone)


def test_contiguous_slabs(model, alone):
    kv = ContiguousAllocator(capacity=3 * 64, slab=64)
    served = serve(scheduler(ChunkedPrefill, kv=kv, max_model_len=64), CROWD, model)
    assert_same(served, alone)
    assert max(plan.running for plan in served.plans) == 3


@pytest.mark.parametrize("block_size", [1, 4, 7, 64])
def test_any_block_size_and_permutation(model, alone, block_size):
    blocks = 256 // block_size
    order = [(block * 5 + 2) % blocks for block in range(blocks)]
    if len(set(order)) < blocks:
        order = list(reversed(range(blocks)))
    own = scheduler(ChunkedPrefill, blocks=blocks, block_size=block_size)
    assert_same(serve(own, CROWD, model, order=order), alone)


def test_a_wrong_block_would_show(model, alone, monkeypatch):
    """The comparison is sharp: two blocks exchanged between writing and reading change tokens."""
    plain = BlockTables.slots

    def exchanged(self: BlockTables, *place: int) -> list[int]:
        return [slot ^ 4 for slot in plain(self, *place)]

    monkeypatch.setattr(BlockTables, "slots", exchanged)
    served = serve(scheduler(ChunkedPrefill), CROWD, model)
    assert served.answers != alone.answers


class LastComeFirst(Scheduler):
    """A policy of one's own: one request at a time, the newest first, its prompt in threes."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self._current: Request | None = None

    def members(self) -> list[Request]:
        return [self._current] if self._current else []

    def schedule(self, now: float) -> Plan | None:
        if self._current is None:
            if not self.waiting:
                return None
            self._current = self.waiting[-1]
            self.waiting.remove(self._current)
            self._current.scheduled = now
        request = self._current
        if request.joined >= 0:
            assert self.kv.grow(1)
            context = self.decoding.context
            return Plan(decode=1, context=context, running=1, held=context + 1)
        tokens = min(3, request.tokens_to_prefill() - request.computed)
        assert self.kv.allocate(request, tokens)
        chunk = Chunk(request, tokens, request.computed)
        return Plan(chunks=[chunk], admitted=1, running=1, held=chunk.context + tokens)

    def _retire(self, request: Request) -> None:
        self.kv.free(request)
        self._current = None


def test_a_policy_of_ones_own(model, alone):
    assert_same(serve(scheduler(LastComeFirst), CROWD, model), alone)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True, "qk_norm": True},
        {"tie_word_embeddings": True, "num_kv_heads": 4},
        {"num_kv_heads": 1, "head_dim": 32, "num_layers": 1},
    ],
)
def test_other_shapes_of_model(changes):
    other = make_model(tiny(**changes))
    expected = all_alone(other)
    for kind in (Static, ChunkedPrefill):
        assert_same(serve(scheduler(kind), CROWD, other), expected)


def test_single_precision_within_rounding(alone):
    single = make_model(dtype=torch.float32)
    expected = all_alone(single)
    for kind in (Static, RequestLevel, ChunkedPrefill):
        assert_same(serve(scheduler(kind), CROWD, single), expected, tolerance=2e-5)


@pytest.mark.parametrize("kind", [Static, ChunkedPrefill])
def test_all_decodes_at_once(model, alone, kind):
    """The gather that pads to the longest, as CUDA uses it for lack of better."""
    attention = Batched(gathered, prompts_one_by_one, "gathered", replayable=True)
    assert_same(serve(scheduler(kind), CROWD, model, attention=attention), alone)


def test_replayed_decodes(model, alone):
    """Batches filled up to a size and computed on tensors that stay in place, as CUDA graphs do;
    rows that were filled up once leave nothing behind."""
    sizes = []

    def capture(run):
        sizes.append(0)
        return run

    attention = Batched(gathered, prompts_one_by_one, "gathered", replayable=True)
    own = scheduler(ChunkedPrefill, max_num_seqs=7)
    served = serve(own, CROWD, model, attention=attention, capture=capture)
    assert len(sizes) == 4  # 1, 2, 4, 8
    assert any(plan.sequences in (3, 5, 6, 7) and not plan.chunks for plan in served.plans)
    assert_same(served, alone)


def test_the_cache_has_a_block_for_what_nobody_reads(model):
    cache = Cache(kv_places(model.spec), 3, 4, dtype=torch.float64, device="cpu")
    assert [part.shape for part in cache.layer(1)] == 2 * [(4, 4, 2, 16)]
    assert cache.nowhere == 3
