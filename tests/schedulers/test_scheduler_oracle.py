"""The schedulers do what the naive engine of ``oracle.py`` does, step by step, block by block."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request, TrafficClass
from sim.schedulers import Limits, Plan, PrefillFirst, Scheduler, make_scheduler
from sim.schedulers.orders import make_order
from sim.schedulers.queues import Ranked
from tests import oracle

POLICIES = ["static", "request", "continuous", "whole-prompts", "prefill-first"]
CLASSES = [TrafficClass(n, "", n, 9.0 * n) for n in range(4)]
IterationLimit = Callable[[], int]


class WaryPrefillFirst(PrefillFirst):
    """A watermark that is felt in a memory of a few blocks."""

    WATERMARK = 0.25


@dataclass(frozen=True)
class Case:
    """A policy, its memory and knobs, and requests as (step, prompt, output)."""

    policy: str
    block_size: int
    num_blocks: int
    contiguous: bool  # a sequence has one block only, a slab
    max_num_seqs: int
    max_num_batched_tokens: int
    reserve: bool
    timeout: int
    wary: bool
    arrivals: list[tuple[int, int, int]]
    last_calls: list[int]
    order: str
    threshold: int
    classes: list[int]  # of each request

    def make_oracle(self) -> oracle.Engine:
        engine = self._make_oracle()
        engine.shortest_first = self.order == "sjf"
        engine.by_rank = self.order in ("priority", "edf")
        return engine

    def rank(self, request: Request) -> float:
        """What ``order`` goes by."""
        number = self.classes[request.id]
        return number if self.order == "priority" else request.arrival + 9 * number

    def _make_oracle(self) -> oracle.Engine:
        blocks = oracle.Blocks(self.num_blocks, self.block_size, 1 if self.contiguous else None)
        seats, budget = self.max_num_seqs, self.max_num_batched_tokens
        if self.policy == "static":
            return oracle.Static(blocks, seats)
        if self.policy == "request":
            return oracle.RequestLevel(blocks, seats, self.timeout)
        if self.policy in ("continuous", "whole-prompts"):
            whole = self.policy == "whole-prompts"
            return oracle.Chunked(blocks, seats, budget, self.reserve, self.threshold, whole)
        return oracle.PrefillFirst(blocks, seats, budget, 0.25 if self.wary else 0.01)

    def make_scheduler(self) -> Scheduler:
        limits = Limits(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.block_size if self.contiguous else 1000,
            scheduler_reserve_full_isl=self.reserve,
            batch_timeout=float(self.timeout),
            long_prefill_token_threshold=self.threshold,
            chunked_prefill=self.policy != "whole-prompts",
        )
        kv: Allocator = PagedAllocator(self.num_blocks, self.block_size)
        if self.contiguous:
            kv = ContiguousAllocator(self.num_blocks * self.block_size + 5, self.block_size)
        policy, order = self.policy, self.order
        if policy == "prefill-first":
            if self.wary:
                wary = WaryPrefillFirst(limits, kv)
                wary.waiting = make_order(order).queue()
                return wary
            return make_scheduler("continuous", limits, kv, rule="vllm-v0", order=order)
        name = "continuous" if policy == "whole-prompts" else policy
        return make_scheduler(name, limits, kv, order=order)

    def servable(self) -> list[Request]:
        """The requests that the scheduler takes, numbered in order of arrival."""
        scheduler = self.make_scheduler()
        requests = [
            Request(i, float(a), p, o, CLASSES[self.classes[i]])
            for i, (a, p, o) in enumerate(self.arrivals)
        ]
        return [r for r in requests if scheduler.refusal(r) is None]

    def most_steps(self) -> int:
        """No run may be longer: in each step somebody waits for company, or the request that has
        been in the batch longest (nobody can throw it out) gets on by one token at least. The first
        by rank can be passed over, but once only for each that runs beside it."""
        work = sum(prompt + output for _, prompt, output in self.arrivals)
        waits = len(self.arrivals) * (self.timeout + 1)
        times = len(self.arrivals) if self.order in ("priority", "edf") else 1
        return times * work + waits + max([a for a, _, _ in self.arrivals] + self.last_calls) + 1


@st.composite
def cases(draw: st.DrawFn, policy: str) -> Case:
    contiguous = draw(st.sampled_from([False, False, False, True]))
    block_size = draw(st.integers(40, 121)) if contiguous else draw(st.sampled_from([1, 2, 4, 16]))
    num_blocks = draw(st.integers(1, 4)) if contiguous else draw(st.integers(60, 150)) // block_size
    seats = draw(st.integers(1, 6))
    small, large = st.integers(1, 16), st.integers(60, 120)
    length = st.integers(1, 60)
    request = st.tuples(st.integers(0, 40), length, length)
    arrivals = sorted(draw(st.lists(request, min_size=2, max_size=9)))
    some = len(arrivals)
    return Case(
        policy=policy,
        block_size=block_size,
        num_blocks=num_blocks,
        contiguous=contiguous,
        max_num_seqs=seats,
        max_num_batched_tokens=draw(
            large if policy in ("prefill-first", "whole-prompts") else st.one_of(small, large)
        ),
        reserve=draw(st.booleans()),
        timeout=draw(st.integers(0, 12)),
        wary=draw(st.booleans()),
        arrivals=arrivals,
        last_calls=draw(st.lists(st.integers(0, 60), max_size=3)),
        order=draw(st.sampled_from(["fcfs", "sjf", "priority", "edf"])),
        threshold=draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 20])),
        classes=draw(st.lists(st.integers(0, 3), min_size=some, max_size=some)),
    )


def random_case(
    policy: str, chance: random.Random, order: str = "fcfs", threshold: int = 0
) -> Case:
    """As ``cases``, drawn without a search for the simplest failure, and always short of memory."""
    block_size, seats = chance.choice([1, 2, 4, 16]), chance.randint(2, 6)
    return Case(
        policy=policy,
        block_size=block_size,
        num_blocks=chance.randint(110, 140) // block_size,
        contiguous=False,
        max_num_seqs=seats,
        max_num_batched_tokens=seats + chance.randint(0, 120),
        reserve=chance.random() < 0.5,
        timeout=chance.randint(0, 12),
        wary=chance.random() < 0.5,
        arrivals=sorted(
            (chance.randint(0, 60), chance.randint(1, 60), chance.randint(1, 60)) for _ in range(8)
        ),
        last_calls=[],
        order=order,
        threshold=threshold,
        classes=[chance.randint(0, 3) for _ in range(8)]
        if order in ("priority", "edf")
        else [0] * 8,
    )


def decoders(scheduler: Scheduler, plan: Plan) -> list[int]:
    """Who gets a token from the decode kernels of ``plan``."""
    if not plan.decode:
        return []
    return [r.id for r in scheduler.members() if r.joined >= 0]


def assert_same_plan(plan: Plan | None, step: oracle.Step | None, scheduler: Scheduler) -> None:
    """``plan``, about to run, is what the oracle's ``step`` did."""
    if plan is None or step is None:
        assert plan is None
        assert step is None
        return
    chunks = [(c.request.id, c.tokens, c.context) for c in plan.chunks]
    decode = decoders(scheduler, plan)
    assert {(n, tokens) for n, tokens, _ in chunks} | {(n, 1) for n in decode} == step.work
    assert chunks == step.chunks
    assert decode == step.decode
    assert plan.decode == len(step.decode)
    assert (plan.sequences, plan.context) == (step.computed, step.context)
    assert plan.preempted == len(step.preempted)
    if not isinstance(scheduler.waiting, Ranked):
        first = [r.id for _, r in zip(range(plan.preempted), scheduler.waiting, strict=False)]
        assert first == step.preempted[::-1]  # the last one thrown out stands first
    assert plan.admitted == len(step.admitted)
    assert (plan.running, plan.held) == (step.running, step.held)
    assert not (plan.stationary and (plan.chunks or plan.preempted))


def play(case: Case) -> Counter[str]:
    """Run both engines over ``case``, compare them at every step, and count what happened."""
    engine, scheduler = case.make_oracle(), case.make_scheduler()
    requests = case.servable()
    sequences = [
        oracle.Sequence(r.id, r.prompt_tokens, r.output_tokens, int(r.queued), case.rank(r))
        for r in requests
    ]
    coming = list(zip(requests, sequences, strict=True))
    seen: Counter[str] = Counter()
    step = 0
    while coming or engine.waiting or engine.batch:
        assert step <= case.most_steps(), "no progress"
        while coming and coming[0][0].queued <= step:
            request, sequence = coming.pop(0)
            scheduler.submit(request)
            engine.submit(sequence)
        if not coming or step in case.last_calls:
            scheduler.flush()
            engine.flush()
        batch = [s.number for s in engine.batch]
        plan, expected = scheduler.schedule(float(step)), engine.step(step)
        assert_same_plan(plan, expected, scheduler)
        if plan is not None and expected is not None:
            assert scheduler.kv.free_blocks == expected.free
            finished = scheduler.complete(plan, 1, step + 1.0)
            assert sorted(r.id for r in finished) == sorted(expected.finished)
            seen["steps"] += 1
            seen["preempted"] += len(expected.preempted)
            newest = batch[len(batch) - len(expected.preempted) :]
            seen["from amid the batch"] += not set(expected.preempted) <= {
                *newest,
                *expected.admitted,
            }
            seen["chunks"] += len(expected.chunks)
            seen["mixed"] += bool(expected.chunks and expected.decode)
            seen += what_was_partial(case, engine, expected)
        assert [r.id for r in scheduler.waiting] == [s.number for s in engine.waiting]
        assert [r.preemptions for r in requests] == [s.preemptions for s in sequences]
        assert scheduler.kv.free_blocks == len(engine.blocks.free)
        assert_same_progress(scheduler, engine)
        engine.blocks.check(engine.batch)
        scheduler.check_integrity()
        step += 1
    assert not scheduler.waiting
    assert not scheduler.members()
    assert scheduler.kv.free_blocks == case.num_blocks
    assert scheduler.kv.reserved == 0
    for request, sequence in zip(requests, sequences, strict=True):
        assert_same_outcome(request, sequence)
    return seen


def what_was_partial(case: Case, engine: oracle.Engine, step: oracle.Step) -> Counter[str]:
    """How often prompts were under way beside others, and how the budget was shared."""
    served = [number for number, _ in step.work]
    begun = [number for number, _, before in step.chunks if before]
    return Counter(
        {
            "skipped": len({s.number for s in engine.batch} - set(served)),
            "several prompts begun": len(begun) > 1,
            "decodes behind a prompt": bool(
                begun and step.decode and place(engine, step.decode[-1]) > place(engine, begun[0])
            ),
            "budget spent": sum(n for _, n in step.work) == case.max_num_batched_tokens,
            "prompts thrown out": bool(begun and step.preempted),
        }
    )


def place(engine: oracle.Engine, number: int) -> int:
    """Where in the batch a request is; -1 if it is done."""
    return next((i for i, s in enumerate(engine.batch) if s.number == number), -1)


def assert_same_progress(scheduler: Scheduler, engine: oracle.Engine) -> None:
    """Every unfinished request of the batch holds and has delivered the same number of tokens."""
    members = {
        r.id: (r.computed + scheduler.steps(r), r.generated + scheduler.steps(r))
        for r in scheduler.members()
    }
    batch = {s.number: (s.computed, len(s.delivered)) for s in engine.batch if not s.done}
    assert members == batch


def assert_same_outcome(request: Request, sequence: oracle.Sequence) -> None:
    """A finished request: as many tokens as asked for, first and last at the same step."""
    assert len(sequence.delivered) == request.generated == request.output_tokens
    assert sequence.delivered == sorted(set(sequence.delivered))
    assert request.computed == request.longest_sequence()
    assert request.scheduled == sequence.scheduled
    assert request.first_token == sequence.delivered[0] + 1.0
    assert request.last_token == sequence.delivered[-1] + 1.0
    assert request.preemptions == sequence.preemptions
    assert request.joined == -1


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
def test_scheduler_does_what_the_oracle_does(policy: str, data: st.DataObject) -> None:
    play(data.draw(cases(policy)))


@pytest.mark.parametrize("policy", POLICIES)
def test_scheduler_does_what_the_oracle_does_when_memory_is_short(policy: str) -> None:
    """And the comparison is not about nothing: the batches preempt, cut prompts, and mix."""
    chance = random.Random(20)
    seen: Counter[str] = Counter()
    for _ in range(40):
        seen += play(random_case(policy, chance))
    if policy in ("continuous", "whole-prompts", "prefill-first"):
        assert seen["preempted"] > 60
    else:
        assert seen["preempted"] == 0
    if policy == "continuous":
        assert seen["mixed"] > 200
        assert seen["chunks"] > 320 + seen["preempted"]  # some were cut
    elif policy == "whole-prompts":
        assert seen["mixed"] > 100
        assert seen["chunks"] <= 320 + seen["preempted"]  # none was
    else:
        assert seen["mixed"] == 0


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
def test_several_prompts_advance_together_and_the_budget_reaches_everybody(order: str) -> None:
    """Though the oracle stops dealing when the budget is spent, wherever it is in the batch."""
    chance = random.Random(8)
    seen: Counter[str] = Counter()
    for _ in range(60):
        case = random_case("continuous", chance, order, chance.randint(1, 9))
        seats = chance.randint(4, 8)
        seen += play(
            replace(case, max_num_seqs=seats, max_num_batched_tokens=chance.randint(6, 24))
        )
    assert seen["skipped"] == 0
    assert seen["several prompts begun"] > 200
    assert seen["decodes behind a prompt"] > 200
    assert seen["budget spent"] > 200
    assert seen["preempted"] > 60
    assert seen["prompts thrown out"] > 10


@pytest.mark.parametrize("order", ["priority", "edf"])
def test_memory_is_taken_from_the_last_by_rank(order: str) -> None:
    """Wherever that is in the batch, and with those behind it passed over if it asked itself."""
    chance = random.Random(6)
    seen: Counter[str] = Counter()
    for _ in range(100):
        case = random_case("continuous", chance, order, chance.choice([0, 0, 3, 9]))
        seats = chance.randint(2, 8)
        seen += play(
            replace(case, max_num_seqs=seats, max_num_batched_tokens=chance.randint(8, 90))
        )
    assert seen["preempted"] > 300
    assert seen["from amid the batch"] > 40
    assert seen["prompts thrown out"] > 100
    assert seen["skipped"] > 5


# -- leaps ---------------------------------------------------------------------------------------


def state(scheduler: Scheduler) -> dict[str, object]:
    """All that decides how the run goes on."""
    batch = scheduler.decoding
    return {
        "free": scheduler.kv.free_blocks,
        "waiting": [(r.id, r.generated) for r in scheduler.waiting],
        "members": [
            (r.id, r.computed + scheduler.steps(r), r.generated + scheduler.steps(r), r.joined >= 0)
            for r in scheduler.members()
        ],
        "batch": (batch.size, batch.context, batch.iteration, batch.last_end),
    }


class Steps:
    """Runs ``case`` in leaps of at most ``limit()`` iterations; a new head of the queue cuts."""

    def __init__(self, case: Case, limit: IterationLimit) -> None:
        self.case = case
        self.scheduler = case.make_scheduler()
        self.requests = case.servable()
        self.coming = list(self.requests)
        self.limit = limit
        self.states: dict[int, dict[str, object]] = {}
        self.plans = 0
        self.cuts = 0
        self.shortages = 0

    def run(self) -> Steps:
        """Until everybody is done."""
        now = 0
        while True:
            self._arrive(now)
            self.states[now] = state(self.scheduler)
            plan = self.scheduler.schedule(float(now))
            if plan is None:
                if not (self.coming or self.scheduler.waiting):
                    return self
                now += 1
                assert now <= self.case.most_steps()
                continue
            self.plans += 1
            now += self._iterate(plan, now)

    def _arrive(self, now: int) -> bool:
        """Who comes at ``now`` joins the queue; whether the scheduler says that it matters."""
        matters = False
        while self.coming and self.coming[0].queued <= now:
            matters |= self.scheduler.submit(self.coming.pop(0))
        if not self.coming or now in self.case.last_calls:
            self.scheduler.flush()
        return matters

    def _iterate(self, plan: Plan, now: int) -> int:
        """Run ``plan`` as often as it may; how often that was."""
        limit = self.limit() if plan.stationary else 1
        planned = iterations = self.scheduler.repeats(limit) if plan.stationary else 1
        assert 1 <= iterations <= limit
        for passed in range(1, iterations):
            if self._arrive(now + passed):
                iterations = passed
                self.cuts += 1
                break
        finished = self.scheduler.complete(plan, iterations, float(now + iterations))
        self.scheduler.check_integrity()
        if iterations == planned < limit and not finished:
            self.shortages += 1
            assert self.scheduler.kv.horizon(1) == 0  # or it would have gone on
        return iterations

    def outcomes(self) -> list[tuple[float, ...]]:
        return [
            (r.scheduled, r.first_token, r.last_token, r.generated, r.computed, r.preemptions)
            for r in self.requests
        ]


def one() -> int:
    return 1


def a_lot() -> int:
    return 10_000


def drawn(numbers: Iterator[int]) -> IterationLimit:
    return lambda: next(numbers)


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
def test_repeating_a_stationary_plan_is_the_same_as_single_steps(
    policy: str, data: st.DataObject
) -> None:
    """For leaps as long as ``repeats`` allows and for shorter ones; after a leap that neither an
    arrival nor the limit nor a finish has ended, memory *is* short: the horizon is exact."""
    case = data.draw(cases(policy))
    chance = random.Random(data.draw(st.integers(0, 1000)))
    single = Steps(case, one).run()
    numbers = iter(lambda: chance.choice([1, 2, 3, 5, 17, 100]), 0)
    for limit in (a_lot, drawn(numbers)):
        leaping = Steps(case, limit).run()
        assert leaping.states.keys() <= single.states.keys()
        for now, reached in leaping.states.items():
            assert reached == single.states[now], now
        assert leaping.outcomes() == single.outcomes()


@pytest.mark.parametrize("policy", POLICIES)
def test_leaps_are_long_and_arrivals_and_short_memory_end_some(policy: str) -> None:
    chance = random.Random(4)
    single = leaping = cuts = shortages = 0
    for _ in range(20):
        case = random_case(policy, chance)
        single += Steps(case, one).run().plans
        run = Steps(case, a_lot).run()
        leaping += run.plans
        cuts += run.cuts
        shortages += run.shortages
    assert leaping < single / 3
    if policy in ("continuous", "whole-prompts", "prefill-first"):
        assert cuts > 20
        assert shortages > 20
    else:
        assert shortages == 0
