"""Every feature alone and with every other: leaps change nothing, and nothing is lost.

The features, and what is checked, stand in ``tests.feature_pairs``; a new feature adds a row there.
Pairs meet in the groups of ``tests.feature_groups``; `make thorough` runs each by itself as well,
which also finds the pair where a group fails.
"""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest

import sim
from sim.errors import InfersimError
from sim.routers import ROUTERS
from sim.scenario.sections.arrivals import Arrivals
from sim.schedulers.orders import ORDERS
from tests.feature_groups import REFUSED_TOGETHER, groups, met
from tests.feature_pairs import (
    ALIKE,
    FEATURES,
    KINDS_CROSSED,
    REFUSED,
    UNCROSSED,
    Names,
    alternatives,
    cases,
    check_scenario,
    check_together,
    crossed,
    crosses,
    is_thorough,
    scenario_of,
)


@pytest.mark.parametrize("names", [names for names in cases() if len(names) == 1], ids="+".join)
def test_leaps_change_nothing_and_nothing_is_lost(names: Names) -> None:
    check_together(names)


@pytest.mark.parametrize("names", groups(), ids="+".join)
def test_nor_where_several_go_together(names: Names) -> None:
    check_together(names)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every pair by itself; where the thorough tests are left out, one stands for them all."""
    if metafunc.function is test_nor_in_any_pair_alone:
        pairs = [names for names in cases() if len(names) == 2]
        left_out = "not thorough" in metafunc.config.getoption("markexpr")
        metafunc.parametrize("names", pairs[:1] if left_out else pairs, ids="+".join)


@pytest.mark.thorough
def test_nor_in_any_pair_alone(names: Names) -> None:
    check_together(names)


CROSSES = [
    pytest.param(
        *cross, marks=[] if number % 3 == 0 or cross[2] else [pytest.mark.thorough], id=str(number)
    )
    for number, cross in enumerate(crosses())
]


@pytest.mark.parametrize(("rule", "kind", "tight"), CROSSES)
def test_every_policy_with_every_kind_of_memory(rule: str, kind: str, tight: bool) -> None:
    happened = check_scenario(crossed(rule, kind, tight))
    evicts = rule not in ("static", "request", "no-evict")
    assert tight or not happened["preempted"]
    assert not happened["preempted"] or evicts


@pytest.mark.parametrize(("cross", "why"), UNCROSSED.items())
def test_what_cannot_be_crossed_is_refused_in_words(cross: tuple[str, str], why: str) -> None:
    with pytest.raises(InfersimError, match=why):
        sim.simulate(crossed(*cross, tight=False))


def test_memory_is_tight_where_it_is_to_be() -> None:
    """Where policies evict at all they do, with every kind of memory."""
    for kind in KINDS_CROSSED:
        rules = [rule for rule, of_kind, tight in crosses() if of_kind == kind and tight]
        assert len(rules) >= 3
        assert any(check_scenario(crossed(rule, kind, True))["preempted"] for rule in rules)


def test_every_pair_meets_in_a_group() -> None:
    pairs = {pair for pair in cases() if len(pair) == 2 and not is_thorough(pair)}
    assert {pair for group in groups() for pair in met(group)} >= pairs
    assert len(pairs) > 1_000


def test_features_that_are_alike_are_features() -> None:
    assert {name for one, others in ALIKE.items() for name in (one, *others)} <= set(FEATURES)
    assert not set(ALIKE) & {name for others in ALIKE.values() for name in others}


@pytest.mark.parametrize(
    ("names", "why"),
    [pytest.param(*row, id="+".join(row[0])) for row in (REFUSED | REFUSED_TOGETHER).items()],
)
def test_what_cannot_be_had_together_is_refused_in_words(names: Names, why: str) -> None:
    assert not any(alternatives(*pair) for pair in combinations(names, 2))
    with pytest.raises(InfersimError) as caught:
        sim.simulate(scenario_of(names))
    assert why in str(caught.value)
    assert caught.value.exit_code in (2, 3)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("small-memory",), "preempted"),
        (("prefill-first", "small-memory"), "preempted"),
        (("priority", "tiny-memory"), "preempted"),
        (("sglang-retracting",), "preempted"),
        (("lpm",), "leapt"),
        (("sglang",), "leapt"),
        (("async",), "leapt"),
        (("rejecting",), "rejected"),
        (("rejecting", "closed"), "rejected"),
        (("horizon",), "unfinished"),
        (("static", "horizon"), "unfinished"),
        (("tiny-memory", "horizon"), "unfinished"),
        (("long-prefill",), "leapt"),
        (("measured", "overlaid-trace", "small-memory"), "leapt"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_the_features_reach_what_they_are_for(names: Names, what: str) -> None:
    assert check_together(names)[what] >= 2


def test_a_pair_is_run_refused_or_of_alternatives() -> None:
    assert alternatives("static", "request")
    assert alternatives("burst", "closed-thinking")
    assert alternatives("burst", "trace")
    assert alternatives("priority", "edf")
    assert not alternatives("classes", "edf")
    assert not alternatives("static", "contiguous")
    run = {*cases()}
    assert {(name,) for name in FEATURES} < run
    assert not run & REFUSED.keys()
    assert len(run) > 800


def test_every_policy_and_arrival_law_has_a_row() -> None:
    loaded = [scenario_of((name,)) for name in FEATURES]
    assert {s.scheduler.batching for s in loaded} == {"static", "request", "continuous"}
    assert {s.scheduler.order for s in loaded} == set(ORDERS)
    assert {s.kv_cache.allocator for s in loaded} == {"paged", "contiguous"}
    assert {s.router for s in loaded if s.replicas > 1} == set(ROUTERS)
    kinds = {s.workload.arrivals.kind for s in loaded if s.workload.arrivals is not None}
    variants = get_args(get_args(Arrivals)[0])
    assert kinds == {get_args(v.model_fields["kind"].annotation)[0] for v in variants}
