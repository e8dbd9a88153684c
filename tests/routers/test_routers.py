"""Where routers send requests: small cases by hand, and a run over real replicas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.errors import InfersimError, UsageError
from sim.iteration import Ints, Part, Timer
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.memory import PagedAllocator
from sim.request import Request
from sim.rng import stream
from sim.routers import (
    AFFINE,
    BLOCK,
    ROUTERS,
    DataParallelScore,
    LeastKv,
    LeastOutstanding,
    PowerOfTwo,
    PrefixAffinity,
    Random,
    RoundRobin,
    Router,
    SessionAffinity,
    Target,
    make_router,
    uniforms,
)
from sim.schedulers import Limits, make_scheduler
from sim.setup import is_random, prepare
from tests.own_routers import SEEN


class Stub:
    """A replica that has that many requests, and nothing else."""

    queued = 0
    queued_prompt_tokens = 0
    kv_used = 0.0
    weight = 1.0

    def __init__(self, outstanding: int) -> None:
        self.outstanding = outstanding


class Second(Timer):
    """Every iteration takes a second."""

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        return float("inf"), 1.0, 0.0

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        return 1.0, 0.0, 0.0


def some_request() -> Request:
    return Request(0, 0.0, 4, 10)


def choices(router: Router, targets: Sequence[Target], times: int) -> list[int]:
    return [router.choose(some_request(), targets) for _ in range(times)]


def test_round_robin_goes_around_whatever_the_replicas_do() -> None:
    targets = [Stub(50), Stub(0), Stub(7)]
    assert choices(RoundRobin(), targets, 7) == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_goes_on_among_those_that_are_left() -> None:
    router = RoundRobin()
    assert choices(router, [Stub(0), Stub(0), Stub(0)], 2) == [0, 1]
    assert choices(router, [Stub(0), Stub(0)], 3) == [0, 1, 0]


def test_each_round_robin_counts_for_itself() -> None:
    first, second, targets = RoundRobin(), RoundRobin(), [Stub(0), Stub(0)]
    assert [router.choose(some_request(), targets) for router in (first, first, second)] == [
        0,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("outstanding", "choice"),
    [
        ([3, 1, 2], 1),
        ([0, 0, 0], 0),  # a tie goes to the lowest number
        ([2, 1, 1], 1),
        ([5, 4, 3, 2, 1], 4),
        ([9], 0),
    ],
)
def test_least_outstanding_takes_the_first_of_the_least_loaded(
    outstanding: list[int], choice: int
) -> None:
    targets = [Stub(n) for n in outstanding]
    assert choices(LeastOutstanding(), targets, 3) == [choice] * 3  # and remembers nothing


@given(loads=st.lists(st.integers(0, 5), min_size=1, max_size=8), requests=st.integers(1, 40))
def test_least_outstanding_levels_the_replicas(loads: list[int], requests: int) -> None:
    """Requests that stay fill the lowest replica first, as water would."""
    targets, router = [Stub(n) for n in loads], LeastOutstanding()
    for _ in range(requests):
        before = [target.outstanding for target in targets]
        chosen = router.choose(some_request(), targets)
        assert before[chosen] == min(before)
        assert chosen == before.index(min(before))
        targets[chosen].outstanding += 1
    raised = [t.outstanding for t, n in zip(targets, loads, strict=True) if t.outstanding > n]
    assert max(raised) - min(t.outstanding for t in targets) <= 1


# -- weights -------------------------------------------------------------------------------------


def weighted(*weights: float) -> list[Stub]:
    targets = [Stub(0) for _ in weights]
    for target, weight in zip(targets, weights, strict=True):
        target.weight = weight
    return targets


def test_turns_go_by_weight_and_are_spread() -> None:
    """nginx's example of its smooth turns: weights 5, 1 and 1 give a a b a c a a."""
    router = make_router("round-robin", weighted=True)
    assert choices(router, weighted(5, 1, 1), 14) == [0, 0, 1, 0, 2, 0, 0] * 2


def test_unfinished_requests_count_by_weight() -> None:
    """Requests that stay are 3 to 1 in the end, and an idle fleet begins with the larger one."""
    router, targets = make_router("least-outstanding", weighted=True), weighted(1, 3)
    chosen = []
    for _ in range(40):
        chosen.append(router.choose(some_request(), targets))
        targets[chosen[-1]].outstanding += 1
    assert chosen[:2] == [1, 1]
    assert Counter(chosen) == {0: 10, 1: 30}


def test_chances_go_by_weight() -> None:
    router = make_router("random", 3, weighted=True)
    counts = Counter(choices(router, weighted(1, 2, 0.5), 7000))
    assert [round(counts[at] / 1000, 1) for at in range(3)] == pytest.approx([2, 4, 1], abs=0.15)


@pytest.mark.parametrize("name", ["round-robin", "least-outstanding", "power-of-two"])
def test_equal_weights_change_nothing(name: str) -> None:
    targets = [Stub(n) for n in (3, 1, 2, 0, 3, 1)]
    plain, heeded = (make_router(name, 7, weighted=each) for each in (False, True))
    assert choices(plain, targets, 60) == choices(heeded, targets, 60)


def test_a_router_that_heeds_none_is_refused() -> None:
    pools = [{"gpu": "h100-sxm", "name": name, "weight": n + 1} for n, name in enumerate("ab")]
    scenario = {
        "model": "llama-3.1-8b",
        "fleet": pools,
        "router": "least-kv",
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 6},
            "prompt_tokens": {"kind": "fixed", "value": 512},
            "output_tokens": {"kind": "fixed", "value": 64},
        },
    }
    with pytest.raises(UsageError, match="least-kv does not go by weights"):
        sim.load_scenario(scenario)
    routed = sim.simulate(
        sim.load_scenario({**scenario, "router": "round-robin"}, {"run.requests": 90})
    )
    assert routed.requests["replica"].value_counts().to_dict() == {0: 30, 1: 60}


# -- drawn at random -----------------------------------------------------------------------------


def routing() -> np.random.Generator:
    return stream(42, "routing")


def test_random_asks_nobody_and_favours_nobody() -> None:
    targets = [Stub(9), Stub(0), Stub(0), Stub(5)]
    counts = Counter(choices(Random(routing()), targets, 4000))
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(900 < count < 1100 for count in counts.values())  # 3.7 standard deviations


def test_random_takes_one_number_of_the_stream_for_each_request_block_after_block() -> None:
    expected = (routing().random(3 * BLOCK) * 5).astype(int).tolist()
    assert choices(Random(routing()), [Stub(0)] * 5, 3 * BLOCK) == expected


def test_a_number_next_to_one_still_chooses_the_last() -> None:
    for count in range(1, 2000):
        assert int((1 - 2**-53) * count) == count - 1
    drawn = uniforms(routing())
    assert all(0 <= next(drawn) < 1 for _ in range(BLOCK + 1))


def test_power_of_two_draws_every_pair_alike_and_never_the_same_twice() -> None:
    """With loads 0 to 4, replica i wins against those above it: C(5, 2) = 10 pairs."""
    counts = Counter(choices(PowerOfTwo(routing()), [Stub(n) for n in range(5)], 10_000))
    assert counts[4] == 0  # it could only win against itself
    for index, pairs in enumerate([4, 3, 2, 1]):
        assert abs(counts[index] - 1000 * pairs) < 200


def test_power_of_two_gives_ties_to_the_lower_number() -> None:
    assert choices(PowerOfTwo(routing()), [Stub(3), Stub(3)], 50) == [0] * 50
    assert choices(PowerOfTwo(routing()), [Stub(4), Stub(3)], 50) == [1] * 50
    assert 3 not in choices(PowerOfTwo(routing()), [Stub(1)] * 4, 500)


def test_power_of_two_of_one() -> None:
    assert choices(PowerOfTwo(routing()), [Stub(3)], 3) == [0, 0, 0]


@pytest.mark.parametrize("name", ["random", "power-of-two"])
def test_drawn_choices_follow_from_the_seed(name: str) -> None:
    targets = [Stub(n) for n in (3, 1, 2, 0, 3, 1)]
    seven, again, eight = (choices(make_router(name, seed), targets, 60) for seed in (7, 7, 8))
    assert seven == again
    assert seven != eight


def test_two_choices_level_the_replicas_far_better_than_one() -> None:
    def highest(router: Router) -> int:
        targets = [Stub(0) for _ in range(50)]
        for _ in range(500):
            targets[router.choose(some_request(), targets)].outstanding += 1
        return max(target.outstanding for target in targets)

    assert highest(LeastOutstanding()) == 10
    assert highest(PowerOfTwo(routing())) <= 13
    assert highest(Random(routing())) >= 16


def test_the_traffic_is_the_same_whatever_the_router() -> None:
    scenario = sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm", "replicas": 4},
            "workload": {
                "arrivals": {"kind": "poisson", "rate": 60},
                "prompt_tokens": {"kind": "uniform", "low": 1, "high": 900},
                "output_tokens": {"kind": "uniform", "low": 1, "high": 90},
            },
            "run": {"requests": 300},
        }
    )
    tables = {name: sim.simulate(scenario.override({"router": name})).requests for name in ROUTERS}
    columns = ["arrival_s", "prompt_tokens", "output_tokens"]
    for table in tables.values():
        assert table[columns].equals(tables["round-robin"][columns])
        assert sorted(set(table["replica"])) == [0, 1, 2, 3]
    placements = {name: tuple(table["replica"]) for name, table in tables.items()}
    # prompts that share nothing and belong to no session go by the load
    by_load = {placements.pop(name) for name in (*AFFINE, "least-outstanding")}
    assert len(by_load) == 1
    assert len({*placements.values(), *by_load}) == len(ROUTERS) - len(AFFINE)
    again = sim.simulate(scenario.override({"router": "power-of-two"})).requests
    assert again["replica"].equals(tables["power-of-two"]["replica"])


# -- over real replicas --------------------------------------------------------------------------


def replicas(env: simpy.Environment, count: int) -> list[Replica]:
    def make(index: int) -> Replica:
        scheduler = make_scheduler("continuous", Limits(), PagedAllocator(1000, 16))
        return Replica(env, index, scheduler, Second(), Recorder())

    return [make(index) for index in range(count)]


def test_least_outstanding_counts_those_that_run_and_not_only_those_that_wait() -> None:
    env = simpy.Environment()
    targets, router = replicas(env, 2), LeastOutstanding()
    env.run(until=0.5)
    log: list[tuple[float, int]] = []
    for number, at in enumerate([1.0, 2.5, 3.5, 4.5, 5.5]):
        env.run(until=at)
        request = Request(number, at, 4, 100)
        chosen = router.choose(request, targets)
        targets[chosen].submit(request)
        log.append((at, chosen))
    # each finds the earlier ones running, none waiting, and both batches nearly empty
    assert log == [(1.0, 0), (2.5, 1), (3.5, 0), (4.5, 1), (5.5, 0)]
    assert [len(replica.scheduler.waiting) for replica in targets] == [1, 0]
    assert [replica.outstanding for replica in targets] == [3, 2]


def test_finished_requests_are_outstanding_no_more() -> None:
    env = simpy.Environment()
    targets, router = replicas(env, 2), LeastOutstanding()
    env.run(until=0.5)
    for number, output in enumerate([100, 2]):  # the first to replica 0, the second to replica 1
        request = Request(number, 0.5, 4, output)
        targets[router.choose(request, targets)].submit(request)
    assert [replica.outstanding for replica in targets] == [1, 1]
    assert router.choose(some_request(), targets) == 0
    env.run(until=3.0)  # the second had its two tokens at 2.5
    assert [replica.outstanding for replica in targets] == [1, 0]
    assert router.choose(some_request(), targets) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("round-robin", RoundRobin),
        ("random", Random),
        ("least-outstanding", LeastOutstanding),
        ("power-of-two", PowerOfTwo),
        ("least-kv", LeastKv),
        ("session-affinity", SessionAffinity),
        ("prefix-affinity", PrefixAffinity),
        ("data-parallel-score", DataParallelScore),
    ],
)
def test_routers_are_found_by_name(name: str, kind: type[Router]) -> None:
    router = make_router(name)
    assert type(router) is kind
    assert make_router(name) is not router  # no state is shared between runs


def test_an_unknown_router_is_answered_with_what_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        make_router("round_robbin")
    assert str(caught.value) == (
        "unknown router 'round_robbin' (did you mean 'round-robin'?); "
        "known: round-robin, random, least-outstanding, power-of-two, least-kv, session-affinity, "
        "prefix-affinity, data-parallel-score, or package.module:Class"
    )


def test_a_router_like_nothing_known_gets_no_guess() -> None:
    with pytest.raises(UsageError, match=r"^unknown router 'zzz'; known: "):
        make_router("zzz")


# -- routers of one's own -------------------------------------------------------------------------

README = Path(sim.__file__).parent / "routers" / "README.md"

BUSY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 3},
    "max_model_len": 1024,
    "kv_cache": {"num_gpu_blocks": 300},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 120},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 500},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 400},
    },
    "run": {"requests": 200},
}
"""Queues come and go, and caches fill up."""


def test_the_router_of_the_readme_levels_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 10
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    own, turns = (
        sim.simulate(sim.load_scenario(BUSY, {"router": router, "workload.arrivals.rate": 20}))
        for router in ("mine:ByTokens", "round-robin")
    )
    assert own.summary["completed"] == turns.summary["completed"] == 200
    assert own.requests["queue_s"].mean() < 0.5 * turns.requests["queue_s"].mean()


@pytest.mark.parametrize("allocator", ["paged", "contiguous"])
@pytest.mark.parametrize("arrivals", [{"kind": "poisson", "rate": 120}, {"kind": "burst"}])
def test_a_router_sees_the_same_with_and_without_leaps(
    allocator: str, arrivals: dict[str, Any]
) -> None:
    scenario = sim.load_scenario(
        {**BUSY, "workload": {**BUSY["workload"], "arrivals": arrivals}},
        {"router": "tests.own_routers:Noting", "kv_cache.allocator": allocator},
    )
    found = []
    for leap in (True, False):
        SEEN.clear()
        sim.simulate(scenario, leap=leap)
        found.append(list(SEEN))
    assert found[0] == found[1]
    targets = [target for each in found[0] for target in each]
    outstanding, queued, tokens, used = zip(*targets, strict=True)
    assert max(queued) > 3
    assert all(0 <= q <= o for q, o in zip(queued, outstanding, strict=True))
    assert all(10 * q <= t <= 500 * q for q, t in zip(queued, tokens, strict=True))
    if arrivals["kind"] == "poisson":
        assert 0 < len({*used}) > (50 if allocator == "paged" else 2)
        assert 0.8 < max(used) <= 1


def test_what_a_router_sees_of_the_cache_is_what_sequences_hold() -> None:
    """In the middle of a leap of 100 iterations of a second each."""
    env = simpy.Environment()
    (replica,) = replicas(env, 1)
    env.run(until=0.5)
    replica.submit(Request(0, 0.5, 30, 100))  # its prompt is done at 1.5
    for now, iterations in ((1.0, 0), (2.0, 1), (2.5, 1), (3.0, 2), (40.0, 39), (40.5, 39)):
        env.run(until=now)
        held = 30 + iterations
        assert replica.kv_used == -(-held // 16) * 16 / 16_000, now
    assert (replica.queued, replica.queued_prompt_tokens) == (0, 0)
    for number in (1, 2):
        replica.submit(Request(number, 40.5, 7, 3))
    assert (replica.queued, replica.queued_prompt_tokens) == (2, 14)


def test_a_router_of_ones_own_draws_by_the_seed_of_the_run() -> None:
    scenario = sim.load_scenario(BUSY, {"router": "tests.own_routers:Drawing", "seed": 3})
    one, again = (sim.simulate(scenario).requests["replica"] for _ in range(2))
    other = sim.simulate(scenario.override({"seed": 4})).requests["replica"]
    assert one.equals(again)
    assert not one.equals(other)
    fixed = {"kind": "fixed", "value": 20}
    still = scenario.override(
        {
            "workload.arrivals": {"kind": "constant", "rate": 10},
            "workload.prompt_tokens": fixed,
            "workload.output_tokens": fixed,
        }
    )
    assert is_random(still)
    assert not is_random(still.override({"router": "tests.own_routers:Noting"}))


def test_a_router_that_chooses_no_replica_is_named() -> None:
    scenario = sim.load_scenario(BUSY, {"router": "tests.own_routers:Wrong"})
    with pytest.raises(InfersimError, match=r"Wrong' chose 3 for request 0; .* replica, 0 to 2"):
        sim.simulate(scenario)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("math:pi", "router 'math:pi' is not a subclass of sim.routers.Router"),
        ("sim.routers:Router", "router 'sim.routers:Router' is abstract"),
        ("sim.routers:Randm", "has no 'Randm' (did you mean 'Random'?)"),
        ("no.such:Thing", "router 'no.such:Thing' cannot be imported"),
    ],
)
def test_a_router_that_leads_nowhere(name: str, message: str) -> None:
    scenario = sim.load_scenario(BUSY, {"router": name})
    with pytest.raises(UsageError) as caught:
        prepare(scenario)
    assert message in str(caught.value)
