"""What breaks an SLO first, rejections among the suspects, and how many requests would decide."""

from __future__ import annotations

import numpy as np
import pytest

from sim import simulate
from sim.metrics.latency.intervals import wilson
from sim.metrics.slo.objectives import (
    Judged,
    Objective,
    SeenShare,
    look,
    pooled,
    slo_objectives,
)
from sim.metrics.states import Unserved
from tests.planning_fixtures import small


def seen(*, late: int = 0, slow: int = 0, rejected: int = 0, of: int = 1000) -> SeenShare:
    """Of so many requests: late first tokens, slow further ones, rejected ones; evenly mixed."""
    kept = np.ones(of, dtype=bool)
    kept[np.linspace(0, of - 1, late + slow + rejected).astype(int)] = False
    within = {"ttft": 1 - (late + rejected) / of, "tpot": 1 - (slow + rejected) / of}
    unserved = {Unserved.REJECTED: rejected / of}
    return SeenShare(kept, {"ttft": 3.0, "tpot": 1.1}, within, unserved=unserved)


@pytest.mark.parametrize(
    ("run", "first"),
    [
        (seen(late=10, slow=60), "tpot"),  # though the p95 of TTFT is three times its limit
        (seen(late=60, slow=10), "ttft"),
        (seen(late=20, slow=100, rejected=60), Unserved.REJECTED),  # 6 % may not even miss 5 %
        (seen(late=15, slow=10, rejected=40), Unserved.REJECTED),
        (seen(late=10, slow=50, rejected=40), "tpot"),
        (seen(late=10, slow=2, rejected=30), "ttft"),  # kept: the limit that comes closest
    ],
)
def test_what_breaks_first_is_what_most_requests_miss(run: SeenShare, first: str) -> None:
    objective = Objective({"ttft": 0.5, "tpot": 0.04}, 0.95)
    assert pooled(objective, [run]).tightest == first


def test_rejections_of_a_run_are_told_from_latencies() -> None:
    asked = small(
        run__requests=400,
        run__warmup=0,
        workload__prompt_tokens={"kind": "uniform", "low": 10, "high": 1200},
    )
    (objective,) = slo_objectives(asked)
    run = simulate(asked)
    told = pooled(objective, [look(run.record, objective)])
    counts = run.summary["infersim"]["requests"]
    assert told.rejected == counts["rejected"] / 400 > 0.1
    assert told.hopeless
    assert told.tightest == Unserved.REJECTED
    wide = asked.override({"max_model_len": 2048})
    assert not pooled(objective, [look(simulate(wide).record, objective)]).rejected


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_the_strain_is_above_1_where_fewer_than_the_share_are_in_time(share: float) -> None:
    objective = Objective({"ttft": 0.5}, share)
    for of in (1, 2, 3, 7, 10, 15, 20, 99, 100, 101):
        for late in range(of + 1):
            ttft = {"ttft": np.repeat([0.4, 0.6], [of - late, late])}
            judged = Judged(ttft, ttft, np.ones(of, dtype=bool), {})
            found = judged.seen(objective)
            assert (found.strain > 1) == (of - late < share * of - 1e-9)
            assert found.pressure["ttft"] == found.strain


@pytest.mark.parametrize("missed", [15, 12, 10, 8, 6])
def test_so_many_requests_decide_nine_times_in_ten(missed: int) -> None:
    """The truth is drawn from what the first requests leave possible, the others from it."""
    objective = Objective({"ttft": 0.5, "tpot": 0.04}, 0.99)
    told = pooled(objective, [seen(slow=missed)])
    assert not told.sure
    assert told.to_decide is not None
    random = np.random.default_rng(1)
    more, decided, draws = told.to_decide - 1000, 0, 4000
    for truth in random.beta(missed + 0.5, 1000 - missed + 0.5, draws):
        kept = 1 - (missed + random.binomial(more, truth)) / told.to_decide
        low, high = wilson(kept, told.to_decide)
        decided += not low < 0.99 <= high
    assert 0.85 < decided / draws < 0.96


def test_what_is_decided_needs_no_more_requests() -> None:
    objective = Objective({"ttft": 0.5, "tpot": 0.04}, 0.99)
    assert pooled(objective, [seen(slow=100)]).to_decide is None
