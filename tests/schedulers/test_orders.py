"""Who leaves the queue first, and the policies of one's own that the README shows."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.errors import ScenarioError, UsageError
from sim.memory import PagedAllocator
from sim.request import PLAIN, Request, TrafficClass
from sim.schedulers import Limits, Order, Scheduler, make_scheduler
from sim.schedulers.orders import (
    ORDERS,
    EarliestDeadline,
    Fair,
    FirstCome,
    LongestPrefix,
    Priority,
    ShortestJob,
    make_order,
)
from sim.schedulers.queues import Queue, Ranked, Sorted
from tests.harness import LineTimer, play

README = Path(sim.__file__).parent / "schedulers" / "README.md"
BATCHINGS = ["static", "request", "continuous", "prefill-first"]
URGENT = TrafficClass(index=0, name="urgent", priority=0, deadline=1.5)
NORMAL = TrafficClass(index=1, name="normal", priority=4, deadline=3.0)
PATIENT = TrafficClass(index=2, name="patient", priority=9, deadline=float("inf"))


def request(number: int, prompt: int, output: int, traffic_class: TrafficClass = PLAIN) -> Request:
    return Request(number, float(number), prompt, output, traffic_class)


def ids(requests: Queue | list[Request]) -> list[int]:
    return [r.id for r in requests]


# -- fair shares ---------------------------------------------------------------------------------


def tenants(*weights: float) -> list[TrafficClass]:
    return [TrafficClass(at, f"t{at}", 0, 1.0, weight) for at, weight in enumerate(weights)]


def test_the_class_that_was_served_least_goes_first() -> None:
    """Prompts of 100, 30 and 50 tokens: the second class has three turns before the first has its
    second (30, 60, 90 against 100), one by one, and of its own it keeps the order."""
    one, other = tenants(1, 1)
    queue = Fair().queue()
    for r in [request(0, 100, 1, one), request(1, 50, 1, one)]:
        queue.append(r)
    for number in range(2, 7):
        queue.append(request(number, 30, 1, other))
    assert [queue.popleft().id for _ in range(7)] == [0, 2, 3, 4, 5, 1, 6]


def test_output_tokens_count_twice_and_weights_divide() -> None:
    """After a prompt of 10 each, the first class gets 40 tokens: 90 of its counter, at half the
    weight of the second; that has 10 + 2 x 40 over 2 = 45, so it goes on."""
    one, other = tenants(1, 2)
    queue = Fair().queue()
    for number, own in enumerate((one, other, one, other)):
        queue.append(request(number, 10, 40, own))
    first, second = queue.popleft(), queue.popleft()
    assert (first.id, second.id) == (0, 1)
    for r in (first, second):
        r.generated = 40
    first.last_token = 5.0  # it has left the batch: the counters are read again
    assert queue[0].id == 3


def test_a_class_that_was_away_does_not_save_up() -> None:
    """The first class has been served 300 tokens when the second comes: from there it is one each,
    not three of the second."""
    one, other = tenants(1, 1)
    queue = Fair().queue()
    for number in range(6):
        queue.append(request(number, 100, 1, one))
    assert [queue.popleft().id for _ in range(3)] == [0, 1, 2]
    for number in range(6, 9):
        queue.append(request(number, 100, 1, other))
    assert [queue.popleft().id for _ in range(6)] == [3, 6, 4, 7, 5, 8]


def test_a_greedy_tenant_does_not_hold_up_the_other() -> None:
    """Nine of ten requests are the one tenant's, more than are served: fairly, the other has its
    answers at once, and first come, first served it waits as long as everybody."""
    classes = [{"name": "greedy", "share": 0.9}, {"name": "modest", "share": 0.1}]
    scenario = {
        "model": "llama-3.2-1b",
        "fleet": {"gpu": "a10g"},
        "max_model_len": 512,
        "scheduler": {"max_num_seqs": 8},
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 40},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 50},
            "classes": classes,
        },
        "run": {"requests": 600, "warmup": 0},
    }
    waits = {}
    for order in ("fcfs", "fair"):
        rows = sim.simulate(sim.load_scenario(scenario, {"scheduler.order": order})).requests
        waits[order] = rows.groupby("class")["ttft_s"].mean()
    assert waits["fcfs"]["modest"] > 0.8 * waits["fcfs"]["greedy"]
    assert waits["fair"]["modest"] < 0.05 * waits["fair"]["greedy"]
    assert waits["fair"]["greedy"] < 1.2 * waits["fcfs"]["greedy"]


# -- queues --------------------------------------------------------------------------------------


def test_shortest_job_counts_prompt_and_output_and_keeps_the_order_of_equals() -> None:
    queue = ShortestJob().queue()
    for r in [request(0, 9, 1), request(1, 1, 4), request(2, 2, 3), request(3, 1, 1)]:
        queue.append(r)
    assert ids(queue) == [3, 1, 2, 0]
    assert queue[0].id == 3
    assert queue.oldest().id == 0
    assert [queue.popleft().id for _ in range(4)] == [3, 1, 2, 0]
    assert not queue


def test_preempted_requests_go_before_shorter_ones_the_last_first() -> None:
    queue = ShortestJob().queue()
    queue.append(request(0, 1, 1))
    queue.appendleft(request(1, 50, 50))
    queue.appendleft(request(2, 90, 90))
    queue.append(request(3, 1, 0))
    assert (len(queue), queue[0].id, ids(queue)) == (4, 2, [2, 1, 3, 0])
    assert [queue.popleft().id for _ in range(4)] == [2, 1, 3, 0]


def test_only_the_head_of_a_sorted_queue_is_looked_at() -> None:
    queue = ShortestJob().queue()
    queue.append(request(0, 1, 1))
    queue.append(request(1, 1, 1))
    with pytest.raises(IndexError, match="only the head"):
        queue[1]


def test_first_come_first_served_waits_in_a_deque() -> None:
    queue = FirstCome().queue()
    assert isinstance(queue, deque)
    assert not hasattr(queue, "__dict__")
    for r in [request(0, 9, 1), request(1, 1, 1)]:
        queue.append(r)
    assert queue.oldest() is queue[0]
    assert ids(queue) == [0, 1]


def test_priority_goes_by_the_class_and_then_by_arrival() -> None:
    queue = Priority().queue()
    for number, of in enumerate([PATIENT, NORMAL, URGENT, NORMAL, URGENT]):
        queue.append(request(number, 1, 1, of))
    assert ids(queue) == [2, 4, 1, 3, 0]
    assert queue.oldest().id == 0
    assert (len(queue), queue[0].id) == (5, 2)
    with pytest.raises(IndexError, match="only the head"):
        queue[1]


def test_a_deadline_counts_from_the_arrival() -> None:
    """Due at 3.0, 2.5, 5.0, never and 5.5."""
    queue = EarliestDeadline().queue()
    for number, of in enumerate([NORMAL, URGENT, NORMAL, PATIENT, URGENT]):
        queue.append(request(number, 1, 1, of))
    assert ids(queue) == [1, 0, 2, 4, 3]


def test_those_without_a_deadline_are_served_in_order_of_arrival() -> None:
    queue = EarliestDeadline().queue()
    for number in (1, 0, 2):
        queue.append(request(number, 1, 1, PATIENT))
    assert ids(queue) == [0, 1, 2]


@pytest.mark.parametrize("order", [Priority(), EarliestDeadline()], ids=["priority", "edf"])
def test_preempted_requests_wait_at_the_place_of_their_rank(order: Order) -> None:
    queue = order.queue()
    queue.append(request(5, 1, 1, URGENT))
    queue.append(request(7, 1, 1, NORMAL))
    queue.appendleft(request(4, 1, 1, PATIENT))
    queue.appendleft(request(6, 1, 1, NORMAL))
    assert [queue.popleft().id for _ in range(4)] == [5, 6, 7, 4]


def test_who_is_preempted() -> None:
    running = [request(n, 1, 1, of) for n, of in enumerate([NORMAL, PATIENT, URGENT, PATIENT])]
    running += [request(4, 1, 1, NORMAL), request(5, 1, 1, URGENT)]
    newest = {name: make_order(name).queue().victim(running).id for name in ORDERS}
    assert newest == {"fcfs": 5, "sjf": 5, "priority": 3, "edf": 3, "lpm": 5, "fair": 5}
    urgent = [request(0, 1, 1, NORMAL), request(4, 1, 1, URGENT), request(5, 1, 1, URGENT)]
    assert Priority().queue().victim(urgent).id == 0
    assert EarliestDeadline().queue().victim(urgent).id == 5  # due at 6.5, the others before
    assert make_order("edf").queue().victim(dict.fromkeys(urgent)).id == 5


moves = st.lists(st.one_of(st.none(), st.tuples(st.booleans(), st.integers(1, 5))), max_size=40)


@given(moves)
def test_a_sorted_queue_does_what_sorting_a_list_does(
    moves: list[tuple[bool, int] | None],
) -> None:
    queue = Sorted(lambda r: r.prompt_tokens)
    front: list[Request] = []
    others: list[Request] = []
    for number, move in enumerate(moves):
        if move is not None:
            at_front, length = move
            (queue.appendleft if at_front else queue.append)(request(number, length, 1))
            front, others = (
                ([request(number, length, 1), *front], others)
                if at_front
                else (front, sorted([*others, request(number, length, 1)], key=rank))
            )
        elif front or others:
            assert queue.popleft().id == (front or others).pop(0).id
        assert len(queue) == len(front) + len(others)
        assert ids(queue) == ids(front + others)
        assert not len(queue) or queue[0].id == ids(queue)[0]
        assert not others or queue.oldest().id == min(ids(others))


@given(moves)
def test_a_ranked_queue_does_what_sorting_a_list_does(
    moves: list[tuple[bool, int] | None],
) -> None:
    queue = Ranked(lambda r: r.prompt_tokens)
    others: list[Request] = []
    for number, move in enumerate(moves):
        if move is not None:
            again, length = move
            (queue.appendleft if again else queue.append)(request(number, length, 1))
            others = sorted([*others, request(number, length, 1)], key=rank)
        elif others:
            assert queue.popleft().id == others.pop(0).id
        assert ids(queue) == ids(others)
        assert not others or queue[0].id == others[0].id
        assert not others or queue.oldest().id == min(ids(others))
        assert not others or queue.victim(others[::-1]).id == others[-1].id


def rank(r: Request) -> tuple[int, int]:
    return r.prompt_tokens, r.id


# -- in schedulers -------------------------------------------------------------------------------


def scheduler(batching: str, order: str, seats: int = 1) -> Scheduler:
    limits, kv = Limits(max_num_seqs=seats, batch_timeout=2.0), PagedAllocator(1000, 4)
    chunked = batching != "prefill-first"
    name = batching if chunked else "continuous"
    rule = "vllm" if chunked else "vllm-v0"
    return make_scheduler(name, limits, kv, rule=rule, order=order)


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize(
    ("order", "served"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("sjf", [0, 3, 1, 2]),
        ("priority", [0, 3, 2, 1]),
        ("edf", [0, 2, 3, 1]),
    ],
)
def test_every_batching_serves_in_the_order(batching: str, order: str, served: list[int]) -> None:
    """The first has arrived alone, the others while it was served; one seat."""
    traffic = [
        (0.0, 9, 9, PATIENT),
        (1.0, 4, 4, PATIENT),
        (1.25, 6, 6, NORMAL),
        (3.0, 2, 2, URGENT),
    ]
    price = LineTimer(1.0, 0.0, 0.0, 0.0)
    played = play(traffic, lambda: scheduler(batching, order), price, leap=True)
    assert [number for _, _, number in played.log] == served


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_newcomer_matters_when_it_becomes_the_head(batching: str) -> None:
    shortest = scheduler(batching, "sjf")
    arrivals = [request(0, 5, 5), request(1, 5, 5), request(2, 4, 4), request(3, 6, 6)]
    assert [shortest.submit(r) for r in arrivals] == [True, False, True, False]
    first_come = scheduler(batching, "fcfs")
    assert [first_come.submit(r) for r in arrivals] == [True, False, False, False]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_more_urgent_newcomer_matters(batching: str) -> None:
    classes = [NORMAL, NORMAL, URGENT, PATIENT, URGENT]
    for order, told in (
        ("priority", [True, False, True, False, False]),
        ("edf", [True, False, False, False, False]),  # due at 3.0, 4.0, 3.5, never and 5.5
    ):
        policy = scheduler(batching, order)
        arrivals = [request(number, 5, 5, of) for number, of in enumerate(classes)]
        assert [policy.submit(r) for r in arrivals] == told


# -- preemption by rank --------------------------------------------------------------------------


def by_priority(blocks: int, *arrivals: Request) -> Scheduler:
    """Blocks of one token; each has arrived, and run an iteration, before the next came."""
    policy = make_scheduler(
        "continuous", Limits(8, 64), PagedAllocator(blocks, 1), order="priority"
    )
    for arrival in arrivals:
        policy.submit(arrival)
        step(policy, arrival.arrival)
    return policy


def step(policy: Scheduler, now: float) -> tuple[int, list[int], int]:
    """Sequences that decode, who is prefilled or catches up, and how many are preempted."""
    plan = policy.schedule(now)
    assert plan is not None
    holding = policy.members()
    new = plan.decode + sum(chunk.tokens for chunk in plan.chunks)
    assert plan.running == len(holding)
    assert plan.held == new + sum(r.computed + policy.steps(r) for r in holding)
    chunks = [chunk.request.id for chunk in plan.chunks]
    policy.complete(plan, 1, now + 1.0)
    policy.check_integrity()
    return plan.decode, chunks, plan.preempted


def test_the_victim_may_be_amid_the_batch() -> None:
    """0 and 2 are urgent and stand around 1; 4 + 3 + 2 of 9 blocks are taken when 0 asks."""
    victim = request(1, 2, 9, NORMAL)
    policy = by_priority(9, request(0, 2, 9, URGENT), victim, request(2, 2, 9, URGENT))
    assert ids(policy.members()) == [0, 1, 2]
    assert step(policy, 3.0) == (2, [], 1)
    assert (victim.generated, victim.computed, victim.preemptions) == (2, 0, 1)
    for newcomer in (request(3, 2, 9, NORMAL), request(4, 9, 9, URGENT)):
        policy.submit(newcomer)
    assert ids(policy.waiting) == [4, 1, 3]  # not before who is more urgent


def test_who_has_had_a_share_gives_it_back() -> None:
    """4 + 3 + 2 of 10 blocks: 0 takes the last, 1 asks in vain, and 0 has to go."""
    policy = by_priority(
        10, request(0, 2, 9, NORMAL), request(1, 2, 9, URGENT), request(2, 2, 9, URGENT)
    )
    assert step(policy, 3.0) == (2, [], 1)
    assert ids(policy.waiting) == [0]
    assert isinstance(policy.kv, PagedAllocator)
    assert policy.kv.free_blocks == 10 - 4 - 3


def test_those_behind_a_victim_that_asked_itself_are_passed_over() -> None:
    """4 + 3 + 2 of 10 blocks: 0 takes the last, 1 asks in vain and is the last by rank."""
    last = request(2, 2, 9, URGENT)
    policy = by_priority(10, request(0, 2, 9, URGENT), request(1, 2, 9, NORMAL), last)
    assert step(policy, 3.0) == (1, [], 1)
    assert (last.generated, last.computed) == (1, 2)
    assert step(policy, 4.0) == (1, [2], 0)
    assert (last.generated, last.computed) == (2, 3)
    assert step(policy, 5.0) == (1, [], 1)  # 6 + 3 taken, and now 2 is the later of equals


def test_an_iteration_that_would_serve_nobody_is_planned_again() -> None:
    """3 + 2 of 5 blocks: 0 asks first and is the victim itself; then 1 catches up."""
    policy = by_priority(5, request(0, 2, 9, NORMAL), request(1, 2, 9, URGENT))
    assert step(policy, 2.0) == (0, [1], 1)
    assert ids(policy.waiting) == [0]


def test_request_batching_waits_for_the_oldest_and_not_for_the_head() -> None:
    policy = scheduler("request", "sjf", seats=4)
    assert policy.wakeup(0.0) == float("inf")
    policy.submit(request(0, 9, 9))
    policy.submit(request(1, 2, 2))
    assert policy.waiting[0].id == 1
    assert policy.wakeup(1.0) == 2.0
    assert policy.schedule(1.9) is None
    plan = policy.schedule(2.0)
    assert plan is not None
    assert [chunk.request.id for chunk in plan.chunks] == [1, 0]


def chat(**scheduler_keys: object) -> dict[str, Any]:
    return {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "engine": "ideal",  # no front end, in which long prompts take longer
        "scheduler": {"max_num_seqs": 4, **scheduler_keys},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "uniform", "low": 20, "high": 60},
            "output_tokens": {"kind": "uniform", "low": 2, "high": 200},
        },
        "max_model_len": 1000,
        "run": {"requests": 60},
    }


def tight(**changes: Any) -> dict[str, Any]:
    """More requests than memory."""
    return {
        **chat(max_num_seqs=32, **changes),
        "kv_cache": {"num_gpu_blocks": 90},
        "slo": {"ttft": "1s"},
        "run": {"requests": 150, "warmup": 0},
    }


@pytest.mark.parametrize("order", ["priority", "edf", "fair"])
@pytest.mark.parametrize("policy", ["vllm", "vllm-v0"])
def test_with_all_alike_it_is_first_come_first_served(order: str, policy: str) -> None:
    """With preemptions, too: the newest is the last by rank and goes back to the front."""
    rows, notes = {}, {}
    for name in ("fcfs", order):
        result = sim.simulate(sim.load_scenario(tight(order=name, policy=policy)))
        rows[name] = result.record.requests
        notes[name] = result.summary["infersim"]["notes"]
    assert rows["fcfs"]["preemptions"].sum() > 20
    assert rows[order].tobytes() == rows["fcfs"].tobytes()
    assert not any("first come" in note for note in notes["fcfs"])
    alike = {"priority": "priority", "edf": "deadline", "fair": "class"}[order]
    text = f"All requests have the same {alike}, so they are served first come, first served."
    assert text in notes[order]


def test_earliest_deadline_first_meets_more_deadlines() -> None:
    """One request at a time, at 1.05 times the capacity (of a burst): the first token of a third of
    them is due soon, the others could wait. The traffic is the same."""
    classes = [
        {"name": "soon", "share": 0.3, "deadline": "2s"},
        {"name": "later", "share": 0.7, "deadline": "60s"},
    ]
    burst = chat(max_num_seqs=1) | {"run": {"requests": 400}}
    burst["workload"] = burst["workload"] | {"arrivals": {"kind": "burst"}}
    capacity = sim.simulate(sim.load_scenario(burst)).summary["request_throughput"]
    workload = chat()["workload"] | {
        "arrivals": {"kind": "poisson", "rate": 1.05 * capacity},
        "classes": classes,
    }
    met, sent = {}, {}
    for order in ("fcfs", "edf"):
        scenario = chat(order=order, max_num_seqs=1) | {"workload": workload}
        run = {"requests": 400, "warmup": 0}
        result = sim.simulate(sim.load_scenario({**scenario, "run": run}))
        sent[order] = result.requests[["arrival_s", "prompt_tokens", "output_tokens", "class"]]
        entries = result.summary["infersim"]["classes"]
        met[order] = [entry["attainment"] for entry in entries]
        assert "first come" not in " ".join(result.summary["infersim"]["notes"])
    assert sent["fcfs"].equals(sent["edf"])
    assert met["fcfs"][0] < 0.1
    assert met["edf"][0] > 0.95
    assert met["fcfs"][1] == met["edf"][1] == 1.0


def test_shortest_job_first_shortens_the_mean() -> None:
    results = {name: sim.simulate(sim.load_scenario(chat(order=name))) for name in ("fcfs", "sjf")}
    fcfs, sjf = results["fcfs"].summary, results["sjf"].summary
    assert sjf["mean_e2el_ms"] < 0.8 * fcfs["mean_e2el_ms"]
    assert sjf["total_output_tokens"] == fcfs["total_output_tokens"]
    assert sjf["total_input_tokens"] == fcfs["total_input_tokens"]


# -- found by name -------------------------------------------------------------------------------


def test_orders_by_name() -> None:
    assert {name: type(make_order(name)) for name in ORDERS} == {
        "fcfs": FirstCome,
        "sjf": ShortestJob,
        "priority": Priority,
        "edf": EarliestDeadline,
        "lpm": LongestPrefix,
        "fair": Fair,
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "sfj",
            "unknown order 'sfj' (did you mean 'sjf'?); known: fcfs, sjf, priority, edf, lpm, fair",
        ),
        ("sim.nosuch:Mine", "order 'sim.nosuch:Mine' cannot be imported ("),
        ("math:pi", "order 'math:pi' is not a subclass of sim.schedulers.Order"),
        ("sim.schedulers:Order", "order 'sim.schedulers:Order' is abstract: it does not implement"),
    ],
)
def test_an_order_that_leads_nowhere(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_order(name)
    assert str(caught.value).startswith(message)


def test_every_order_of_the_program_can_be_asked_for_in_a_scenario() -> None:
    for name in ORDERS:
        more: dict[str, object] = {"slo": {"ttft": "1s"}}
        if ORDERS[name].by_prefix:
            more |= {"engine": "sglang", "kv_cache": {"enable_prefix_caching": True}}
        scenario = sim.load_scenario({**chat(order=name), **more})
        assert scenario.scheduler.order == name
    with pytest.raises(ScenarioError, match="edf serves the earliest deadline first, but no"):
        sim.load_scenario(chat(order="edf"))


@pytest.mark.parametrize(
    ("given", "read"), [(0, None), ("0", None), (None, None), (64, 64), ("64", 64)]
)
def test_zero_is_no_threshold(given: object, read: int | None) -> None:
    scenario = sim.load_scenario(chat(long_prefill_token_threshold=given))
    assert scenario.scheduler.long_prefill_token_threshold == read


@pytest.mark.parametrize("given", [False, 0.0, -1, "none"])
def test_what_is_no_threshold_at_all(given: object) -> None:
    with pytest.raises(ScenarioError, match="expected a whole number of at least 1"):
        sim.load_scenario(chat(long_prefill_token_threshold=given))


def test_a_threshold_lets_short_prompts_pass_a_long_one() -> None:
    """At once: a prompt of 4,000 tokens, then one of 100."""

    def first_tokens(threshold: int) -> list[float]:
        limits = Limits(4, 512, long_prefill_token_threshold=threshold)
        played = play(
            [(0.0, 4000, 2), (0.0, 100, 2)],
            lambda: make_scheduler("continuous", limits, PagedAllocator(1000, 16)),
            LineTimer(1.0, 0.0, 0.0, 0.0),
            leap=True,
        )
        return [played.tokens[number][0] for number in (0, 1)]

    assert first_tokens(0) == [8.0, 9.0]  # 7 x 512, then 416 and 96 of the second, then its rest
    # 256 and 100, 256 and 1; then the first is alone and gets 7 x 512
    assert first_tokens(256) == [9.0, 1.0]


# -- the README's own policy ---------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module that the README shows, importable."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "alone.py").write_text(blocks[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "alone", raising=False)
    return blocks[0]


def test_the_policy_of_the_readme_is_short(alone: str) -> None:
    batching = alone[alone.index("class Alone") : alone.index("class ShortestPrompt")]
    assert sum(bool(line.strip()) for line in batching.splitlines()) <= 30


def test_the_policy_of_the_readme_serves_one_request_at_a_time(alone: str) -> None:
    def make() -> Scheduler:
        kv = PagedAllocator(20, 4)
        return make_scheduler("alone:Alone", Limits(), kv, order="alone:ShortestPrompt")

    traffic = [(0.0, 3, 2), (0.5, 5, 3), (0.5, 4, 1)]
    price = LineTimer(1.0, 0.0, 0.0, 0.0)
    leaps, steps = (play(traffic, make, price, leap=leap) for leap in (True, False))
    assert leaps.tokens == steps.tokens == {0: [1.0, 2.0], 2: [3.0], 1: [4.0, 5.0, 6.0]}
    assert leaps.events < steps.events
    assert leaps.replicas[0].scheduler.kv.reserved == 0
    order: Callable[[str], Order] = make_order
    assert order("alone:ShortestPrompt").key(request(0, 7, 99)) == 7


@pytest.mark.usefixtures("alone")
def test_the_policy_of_the_readme_runs_in_a_scenario() -> None:
    own = chat(batching="alone:Alone", order="alone:ShortestPrompt")
    result = sim.simulate(sim.load_scenario(own))
    assert result.summary["completed"] == 60
    assert result.summary["infersim"]["batch"]["peak_running"] == 1
    prompts = result.requests.sort_values("first_token_s")["prompt_tokens"].tolist()
    assert prompts == sorted(prompts)
    batched = sim.simulate(sim.load_scenario(chat()))
    assert result.summary["output_throughput"] < 0.6 * batched.summary["output_throughput"]
