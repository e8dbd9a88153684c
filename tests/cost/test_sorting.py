"""Top-k and top-p by a sort of all logits: its time, and where it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.sorting import NAME, sorting
from sim.deployments import with_drafts
from sim.errors import InfersimError
from sim.iteration import Batch

TIMED = {
    (64, 32_768): 0.370,
    (128, 32_768): 0.626,
    (512, 32_768): 1.694,
    (64, 131_072): 1.005,
    (128, 131_072): 2.318,
    (512, 131_072): 6.150,
}
"""ms by rows and logits of each, vLLM pull request 40376."""


def deployed(**changes: Any) -> Deployment:
    return Deployment(
        model=catalog.model("llama-3.1-8b"),
        gpu=catalog.gpu("h100-sxm"),
        engine=catalog.engine("vllm"),
        **changes,
    )


@pytest.mark.parametrize(("shape", "ms"), TIMED.items())
def test_published_timings(shape: tuple[int, int], ms: float) -> None:
    assert 1e3 * sorting(*shape, 132).seconds == pytest.approx(ms, rel=0.16)


def test_rows_of_their_own_take_longer() -> None:
    """From 128 rows on PyTorch sorts each by itself, which few rows do not fill a GPU with: 128 of
    them take 2.42 ms, all 127 before 1.84."""
    rows = np.array([0.0, 1.0, 127.0, 128.0, 256.0])
    found = np.asarray(sorting(rows, 131_072, 132).seconds)
    by_hand = [0, 0.16 + 0.01324, 0.16 + 1.68144, 0.16 + 2.25986, 0.16 + 2.96943]
    assert 1e3 * found == pytest.approx(by_hand, rel=1e-4)
    assert [float(sorting(each, 131_072, 132).seconds) for each in rows] == found.tolist()


def test_half_the_processors_take_twice_as_long() -> None:
    whole, half = (float(sorting(32, 50_000, sms).compute) for sms in (132, 66))
    assert half == 2 * whole


def test_a_decode_lasts_longer_by_the_sort() -> None:
    """64 rows of 128,256 logits: 0.16 ms, and 8.21 million at 9.9 a nanosecond."""
    batch = Batch(64, 64 * 500, ())
    greedy, sorts = (CostModel(deployed(sorts=each)) for each in (False, True))
    more = sorts.seconds(batch) - greedy.seconds(batch)
    assert more == pytest.approx(0.16e-3 + 64 * 128_256 / 9.9e9)
    names = [operator.name for operator in sorts.pass_operators(batch)]
    assert names.count(NAME) == 1
    assert NAME not in [operator.name for operator in greedy.pass_operators(batch)]


def test_drafts_are_not_sorted_for() -> None:
    """What drafts takes the likeliest token."""
    drafted = with_drafts(deployed(sorts=True), "eagle", [0.7, 0.5], None)
    assert drafted.speculation is not None
    assert drafted.drafter is not None
    assert drafted.sorts
    assert not drafted.drafter.deployment.sorts


def test_a_scenario_says_so() -> None:
    chat = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 10},
            "output_tokens": {"kind": "fixed", "value": 100},
        },
        "run": {"requests": 64},
    }
    plain, slow = (sim.simulate({**chat, "sampling": each}) for each in ("greedy", "sorted"))
    longer = slow.summary["mean_tpot_ms"] - plain.summary["mean_tpot_ms"]
    assert longer == pytest.approx(0.989, abs=1e-3)
    with pytest.raises(InfersimError, match="did you mean 'sorted'"):
        sim.load_scenario({**chat, "sampling": "sort"})
