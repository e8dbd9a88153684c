"""Block tables hand out real blocks, and never others than the scheduler has counted."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from calibrate.engine.attention import BySequence
from calibrate.engine.batch import Span, make_step
from calibrate.engine.cache import BlockTables, cache_bytes
from calibrate.engine.executor import EngineExecutor
from calibrate.engine.places import kv_places
from sim.errors import InfersimError
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request
from sim.schedulers import Chunk, ChunkedPrefill, Limits, Plan, Scheduler
from tests.engine_harness import Asked, make_model, prompt, scheduler, serve, tiny


def test_blocks_come_in_order_and_go_back_last_first():
    tables = BlockTables(4, 2, order=[2, 0, 3, 1])
    tables.resize(7, 3)
    tables.resize(8, 2)
    assert (tables.blocks(7), tables.blocks(8), tables.used) == ([2, 0], [3], 3)
    tables.resize(7, 1)
    tables.resize(8, 5)
    assert (tables.blocks(7), tables.blocks(8)) == ([2], [3, 1, 0])
    tables.free(7)
    assert tables.owners() == [8]
    tables.resize(9, 1)
    assert tables.blocks(9) == [2]


def test_a_table_too_full_says_so_and_an_order_must_have_every_block():
    tables = BlockTables(2, 4)
    tables.resize(1, 5)
    with pytest.raises(RuntimeError, match="request 2 needs 1 more blocks, 0 are free"):
        tables.resize(2, 1)
    with pytest.raises(ValueError, match="each of the 3 blocks once"):
        BlockTables(3, 4, order=[0, 1, 1])


@pytest.mark.parametrize(
    ("kv", "blocks"), [(PagedAllocator(5, 16), (5, 16)), (ContiguousAllocator(100, 30), (3, 30))]
)
def test_tables_have_the_blocks_of_the_allocator(kv: Allocator, blocks: tuple[int, int]):
    tables = EngineExecutor(ChunkedPrefill(Limits(), kv), make_model(), BySequence(), prompt).tables
    assert (tables.num_blocks, tables.block_size) == blocks


def test_bytes_of_a_cache():
    assert cache_bytes(kv_places(tiny()), 5, 16, 4) == 2 * 2 * 2 * 16 * 4 * 6 * 16


def test_a_step_lays_decodes_before_prompts():
    tables = BlockTables(8, 4)
    spans = [
        Span(1, [5, 6, 7], 2, 0, samples=True, prompt=True),
        Span(2, [9], 4, 1, samples=True, prompt=False),
        Span(3, [4, 4], 0, 0, samples=False, prompt=True),
    ]
    for span in spans:
        tables.resize(span.request, span.stop)
    step = make_step(spans, tables, nowhere=8, device="cpu")
    assert [span.request for span in step.spans] == [2, 1, 3]
    assert (step.decodes, step.padded) == (1, True)
    assert step.tokens.tolist() == [9, 5, 6, 7, 4, 4]
    assert step.positions.tolist() == [3, 2, 3, 4, 0, 1]
    assert step.slots[0].tolist() == [12, 2, 3, 4, 16, 17]
    assert step.sampling.tolist() == [0, 3]
    assert step.tables[0].tolist() == [[2, 3], [0, 1], [4, 8]]
    assert step.lengths.tolist() == [5, 5, 2]
    assert step.firsts.tolist() == [1, 0, 0]


def plan_first(own: Scheduler, tokens: int = 6) -> tuple[EngineExecutor, Plan]:
    executor = EngineExecutor(own, make_model(), BySequence(), prompt)
    own.submit(Request(0, 0.0, tokens, 3))
    plan = own.schedule(0.0)
    assert plan is not None
    return executor, plan


def test_books_that_disagree_end_the_run():
    executor, plan = plan_first(scheduler(ChunkedPrefill))
    executor.sequences._scheduler.kv.allocate(Request(9, 0.0, 1, 1), 1)
    with pytest.raises(InfersimError, match=r"reserved memory for 12 tokens, but .* hold 8"):
        executor.run(plan)


def test_a_plan_that_counts_nobody_ends_the_run():
    executor, plan = plan_first(scheduler(ChunkedPrefill))
    plan.sequences = plan.decode = 2
    with pytest.raises(InfersimError, match="plans 2 decodes, but of its members 0"):
        executor.run(plan)


def test_padding_is_for_whole_batches():
    executor, plan = plan_first(scheduler(ChunkedPrefill))
    plan.chunks = [Chunk(plan.chunks[0].request, 9, 0)]
    with pytest.raises(InfersimError, match="pads the prompt"):
        executor.run(plan)


class Ahead(ChunkedPrefill):
    """Keeps one block more than it needs, and says so."""

    def __init__(self, limits: Limits, kv: Allocator) -> None:
        super().__init__(limits, kv)
        self.aside = Request(-1, 0.0, 1, 1)
        kv.allocate(self.aside, 1)

    def owners(self) -> dict[Request, tuple[int, bool]]:
        return {**super().owners(), self.aside: (1, False)}


def test_a_policy_may_set_memory_aside_if_it_says_so():
    served = serve(scheduler(Ahead), [Asked(6, 3), Asked(2, 5)], make_model())
    assert [len(tokens) for tokens in served.answers.values()] == [3, 5]
