"""Drafts of models with windows: what members see, the blocks they hold, and leaps as without."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

import sim
from sim.cost.batches import Batches
from sim.errors import InfersimError
from sim.growth.courses import DraftCourses
from sim.growth.window_reads import WindowReads
from sim.growth.windowed_drafts import WindowedSampled
from sim.iteration import Batch
from sim.memory.drafted_windows import DraftedWindowedAllocator
from sim.memory.groups import KvGroup, kv_groups
from sim.request import Request
from sim.schedulers import Limits, ReplicaTraits, Scheduler, make_scheduler
from sim.setup import prepare
from sim.specs.speculation import Speculation
from sim.specs.window import NEVER, Window
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed
from tests.harness import Arriving, LineTimer, Played, play

WINDOWS = (Window(4), Window(23), Window(10, chunked=True))
GROUPS = (KvGroup(1, None, 4), *(KvGroup(1, window, 4) for window in WINDOWS))


class Seeing(LineTimer):
    """What is seen through a window costs 1/512 s a token."""

    def windowed_line(
        self, sequences: int, context: int, seen: WindowReads
    ) -> tuple[float, float, float]:
        limit, intercept, slope = self.line(sequences, context)
        more = sum(seen.growing) / 512 / sequences
        intercept += sum(seen.tokens) / 512 - more * context
        end = float("inf") if seen.left >= NEVER else float(context + seen.left * sequences)
        return min(limit, end), intercept, slope + more


def wanting(number: int, held: int, tokens: int) -> Request:
    """A request that has computed ``held`` tokens, has its first one and lacks some."""
    request = Request(number, arrival=0.0, prompt_tokens=held, output_tokens=1 + tokens)
    request.computed, request.generated = held, 1
    return request


def test_a_run_ends_where_a_window_is_full() -> None:
    """Two drafts are always right. Of 3 tokens a window of 12 shows all, and 3, 6 and 9 more; then
    11 of 12 and more."""
    courses = DraftCourses(Speculation("ngram", 2, (1.0, 1.0)), seed=1)
    batch = WindowedSampled(courses, (Window(12),))
    batch.join(wanting(0, 3, 30), 0.0)
    assert batch.seen(1, 3) == WindowReads((3,), (1,), NEVER)
    run = batch.run(0.0, 1, 3, (float("inf"), 1.0, 0.0))
    assert run.left() == 3
    seen = []
    for iteration in range(4):
        batch.advance(1, iteration + 1.0)
        seen.append(batch.seen(1, batch.context)[:2])
    assert seen == [((6,), (1,)), ((9,), (1,)), ((11,), (0,)), ((11,), (0,))]


def test_blocks_behind_a_window_are_given_back_whatever_was_rejected() -> None:
    """Blocks of 4, a window that shows 7 tokens, two drafts of a layer that writes as many ahead.
    Of a prompt of 12 with 2 slots more, 4 blocks are held. The pass wants 12 + 5 slots, 5 blocks,
    less the first, behind which the next token does not look: 12 - 7 = 5 tokens."""
    courses = DraftCourses(Speculation("eagle", 2, (1.0, 1.0)), seed=1)
    kv = DraftedWindowedAllocator(9, 4, (KvGroup(1, Window(8), 4),), None, 100, courses)
    request = wanting(0, 12, 9)
    assert kv.allocate(request, 12)
    assert kv.reserved == 4 * 4
    courses.begin(request)
    kv.join(request)
    held = []
    for _ in range(3):  # at 12, 15 and 18 tokens: 17, 20 and 23 slots
        assert kv.grow(1)
        held.append(kv.reserved // 4)
        kv.check_integrity({request: (12 + 3 * len(held), True)})
    assert held == [5 - 1, 5 - 2, 6 - 2]
    kv.leave(request)
    kv.free(request)
    assert kv.reserved == 0


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_those_counted_one_by_one(seed: int) -> None:
    """Of each sequence, in each group: those of the slots that its last pass wanted, less those
    behind the window before it."""
    draw = random.Random(seed)
    rates = draw.choice([(0.7, 0.4), (0.9,), (1.0, 0.5, 0.2)])
    method = draw.choice(["ngram", "mtp"])
    courses = DraftCourses(Speculation(method, len(rates), rates), seed)
    kv = DraftedWindowedAllocator(4000, 4, GROUPS, None, 10_000, courses)
    requests = [wanting(number, draw.randint(1, 70), 200) for number in range(5)]
    for request in requests:
        assert kv.allocate(request, request.computed)
        courses.begin(request)
        kv.join(request)
    wanted = 1 + len(rates) + (len(rates) if method == "mtp" else 0)
    counted = []
    for done in range(30):
        total, fed = 0, kv.horizon(10)
        assert fed == 10
        promised = kv.growth(3)
        assert kv.grow(1)
        for request in requests:
            held = request.computed + int(courses[request].gained[done])
            total += sum(group.blocks(held, held + wanted) for group in GROUPS)
        assert kv.reserved == total * 4
        counted.append((kv.reserved, promised))
    for done in range(27):
        assert counted[done + 3][0] - counted[done][0] == counted[done + 1][1]


def played(traffic: list[Arriving], seed: int, *, leap: bool, blocks: int, **bend: int) -> Played:
    def made() -> Scheduler:
        courses = DraftCourses(Speculation("ngram", 2, (0.7, 0.4)), seed)
        kv = DraftedWindowedAllocator(blocks, 4, GROUPS, None, 256, courses)
        decoding = partial(WindowedSampled, courses, WINDOWS)
        return make_scheduler("continuous", Limits(6, 64, 256), kv, traits=ReplicaTraits(decoding))

    return play(traffic, made, Seeing(0.5, 0.25, 0.003, 0.125, **bend), leap=leap)


@pytest.mark.parametrize("seed", range(25))
def test_leaps_change_nothing(seed: int) -> None:
    draw = random.Random(seed)
    traffic: list[Arriving] = []
    now = 0.0
    for _ in range(24):
        now += draw.expovariate(1.0)
        traffic.append((now, draw.randint(1, 40), draw.randint(1, 40)))
    blocks, bend = draw.choice([88, 600]), draw.choice([{}, {"bend": 90}])
    leaps, steps = (
        played(traffic, seed, leap=leap, blocks=blocks, **bend) for leap in (True, False)
    )
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.recorder.request_rows().tobytes() == steps.recorder.request_rows().tobytes()
    assert sum(map(len, leaps.tokens.values())) == sum(row[2] for row in traffic)
    assert leaps.events < steps.events
    assert blocks == 600 or leaps.recorder.plan_rows()["preemptions"].any()
    assert all(replica.scheduler.kv.reserved == 0 for replica in leaps.replicas)


@pytest.mark.parametrize("model", ["windows", "chunks"])
def test_operators_add_up_to_the_time(model: str) -> None:
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance_rate": 0.7}
    changes = {**FEATURES[model], "fleet.gpu": "h100-sxm", "speculative": drafts}
    (pool,) = prepare(sim.load_scenario(changed(BASE, changes))).pools
    cost, seen = pool.cost, (50,) * len(pool.deployment.model.windows)
    for batch in (Batch(4, 400, (), 0, seen), Batch(3, 9000, (), 0, seen)):
        columns = cost.columns([batch])
        assert isinstance(columns, Batches)
        summed = sum(ran.each(ran.operator.seconds) for ran in cost.operators(columns, each=True))
        assert summed == pytest.approx([cost.seconds(batch)], rel=1e-9)
        alone = sum(float(np.sum(o.seconds)) for o in cost.pass_operators(batch))
        assert alone == pytest.approx(cost.seconds(batch), rel=1e-9)


def test_a_head_sees_everything_and_joins_the_groups_of_such_layers() -> None:
    """gpt-oss-120b: 18 layers of either kind; with a head 19 and 18, which are groups of 19."""
    fleet = {"gpu": "h100-sxm", "tensor_parallel": 8}
    scenario = {"model": "gpt-oss-120b", "fleet": fleet, **WORK}
    plain = prepare(sim.load_scenario(scenario)).only.deployment
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance_rate": 0.7}
    drafted = prepare(sim.load_scenario(scenario | {"speculative": drafts})).only.deployment
    assert drafted.drafter is not None
    assert not drafted.drafter.deployment.model.windows
    without, found = kv_groups(plain, 16), kv_groups(drafted, 16)
    assert [group.number for group in found.groups] == [1, 1]
    assert found.token == pytest.approx(without.token * 19 / 18)


WORK = {
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 2},
        "prompt_tokens": {"kind": "fixed", "value": 500},
        "output_tokens": {"kind": "fixed", "value": 100},
    },
    "run": {"requests": 4, "warmup": 0},
}


def test_what_is_not_known_of_windows_is_refused() -> None:
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance_rate": 0.7}
    scenario = {"model": "gpt-oss-20b", "fleet": {"gpu": "h100-sxm"}, **WORK}
    cached = {"speculative": drafts, "kv_cache": {"enable_prefix_caching": True}}
    with pytest.raises(InfersimError, match="whose tokens are drafted"):
        sim.simulate(sim.load_scenario(scenario | cached))
