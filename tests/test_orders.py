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
from sim.request import Request
from sim.schedulers import Limits, Order, Scheduler, make_scheduler
from sim.schedulers.orders import ORDERS, FirstCome, ShortestJob, make_order
from sim.schedulers.queues import Queue, Sorted
from tests.harness import LinePrice, play

README = Path(sim.__file__).parent / "schedulers" / "README.md"
BATCHINGS = ["static", "request", "continuous", "prefill-first"]


def request(number: int, prompt: int, output: int) -> Request:
    return Request(number, float(number), prompt, output)


def ids(requests: Queue | list[Request]) -> list[int]:
    return [r.id for r in requests]


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


def rank(r: Request) -> tuple[int, int]:
    return r.prompt_tokens, r.id


# -- in schedulers -------------------------------------------------------------------------------


def scheduler(batching: str, order: str, seats: int = 1) -> Scheduler:
    limits, kv = Limits(max_num_seqs=seats, batch_timeout=2.0), PagedAllocator(1000, 4)
    chunked = batching != "prefill-first"
    name = batching if chunked else "continuous"
    return make_scheduler(name, limits, kv, chunked_prefill=chunked, order=order)


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize(("order", "served"), [("fcfs", [0, 1, 2, 3]), ("sjf", [0, 3, 1, 2])])
def test_every_batching_serves_in_the_order(batching: str, order: str, served: list[int]) -> None:
    """The first has arrived alone, the others while it was served; one seat."""
    traffic = [(0.0, 9, 9), (1.0, 4, 4), (2.0, 6, 6), (3.0, 2, 2)]
    price = LinePrice(1.0, 0.0, 0.0, 0.0)
    played = play(traffic, lambda: scheduler(batching, order), price, leap=True)
    assert [number for _, _, number in played.log] == served


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_newcomer_matters_when_it_becomes_the_head(batching: str) -> None:
    shortest = scheduler(batching, "sjf")
    arrivals = [request(0, 5, 5), request(1, 5, 5), request(2, 4, 4), request(3, 6, 6)]
    assert [shortest.submit(r) for r in arrivals] == [True, False, True, False]
    first_come = scheduler(batching, "fcfs")
    assert [first_come.submit(r) for r in arrivals] == [True, False, False, False]


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
        "scheduler": {"max_num_seqs": 4, **scheduler_keys},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "uniform", "low": 20, "high": 60},
            "output_tokens": {"kind": "uniform", "low": 2, "high": 200},
        },
        "max_model_len": 1000,
        "run": {"requests": 60},
    }


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
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sfj", "unknown order 'sfj' (did you mean 'sjf'?); known: fcfs, sjf, or package.module"),
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
        assert sim.load_scenario(chat(order=name)).scheduler.order == name
    with pytest.raises(ScenarioError, match="'edf' is not supported yet; supported: fcfs or sjf"):
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
            LinePrice(1.0, 0.0, 0.0, 0.0),
            leap=True,
        )
        return [played.tokens[number][0] for number in (0, 1)]

    assert first_tokens(0) == [8.0, 9.0]  # 7 x 512, then 416 and 96 of the second, then its rest
    assert first_tokens(256) == [16.0, 1.0]  # 256 and 100


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
    price = LinePrice(1.0, 0.0, 0.0, 0.0)
    leaps, steps = (play(traffic, make, price, leap=leap) for leap in (True, False))
    assert leaps.tokens == steps.tokens == {0: [1.0, 2.0], 2: [3.0], 1: [4.0, 5.0, 6.0]}
    assert leaps.events < steps.events
    assert leaps.replicas[0].scheduler.kv.reserved() == 0
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
