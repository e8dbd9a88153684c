"""Drafts on data ranks: what meets in a pass, what a drafter goes over, and leaps as without."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import sim
from sim.cost import CostModel
from sim.cost.batches import Batches
from sim.growth.courses import DraftCourses
from sim.growth.sampled import Sampled
from sim.iteration import Batch, Part, PassConditions
from sim.memory.drafted import DraftedAllocator
from sim.schedulers import Limits, ReplicaTraits, Scheduler, make_scheduler
from sim.setup import prepare
from sim.specs.drafter import drafter_of
from sim.specs.layout import Layout
from sim.specs.speculation import Speculation
from tests.feature_pairs import BASE, FEATURES, check_together
from tests.golden_scenarios import changed
from tests.harness import Arriving, LineTimer, Played, play


class Meeting(LineTimer):
    """A token of another rank costs an eighth of a second, a request that it drafts for a
    sixteenth."""

    others = requests = 0

    def under(self, conditions: PassConditions) -> Meeting:
        found = Meeting(self.fixed, self.sequence, self.context, self.token, self.bend)
        found.others, found.requests = conditions.others or 0, conditions.others_requests
        return found

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        limit, intercept, slope = super().line(sequences, context)
        return limit, intercept + self.others / 8 + self.requests / 16, slope


def scheduler(rates: tuple[float, ...], blocks: int = 100, seqs: int = 8) -> Scheduler:
    courses = DraftCourses(Speculation("ngram", len(rates), rates), seed=3)
    kv = DraftedAllocator(blocks, 4, 256, courses)
    return make_scheduler(
        "continuous", Limits(seqs, 64, 256), kv, traits=ReplicaTraits(partial(Sampled, courses))
    )


def played(
    traffic: list[Arriving],
    timer: LineTimer,
    rates: tuple[float, ...],
    *,
    leap: bool = True,
    ranks: int = 2,
    **more: int,
) -> Played:
    return play(traffic, lambda: scheduler(rates, **more), timer, leap=leap, ranks=ranks)


@pytest.mark.parametrize("leap", [True, False])
def test_a_rank_counts_the_drafts_that_others_check(leap: bool) -> None:
    """Two prompts of 4 tokens meet: 1 + 4/4 + 4/8 + 1/16 s. Then each rank checks 2 drafts, both
    right: 1 + 3/8 + 1/16 s bring 3 tokens, and the second request has all it asked for. Beside a
    dummy token the first has its last 3 after 1 + 1/8 + 1/16 s more."""
    found = played([(0.0, 4, 7), (0.0, 4, 4)], Meeting(1, 0, 0, 0.25), (1.0, 1.0), leap=leap)
    first = 1 + 1 + 0.5 + 0.0625
    second = first + 1 + 0.375 + 0.0625
    third = second + 1 + 0.125 + 0.0625
    assert found.tokens == {0: [first] + [second] * 3 + [third] * 3, 1: [first] + [second] * 3}
    rows = found.recorder.plan_rows()
    assert rows["others"].tolist() == [4, 4, 3, 3, 1]
    assert rows["others_requests"].tolist() == [1, 1, 1, 1, 1]
    assert rows["delivered"].tolist() == [0, 0, 3, 3, 3]


@pytest.mark.parametrize("seed", range(30))
def test_leaps_change_nothing(seed: int) -> None:
    """Ranks that overtake each other as contexts grow by chance, lines that bend, short memory."""
    draw = random.Random(seed)
    traffic: list[Arriving] = []
    now = 0.0
    for _ in range(24):
        now += draw.expovariate(0.5)
        traffic.append((now, draw.randint(1, 60), draw.randint(1, 50)))
    timer = Meeting(0.5, 0.25, 0.003, 0.125, bend=draw.choice([None, 40, 90]))
    rates = draw.choice([(0.7, 0.4), (0.5,), (1.0, 0.9, 0.1)])
    knobs = {"ranks": draw.choice([2, 3, 5]), "blocks": draw.choice([32, 100]), "seqs": 3}
    leaps, steps = (played(traffic, timer, rates, leap=leap, **knobs) for leap in (True, False))
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.recorder.request_rows().tobytes() == steps.recorder.request_rows().tobytes()
    assert sum(map(len, leaps.tokens.values())) == sum(row[2] for row in traffic)
    assert leaps.events < steps.events
    for rank in leaps.replicas:
        assert rank.outstanding == rank.scheduler.kv.reserved == 0


MTP = {
    **FEATURES["data-parallel"],
    "speculative": {"method": "mtp", "num_tokens": 3, "acceptance_rate": 0.7},
}


def test_a_layer_of_experts_drafts_on_all_ranks_together() -> None:
    """The first pass of the drafter meets the tokens of all ranks, the others one of each request;
    a dense head is copied, and meets nothing."""
    scenario = sim.load_scenario(changed(BASE, {**MTP, "fleet.gpu": "h100-sxm"}))
    (pool,) = prepare(scenario).pools
    drafted = pool.cost
    batch = Batch(4, 400)
    few, more, longer = (
        drafted.under(PassConditions(others, requests)).seconds(batch)
        for others, requests in ((16, 4), (16, 2048), (2048, 4))
    )
    assert few < more
    assert few < longer
    d = pool.deployment
    assert d.drafter is not None
    assert d.drafter.deployment.layout == Layout(data=2, expert=2)
    head = drafter_of(replace(d, speculation=None, drafter=None), "eagle")
    assert head is not None
    assert head.deployment.layout == Layout()
    given = replace(d.speculation, method="eagle")
    eagle = CostModel(replace(d, speculation=given, drafter=head))
    assert eagle.under(PassConditions(16, 4)).seconds(batch) == eagle.under(
        PassConditions(16, 2048)
    ).seconds(batch)


def test_operators_add_up_to_the_time_of_a_rank_beside_others() -> None:
    scenario = sim.load_scenario(changed(BASE, {**MTP, "fleet.gpu": "h100-sxm"}))
    (pool,) = prepare(scenario).pools
    cost = pool.cost
    batches = [Batch(4, 400), Batch(3, 900, (Part(40, 0),), 1), Batch(0, 0, (Part(64, 16),), 0)]
    others, requests = np.array([16, 70, 1]), np.array([4, 9, 1])
    columns = replace(
        cost.columns(batches),
        others=others,
        others_requests=requests,
        checked=np.full(3, 3),
        drafted=np.full(3, 3),
    )
    summed = sum(ran.each(ran.operator.seconds) for ran in cost.operators(columns, each=True))
    timed = [
        cost.under(PassConditions(*met)).seconds(batch)
        for batch, met in zip(batches, zip(others, requests, strict=True), strict=True)
    ]
    assert isinstance(columns, Batches)
    assert summed == pytest.approx(timed, rel=1e-9)


@pytest.mark.parametrize("ranks", ["data-parallel", "deepep", "cadence"])
def test_a_layer_of_experts_drafts_with_leaps_as_without(ranks: str) -> None:
    check_together(("mtp", ranks))
