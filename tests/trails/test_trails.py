"""What each request went through, read from the tables of a run: token times and slots."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.results.tables import TIMESERIES_COLUMNS
from sim.trails.iterations import Columns, Iterations
from sim.trails.slots import Placement, overlapping, placement
from sim.trails.tokens import token_times
from tests.harness import LineTimer, Played, play
from tests.loop.test_leaps import open_traffic, prices, schedulers
from tests.places import VLLM


def tables(played: Played) -> tuple[Columns, Columns]:
    """The columns of requests and plans, by the names they have in a run directory."""
    rows, plans = played.recorder.request_rows(), played.recorder.plan_rows()
    names = ("arrival", "scheduled", "first_token", "finish")
    requests = {f"{name}_s": rows[name] for name in names}
    requests |= {name: rows[name] for name in ("prompt_tokens", "output_tokens", "preemptions")}
    requests |= {"request_id": rows["id"], "replica": rows["replica"]}
    requests["generated_tokens"] = rows["generated"]
    return requests, {name: plans[column] for name, column in TIMESERIES_COLUMNS.items()}


def placement_of(requests: Columns, plans: Columns, replica: int = 0) -> Placement:
    rows = overlapping(requests, replica, 0.0, math.inf).tolist()
    until = float(plans["end_s"].max()) if len(plans["end_s"]) else 0.0
    return placement(requests, Iterations(plans, replica), rows, until)


@given(schedulers(), open_traffic, prices, st.booleans(), st.integers(1, 2))
def test_token_times_are_those_of_the_event_loop(
    make: Any, traffic: Any, price: LineTimer, leap: bool, replicas: int
) -> None:
    played = play(traffic, make, price, leap=leap, replicas=replicas)
    requests, plans = tables(played)
    served = {name: column[requests["finish_s"] >= 0] for name, column in requests.items()}
    found = list(token_times(served, plans))
    for row, (times, how) in enumerate(found):
        true = played.tokens[int(served["request_id"][row])]
        assert len(times) == len(true)
        assert (np.diff(times) >= 0).all()
        assert (times[0], times[-1]) == (true[0], true[-1])
        if how == "exact":
            assert times.tolist() == pytest.approx(true, rel=1e-12)
        else:
            own = Iterations(plans, int(served["replica"][row]))
            begun, over = own.between(times[0], times[-1])
            assert served["preemptions"][row] > 0 or own.passes[begun:over].any()


@given(schedulers(), open_traffic, prices)
def test_nobody_sits_on_anybody(make: Any, traffic: Any, price: LineTimer) -> None:
    requests, plans = tables(play(traffic, make, price, leap=True))
    found = placement_of(requests, plans)
    ends: dict[tuple[bool, int], float] = {}
    last: dict[int, float] = {}
    for stay in found.stays:
        place = (stay.in_slot, stay.lane)
        assert ends.get(place, 0.0) <= stay.start < stay.end
        ends[place] = stay.end
        assert stay.lane < (found.slots if stay.in_slot else found.lanes)
        edges = [edge for part in stay.parts for edge in (part.start, part.end)]
        assert edges == sorted(edges)
        assert (edges[0], edges[-1]) == (stay.start, stay.end)
        assert last.get(stay.row, stay.start) == stay.start  # no time of a request is left out
        last[stay.row] = stay.end
    if not (requests["preemptions"] > 0).any() and len(plans["running"]):
        assert found.slots <= plans["running"].max()
        assert found.vague == 0


def small(batching: str, **limits: Any) -> sim.Scenario:
    return sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": VLLM,
            "max_model_len": 256,
            "scheduler": {"batching": batching, "max_num_seqs": 2} | limits,
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "uniform", "low": 2, "high": 40},
            },
            "run": {"requests": 6, "warmup": 0},
        }
    )


def drawn(batching: str, **limits: Any) -> tuple[Placement, sim.Result]:
    result = sim.simulate(small(batching, **limits))
    requests, plans = (
        {str(name): frame[name].to_numpy() for name in frame}
        for frame in (result.requests, result.timeseries)
    )
    return placement_of(requests, plans), result


def test_continuous_batching_fills_a_seat_at_once() -> None:
    found, _ = drawn("continuous")
    in_slot = [stay for stay in found.stays if stay.in_slot]
    assert found.slots == 2
    assert len(in_slot) == 6
    for slot in range(2):
        mine = [stay for stay in in_slot if stay.lane == slot]
        assert all(a.end == b.start for a, b in itertools.pairwise(mine))


def test_a_static_batch_waits_for_its_longest() -> None:
    found, _ = drawn("static")
    in_slot = [stay for stay in found.stays if stay.in_slot]
    starts = sorted({stay.start for stay in in_slot})
    assert len(starts) == 3
    for begin, following in itertools.pairwise(starts):
        assert max(stay.end for stay in in_slot if stay.start == begin) == following


def test_prompts_are_drawn_chunk_by_chunk() -> None:
    found, _ = drawn("continuous", max_num_batched_tokens=48, max_num_seqs=1)
    first = next(stay for stay in found.stays if stay.in_slot)
    assert [(part.phase, part.tokens) for part in first.parts] == [
        *[("prefill", 48), ("prefill", 48), ("prefill", 4)],
        ("decode", 0),
    ]


def test_decodes_that_prompts_hold_up_are_stalled() -> None:
    found, result = drawn("continuous", policy="vllm-v0")
    alone = result.timeseries[(result.timeseries["prefill_seqs"] > 0)].iloc[1:]
    stalled = [part for stay in found.stays for part in stay.parts if part.phase == "stalled"]
    assert stalled
    for part in stalled:
        inside = (alone["start_s"] >= part.start) & (alone["end_s"] <= part.end)
        assert alone.loc[inside, "decode_seqs"].eq(0).all()
        assert inside.any()


def test_a_record_without_iterations_is_told_as_such() -> None:
    one = {name: np.array([0.0]) for name in ("replica", "request_id", "preemptions")}
    one |= {"arrival_s": np.array([1.0]), "scheduled_s": np.array([math.nan])}
    one |= {"first_token_s": np.array([2.0]), "finish_s": np.array([5.0])}
    one |= {name: np.array([4]) for name in ("prompt_tokens", "output_tokens", "generated_tokens")}
    none = {name: np.empty(0) for name in (*TIMESERIES_COLUMNS,)}
    assert [(t.tolist(), how) for t, how in token_times(one, none)] == [([2, 3, 4, 5], "even")]
    parts = [part for stay in placement_of(one, none).stays for part in stay.parts]
    assert [(part.phase, part.start, part.end) for part in parts] == [
        ("unknown", 1.0, 2.0),
        ("decode", 2.0, 5.0),
    ]
